//! Small traces with kernel functions that are hooked directly (`--direct-hooks`), with answers derived by hand. The
//! client (thread 10, CPU 0) sends its request on pipe `A`, the server (thread 20, CPU 1) answers on pipe `B`.

use rpcprobe::engine::event::{Function, KernelWait, Transport, What, TYPE_TCP};
use rpcprobe::engine::Rates;
use rpcprobe::model::{Category, Evidence, Segment};
use rpcprobe::records::{FAULT_KERNEL, WAKING_IN_SYSCALL};

use super::golden::{a, asked, b, ASKED};
use super::story::*;

const FSYNC: u16 = 74;
const MKDIR: u16 = 83;
/// The journal's thread.
const JBD2: u32 = 60;
/// `enum journal_phase`
const JOURNAL_START: u16 = 1;
const JOURNAL_END: u16 = 5;

fn at(segments: &[Segment], start_ns: u64) -> &Segment {
    let found = segments.iter().find(|segment| segment.start_ns == start_ns);
    found.unwrap_or_else(|| panic!("nothing begins at {start_ns}:\n{}", table(segments)))
}

/// Recorded copies are measured. The rate alone would give 2 ns for each of the four copies.
#[test]
fn copies_that_are_seen_are_measured() {
    let mut s = Story::new();
    asked(&mut s);
    s.function(0, 10, (Function::Copy, 4), (101, 104));
    s.function(1, 20, (Function::Copy, 4), (110, 112));
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    // A page of the answer is not present yet. This interruption is not copying.
    s.at(128, 1, What::Fault { tid: 20, enter_ns: 127, ip: 0, flags: FAULT_KERNEL });
    s.function(1, 20, (Function::Copy, 4), (126, 130));
    s.wake(132, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (125, 133));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.function(0, 10, (Function::Copy, 4), (139, 141));
    s.read(0, 10, b(), (0, 4), (115, 142));
    let answer = "
        100-101 client kernel.pipe
        101-104 client copy
        104-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-110 server kernel.pipe
        110-112 server copy
        112-113 server kernel.pipe
        113-125 server user
        125-126 server kernel.pipe
        126-127 server copy
        127-128 server fault
        128-130 server copy
        130-132 server kernel.pipe
        132-138 client runqueue.wakeup by idle
        138-139 client kernel.pipe
        139-141 client copy
        141-142 client kernel.pipe
    ";
    let segments = s.only_at(Rates { copy_ns_per_byte: 0.5, ..Rates::default() });
    assert_eq!(table(&segments), expected(answer));
    assert!(segments.iter().all(|segment| segment.evidence == Evidence::Measured), "{segments:#?}");
    assert_eq!(at(&segments, 110).detail.as_deref(), Some("read pipe:[1]"));
    let requests = s.requests();
    let moved = |of: Option<rpcprobe::model::Moved>| of.map(|moved| (moved.bytes, moved.copy_ns));
    assert_eq!(moved(requests[0].0.client_moved), Some((8, 3 + 2)));
    assert_eq!(moved(requests[0].0.server_moved), Some((8, 2 + 4)));
}

/// Hooked functions copied 60 of 100 bytes. The time for the other bytes is taken from the rate.
#[test]
fn bytes_that_nobody_saw_copied_are_modelled_still() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 100), (100, 200));
    s.function(1, 20, (Function::Copy, 60), (310, 330));
    s.read(1, 20, a(), (0, 100), (300, 400));
    s.write(1, 20, b(), (0, 4), (410, 420));
    s.read(0, 10, b(), (0, 4), (430, 440));
    let segments = s.only_at(Rates { copy_ns_per_byte: 0.5, ..Rates::default() });
    let copies: Vec<_> = (segments.iter())
        .filter(|segment| segment.category == Category::Copy)
        .map(|segment| (segment.start_ns, segment.duration_ns, segment.evidence))
        .collect();
    let (measured, modelled) = (Evidence::Measured, Evidence::Modelled);
    let expected = [
        (100, 50, modelled),
        (310, 20, measured),
        (380, 20, modelled),
        (410, 2, modelled),
        (438, 2, modelled),
    ];
    assert_eq!(copies, expected);
}

/// The time of a call is split into what it does in the pipe and what it does around it.
#[test]
fn a_call_is_split_at_the_borders_of_its_transport() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    let pipe_write = Function::Transport(Transport::PipeWrite);
    s.function(1, 20, (Function::Copy, 4), (128, 129));
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.function(1, 20, (pipe_write, 0), (126, 138));
    s.write(1, 20, b(), (0, 4), (125, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    let rest = "
        113-125 server user
        125-126 server kernel.pipe
        126-128 server kernel.pipe
        128-129 server copy
        129-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    let segments = s.only_at(Rates::default());
    assert_eq!(table(&segments), expected(&[ASKED, rest].concat()));
    let detail = |start_ns| at(&segments, start_ns).detail.as_deref();
    assert_eq!(detail(125), Some("write pipe:[2]"));
    assert_eq!(detail(126), Some("write pipe:[2], in pipe_write"));
    assert_eq!(detail(129), Some("write pipe:[2], in pipe_write"));
}

/// The server sleeps from 119 to 130 in a call, and `waker` ends the sleep. `function`: the hooked function in which
/// the server sleeps, if any.
fn waited(nr: u16, function: Option<(KernelWait, u64)>, waker: u32) -> Segment {
    let mut s = Story::new();
    s.at(0, 0, What::Task { tid: JBD2, tgid: JBD2, kthread: true, comm: "jbd2/7".into() });
    for (ts_ns, transaction, phase) in [(50, 8, JOURNAL_START), (129, 8, JOURNAL_END)] {
        s.at(ts_ns, 2, What::Journal { tid: JBD2, dev: 7, transaction, phase });
    }
    asked(&mut s);
    // The helper's work is not for the request.
    s.switch(30, 3, IDLE, 21, RUNNABLE);
    s.call(3, 21, MKDIR, (31, 32), 0);
    s.switch_in(119, 1, 20, IDLE, DISK, (nr, 115), None);
    s.wake(130, 2, waker, 20, 0);
    s.switch(132, 1, IDLE, 20, RUNNABLE);
    if let Some((wait, number)) = function {
        s.function(1, 20, (Function::Wait(wait), number), (117, 134));
    }
    s.call(1, 20, nr, (115, 136), 0);
    s.write(1, 20, b(), (0, 4), (140, 145));
    s.read(0, 10, b(), (0, 4), (150, 153));
    let requests = s.requests();
    assert_eq!(requests.len(), 1, "{requests:#?}");
    at(&requests[0].1, 119).clone()
}

#[test]
fn a_wait_for_a_commit_is_for_the_transaction_that_was_asked_for() {
    // Two transactions were committed by then. Only the hooked function knows that the wait was for the first of them.
    let told = waited(FSYNC, Some((KernelWait::Commit, 7)), JBD2);
    let detail = "commit of transaction 7 on 0:7, in jbd2_log_wait_commit, in fsync";
    assert_eq!((told.category, told.detail.as_deref()), (Category::Journal, Some(detail)));
    assert_eq!((told.evidence, told.duration_ns), (Evidence::Measured, 11));
    let guessed = waited(FSYNC, None, JBD2);
    let detail = "commit of transaction 8 on 0:7, in fsync";
    assert_eq!((guessed.category, guessed.detail.as_deref()), (Category::Journal, Some(detail)));
}

/// A task that gives up its share of a transaction ends such a wait: it is no thread of the journal.
#[test]
fn a_wait_to_start_a_handle_is_for_the_journal_whoever_ends_it() {
    let told = waited(MKDIR, Some((KernelWait::Handle, 0)), 21);
    let detail = "the journal, in start_this_handle, in mkdir";
    assert_eq!((told.category, told.detail.as_deref()), (Category::Journal, Some(detail)));
    assert_eq!(told.by.map(|by| by.to_string()), Some("helper/21".into()));
    assert_ne!(waited(MKDIR, None, 21).category, Category::Journal);
    let by_the_journal = waited(MKDIR, Some((KernelWait::Handle, 0)), JBD2);
    let detail = "commit of transaction 8 on 0:7, in start_this_handle, in mkdir";
    assert_eq!(by_the_journal.detail.as_deref(), Some(detail));
}

/// A call of another thread, for another request, holds the socket.
#[test]
fn a_wait_for_a_socket_that_another_call_holds_is_a_lock() {
    let lock = |function: Option<KernelWait>| {
        let mut s = Story::new();
        asked(&mut s);
        let call = (SENDTO, 115);
        s.switch(30, 3, IDLE, 21, RUNNABLE);
        s.switch_in(119, 1, 20, IDLE, DISK, call, Some(socket(9, TYPE_TCP)));
        s.wake(130, 3, 21, 20, WAKING_IN_SYSCALL);
        s.call(3, 21, SENDTO, (31, 135), 4);
        s.switch(132, 1, IDLE, 20, RUNNABLE);
        if let Some(wait) = function {
            s.function(1, 20, (Function::Wait(wait), 0), (117, 134));
        }
        s.call(1, 20, SENDTO, (115, 136), 0);
        s.write(1, 20, b(), (0, 4), (140, 145));
        s.read(0, 10, b(), (0, 4), (150, 153));
        at(&s.requests()[0].1, 119).clone()
    };
    let told = lock(Some(KernelWait::Socket));
    assert_eq!(
        (told.category, told.by.map(|by| by.to_string())),
        (Category::Lock, Some("helper/21".into()))
    );
    assert_eq!((told.evidence, told.duration_ns), (Evidence::Measured, 11));
    assert_ne!(lock(None).category, Category::Lock);
}
