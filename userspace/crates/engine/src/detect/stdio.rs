//! Detects `stdio` requests: turns from input on descriptor 0 to output on descriptor 1. They are reported only if a
//! capture has no requests of kinds that are not fallbacks.

use rustc_hash::FxHashMap;

use crate::detect::book::Book;
use crate::detect::found::{end_of, Found};
use crate::detect::{Detect, Recent, Seen};
use crate::event::{Call, Object};
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Request};

/// Input read on descriptor 0, and the output written on descriptor 1 since.
#[derive(Debug)]
struct Turn {
    thread: ThreadId,
    start_ns: u64,
    end_ns: Option<u64>,
    input: Object,
    request_bytes: u64,
    response_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Stdio {
    turns: FxHashMap<ProcessId, Turn>,
}

impl Detect for Stdio {
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        match *seen {
            Seen::Called { thread, process, call } if call.ret > 0 && !call.unfinished => {
                self.call(world, process, thread, call, book);
            }
            _ => {}
        }
    }

    fn exit(&mut self, world: &World, process: ProcessId, _at_ns: u64, book: &mut Book) {
        if let Some(turn) = self.turns.remove(&process) {
            turn.end(world, process, book);
        }
    }

    fn horizon_ns(&self, _recent: Recent, _book: &Book) -> Option<u64> {
        self.turns.values().map(|turn| turn.start_ns).min()
    }

    fn hold(&self, held: &mut Held) {
        held.processes.extend(self.turns.keys());
        held.threads.extend(self.turns.values().map(|turn| turn.thread));
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        if !book.has_primary() {
            for (process, turn) in std::mem::take(&mut self.turns) {
                turn.end(world, process, book);
            }
        }
    }
}

impl Stdio {
    fn call(
        &mut self,
        world: &World,
        process: ProcessId,
        thread: ThreadId,
        call: &Call,
        book: &mut Book,
    ) {
        if book.has_primary() {
            self.turns.clear();
            return;
        }
        let Some(io) = call.io else { return };
        match (io.fd, io.is_write) {
            (0, false) => {
                if let Some(turn) = self.turns.get_mut(&process) {
                    if turn.end_ns.is_none() {
                        turn.request_bytes = turn.request_bytes.saturating_add(call.ret as u64);
                        return;
                    }
                    let turn = self.turns.remove(&process).expect("present");
                    turn.end(world, process, book);
                }
                // The input was there from the wake-up on or, if the thread did not sleep in the call, from the begin
                // of the call on.
                let t = world.thread(thread);
                let woken_ns = t
                    .off_before(call.exit_ns)
                    .filter(|off| off.start_ns >= call.enter_ns)
                    .and_then(|off| off.runnable_ns());
                let turn = Turn {
                    thread,
                    start_ns: woken_ns.unwrap_or(call.enter_ns),
                    end_ns: None,
                    input: io.object,
                    request_bytes: call.ret as u64,
                    response_bytes: 0,
                };
                self.turns.insert(process, turn);
            }
            (1, true) => {
                if let Some(turn) = self.turns.get_mut(&process) {
                    turn.end_ns = Some(call.exit_ns);
                    turn.thread = thread;
                    turn.response_bytes = turn.response_bytes.saturating_add(call.ret as u64);
                }
            }
            _ => {}
        }
    }
}

impl Turn {
    fn end(self, world: &World, process: ProcessId, book: &mut Book) {
        let Some(end_ns) = self.end_ns else { return };
        let request = Request {
            server: Some(end_of(world, self.thread, end_ns)),
            channel: Some(self.input.to_string()),
            request_bytes: Some(self.request_bytes),
            response_bytes: Some(self.response_bytes),
            ..Request::new(Kind::Stdio, self.start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(process),
            ..Goal::new(self.start_ns, end_ns, (self.thread, process))
        };
        book.found_fallback(Found::without_channels(request, goal));
    }
}
