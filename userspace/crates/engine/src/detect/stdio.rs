//! Detects `stdio` requests: turns from input on descriptor 0 to output on descriptor 1, given only for
//! programs that have no other requests.

use crate::detect::{end_of, Detector, Found};
use crate::event::{Call, Object};
use crate::timeline::{ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Request};

/// Turns on stdin/stdout kept back until it is known whether better requests turn up.
const MOST_FALLBACKS: usize = 100_000;

/// Input read on descriptor 0 and what was written on descriptor 1 since.
#[derive(Debug)]
pub(super) struct Stdio {
    pub(super) thread: ThreadId,
    pub(super) start_ns: u64,
    pub(super) end_ns: Option<u64>,
    pub(super) input: Object,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
}

impl Detector {
    pub(super) fn stdio_call(
        &mut self,
        world: &World,
        process: ProcessId,
        thread: ThreadId,
        call: &Call,
    ) {
        if self.has_primary() {
            self.stdio.clear();
            return;
        }
        let Some(io) = call.io else { return };
        match (io.fd, io.is_write) {
            (0, false) => {
                if let Some(turn) = self.stdio.get_mut(&process) {
                    if turn.end_ns.is_none() {
                        turn.request_bytes = turn.request_bytes.saturating_add(call.ret as u64);
                        return;
                    }
                    let turn = self.stdio.remove(&process).expect("present");
                    self.end_stdio(world, process, turn);
                }
                // The input was there from the wake-up on, or from the start.
                let t = world.thread(thread);
                let woken_ns = t
                    .off_before(call.exit_ns)
                    .filter(|off| off.start_ns >= call.enter_ns)
                    .and_then(|off| off.runnable_ns());
                let turn = Stdio {
                    thread,
                    start_ns: woken_ns.unwrap_or(call.enter_ns),
                    end_ns: None,
                    input: io.object,
                    request_bytes: call.ret as u64,
                    response_bytes: 0,
                };
                self.stdio.insert(process, turn);
            }
            (1, true) => {
                if let Some(turn) = self.stdio.get_mut(&process) {
                    turn.end_ns = Some(call.exit_ns);
                    turn.thread = thread;
                    turn.response_bytes = turn.response_bytes.saturating_add(call.ret as u64);
                }
            }
            _ => {}
        }
    }

    pub(super) fn end_stdio(&mut self, world: &World, process: ProcessId, turn: Stdio) {
        let Some(end_ns) = turn.end_ns else { return };
        if self.fallback.len() >= MOST_FALLBACKS {
            return;
        }
        let request = Request {
            server: Some(end_of(world, turn.thread, end_ns)),
            channel: Some(turn.input.to_string()),
            request_bytes: Some(turn.request_bytes),
            response_bytes: Some(turn.response_bytes),
            ..Request::new(Kind::Stdio, turn.start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(process),
            ..Goal::new(turn.start_ns, end_ns, (turn.thread, process))
        };
        self.fallback.push(Found { request, goal });
    }
}
