//! Small traces of sockets with answers derived by hand: the client (thread 10, CPU 0) asks, the
//! server (thread 20) answers.

use rpcprobe::engine::event::{Object, TYPE_TCP, TYPE_UNIX};
use rpcprobe::engine::syscall::SOFTIRQ_NET_RX;
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::story::*;

/// Both directions of a connection, from the client's side.
struct Connection {
    there: Object,
    back: Object,
    sockets: [Object; 2],
}

impl Connection {
    fn new(type_bits: u16) -> Connection {
        Connection {
            there: connection(1, type_bits),
            back: connection(2, type_bits),
            sockets: [socket(71, type_bits), socket(72, type_bits)],
        }
    }

    fn asks(&self, s: &mut Story, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(0, tid, (SENDTO, self.there, self.back), bytes, span);
    }

    fn hears(&self, s: &mut Story, cpu: u32, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(cpu, tid, (RECVFROM, self.there, self.back), bytes, span);
    }

    fn answers(&self, s: &mut Story, cpu: u32, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(cpu, tid, (SENDTO, self.back, self.there), bytes, span);
    }

    fn gets(&self, s: &mut Story, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(0, tid, (RECVFROM, self.back, self.there), bytes, span);
    }
}

#[test]
fn over_loopback_the_senders_softirq_is_the_receiving_stack() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    // The packet is received inside the client's send, from 103 on.
    s.wake(105, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.irq(0, 10, false, SOFTIRQ_NET_RX, (103, 107));
    c.asks(&mut s, 10, (5000, 4), (100, 110));
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (5000, 4), (40, 113));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    s.wake(135, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.irq(1, 20, false, SOFTIRQ_NET_RX, (133, 137));
    c.answers(&mut s, 1, 20, (9000, 4), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (9000, 4), (115, 142));
    let answer = "
        100-103 client kernel.tcp
        103-105 client wire.stack
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.tcp
        113-130 server user
        130-133 server kernel.tcp
        133-135 server wire.stack
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_segment_delivered_after_the_send_was_on_the_wire() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    // Held back by the stack; a softirq that hits the idle task of CPU 1 delivers it at 125.
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.wake(125, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(129, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (0, 4), (40, 133));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    s.wake(145, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (140, 150));
    s.switch(148, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, 152));
    let answer = "
        100-110 client kernel.tcp
        110-125 server wire.stack
        125-129 server runqueue.wakeup by idle
        129-133 server kernel.tcp
        133-140 server user
        140-145 server kernel.tcp
        145-148 client runqueue.wakeup by idle
        148-152 client kernel.tcp
    ";
    assert_eq!(s.only().replace(" (asleep)", ""), expected(answer));
}

#[test]
fn a_reader_woken_in_vain_that_gets_its_message_before_a_cpu() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    // Both on CPU 0. The server reads; the client takes the last answer, which makes room and so
    // wakes the server, then asks, and only its own sleep lets the server on the CPU.
    s.switch(10, 0, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 0, (20, 10), (RECVFROM, 40), c.sockets[1]);
    s.wake(60, 0, 10, 20, WAKING_IN_SYSCALL);
    s.call(0, 10, RECVFROM, (50, 70), -11);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(120, 0, (10, 20), (RECVFROM, 115), c.sockets[0]);
    c.hears(&mut s, 0, 20, (0, 4), (40, 125));
    s.wake(135, 0, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 0, 20, (0, 4), (130, 140));
    s.sleep_in(150, 0, (20, 10), (RECVFROM, 145), c.sockets[1]);
    c.gets(&mut s, 10, (0, 4), (115, 155));
    // Not idle since 60: from the end of the write on it waits for the CPU.
    let answer = "
        100-110 client kernel.unix
        110-120 server runqueue.wakeup by client/10
        120-125 server kernel.unix
        125-130 server user
        130-135 server kernel.unix
        135-150 client runqueue.wakeup by server/20
        150-155 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_full_buffer_does_not_lead_into_the_writers_later_sleep() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    // The client fills the buffer by 110 and sleeps inside its send. The server, busy until then,
    // reads at 150: the first bytes were there since 110 at the latest.
    s.sleep_in(110, 0, (10, IDLE), (SENDTO, 100), c.sockets[0]);
    s.wake(155, 1, 20, 10, WAKING_IN_SYSCALL);
    c.hears(&mut s, 1, 20, (0, 4), (150, 158));
    s.switch(159, 0, IDLE, 10, RUNNABLE);
    s.sleep_in(163, 1, (20, IDLE), (RECVFROM, 161), c.sockets[1]);
    s.wake(165, 0, 10, 20, WAKING_IN_SYSCALL);
    c.asks(&mut s, 10, (0, 8), (100, 170));
    s.switch(168, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (4, 4), (161, 172));
    s.sleep_in(175, 0, (10, IDLE), (RECVFROM, 173), c.sockets[0]);
    s.wake(185, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (180, 190));
    s.switch(188, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (173, 192));
    let answer = "
        100-110 client kernel.unix
        110-150 server queue.socket (user)
        150-155 server kernel.unix
        155-159 client runqueue.wakeup by idle
        159-165 client kernel.unix
        165-168 server runqueue.wakeup by idle
        168-172 server kernel.unix
        172-180 server user
        180-185 server kernel.unix
        185-188 client runqueue.wakeup by idle
        188-192 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}
