//! Small traces of waits inside the kernel that hooks of their own report: moves between run queues, a full journal.
//! Answers are derived by hand. The client (thread 10, CPU 0) sends its request on pipe `A`, the server (thread 20, CPU
//! 1) answers on pipe `B`.

use rpcprobe::engine::event::{Block, FileId, Object, OpenCall, What, TYPE_FILE};
use rpcprobe::model::Segment;
use rpcprobe::records::{JOURNAL_CHECKPOINT, WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::golden::{a, asked, b, ASKED};
use super::story::*;

const NOISE: u32 = 90;
const MKDIR: u16 = 83;
const PWRITE: u16 = 18;

fn at(segments: &[Segment], start_ns: u64) -> (Option<u32>, Option<&str>) {
    let segment = segments.iter().find(|segment| segment.start_ns == start_ns);
    segment.map_or((None, None), |segment| (segment.cpu, segment.detail.as_deref()))
}

#[test]
fn a_move_between_run_queues_is_told_and_who_was_on_each() {
    let mut s = Story::new();
    asked(&mut s);
    // The server loses its CPU to noise, and is moved to the client's CPU, which has become idle.
    let (waited_ns, state, call) = (None, RUNNABLE, None);
    let (prev, next, preempt, iowait) = (20, NOISE, true, false);
    s.at(117, 1, What::Switch { prev, next, waited_ns, state, preempt, iowait, call });
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.at(124, 0, What::Migrate { tid: 20, from_cpu: 1, to_cpu: 0 });
    s.switch(126, 0, IDLE, 20, RUNNABLE);
    s.wake(135, 0, 20, 10, WAKING_IN_SYSCALL);
    s.write(0, 20, b(), (0, 4), (130, 140));
    // The client is woken on the other CPU. This is no move between run queues, since it was on none.
    s.switch(138, 1, NOISE, 10, ASLEEP);
    s.read(1, 10, b(), (0, 4), (115, 142));
    let rest = "
        113-117 server user
        117-124 server runqueue.preempted by noise/90
        124-126 server runqueue.preempted by idle
        126-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by noise/90
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
    let requests = s.requests();
    let (_, segments) = &requests[0];
    assert_eq!(at(segments, 117), (Some(1), None));
    let idle = "the CPU was idle: waking it up; moved from CPU 1";
    assert_eq!(at(segments, 124), (Some(0), Some(idle)));
    assert_eq!(at(segments, 135), (Some(1), Some("moved from CPU 0")));
}

/// The server waits from 119 to 130 in a call for a write to a device. `found_full_ns`: when it found the journal full,
/// if it did.
fn waited_for_a_write(nr: u16, found_full_ns: Option<u64>) -> (String, Option<String>) {
    let mut s = Story::new();
    asked(&mut s);
    if let Some(at_ns) = found_full_ns {
        let phase = JOURNAL_CHECKPOINT;
        s.at(at_ns, 1, What::Journal { tid: 20, dev: 7, transaction: 0, phase });
    }
    s.switch_in(119, 1, 20, IDLE, DISK, (nr, 115), None);
    let (queued_ns, issued_ns, done_ns) = (118, 122, 129);
    let block = Block {
        number: 1,
        queued_ns,
        issued_ns,
        done_ns,
        sector: 8,
        bytes: 1024,
        dev: 7,
        op: 1,
        tid: 20,
    };
    s.at(129, 0, What::Block(Box::new(block)));
    s.at(130, 0, What::Waking { waker: 10, wakee: 20, flags: WAKING_HARDIRQ, block: 1 });
    s.switch(132, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, nr, (115, 136), 0);
    s.write(1, 20, b(), (0, 4), (140, 145));
    s.read(0, 10, b(), (0, 4), (150, 153));
    let requests = s.requests();
    let detail = at(&requests[0].1, 122).1.map(str::to_string);
    (s.only(), detail)
}

#[test]
fn who_makes_room_in_a_full_journal_waits_for_the_journal() {
    let rest = "
        113-115 server user
        115-119 server kernel.vfs
        119-122 server WAIT
        122-129 server WAIT
        129-130 server WAIT
        130-132 server runqueue.wakeup by idle
        132-136 server kernel.vfs
        136-140 server user
        140-145 server kernel.pipe
        145-150 client queue.pipe (user)
        150-153 client kernel.pipe
    ";
    let wait = |category| expected(&[ASKED, &rest.replace("WAIT", category)].concat());
    let block = "write of 1024 bytes at sector 8 of 0:7, in mkdir";
    let room = format!("{block}, to make room in the full journal");
    // Whether this is recorded before the wait or after it, in the same call.
    for at_ns in [116, 134] {
        let answer = (wait("journal"), Some(room.clone()));
        assert_eq!(waited_for_a_write(MKDIR, Some(at_ns)), answer, "{at_ns}");
    }
    // In no call, or in another call.
    for at_ns in [None, Some(114), Some(139)] {
        let answer = (wait("block_io"), Some(block.to_string()));
        assert_eq!(waited_for_a_write(MKDIR, at_ns), answer, "{at_ns:?}");
    }
    // A task that writes may wait for its own data.
    let answer = (wait("block_io"), Some(block.replace("mkdir", "pwrite64")));
    assert_eq!(waited_for_a_write(PWRITE, Some(116)), answer);
}

/// The client's write lets pending softirqs run, and one of them wakes the server from its wait for a device. The
/// server still works for another request.
#[test]
fn a_device_that_is_done_in_the_middle_of_a_send_is_not_the_message() {
    let pread = 17;
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch_in(95, 1, 20, IDLE, DISK, (pread, 90), None);
    let flags = WAKING_SOFTIRQ | WAKING_IN_SYSCALL;
    s.at(105, 0, What::Waking { waker: 10, wakee: 20, flags, block: 1 });
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 4), (100, 110));
    s.call(1, 20, pread, (90, 113), 0);
    s.read(1, 20, a(), (0, 4), (130, 134));
    s.write(1, 20, b(), (0, 4), (140, 145));
    s.read(0, 10, b(), (0, 4), (150, 153));
    let answer = "
        100-110 client kernel.pipe
        110-130 server queue.pipe (user, kernel.vfs)
        130-134 server kernel.pipe
        134-140 server user
        140-145 server kernel.pipe
        145-150 client queue.pipe (user)
        150-153 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server reads two files: one that was open before, and one that it opens in between, under a new name.
#[test]
fn a_file_goes_by_the_name_it_was_opened_by_last() {
    let mut s = Story::new();
    let (first, second) = (FileId { dev: 7, ino: 1 }, FileId { dev: 7, ino: 2 });
    let object = |FileId { dev, ino }: FileId| Object { dev, ino, type_bits: TYPE_FILE };
    s.at(1, 1, What::File { file: first, path: "/before".into() });
    asked(&mut s);
    s.read(1, 20, object(first), (0, 9), (115, 117));
    s.read(1, 20, object(second), (0, 9), (117, 119));
    for (file, path, span) in [(second, "opened", (119, 121)), (first, "renamed", (123, 125))] {
        s.opened_file(1, 20, (file, path), span);
        s.read(1, 20, object(file), (0, 9), (span.1, span.1 + 2));
    }
    s.write(1, 20, b(), (0, 4), (130, 145));
    s.read(0, 10, b(), (0, 4), (150, 153));
    let requests = s.requests();
    let detail = |start_ns| at(&requests[0].1, start_ns).1;
    assert_eq!(detail(115), Some("read /before"));
    assert_eq!(detail(117), Some("read file:[2]"));
    assert_eq!((detail(119), detail(121)), (Some("openat opened"), Some("read opened")));
    assert_eq!((detail(123), detail(125)), (Some("openat renamed"), Some("read renamed")));
}

/// A server's thread enlarges the table of descriptors for a new socket, and another thread of its process (21) makes a
/// socket meanwhile. `rcu`: the kernel thread that ends the first wait; in a softirq, with these `flags`. Returns what is
/// told of each thread's wait.
fn two_make_sockets(rcu: &str, flags: u8) -> (String, String) {
    const SOCKET: u16 = 41;
    const RCU: u32 = 40;
    const OTHER: u32 = 12;
    let (c, d) = (pipe(3), pipe(4));
    let mut s = Story::new();
    s.at(0, 0, What::Task { tid: RCU, tgid: RCU, kthread: true, comm: rcu.into() });
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    // A second request for the other thread.
    s.task(OTHER, OTHER, "client");
    for (tid, cpu) in [(OTHER, 3), (21, 2)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(30, 2, (21, IDLE), (READ, 25), c);
    s.wake(82, 3, OTHER, 21, WAKING_IN_SYSCALL);
    s.write(3, OTHER, c, (0, 4), (80, 84));
    s.sleep_in(88, 3, (OTHER, IDLE), (READ, 86), d);
    s.switch(90, 2, IDLE, 21, RUNNABLE);
    s.read(2, 21, c, (0, 4), (25, 92));
    let waits = |s: &mut Story, ts_ns, cpu, tid, enter_ns| {
        let call = Some(OpenCall { nr: SOCKET, enter_ns, object: None, fd: -1 });
        let (prev, next, state, waited_ns) = (tid, IDLE, DISK, None);
        let (preempt, iowait) = (false, false);
        s.at(ts_ns, cpu, What::Switch { prev, next, waited_ns, state, preempt, iowait, call });
    };
    waits(&mut s, 125, 1, 20, 122);
    waits(&mut s, 135, 2, 21, 130);
    s.switch(150, 3, IDLE, RCU, RUNNABLE);
    s.wake(152, 3, RCU, 20, flags);
    s.switch(154, 3, RCU, IDLE, ASLEEP);
    s.switch(155, 1, IDLE, 20, RUNNABLE);
    s.wake(158, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, SOCKET, (122, 160), 5);
    s.switch(161, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, SOCKET, (130, 163), 6);
    s.wake(172, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (170, 175));
    s.switch(174, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 178));
    s.wake(182, 2, 21, OTHER, WAKING_IN_SYSCALL);
    s.write(2, 21, d, (0, 4), (180, 185));
    s.switch(184, 3, IDLE, OTHER, RUNNABLE);
    s.read(3, OTHER, d, (0, 4), (86, 188));
    let requests = s.requests();
    let told = |begin_ns: u64| {
        let (_, segments) = requests.iter().find(|(of, _)| of.start_ns == begin_ns).expect("it");
        let waited = segments.iter().find(|of| (of.start_ns..of.end_ns()).contains(&140));
        let waited = waited.expect("a segment");
        let detail = waited.detail.as_deref().unwrap_or_default();
        let by = waited.by.as_ref().map_or("nobody".to_owned(), |by| by.to_string());
        format!("{} {} by {by}: {detail}", waited.category, waited.evidence)
    };
    (told(100), told(80))
}

#[test]
fn a_growing_table_of_descriptors_waits_for_a_grace_period() {
    let why = "an RCU grace period, as to enlarge the table of descriptors, in socket";
    let softirqs =
        [WAKING_SOFTIRQ, WAKING_SOFTIRQ | WAKING_IN_SYSCALL].map(|flags| ("noise", flags));
    for (thread, flags) in [("rcu_preempt", 0), ("rcuop/3", 0)].into_iter().chain(softirqs) {
        let by = if flags == 0 { format!("{thread}/40") } else { "nobody".to_owned() };
        let (first, second) = two_make_sockets(thread, flags);
        assert_eq!(first, format!("lock modelled by {by}: {why}"), "{thread}");
        let waits = format!("lock modelled by server/20: another thread waited for {why}");
        assert_eq!(second, waits, "{thread}");
    }
    let (first, second) = two_make_sockets("kworker", 0);
    assert!(first.starts_with("unattributed measured"), "{first}");
    assert!(second.starts_with("unattributed measured"), "{second}");
}
