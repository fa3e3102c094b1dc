//! Damaged traces: events are missing, duplicated or contain nonsense.

use proptest::prelude::*;
use rpcprobe::engine::event::{Event, Object, What};

use super::programs::Trace;

/// One fault: where it is, of which kind, and a number to use.
#[derive(Clone, Debug)]
pub struct Wrong {
    at: prop::sample::Index,
    how: u8,
    number: u64,
}

pub fn wrongs() -> impl Strategy<Value = Vec<Wrong>> {
    // Numbers that have a meaning in a small trace, and any others.
    let number = prop_oneof![0u64..12, 80u64..115, 990u64..2_000, any::<u64>()];
    let wrong = (any::<prop::sample::Index>(), 0u8..12, number)
        .prop_map(|(at, how, number)| Wrong { at, how, number });
    proptest::collection::vec(wrong, 1..30)
}

/// The events of a trace with all these faults, still in order of time.
pub fn damaged(trace: &Trace, wrongs: &[Wrong]) -> Vec<Event> {
    let mut events = trace.events.clone();
    for wrong in wrongs {
        let at = wrong.at.index(events.len());
        match wrong.how {
            0..3 => {
                events.remove(at);
            }
            3 => {
                let again = events[at].clone();
                events.insert(at, again);
            }
            4 => {
                let (first_ns, last_ns) = (events[at].ts_ns, events[at].ts_ns + wrong.number % 50);
                let what = What::Lost { count: 1 + wrong.number % 9, first_ns, last_ns };
                let event = Event { what, ..events[at] };
                events.insert(at, event);
            }
            5 => events[at].cpu = (wrong.number % 5) as u32,
            6 => events[at].ts_ns = 900 + wrong.number % 2_000,
            _ => garble(&mut events[at].what, wrong.number),
        }
    }
    events.sort_by_key(|event| event.ts_ns);
    for event in &mut events {
        // Restores what decoding guarantees.
        if let What::Call { call, .. } = &mut event.what {
            call.exit_ns = event.ts_ns;
            call.enter_ns = call.enter_ns.min(event.ts_ns);
        }
    }
    events
}

/// Puts the number into one of the fields.
fn garble(what: &mut What, number: u64) {
    let (field, tid, ns) = (number % 7, number as u32 % 120, number);
    let object = Object { dev: 15, ino: 1 + number % 4, type_bits: (number % 13) as u16 };
    match what {
        What::Lost { count, .. } => *count = number,
        What::Switch { prev, next, waited_ns, state, preempt, iowait, call } => match field {
            0 => *prev = tid,
            1 => *next = tid,
            2 => *state = number as u16,
            3 => *preempt = !*preempt,
            4 => (*iowait, *waited_ns) = (!*iowait, Some(ns as u32)),
            5 => *call = None,
            _ => {
                if let Some(call) = call {
                    (call.enter_ns, call.nr) = (ns, (number % 450) as u16);
                    call.object = number.is_multiple_of(2).then_some(object);
                }
            }
        },
        What::Waking { waker, wakee, flags, block } => match field {
            0..2 => *waker = tid,
            2..4 => *wakee = tid,
            4 => *block = number as u32,
            _ => *flags = number as u8,
        },
        What::Fork { parent, child, child_tgid, flags, enter_ns, .. } => match field {
            0 => *parent = tid,
            1 => *child = tid,
            2 => *child_tgid = tid,
            3 => *flags = number as u8,
            _ => *enter_ns = ns,
        },
        What::Exec(exec) => match field {
            0..3 => exec.tid = tid,
            3..5 => exec.old_tid = tid,
            _ => exec.traced = !exec.traced,
        },
        What::Exit { tid: exits, tgid, code, traced } => match field {
            0..2 => *exits = tid,
            2..4 => *tgid = tid,
            4 => *code = number as i32,
            _ => *traced = !*traced,
        },
        What::Rename { tid: renamed, .. } => *renamed = tid,
        What::Call { tid: calls, call } => match field {
            0 => *calls = tid,
            1 => call.nr = (number % 450) as u16,
            2 => call.enter_ns = ns,
            3 => call.ret = number as i64,
            4 => call.unfinished = !call.unfinished,
            5 => call.reaped = !call.reaped,
            _ => match &mut call.io {
                Some(io) if number.is_multiple_of(5) => io.bytes = number / 5,
                Some(io) if number.is_multiple_of(2) => io.offset = number / 2,
                Some(io) => (io.object, io.is_write) = (object, number.is_multiple_of(3)),
                None => {}
            },
        },
        What::Fault { tid: faults, enter_ns, .. } => match field {
            0..3 => *faults = tid,
            _ => *enter_ns = ns,
        },
        What::Irq { tid: hit, enter_ns, hard, .. } => match field {
            0..2 => *hit = tid,
            2..4 => *hard = !*hard,
            _ => *enter_ns = ns,
        },
        What::Steal { tid: had, since_ns, until_ns, taken_ns } => match field {
            0 => *had = tid,
            1 => *since_ns = ns,
            2 => *until_ns = ns,
            _ => *taken_ns = ns,
        },
        What::Migrate { tid: moved, from_cpu, to_cpu } => match field {
            0 => *moved = tid,
            1 => *from_cpu = ns as u32 % 4,
            _ => *to_cpu = ns as u32 % 4,
        },
        What::UnseenSwitch { tid: came, last, since_ns, arrived_ns, waited_ns } => match field {
            0 => *came = tid,
            1 => *last = tid,
            2 => *since_ns = ns,
            3 => *waited_ns = Some(ns as u32),
            _ => *arrived_ns = ns,
        },
        What::Task { tid: task, tgid, .. } => match field {
            0..3 => *task = tid,
            _ => *tgid = tid,
        },
        _ => {} // none of these in the simulated machine
    }
}
