//! Classifies what a thread on a CPU was doing: the innermost of user code, system call, page fault, softirq
//! and hard interrupt. The levels exclude each other: an inner level's time never counts for an outer one.

use crate::classify::syscall;
use crate::event::{Call, Io, Object};
use crate::timeline::gallop::{count_before, last_before};
use crate::timeline::{Span, Thread};
use rpcprobe_model::Category;
use rpcprobe_record::{FAULT_MAJOR, VEC_CALL_FUNCTION, VEC_IRQ_WORK, VEC_RESCHEDULE, VEC_TIMER};

/// The innermost level at an instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Level<'w> {
    User,
    Call(&'w Call),
    /// In a call whose record is still to come.
    OpenCall {
        nr: u16,
        object: Option<Object>,
    },
    /// A copy between user memory and kernel memory, in this call if its record is there.
    Copy(Option<&'w Call>),
    Fault(Span),
    Softirq(Span),
    Hardirq(Span),
    Steal(Span),
    /// Not known: user or kernel; the call's record never came.
    Unknown,
}

/// A stretch `[start_ns, end)` in which the innermost level did not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<'w> {
    pub start_ns: u64,
    pub level: Level<'w>,
    /// How many of the thread's calls began before the piece's end, where they were counted.
    begun: Option<usize>,
}

impl<'w> Piece<'w> {
    /// A part of a call.
    pub fn of_call(start_ns: u64, call: &'w Call) -> Piece<'w> {
        Piece { start_ns, level: Level::Call(call), begun: None }
    }

    /// Whether the last call that began before the piece ended exactly where the piece begins.
    pub fn follows_call(&self, thread: &Thread) -> bool {
        let last = match self.begun {
            Some(begun) => {
                let mut before = (0..begun).rev().map_while(|at| thread.calls.get(at));
                before.find(|call| call.enter_ns < self.start_ns)
            }
            None => thread.call_before(self.start_ns),
        };
        last.is_some_and(|call| call.exit_ns == self.start_ns)
    }
}

/// The call a thread was in just before `at_ns`, whatever else ran on top of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InCall<'w> {
    No {
        since_ns: u64,
    },
    Closed(&'w Call),
    Open {
        nr: u16,
        enter_ns: u64,
        object: Option<Object>,
    },
    /// A record still to come shows the state just before `at_ns`.
    NotYetKnown {
        since_ns: u64,
    },
}

/// Whether the thread was in a system call just before `at_ns`.
pub fn call_at(thread: &Thread, at_ns: u64) -> InCall<'_> {
    call_after(thread, thread.call_before(at_ns), at_ns)
}

/// As [`call_at`], given the last call that began before `at_ns`.
fn call_after<'w>(thread: &'w Thread, last: Option<&'w Call>, at_ns: u64) -> InCall<'w> {
    if let Some(call) = last {
        if call.exit_ns >= at_ns {
            return InCall::Closed(call);
        }
    }
    let since_ns = last.map_or(thread.known_from_ns, |call| call.exit_ns);
    if let Some(open) = thread.open_call {
        if open.enter_ns < at_ns {
            return InCall::Open { nr: open.nr, enter_ns: open.enter_ns, object: open.object };
        }
        return InCall::No { since_ns };
    }
    if thread.exited_ns.is_some_and(|exited_ns| at_ns > exited_ns) {
        // do_exit() runs on in the call, or the fatal signal, that ended the thread.
        let enter_ns = thread.exited_ns.unwrap_or(since_ns);
        return InCall::Open { nr: syscall::NR_EXIT, enter_ns, object: None };
    }
    if at_ns > thread.settled_ns {
        return InCall::NotYetKnown { since_ns: thread.settled_ns.max(since_ns) };
    }
    InCall::No { since_ns }
}

/// Whether the thread was, just before `at_ns`, in a system call on a network socket.
pub fn in_network_call(thread: &Thread, at_ns: u64) -> bool {
    let object = match call_at(thread, at_ns) {
        InCall::Closed(call) => call.io.map(|io| io.object),
        InCall::Open { object, .. } => object,
        InCall::No { .. } | InCall::NotYetKnown { .. } => None,
    };
    object.is_some_and(|object| object.is_network())
}

/// The last piece before `at_ns`, not reaching back past `floor_ns`; the thread must have been on a CPU throughout.
/// `None`: the record that decides is still to come (unless `no_more_records`).
pub fn piece_before(
    thread: &Thread,
    at_ns: u64,
    floor_ns: u64,
    no_more_records: bool,
) -> Option<Piece<'_>> {
    let mut start_ns = floor_ns;
    for (spans, level) in [
        (&thread.steals, Level::Steal as fn(Span) -> Level<'static>),
        (&thread.hardirqs, Level::Hardirq),
        (&thread.softirqs, Level::Softirq),
        (&thread.faults, Level::Fault),
    ] {
        // The usual case: the last span was over before.
        if spans
            .back()
            .is_none_or(|last| last.end_ns <= floor_ns.min(at_ns - 1) && last.start_ns < at_ns)
        {
            continue;
        }
        let Some(span) = last_before(spans, |span| span.start_ns < at_ns) else { continue };
        if span.end_ns >= at_ns && span.end_ns > span.start_ns {
            let (start_ns, level) = (start_ns.max(span.start_ns), level(*span));
            return Some(Piece { start_ns, level, begun: None });
        }
        start_ns = start_ns.max(span.end_ns);
    }
    let begun = count_before(&thread.calls, |call| call.enter_ns < at_ns);
    let last = begun.checked_sub(1).and_then(|last| thread.calls.get(last));
    let in_call = call_after(thread, last, at_ns);
    match thread.functions.copy_before(at_ns) {
        Some(copy) if copy.end_ns >= at_ns => {
            let call = match in_call {
                InCall::Closed(call) => Some(call),
                _ => None,
            };
            let (start_ns, level) = (start_ns.max(copy.start_ns), Level::Copy(call));
            return Some(Piece { start_ns, level, begun: None });
        }
        copy => start_ns = start_ns.max(copy.map_or(0, |copy| copy.end_ns)),
    }
    start_ns = start_ns.max(thread.functions.transport_border_before(at_ns));
    let (since_ns, level) = match in_call {
        InCall::Closed(call) => (call.enter_ns, Level::Call(call)),
        InCall::Open { nr, enter_ns, object } => (enter_ns, Level::OpenCall { nr, object }),
        InCall::No { since_ns } => (since_ns, Level::User),
        InCall::NotYetKnown { since_ns } if no_more_records => (since_ns, Level::Unknown),
        InCall::NotYetKnown { .. } => return None,
    };
    // Before the thread's first known call, no record divides user from kernel time.
    let (since_ns, level) = match since_ns < at_ns {
        true => (since_ns, level),
        false => (0, Level::Unknown),
    };
    let start_ns = start_ns.max(since_ns).min(at_ns - 1);
    Some(Piece { start_ns, level, begun: Some(begun) })
}

/// The category of a level.
pub fn category(level: &Level<'_>) -> Category {
    match level {
        Level::User => Category::User,
        Level::Call(call) => syscall::category(call.nr, call.io.map(|io| io.object)),
        Level::OpenCall { nr, object } => syscall::category(*nr, *object),
        Level::Copy(_) => Category::Copy,
        Level::Fault(_) => Category::Fault,
        Level::Softirq(_) | Level::Hardirq(_) => Category::Interrupt,
        Level::Steal(_) => Category::Steal,
        Level::Unknown => Category::Unattributed,
    }
}

/// Category and description of a level.
pub fn describe(level: &Level<'_>) -> (Category, Option<String>) {
    let detail = match level {
        Level::User => None,
        Level::Call(call) => Some(describe_call(call)),
        Level::OpenCall { nr, object } => Some(named(*nr, object.as_ref(), None)),
        Level::Copy(call) => Some(call.map_or("copying".into(), describe_call)),
        Level::Fault(span) => {
            let major = span.number & u16::from(FAULT_MAJOR) != 0;
            Some(if major { "major fault" } else { "minor fault" }.into())
        }
        Level::Softirq(span) => Some(format!("softirq {}", softirq_name(span.number))),
        Level::Hardirq(span) => Some(hardirq_name(span.number)),
        Level::Steal(_) => Some("the hypervisor had the CPU".into()),
        Level::Unknown => Some("the record of this system call never came".into()),
    };
    (category(level), detail)
}

/// `write pipe:[123]`, `openat /etc/ld.so.cache`, `read /etc/ld.so.cache`, `brk`.
pub fn describe_call(call: &Call) -> String {
    match (&call.io, call.path.as_deref()) {
        (Some(io), None) => named(call.nr, Some(&io.object), None),
        (_, path) => named(call.nr, None, path),
    }
}

/// A call's name, and what it was applied to: in one allocation.
fn named(nr: u16, object: Option<&Object>, path: Option<&str>) -> String {
    let mut text = String::with_capacity(48);
    name_into(&mut text, nr, object, path);
    text
}

/// Adds a call's name, and what it was applied to.
pub fn name_into(text: &mut String, nr: u16, object: Option<&Object>, path: Option<&str>) {
    text.push_str(&syscall::name(nr));
    if let Some(object) = object {
        text.push(' ');
        object.push_name(text);
    }
    if let Some(path) = path {
        text.push(' ');
        text.push_str(path);
    }
}

/// From this modelled duration on, copying is most of a transfer, so the call's own duration is the better measure.
const LONG_COPY_NS: u64 = 10_000;

/// The part of a call in which its payload is copied, as modelled: a write copies when it begins, a read just before it
/// ends. `None` if the call moved nothing through a channel, or only bytes that were seen to be copied.
///
/// The duration is bytes x rate. If that is long and the call kept its CPU, the duration is instead that of the call
/// minus that of a call which moves one byte (`fixed_ns`). The reason: caches, and the memory that the kernel must
/// find, make the rates of two transfers differ several times.
pub fn modelled_copy(
    call: &Call,
    seen_bytes: u64,
    ns_per_byte: f64,
    fixed_ns: u64,
    kept_cpu: impl FnOnce() -> bool,
) -> Option<(u64, u64)> {
    let of_all = |(_, bytes): (bool, u64), io: &Io| (io.is_write, bytes.saturating_add(io.bytes));
    let (is_write, all_bytes) = call.transfers().fold((false, 0), of_all);
    if all_bytes == 0 || syscall::moves_pages(call.nr) {
        return None;
    }
    let bytes = all_bytes.saturating_sub(seen_bytes);
    let call_ns = call.exit_ns.saturating_sub(call.enter_ns);
    let by_rate_ns = (bytes as f64 * ns_per_byte).round() as u64;
    let length_ns = match by_rate_ns >= LONG_COPY_NS && seen_bytes == 0 && kept_cpu() {
        true => call_ns.saturating_sub(fixed_ns),
        false => by_rate_ns.min(call_ns),
    };
    if length_ns == 0 {
        return None;
    }
    Some(if is_write {
        (call.enter_ns, call.enter_ns + length_ns)
    } else {
        (call.exit_ns - length_ns, call.exit_ns)
    })
}

/// include/linux/interrupt.h, the order of `enum { HI_SOFTIRQ, ... }`.
fn softirq_name(number: u16) -> &'static str {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    NAMES.get(usize::from(number)).copied().unwrap_or("?")
}

fn hardirq_name(number: u16) -> String {
    match number {
        VEC_TIMER => "timer interrupt".into(),
        VEC_RESCHEDULE => "reschedule interrupt".into(),
        VEC_CALL_FUNCTION => "call-function interrupt".into(),
        VEC_IRQ_WORK => "irq-work interrupt".into(),
        irq => format!("irq {irq}"),
    }
}
