//! Small traces of time that cannot be measured exactly (faults, calls, copies, stolen time). Answers are derived by
//! hand. The client (thread 10, CPU 0) sends its request on pipe `A`, the server (thread 20, CPU 1) answers on pipe
//! `B`.

use rpcprobe::engine::event::What;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{Category, Evidence, Moved, Samples};
use rpcprobe::records::{FAULT_KERNEL, VEC_TIMER, WAKING_IN_SYSCALL};

use super::golden::{a, asked, b, ASKED};
use super::story::*;

#[test]
fn entry_and_return_of_a_fault_count_from_its_end_and_are_modelled() {
    let mut s = Story::new();
    asked(&mut s);
    // Two faults in user mode, of which the second comes during the return of the first; and one fault in the write,
    // whose return ends with the call.
    for (enter_ns, end_ns) in [(114, 116), (118, 119), (126, 128)] {
        let flags = if enter_ns == 126 { FAULT_KERNEL } else { 0 };
        s.at(end_ns, 1, What::Fault { tid: 20, enter_ns, ip: 0, flags });
    }
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(129, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (125, 130));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    let rest = "
        113-114 server user
        114-116 server fault
        116-118 server fault
        118-119 server fault
        119-122 server fault
        122-125 server user
        125-126 server kernel.pipe
        126-128 server fault
        128-129 server fault
        129-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    let segments = s.only_at(Rates { fault_outside_ns: 3, ..Rates::default() });
    assert_eq!(table(&segments), expected(&[ASKED, rest].concat()));
    for segment in &segments {
        let modelled = [116, 119, 128].contains(&segment.start_ns);
        assert_eq!(segment.evidence == Evidence::Modelled, modelled, "{segment:?}");
    }
}

/// A fault that took longer than those of the calibration (3 ns around it and 4 ns inside) also takes longer around it,
/// but by no more than a third. A quicker fault takes as long around it as in the calibration, and so does a much
/// slower one, which is of another kind.
#[test]
fn entry_and_return_of_a_slow_fault_take_longer() {
    for (took_ns, around_ns) in [(2, 3), (4, 3), (5, 3), (6, 4), (14, 4), (40, 3)] {
        let mut s = Story::new();
        asked(&mut s);
        s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
        let fault = What::Fault { tid: 20, enter_ns: 130, ip: 0, flags: 0 };
        s.at(130 + took_ns, 1, fault);
        s.wake(189, 1, 20, 10, WAKING_IN_SYSCALL);
        s.write(1, 20, b(), (0, 4), (188, 190));
        s.switch(198, 0, IDLE, 10, RUNNABLE);
        s.read(0, 10, b(), (0, 4), (115, 199));
        let rates = Rates { fault_outside_ns: 3, fault_inside_ns: 4, ..Rates::default() };
        let segments = s.only_at(rates);
        let faults = segments.iter().filter(|segment| segment.category == Category::Fault);
        let fault_ns: u64 = faults.map(|segment| segment.duration_ns).sum();
        assert_eq!(fault_ns, took_ns + around_ns, "{took_ns}: {segments:#?}");
    }
}

#[test]
fn entry_and_return_of_a_call_count_from_its_exit_and_are_modelled() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(129, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (125, 130));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    // The server's time in user mode after its read is 113-125.
    let rest = "
        113-116 server kernel.other
        116-125 server user
        125-129 server kernel.pipe
        129-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    let segments = s.only_at(Rates { call_outside_ns: 3, ..Rates::default() });
    assert_eq!(table(&segments), expected(&[ASKED, rest].concat()));
    for segment in &segments {
        assert_eq!(segment.evidence == Evidence::Modelled, segment.start_ns == 113, "{segment:?}");
    }
}

/// By the rate, copying 1,000 bytes would take 20 us. The call itself allows 30 us, less the 1 us of any call.
#[test]
fn a_long_copy_is_all_of_its_call_but_what_any_call_takes() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 1000), (100_000, 130_000));
    s.read(1, 20, a(), (0, 1000), (140_000, 145_000));
    s.write(1, 20, b(), (0, 4), (150_000, 151_000));
    s.read(0, 10, b(), (0, 4), (160_000, 161_000));
    let rates = Rates { copy_ns_per_byte: 20.0, transfer_ns: 1_000, ..Rates::default() };
    let copies: Vec<_> = (s.only_at(rates).into_iter())
        .filter(|segment| segment.category == Category::Copy)
        .map(|segment| (segment.start_ns, segment.duration_ns))
        .collect();
    // The read was faster. The answer's 80 ns follow from the rate.
    assert_eq!(copies, [(100_000, 29_000), (141_000, 4_000), (150_000, 80), (160_920, 80)]);
}

/// The server's CPU was stolen for 8 of the 10 ns before a timer interrupt, and for 1 ns of another 10, at an unknown
/// place.
#[test]
fn stolen_time_ends_with_the_interrupts_that_had_to_wait() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.at(126, 1, What::Steal { tid: 20, since_ns: 114, until_ns: 124, taken_ns: 8 });
    s.irq(1, 20, true, VEC_TIMER, (124, 127));
    s.at(138, 1, What::Steal { tid: 20, since_ns: 127, until_ns: 137, taken_ns: 1 });
    s.wake(140, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (139, 141));
    s.switch(142, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 143));
    let rest = "
        113-116 server user
        116-124 server steal
        124-127 server interrupt
        127-139 server user
        139-140 server kernel.pipe
        140-142 client runqueue.wakeup by idle
        142-143 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// The stolen time does not fit into the time in which the server ran: it fell just before that, while another thread
/// had the CPU. So the server's time counts as its own.
#[test]
fn stolen_time_does_not_fit_where_a_thread_ran_too_shortly() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.switch(121, 1, 20, 30, RUNNABLE);
    s.switch(136, 1, 30, 20, ASLEEP);
    s.at(138, 1, What::Steal { tid: 20, since_ns: 136, until_ns: 138, taken_ns: 14 });
    s.wake(140, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (139, 141));
    s.switch(142, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 143));
    let rest = "
        113-121 server user
        121-136 server runqueue.preempted by ?/30
        136-139 server user
        139-140 server kernel.pipe
        140-142 client runqueue.wakeup by idle
        142-143 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// The server's CPU was stolen before and after it began a call, in unknown parts.
#[test]
fn no_call_begins_while_the_cpu_is_taken() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.at(136, 1, What::Steal { tid: 20, since_ns: 114, until_ns: 134, taken_ns: 18 });
    s.irq(1, 20, true, VEC_TIMER, (134, 136));
    s.wake(140, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (125, 141));
    s.switch(142, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 143));
    let rest = "
        113-125 server user
        125-134 server kernel.pipe
        134-136 server interrupt
        136-140 server kernel.pipe
        140-142 client runqueue.wakeup by idle
        142-143 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// The time before anything is known of a thread is not searched, however long it is.
#[test]
fn stolen_time_of_a_thread_nobody_knows_has_no_place() {
    let mut s = Story::new();
    asked(&mut s);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(140, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (139, 141));
    s.switch(142, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 143));
    let late_ns = 10_000_000_000_000;
    let stolen = What::Steal { tid: 77, since_ns: 0, until_ns: late_ns, taken_ns: 1_000_000 };
    s.at(late_ns, 1, stolen);
    let rest = "
        113-139 server user
        139-140 server kernel.pipe
        140-142 client runqueue.wakeup by idle
        142-143 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// The server has read the first half of the request, off the path of the walk, by the time the client sends the rest.
/// A fault, and 4 ns off the CPU, are not work of the calls. The rate is 0.5 ns per byte.
#[test]
fn both_ends_say_what_they_moved() {
    let mut s = Story::new();
    let (a, b) = (pipe(1), pipe(2));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a, (0, 40), (100, 130));
    s.read(1, 20, a, (0, 40), (140, 170));
    s.write(0, 10, a, (40, 20), (200, 230));
    s.switch(248, 1, 20, IDLE, RUNNABLE);
    s.switch(252, 1, IDLE, 20, RUNNABLE);
    s.at(256, 1, What::Fault { tid: 20, enter_ns: 254, ip: 0, flags: FAULT_KERNEL });
    s.read(1, 20, a, (40, 20), (240, 260));
    s.write(1, 20, b, (0, 8), (300, 310));
    s.read(0, 10, b, (0, 8), (320, 332));
    let rates = Rates { copy_ns_per_byte: 0.5, ..Rates::default() };
    let answers = explain_with(Engine::new(4, 0, rates), &s.events());
    let request = &answers[0].0;
    let moved = |bytes, cpu_ns, copy_ns| {
        Some(Moved { bytes, cpu_ns, copy_ns, samples: Samples::default() })
    };
    assert_eq!(answers.len(), 1);
    assert_eq!(request.client_moved, moved(68, 30 + 30 + 12, 20 + 10 + 4));
    assert_eq!(request.server_moved, moved(68, 30 + 14 + 10, 20 + 10 + 4));
}
