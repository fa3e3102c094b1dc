//! Measures what the probe costs on this machine: a child process times small workloads, first without and then with
//! the probe attached. The workloads are short (tens of milliseconds), so the figures are estimates. The best of many
//! short rounds is taken: interference only ever adds time, and a short round on a busy machine has a chance to escape
//! it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use libbpf_rs::Link;

use super::rings::Rings;
use super::{runtimes, Probe};
use crate::capture::manifest::Calibration;
use crate::records::{read, RecFault, RecHdr, RecSyscall, REC_FAULT, REC_SYSCALL};

const ROUNDS: u32 = 40;

/// Nanoseconds per unit of each workload.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    syscall: f64,
    /// A round trip of one byte over two pipes between two processes on one CPU.
    round_trip: f64,
    /// The number of round trips.
    round_trips: f64,
    fault: f64,
    copied: Copied,
    socket_copied: Copied,
    /// A call of a function that hooks of `--tasks` can be put on.
    hooked: f64,
}

/// The time to move bytes, one way.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    /// A call that moves one byte.
    call: f64,
    /// Each further byte.
    byte: f64,
}

const FIGURES_BYTES: usize = 72;

impl Figures {
    fn to_bytes(self) -> [u8; FIGURES_BYTES] {
        let mut bytes = [0; FIGURES_BYTES];
        let Figures { syscall, round_trip, round_trips, fault, copied, socket_copied, hooked } =
            self;
        let values = [
            syscall,
            round_trip,
            round_trips,
            fault,
            copied.call,
            copied.byte,
            socket_copied.call,
            socket_copied.byte,
            hooked,
        ];
        for (chunk, value) in bytes.chunks_exact_mut(8).zip(values) {
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; FIGURES_BYTES]) -> Figures {
        let value = |i: usize| f64::from_ne_bytes(bytes[8 * i..8 * i + 8].try_into().expect("8"));
        Figures {
            syscall: value(0),
            round_trip: value(1),
            round_trips: value(2),
            fault: value(3),
            copied: Copied { call: value(4), byte: value(5) },
            socket_copied: Copied { call: value(6), byte: value(7) },
            hooked: value(8),
        }
    }
}

/// The child that runs the workloads.
pub struct Calibrator {
    pid: libc::pid_t,
    ask: File,
    answer: File,
    plain: Figures,
}

impl Calibrator {
    /// Starts the child and times the workloads without the probe. Call before attaching, and
    /// while the process has one thread.
    pub fn start() -> Result<Calibrator> {
        let (ask_read, ask_write) = pipe()?;
        let (answer_read, answer_write) = pipe()?;
        // SAFETY: the process has one thread, so the child may do anything.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot fork");
        }
        if pid == 0 {
            drop((ask_write, answer_read));
            let _ = serve(File::from(ask_read), File::from(answer_write));
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) };
        }
        let mut calibrator = Calibrator {
            pid,
            ask: File::from(ask_write),
            answer: File::from(answer_read),
            plain: Figures::default(),
        };
        calibrator.plain = calibrator.ask(EVERYTHING, || ())?;
        Ok(calibrator)
    }

    /// Times the workloads with the probe attached. Returns the difference, and the figures that come only from the
    /// records of these workloads. All records are taken out of the rings as they come, because small rings overrun.
    ///
    /// The flag: whether there were too few records, so that some figure is not known.
    ///
    /// With `breakpoints`, also measures what a breakpoint in a program costs, and a watchpoint.
    pub fn compare(
        mut self,
        probe: &Probe,
        rings: &Rings,
        breakpoints: bool,
    ) -> Result<(Calibration, bool)> {
        probe.trace(self.pid as u32)?;
        let mut gaps = Gaps::of(self.pid as u32);
        let traced = self.ask(EVERYTHING, || gaps.see_all(rings))?;
        // If this process had no CPU meanwhile, small rings ran full.
        for _ in 0..MOST_REPEATS {
            if !gaps.are_too_few() {
                break;
            }
            self.ask(GAPS, || gaps.see_all(rings))?;
        }
        let (_, before) = probe.program_runs()?;
        let trips = self.ask(ROUND_TRIPS, || gaps.see_all(rings))?;
        let (_, after) = probe.program_runs()?;
        let runs = after.since(before);
        let (mut breakpoint_ns, mut watchpoint_ns) = (0.0, 0.0);
        if breakpoints {
            let ours = |_| runtimes::hook_our_own(probe);
            breakpoint_ns = self.caused(BREAKPOINTS, ours, || gaps.see_all(rings))?;
            // Not every machine has watchpoints.
            let ours = |pid| runtimes::watch_our_own(probe, pid);
            watchpoint_ns = self.caused(WATCHPOINTS, ours, || gaps.see_all(rings)).unwrap_or(0.0);
        }
        let plain = self.plain;
        let trip_runs = runs.runs as f64 / trips.round_trips;
        let added_ns = (trips.round_trip - plain.round_trip).max(0.0);
        let syscall_ns = (traced.syscall - plain.syscall).max(0.0);
        let around_run_ns = (added_ns / trip_runs.max(1.0) - runs.mean_ns()).max(0.0);
        let io_call_ns = (traced.copied.call - plain.copied.call).max(0.0);
        // A round trip is two switches, two wake-ups and four system calls.
        let round_trip_ns = (traced.round_trip - plain.round_trip).max(0.0);
        let calibration = Calibration {
            syscall_ns,
            run_ns: runs.mean_ns(),
            around_run_ns,
            breakpoint_ns,
            watchpoint_ns,
            switch_ns: ((round_trip_ns - 4.0 * io_call_ns) / 2.0).max(0.0),
            fault_ns: (traced.fault - plain.fault).max(0.0),
            copy_ns_per_byte: plain.copied.byte,
            // Inside the call.
            transfer_ns: (plain.copied.call - plain.syscall).max(0.0),
            socket_copy_ns_per_byte: plain.socket_copied.byte,
            socket_transfer_ns: (plain.socket_copied.call - plain.syscall).max(0.0),
            ..Calibration::default()
        };
        let too_few = gaps.are_too_few();
        Ok((gaps.complete(calibration), too_few))
    }

    /// Measures what a breakpoint or a watchpoint in a program adds, besides the run of our BPF program. A second hook
    /// in the same place shows the time of that run, because both hooks share one exception.
    fn caused(
        &mut self,
        what: u8,
        hook: impl Fn(u32) -> Result<Link>,
        mut meanwhile: impl FnMut(),
    ) -> Result<f64> {
        let pid = self.pid as u32;
        let plain = self.ask(what, &mut meanwhile)?.hooked;
        let first = hook(pid)?;
        let once = self.ask(what, &mut meanwhile)?.hooked;
        let second = hook(pid)?;
        let twice = self.ask(what, meanwhile)?.hooked;
        drop((first, second));
        let run_ns = (twice - once).max(0.0);
        Ok((once - plain - run_ns).max(0.0))
    }

    /// Has the child time something, and calls `meanwhile` again and again until that is done.
    fn ask(&mut self, what: u8, mut meanwhile: impl FnMut()) -> Result<Figures> {
        self.ask.write_all(&[what])?;
        while !self.has_answered()? {
            meanwhile();
        }
        let figures = self.answer()?;
        meanwhile();
        Ok(figures)
    }

    /// Waits for the child's answer for at most a millisecond.
    fn has_answered(&self) -> Result<bool> {
        const PATIENCE_MS: libc::c_int = 1;
        let mut poll =
            libc::pollfd { fd: self.answer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, alive for the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE_MS) };
        let error = std::io::Error::last_os_error();
        if ready < 0 && error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for the calibration child");
        }
        Ok(ready > 0)
    }

    fn answer(&mut self) -> Result<Figures> {
        let mut bytes = [0; FIGURES_BYTES];
        self.answer.read_exact(&mut bytes).context("the calibration child died")?;
        Ok(Figures::from_bytes(bytes))
    }
}

impl Drop for Calibrator {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Times between the faults and between the system calls of the calibration child, from its records.
#[derive(Default)]
struct Gaps {
    tid: u32,
    /// End and page of the last fault.
    last_fault: Option<(u64, u64)>,
    between_faults_ns: Vec<u64>,
    /// Of the same faults, from their recorded beginning to their end.
    inside_faults_ns: Vec<u64>,
    /// Exit of the last system call, if that was the one that does nothing.
    last_call_ns: Option<u64>,
    between_calls_ns: Vec<u64>,
}

/// How often the workload for gaps is repeated at most.
const MOST_REPEATS: u32 = 8;
/// Fewer gaps give no figure.
const LEAST_GAPS: usize = 100;

impl Gaps {
    fn of(tid: u32) -> Gaps {
        Gaps { tid, ..Gaps::default() }
    }

    /// Takes all records out of the rings.
    fn see_all(&mut self, rings: &Rings) {
        let taken: Result<(), std::convert::Infallible> =
            rings.drain(|_, record| self.see(record), |_, _| Ok(()));
        let Ok(()) = taken;
    }

    /// Takes a record into account, if it is of the child's.
    fn see(&mut self, record: &[u8]) {
        let Some((hdr, _)) = read::<RecHdr>(record) else { return };
        if hdr.tid != self.tid {
            return;
        }
        let call = std::mem::take(&mut self.last_call_ns);
        if let (REC_FAULT, Some((fault, _))) = (hdr.kind, read::<RecFault>(record)) {
            let page = fault.address / PAGE_BYTES as u64;
            if let Some((end_ns, former)) = self.last_fault {
                // Only then was nothing but the loop in between.
                if page == former + 1 && fault.enter_ns > end_ns {
                    self.between_faults_ns.push(fault.enter_ns - end_ns);
                    self.inside_faults_ns.push(hdr.ts_ns.saturating_sub(fault.enter_ns));
                }
            }
            self.last_fault = Some((hdr.ts_ns, page));
        }
        if let (REC_SYSCALL, Some((now, _))) = (hdr.kind, read::<RecSyscall>(record)) {
            if i64::from(hdr.aux) != libc::SYS_getppid {
                return;
            }
            self.between_calls_ns.extend(call.and_then(|ns| now.enter_ns.checked_sub(ns)));
            self.last_call_ns = Some(hdr.ts_ns);
        }
    }

    /// Whether some median is not known. (Some kernels lack the hook for faults.)
    fn are_too_few(&self) -> bool {
        let faults = self.last_fault.is_some() && self.between_faults_ns.len() < LEAST_GAPS;
        faults || self.between_calls_ns.len() < LEAST_GAPS
    }

    /// Completes the calibration by the medians; 0 when too few records came.
    fn complete(self, calibration: Calibration) -> Calibration {
        Calibration {
            fault_outside_ns: median_ns(self.between_faults_ns),
            fault_inside_ns: median_ns(self.inside_faults_ns),
            call_outside_ns: median_ns(self.between_calls_ns),
            ..calibration
        }
    }
}

fn median_ns(mut gaps_ns: Vec<u64>) -> f64 {
    if gaps_ns.len() < LEAST_GAPS {
        return 0.0;
    }
    let middle = gaps_ns.len() / 2;
    *gaps_ns.select_nth_unstable(middle).1 as f64
}

const PAGE_BYTES: usize = 4096;

/// What the child is asked to time.
const EVERYTHING: u8 = 1;
const ROUND_TRIPS: u8 = 2;
/// System calls and faults.
const GAPS: u8 = 3;
/// Calls of a function that is hooked, or not.
const BREAKPOINTS: u8 = 4;
/// Writes to a word that is watched, or not.
const WATCHPOINTS: u8 = 5;

fn serve(mut ask: File, mut answer: File) -> Result<()> {
    let mut byte = [0];
    while ask.read(&mut byte)? == 1 {
        let mut figures = Figures::default();
        if byte[0] == BREAKPOINTS || byte[0] == WATCHPOINTS {
            let hooked = if byte[0] == BREAKPOINTS { time_hooked } else { time_watched };
            figures.hooked = best(hooked)?;
            answer.write_all(&figures.to_bytes())?;
            continue;
        }
        if byte[0] != GAPS {
            (figures.round_trip, figures.round_trips) = time_round_trips()?;
        }
        if byte[0] != ROUND_TRIPS {
            figures.syscall = best(time_syscalls)?;
            figures.fault = best(time_faults)?;
        }
        if byte[0] == EVERYTHING {
            figures.copied = time_copies(pipe)?;
            figures.socket_copied = time_copies(socket_pair)?;
        }
        answer.write_all(&figures.to_bytes())?;
    }
    Ok(())
}

fn best(mut workload: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        least = least.min(workload()?);
    }
    Ok(least)
}

fn nanoseconds_each(since: Instant, count: usize) -> f64 {
    since.elapsed().as_nanos() as f64 / count as f64
}

fn time_syscalls() -> Result<f64> {
    const CALLS: usize = 500;
    let begin = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: getppid has no arguments and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    Ok(nanoseconds_each(begin, CALLS))
}

fn time_hooked() -> Result<f64> {
    const CALLS: usize = 200;
    let begin = Instant::now();
    (0..CALLS).for_each(|_| runtimes::our_own());
    Ok(nanoseconds_each(begin, CALLS))
}

fn time_watched() -> Result<f64> {
    const WRITES: usize = 100;
    let begin = Instant::now();
    (0..WRITES).for_each(|number| runtimes::write_our_own(number as u32));
    Ok(nanoseconds_each(begin, WRITES))
}

fn time_faults() -> Result<f64> {
    const PAGES: usize = 64;
    // SAFETY: a private anonymous mapping of our own, touched within its bounds, then unmapped.
    unsafe {
        let length = PAGES * PAGE_BYTES;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        if base == libc::MAP_FAILED {
            bail!("cannot map memory");
        }
        // Huge pages would make one fault of many.
        libc::madvise(base, length, libc::MADV_NOHUGEPAGE);
        let begin = Instant::now();
        for page in 0..PAGES {
            base.cast::<u8>().add(page * PAGE_BYTES).write_volatile(1);
        }
        let each = nanoseconds_each(begin, PAGES);
        libc::munmap(base, length);
        Ok(each)
    }
}

/// Times copies through a pipe or a pair of Unix sockets. They go through a part of the user's memory far larger than
/// the nearest caches, as large messages do: only their copying matters.
fn time_copies(ends: fn() -> Result<(OwnedFd, OwnedFd)>) -> Result<Copied> {
    const CHUNK_BYTES: usize = 32 << 10;
    let mut memory = vec![1; 1 << 20];
    // The best of each, not the least difference: that would pair a long transfer with a disturbed short one.
    let short = best(|| time_transfer(ends, memory.chunks_exact_mut(CHUNK_BYTES), 1))?;
    let long = best(|| time_transfer(ends, memory.chunks_exact_mut(CHUNK_BYTES), CHUNK_BYTES))?;
    let byte = (long - short).max(0.0) / (2 * (CHUNK_BYTES - 1)) as f64;
    Ok(Copied { call: short / 2.0, byte })
}

/// Moves `bytes` bytes of each chunk in and out.
fn time_transfer<'m>(
    ends: fn() -> Result<(OwnedFd, OwnedFd)>,
    chunks: impl ExactSizeIterator<Item = &'m mut [u8]>,
    bytes: usize,
) -> Result<f64> {
    let (read_end, write_end) = ends()?;
    let (mut reader, mut writer) = (File::from(read_end), File::from(write_end));
    let count = chunks.len();
    let begin = Instant::now();
    for chunk in chunks {
        writer.write_all(&chunk[..bytes])?;
        reader.read_exact(&mut chunk[..bytes])?;
    }
    Ok(nanoseconds_each(begin, count))
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let (one, other) = UnixStream::pair().context("cannot make a pair of sockets")?;
    Ok((one.into(), other.into()))
}

/// The best time, once two tries agree on it. If something else runs on the same core during a whole try, all rounds of
/// the try are slow, so much that little is left of a difference.
fn best_twice(mut workload: impl FnMut() -> Result<f64>) -> Result<f64> {
    const MOST_TRIES: usize = 8;
    const AGREE: f64 = 1.02;
    let (mut least, mut second) = (best(&mut workload)?, f64::INFINITY);
    for _ in 1..MOST_TRIES {
        if second <= least * AGREE {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        let again = best(&mut workload)?;
        second = second.min(least.max(again));
        least = least.min(again);
    }
    Ok(least)
}

/// The time of one round trip, and how many were made.
fn time_round_trips() -> Result<(f64, f64)> {
    const TRIPS: u32 = 50;
    let (request_read, request_write) = pipe()?;
    let (reply_read, reply_write) = pipe()?;
    let all_cpus = pin_here()?;
    // SAFETY: this process (the calibration child) has one thread.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(std::io::Error::last_os_error()).context("cannot fork");
    }
    if pid == 0 {
        drop((request_write, reply_read));
        let (mut input, mut output) = (File::from(request_read), File::from(reply_write));
        let mut byte = [0];
        while matches!(input.read(&mut byte), Ok(1)) && output.write_all(&byte).is_ok() {}
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    drop((request_read, reply_write));
    let (mut output, mut input) = (File::from(request_write), File::from(reply_read));
    let mut byte = [1];
    let mut made = 0;
    let mut trips = |count: u32| -> Result<f64> {
        made += count;
        let begin = Instant::now();
        for _ in 0..count {
            output.write_all(&byte)?;
            input.read_exact(&mut byte)?;
        }
        Ok(nanoseconds_each(begin, count as usize))
    };
    trips(20)?; // warm up
    let each = best_twice(|| trips(TRIPS));
    drop(output);
    // SAFETY: our own child; the mask is the one saved by pin_here().
    unsafe {
        libc::waitpid(pid, std::ptr::null_mut(), 0);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &all_cpus);
    }
    Ok((each?, f64::from(made)))
}

/// Pins this process to the CPU it is on; returns the former mask.
fn pin_here() -> Result<libc::cpu_set_t> {
    // SAFETY: both masks are valid cpu_set_t of the size stated; sched_getcpu has no arguments.
    unsafe {
        let mut former: libc::cpu_set_t = std::mem::zeroed();
        let mut here: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut former) != 0 {
            return Err(std::io::Error::last_os_error()).context("sched_getaffinity");
        }
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &here) != 0 {
            return Err(std::io::Error::last_os_error()).context("sched_setaffinity");
        }
        Ok(former)
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors, which nobody else owns.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot make a pipe");
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn the_time_outside_a_fault_is_the_median_gap_of_neighbouring_pages() {
        let fault = |tid, page: u64, enter_ns, end_ns| {
            let hdr = RecHdr { ts_ns: end_ns, tid, kind: REC_FAULT, flags: 0, aux: 0 };
            let address = page * PAGE_BYTES as u64 + 7;
            RecFault { hdr, enter_ns, address, ip: 0 }.as_bytes().to_vec()
        };
        let mut gaps = Gaps::of(5);
        for page in 0..LEAST_GAPS as u64 {
            let at_ns = 1000 * page;
            gaps.see(&fault(5, page, at_ns, at_ns + 400));
            gaps.see(&fault(6, page, at_ns + 500, at_ns + 501)); // another thread
        }
        gaps.see(&fault(5, 900, 900_000, 900_001)); // not the next page
        gaps.see(&[0; 3]);
        assert_eq!(gaps.between_faults_ns, vec![600; LEAST_GAPS - 1]);
        assert_eq!(gaps.inside_faults_ns, vec![400; LEAST_GAPS - 1]);
        assert_eq!(gaps.complete(Calibration::default()), Calibration::default(), "too few");
        assert_eq!(median_ns(vec![600; 100]), 600.0);
    }

    #[test]
    fn the_time_outside_a_call_is_the_median_gap_of_those_that_do_nothing() {
        let call = |tid, nr: i64, enter_ns, exit_ns| {
            let aux = nr as u16;
            let hdr = RecHdr { ts_ns: exit_ns, tid, kind: REC_SYSCALL, flags: 0, aux };
            RecSyscall { hdr, enter_ns, ret: 0 }.as_bytes().to_vec()
        };
        let mut gaps = Gaps::of(5);
        for i in 0..=100 {
            let nothing = libc::SYS_getppid;
            gaps.see(&call(5, nothing, 1000 * i, 1000 * i + 50));
            gaps.see(&call(6, nothing, 1000 * i + 60, 1000 * i + 70)); // another thread
        }
        gaps.see(&call(5, libc::SYS_munmap, 200_000, 200_010));
        gaps.see(&call(5, libc::SYS_getppid, 200_020, 200_030)); // after another
        assert_eq!(gaps.between_calls_ns, vec![950; 100]);
        let told = Calibration { call_outside_ns: 950.0, ..Calibration::default() };
        assert_eq!(gaps.complete(Calibration::default()), told);
    }

    #[test]
    fn workloads_give_plausible_figures() {
        assert!(time_syscalls().unwrap() > 1.0);
        assert!(time_faults().unwrap() > 1.0);
        for ends in [pipe, socket_pair] {
            let copied = time_copies(ends).unwrap();
            assert!(copied.byte > 0.0 && copied.byte < 100.0, "{copied:?}");
            assert!(copied.call > 0.0, "{copied:?}");
        }
    }
}
