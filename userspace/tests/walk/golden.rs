//! Small traces with answers derived by hand. Unless noted otherwise, the client (thread 10, CPU 0)
//! sends its request on pipe `A`, and the server (thread 20, CPU 1) answers on pipe `B`.

use rpcprobe::engine::event::{Object, OpenCall, What, TYPE_CHAR};
use rpcprobe::records::{
    FAULT_KERNEL, FAULT_MAJOR, TASK_THREAD, TASK_TRACED, WAKING_HARDIRQ, WAKING_IN_SYSCALL,
    WAKING_NEW, WAKING_SOFTIRQ,
};

use super::story::*;

pub(super) fn a() -> Object {
    pipe(1)
}

pub(super) fn b() -> Object {
    pipe(2)
}

/// The server waits in read(A) from 45 on. The client sends its request at 100 and wakes the server
/// at 105; the server has the bytes at 113.
pub(super) fn asked(s: &mut Story) {
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (READ, 40), a());
    s.wake(105, 0, 10, 20, WAKING_IN_SYSCALL);
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 4), (100, 110));
    s.read(1, 20, a(), (0, 4), (40, 113));
}

/// The explanation of the first half of [`asked`].
pub(super) const ASKED: &str = "
    100-105 client kernel.pipe
    105-109 server runqueue.wakeup by idle
    109-113 server kernel.pipe
";

#[test]
fn a_sleeping_client_is_woken_by_the_servers_write() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    // During the client's sleep [120, 135) the server works for the request that woke it.
    let rest = "
        113-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_wake_up_before_the_switch_out_is_not_lost() {
    let mut s = Story::new();
    asked(&mut s);
    // The server wakes the client while the client is on its way to sleep. The client leaves its
    // CPU at 137 and is back at 141.
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.sleep_in(137, 0, (10, IDLE), (READ, 115), b());
    s.switch(141, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 145));
    // From the wake-up on, the time is the client's: on its way to sleep, and back.
    let rest = "
        113-130 server user
        130-135 server kernel.pipe
        135-137 client kernel.pipe
        137-141 client runqueue.wakeup by idle
        141-145 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn whoever_had_the_cpu_is_named() {
    let mut s = Story::new();
    asked(&mut s);
    // The server loses its CPU to noise in the middle. Then this CPU is idle for a while.
    s.at(
        117,
        1,
        What::Switch {
            prev: 20,
            next: 90,
            waited_ns: None,
            state: RUNNABLE,
            preempt: true,
            iowait: false,
            call: None,
        },
    );
    s.switch(124, 1, 90, IDLE, ASLEEP);
    s.switch(126, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    let rest = "
        113-117 server user
        117-124 server runqueue.preempted by noise/90
        124-126 server runqueue.preempted by idle
        126-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn an_answer_that_waits_for_the_client_is_queued() {
    let mut s = Story::new();
    asked(&mut s);
    // The answer is there at 126. The client computes, sleeps from 122 to 128, computes, and reads.
    s.write(1, 20, b(), (0, 4), (120, 126));
    s.switch_in(122, 0, 10, IDLE, ASLEEP, (NANOSLEEP, 116), None);
    s.wake(128, 0, IDLE, 10, WAKING_HARDIRQ);
    s.switch(129, 0, IDLE, 10, RUNNABLE);
    s.call(0, 10, NANOSLEEP, (116, 131), 0);
    s.read(0, 10, b(), (0, 4), (140, 144));
    // What the client did is the cause of the wait, not its category.
    let rest = "
        113-120 server user
        120-126 server kernel.pipe
        126-140 client queue.pipe (user, kernel.sched, asleep, on the run queue)
        140-144 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn an_answer_still_being_written_is_handed_over_during_the_read() {
    let mut s = Story::new();
    asked(&mut s);
    s.read(0, 10, b(), (0, 4), (130, 138));
    s.write(1, 20, b(), (0, 4), (126, 142));
    // The read began during the write: from then on the time is the client's own.
    let rest = "
        113-126 server user
        126-130 server kernel.pipe
        130-138 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_handover_is_found_across_an_interrupt() {
    let mut s = Story::new();
    asked(&mut s);
    s.irq(0, 10, true, 256, (133, 135));
    s.read(0, 10, b(), (0, 4), (130, 138));
    s.write(1, 20, b(), (0, 4), (126, 142));
    let rest = "
        113-126 server user
        126-130 server kernel.pipe
        130-133 client kernel.pipe
        133-135 client interrupt
        135-138 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_message_waits_while_its_server_is_busy() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (30, 32), 0);
    // The request is there at 106. The server computes until 150.
    s.write(0, 10, a(), (0, 4), (100, 106));
    s.sleep_in(115, 0, (10, IDLE), (READ, 110), b());
    s.read(1, 20, a(), (0, 4), (150, 153));
    s.wake(164, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (160, 166));
    s.switch(167, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (110, 170));
    let answer = "
        100-106 client kernel.pipe
        106-150 server queue.pipe (user)
        150-153 server kernel.pipe
        153-160 server user
        160-164 server kernel.pipe
        164-167 client runqueue.wakeup by idle
        167-170 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_message_read_in_two_calls_arrives_once() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (READ, 40), a());
    s.wake(105, 0, 10, 20, WAKING_IN_SYSCALL);
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 12), (100, 110));
    // The server reads the header, works, and reads the payload. The second read found its bytes
    // ready, but the server worked for the request all the time.
    s.read(1, 20, a(), (0, 4), (40, 113));
    s.read(1, 20, a(), (4, 8), (118, 121));
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(134, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 12), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    // The same for the answer, which ends with its last byte.
    s.read(0, 10, b(), (0, 4), (115, 142));
    s.read(0, 10, b(), (4, 8), (145, 148));
    let answer = "
        100-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.pipe
        113-118 server user
        118-121 server kernel.pipe
        121-130 server user
        130-134 server kernel.pipe
        134-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
        142-145 client user
        145-148 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_message_found_by_poll_is_an_edge_from_its_sender() {
    let mut s = Story::new();
    asked(&mut s);
    // The client waits in poll(), then reads without a sleep.
    s.switch_in(120, 0, 10, IDLE, ASLEEP, (POLL, 115), None);
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.call(0, 10, POLL, (115, 142), 1);
    s.read(0, 10, b(), (0, 4), (144, 147));
    let rest = "
        113-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.poll
        142-144 client user
        144-147 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_lock_convoy_stays_contention() {
    lock_convoy(false);
}

#[test]
fn a_convoy_at_a_lock_of_the_kernel_stays_contention() {
    lock_convoy(true);
}

fn lock_convoy(of_the_kernel: bool) {
    /// LCB_F_MUTEX, include/trace/events/lock.h.
    const KERNEL_MUTEX: u16 = 32;
    let lock = (!of_the_kernel).then(|| mutex(0x7000));
    let mut s = Story::new();
    // Server thread 21 waits in read(A), thread 20 for a lock that 21 holds. The request wakes 21,
    // which reads it, writes the answer's first half and unlocks; 20 writes the rest.
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 21, RUNNABLE);
    s.sleep_in(45, 1, (21, IDLE), (READ, 40), a());
    s.wake(105, 0, 10, 21, WAKING_IN_SYSCALL);
    s.switch(107, 2, IDLE, 20, RUNNABLE);
    s.switch(109, 1, IDLE, 21, RUNNABLE);
    s.write(0, 10, a(), (0, 8), (100, 110));
    s.read(1, 21, a(), (0, 4), (40, 113));
    // 20 reads the other half, then wants the lock at 114.
    s.read(2, 20, a(), (4, 4), (111, 112));
    s.switch_in(116, 2, 20, IDLE, ASLEEP, (FUTEX, 114), lock);
    s.wake(125, 1, 21, 20, WAKING_IN_SYSCALL);
    s.call(1, 21, FUTEX, (122, 127), 1);
    s.switch(128, 2, IDLE, 20, RUNNABLE);
    if of_the_kernel {
        s.at(129, 2, What::Contention { tid: 20, enter_ns: 115, flags: KERNEL_MUTEX });
    }
    s.call(2, 20, FUTEX, (114, 130), 0);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(137, 2, 20, 10, WAKING_IN_SYSCALL);
    s.write(2, 20, b(), (0, 4), (135, 140));
    s.switch(139, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 143));
    // The request woke 21, and yet 20's wait is for the lock. Before the lock, 20 read its half,
    // which had been ready since 110 while 20 computed.
    let answer = "
        100-110 client kernel.pipe
        110-111 server queue.pipe (user)
        111-112 server kernel.pipe
        112-114 server user
        114-116 server kernel.futex
        116-125 server lock by helper/21
        125-128 server runqueue.wakeup by idle
        128-130 server kernel.futex
        130-135 server user
        135-137 server kernel.pipe
        137-139 client runqueue.wakeup by idle
        139-143 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_reader_woken_by_another_reader_has_waited_in_the_queue() {
    let mut s = Story::new();
    // Both server threads sleep in read(A). The write wakes 21, which takes the first half and, as
    // pipe_read() does when bytes remain, wakes the next reader: 20.
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (READ, 40), a());
    s.sleep_in(46, 2, (21, IDLE), (READ, 41), a());
    s.wake(103, 0, 10, 21, WAKING_IN_SYSCALL);
    s.write(0, 10, a(), (0, 8), (100, 106));
    s.switch(110, 2, IDLE, 21, RUNNABLE);
    s.wake(113, 2, 21, 20, WAKING_IN_SYSCALL);
    s.read(2, 21, a(), (0, 4), (41, 115));
    s.switch(117, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, a(), (4, 4), (40, 119));
    s.write(1, 20, b(), (0, 4), (125, 130));
    s.read(0, 10, b(), (0, 4), (140, 142));
    // The last bytes were ready at 106, and 20 was woken for them at 113.
    let answer = "
        100-106 client kernel.pipe
        106-113 server queue.pipe (asleep)
        113-117 server runqueue.wakeup by idle
        117-119 server kernel.pipe
        119-125 server user
        125-130 server kernel.pipe
        130-140 client queue.pipe (user)
        140-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_program_is_explained_from_fork_to_wait() {
    let mut s = Story::new();
    // Client 10 forks 30 at 103 (in clone [100, 112)) and waits from 115 on. The child runs a
    // program that sleeps and exits.
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.starts_program("true");
    s.switch_in(131, 1, 30, IDLE, ASLEEP, (NANOSLEEP, 128), None);
    s.wake(140, 1, IDLE, 30, WAKING_HARDIRQ);
    s.switch(141, 1, IDLE, 30, RUNNABLE);
    s.call(1, 30, NANOSLEEP, (128, 143), 0);
    s.exit(152, 1, 30, 150);
    s.wake(155, 1, 30, 10, WAKING_IN_SYSCALL);
    s.switch(157, 0, IDLE, 10, RUNNABLE);
    s.switch_in(158, 1, 30, IDLE, DEAD, (EXIT_GROUP, 150), None);
    s.call(0, 10, WAIT4, (115, 160), 30);
    let requests = s.requests();
    assert_eq!(requests.len(), 1);
    let (request, segments) = &requests[0];
    assert_eq!((request.start_ns, request.latency_ns), (100, 60));
    assert_eq!(request.method.as_deref(), Some("/bin/true"));
    // The wait is explained by the child's life, and the child's start by the parent's clone().
    let answer = "
        100-106 client kernel.exec
        106-109 sh runqueue.wakeup by idle
        109-111 sh kernel.exec
        111-114 sh user
        114-123 sh kernel.exec
        123-128 true user
        128-131 true kernel.sched
        131-140 true sleep
        140-141 true runqueue.wakeup by idle
        141-143 true kernel.sched
        143-150 true user
        150-155 true kernel.exec
        155-157 client runqueue.wakeup by idle
        157-160 client kernel.exec
    ";
    assert_eq!(table(segments), expected(answer));
}

#[test]
fn a_message_can_wait_for_a_thread_that_does_not_exist_yet() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, 90, IDLE, ASLEEP);
    s.call(1, 20, POLL, (30, 32), 1);
    // The server makes a thread for each request: 22 for this one.
    s.write(0, 10, a(), (0, 4), (100, 106));
    let fork = What::Fork {
        parent: 20,
        child: 22,
        child_tgid: 20,
        flags: TASK_TRACED | TASK_THREAD,
        enter_ns: 108,
        comm: "worker".into(),
    };
    s.at(110, 1, fork);
    s.wake(111, 1, 20, 22, WAKING_NEW | WAKING_IN_SYSCALL);
    s.switch(115, 2, IDLE, 22, RUNNABLE);
    s.call(2, 22, CLONE, (110, 117), 0);
    s.call(1, 20, CLONE, (108, 118), 22);
    s.read(2, 22, a(), (0, 4), (120, 123));
    s.write(2, 22, b(), (0, 4), (130, 135));
    s.read(0, 10, b(), (0, 4), (140, 142));
    let answer = "
        100-106 client kernel.pipe
        106-120 worker queue.pipe (not yet started, user, kernel.exec)
        120-123 worker kernel.pipe
        123-130 worker user
        130-135 worker kernel.pipe
        135-140 client queue.pipe (user)
        140-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn losing_the_cpu_in_a_read_is_not_waiting_in_it() {
    let mut s = Story::new();
    asked(&mut s);
    // The client enters read(B), loses its CPU for a moment, and is back before the server writes.
    let lost = What::Switch {
        prev: 10,
        next: 90,
        waited_ns: None,
        state: RUNNABLE,
        preempt: true,
        iowait: false,
        call: Some(OpenCall { nr: READ, enter_ns: 120, object: Some(b()), fd: 5 }),
    };
    s.at(125, 0, lost);
    s.switch(128, 0, 90, 10, ASLEEP);
    s.write(1, 20, b(), (0, 4), (135, 145));
    s.read(0, 10, b(), (0, 4), (120, 150));
    // The bytes are handed over when the write began, as if there had been no preemption.
    let rest = "
        113-135 server user
        135-150 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_fault_inside_a_read_does_not_wait_for_the_writer() {
    let mut s = Story::new();
    asked(&mut s);
    // The bytes are ready at 126 and read from 140 on. The page of the client's buffer has to be
    // read from a disk.
    s.write(1, 20, b(), (0, 4), (120, 126));
    s.switch_in(143, 0, 10, IDLE, DISK, (READ, 140), Some(b()));
    s.wake(150, 1, 20, 10, WAKING_SOFTIRQ);
    s.switch(151, 0, IDLE, 10, RUNNABLE);
    s.at(152, 0, What::Fault { tid: 10, enter_ns: 142, ip: 0, flags: FAULT_MAJOR | FAULT_KERNEL });
    s.read(0, 10, b(), (0, 4), (140, 160));
    let rest = "
        113-120 server user
        120-126 server kernel.pipe
        126-140 client queue.pipe (user)
        140-142 client kernel.pipe
        142-143 client fault
        143-150 client block_io
        150-151 client runqueue.wakeup by idle
        151-152 client fault
        152-160 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_kernel_worker_works_for_whoever_queued_its_work() {
    let mut s = Story::new();
    s.at(0, 0, What::Task { tid: 40, tgid: 40, kthread: true, comm: "kworker".into() });
    asked(&mut s);
    // The server wakes the helper, which writes to a terminal that the server reads. The bytes pass
    // through a kernel worker, which works on something else first and loses its CPU meanwhile.
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.switch(20, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(90, 2, (21, IDLE), (READ, 80), eventfd(5));
    s.wake(117, 1, 20, 21, WAKING_IN_SYSCALL);
    s.switch(119, 2, IDLE, 21, RUNNABLE);
    s.read(2, 21, eventfd(5), (0, 8), (80, 121));
    let terminal = Object { dev: 24, ino: 3, type_bits: TYPE_CHAR };
    s.write(1, 20, eventfd(5), (0, 8), (115, 118));
    s.sleep_in(122, 1, (20, IDLE), (READ, 120), terminal);
    s.write(2, 21, terminal, (0, 4), (125, 130));
    s.switch(110, 3, IDLE, 40, RUNNABLE);
    s.switch(134, 3, 40, 90, RUNNABLE);
    s.switch(136, 3, 90, 40, ASLEEP);
    s.wake(138, 3, 40, 20, 0);
    s.at(140, 3, What::Work { tid: 40, queuer: 21, queued_ns: 127, started_ns: 132 });
    s.switch(141, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, terminal, (0, 4), (120, 143));
    s.wake(155, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (150, 160));
    s.switch(158, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 162));
    let rest = "
        113-115 server user
        115-117 server kernel.vfs
        117-119 helper runqueue.wakeup by idle
        119-121 helper kernel.vfs
        121-125 helper user
        125-127 helper kernel.vfs
        127-132 kworker queue.app (kworker on CPU 100 % of the time)
        132-134 kworker kernel.other
        134-136 kworker runqueue.preempted by noise/90
        136-138 kworker kernel.other
        138-141 server runqueue.wakeup by idle
        141-143 server kernel.vfs
        143-150 server user
        150-155 server kernel.pipe
        155-158 client runqueue.wakeup by idle
        158-162 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_child_waited_for_on_its_way_out_did_not_wait() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.makes_process(30);
    s.exec(120, 1, 30, "true");
    s.call(1, 30, EXECVE, (114, 123), 0);
    s.exit(150, 1, 30, 148);
    // The wait finds the child on its way out: first in its last call, then past the end of this
    // call. The child's last switch comes afterwards.
    s.call(0, 10, WAIT4, (155, 160), 30);
    s.switch_in(162, 1, 30, IDLE, DEAD, (EXIT_GROUP, 148), None);
    let answer = "
        100-106 client kernel.exec
        106-109 sh runqueue.wakeup by idle
        109-111 sh kernel.exec
        111-114 sh user
        114-123 sh kernel.exec
        123-148 true user
        148-155 true kernel.exec
        155-160 client kernel.exec
    ";
    assert_eq!(s.only(), expected(answer));
}
