//! Small traces of wake-ups from an interrupt, and of the task that the interrupt hits, with
//! answers derived by hand.

use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::golden::{asked, b, ASKED};
use super::story::*;

/// The server sleeps from 119 to 130 in a call. It is woken from the CPU of the client, which waits
/// for the answer in user mode; `flags` give the context of the wake-up.
fn woken_on_the_clients_cpu(nr: u16, state: u16, flags: u8) -> Story {
    let mut s = Story::new();
    asked(&mut s);
    s.switch_in(119, 1, 20, IDLE, state, (nr, 117), None);
    s.wake(130, 0, 10, 20, flags);
    s.switch(132, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, nr, (117, 134), 0);
    s.write(1, 20, b(), (0, 4), (140, 145));
    s.read(0, 10, b(), (0, 4), (150, 153));
    s
}

/// The answer to [`woken_on_the_clients_cpu`] if the sleep is charged and not followed.
fn charged(wait: &str, call: &str) -> String {
    let rest = "
        113-117 server user
        117-119 server CALL
        119-130 server WAIT
        130-132 server runqueue.wakeup by idle
        132-134 server CALL
        134-140 server user
        140-145 server kernel.pipe
        145-150 client queue.pipe (user)
        150-153 client kernel.pipe
    ";
    let rest = rest.replace("CALL", call).replace("WAIT", wait);
    expected(&[ASKED, &rest].concat())
}

#[test]
fn a_timer_leaves_whoever_it_interrupts_alone() {
    let s = woken_on_the_clients_cpu(NANOSLEEP, ASLEEP, WAKING_HARDIRQ);
    assert_eq!(s.only(), charged("sleep", "kernel.sched"));
}

#[test]
fn a_softirq_outside_the_senders_call_is_no_edge() {
    let s = woken_on_the_clients_cpu(POLL, ASLEEP, WAKING_SOFTIRQ);
    assert_eq!(s.only(), charged("sleep", "kernel.poll"));
}

#[test]
fn a_disk_is_not_whoever_its_interrupt_hits() {
    let fsync = 74;
    let s = woken_on_the_clients_cpu(fsync, DISK, WAKING_SOFTIRQ | WAKING_HARDIRQ);
    assert_eq!(s.only(), charged("block_io", "kernel.vfs"));
}

#[test]
fn a_softirq_in_the_senders_own_call_keeps_the_edge() {
    // As over loopback: the client's call runs the softirq that wakes the server.
    let s = woken_on_the_clients_cpu(POLL, ASLEEP, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    // The client is a member, so the server waited for what the client has done since 100.
    let answer = "
        100-110 client kernel.pipe
        110-130 client user
        130-132 server runqueue.wakeup by idle
        132-134 server kernel.poll
        134-140 server user
        140-145 server kernel.pipe
        145-150 client queue.pipe (user)
        150-153 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_timer_that_hits_the_sender_in_its_write_is_not_the_sender() {
    let mut s = Story::new();
    asked(&mut s);
    // The client sleeps. Its timer fires on the server's CPU, inside the write that carries the
    // answer. The client then finds the answer ready.
    s.switch_in(120, 0, 10, IDLE, ASLEEP, (NANOSLEEP, 115), None);
    s.wake(133, 1, 20, 10, WAKING_HARDIRQ | WAKING_IN_SYSCALL);
    s.irq(1, 20, true, 256, (132, 134));
    s.switch(136, 0, IDLE, 10, RUNNABLE);
    s.call(0, 10, NANOSLEEP, (115, 138), 0);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.read(0, 10, b(), (0, 4), (143, 146));
    // The bytes were ready at 140 and read at 143.
    let rest = "
        113-130 server user
        130-132 server kernel.pipe
        132-134 server interrupt
        134-140 server kernel.pipe
        140-143 client queue.pipe (user)
        143-146 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}
