//! One request for each way to wait: the capture must say what it waited for.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::process::Stdio;

use common::capture::{time_in, Capture};
use common::{needs_kernel, peer_in_c, text};
use rpcprobe::attribute::EVENTS;
use rpcprobe::capture::reader::Reader;
use rpcprobe::engine::decode::decode;
use rpcprobe::engine::event::What;
use rpcprobe::model::{Category, Kind, Rule, Segment};

/// Number of captures tried: on some kernels a wake-up leaves no record now and then.
const CAPTURES: usize = 5;

/// By letter of the program: the categories that take at least nine tenths of the request's time outside the run queue.
fn expected(letter: char) -> &'static [&'static str] {
    match letter {
        // A sleep; a timer's descriptor in read(), poll() and epoll_wait(); timeouts of poll() and of a futex.
        'n' | 't' | 'T' | 'E' | 'p' | 'z' => &["sleep"],
        // A mutex, a rwlock, a PI mutex and a kernel lock, each held by another thread.
        'm' | 'r' | 'i' | 'k' => &["lock"],
        // Work of another thread, handed back through a signalfd, an eventfd, a pipe in poll(), epoll_wait() and
        // select(), a condition variable, or a semaphore; and work of a child process.
        's' | 'e' | 'v' | 'f' | 'S' | 'c' | 'h' | 'w' | 'W' => &["user", "kernel.", "fault"],
        _ => panic!("{letter}"),
    }
}

#[test]
fn every_way_to_wait_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("waits_pair.c");
    assert!(
        (0..CAPTURES).any(|_| told(&program)),
        "wake-ups unseen in each of {CAPTURES} captures"
    );
}

/// Whether at most 0.5 % is unattributed. If the kernel reported all wake-ups, it must be.
fn told(program: &str) -> bool {
    let command = [program, "6"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Pipe);
    requests.sort_by_key(|(request, _)| request.start_ns);
    let said = text(&capture.output.stdout);
    let letters: Vec<char> = said.trim().chars().collect();
    assert_eq!(requests.len(), letters.len(), "{requests:#?}");
    let mut unattributed_ns = 0;
    let mut right: BTreeMap<char, usize> = letters.iter().map(|letter| (*letter, 0)).collect();
    for ((request, segments), letter) in requests.iter().zip(&letters) {
        assert!(request.complete, "{letter}: {request:?}");
        // Waits for a CPU, whoever had it. If a thread that works for the request had it, its work stands in place of
        // the wait.
        let queued = |s: &&Segment| {
            s.category.name().starts_with("runqueue") || s.rule == Some(Rule::Helper)
        };
        let queued_ns: u64 = segments.iter().filter(queued).map(|s| s.duration_ns).sum();
        let of = |name: &str| expected(*letter).iter().any(|prefix| name.starts_with(prefix));
        let its_own = segments.iter().filter(|s| of(s.category.name()));
        let its_own_ns: u64 = its_own.map(|s| s.duration_ns).sum();
        if its_own_ns * 10 >= (request.latency_ns - queued_ns) * 9 && its_own_ns > 4_500_000 {
            *right.get_mut(letter).expect("all letters") += 1;
        } else {
            println!("{letter}: {request:?} {segments:#?}");
        }
        unattributed_ns += time_in(Category::Unattributed, segments);
    }
    // On a busy machine a lock may be released before its waiter gets a CPU to ask for it.
    let wrong: Vec<_> = right.iter().filter(|(_, times)| **times < 4).collect();
    assert!(wrong.is_empty(), "less than four times of six: {wrong:?}");
    let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
    let explained = unattributed_ns * 200 <= all_ns;
    // Of a wake-up without a record only the time is known. Another capture is made then.
    let unseen = capture.manifest().counts.wakes_restored;
    assert!(explained || unseen > 0, "{unattributed_ns} of {all_ns} ns unattributed");
    explained
}

/// The server waits behind a thread that computes on its CPU, then its client moves it to its own CPU. The segments
/// must name both run queues, the thread in front, and the CPU that the server came from.
#[test]
fn a_wait_for_a_cpu_tells_on_which_queue_it_was_behind_whom_and_where_it_was_before() {
    let Some(_turn) = needs_kernel() else { return };
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: a thread cannot be moved to another CPU where there is but one");
        return;
    }
    let (_directory, program) = peer_in_c("queue_pair.c");
    let capture = Capture::of(&[], &[&program, "20"], Stdio::null()).succeeded();
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Pipe);
    assert_eq!(requests.len(), 20);
    let told = requests.iter().filter(|(_, segments)| {
        let mut queues = segments.iter().filter(|s| s.category == Category::RunqueueWakeup);
        let behind = queues.by_ref().find(|s| s.cpu == Some(0) && s.duration_ns > 500_000);
        let by = behind.and_then(|s| s.by.as_ref());
        let moved = queues.next().filter(|s| s.cpu == Some(1));
        let from = moved.and_then(|s| s.detail.as_deref());
        by.is_some_and(|by| &*by.comm == "peer")
            && from.is_some_and(|detail| detail.ends_with("moved from CPU 0"))
    });
    let told = told.count();
    // Now and then the server gets a share of its CPU before it is moved.
    assert!(told >= 10, "{told} of 20: {requests:#?}");
}

const TASK_UNINTERRUPTIBLE: u16 = 2; // include/linux/sched.h

/// The scheduler's own locks, and the lock inside each semaphore, are taken during a wait for the semaphore. The
/// recorded wait for the semaphore must not end with them.
#[test]
fn a_wait_for_a_kernel_lock_does_not_end_with_that_for_another_inside_it() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("convoy.c");
    let capture = Capture::of(&[], &[&program, "16", "1000"], Stdio::null()).succeeded();
    let mut events =
        Reader::new(BufReader::new(File::open(capture.file(EVENTS)).unwrap()), false).unwrap();
    // Per thread: start of the current sleep in a write; and (start, end) of sleeps that no recorded lock wait covers
    // yet.
    let mut asleep: HashMap<u32, u64> = HashMap::new();
    let mut untold: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    let (mut sleeps, mut alone) = (0, 0);
    while let Some(item) = events.next_record().unwrap() {
        let Some(event) = decode(item.cpu, item.record).unwrap() else { continue };
        match event.what {
            What::Switch { prev, next, state, call, .. } => {
                let writes = call.is_some_and(|call| i64::from(call.nr) == libc::SYS_pwrite64);
                if writes && state == TASK_UNINTERRUPTIBLE {
                    asleep.insert(prev, event.ts_ns);
                }
                if let Some(from_ns) = asleep.remove(&next) {
                    untold.entry(next).or_default().push((from_ns, event.ts_ns));
                    sleeps += 1;
                }
            }
            // On some kernels a switch leaves no record now and then; the scheduler's own times are recorded later.
            What::UnseenSwitch { tid, arrived_ns, .. } => {
                if let Some(from_ns) = asleep.remove(&tid) {
                    untold.entry(tid).or_default().push((from_ns, arrived_ns));
                    sleeps += 1;
                }
            }
            What::Contention { tid, enter_ns, .. } => {
                let of_thread = untold.entry(tid).or_default();
                of_thread.retain(|(from_ns, to_ns)| *from_ns < enter_ns || *to_ns > event.ts_ns);
            }
            // A sleep that is still not covered at the end of its call had no recorded lock wait.
            What::Call { tid, .. } => {
                alone += untold.remove(&tid).map_or(0, |sleeps| sleeps.len());
            }
            _ => {}
        }
    }
    assert!(sleeps > 50, "{sleeps}");
    assert_eq!(alone, 0, "of {sleeps} sleeps for the file's semaphore");
}
