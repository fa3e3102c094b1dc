//! Finding requests: which messages, or which fork and wait, belong together.
//!
//! A `pipe` request is a turn: a client process writes on one pipe, another process reads those
//! bytes and later writes on a second pipe, and the client reads them. Which of the two is the
//! client is decided once a pair of pipes: who wrote first. A turn ends when the client writes
//! again, so an answer read in pieces is one answer.
//!
//! An `exec` request is a fork whose child ran a program, up to the wait that collected it.

use std::collections::HashMap;

use super::event::{Call, Event, Object, What, TYPE_FIFO};
use super::syscall::{NR_EXECVE, NR_EXECVEAT, NR_WAIT4};
use super::walk::{Goal, Message};
use super::world::{Channel, ProcessId, ThreadId, Transfer, Why, World};
use crate::model::{End, Kind, Request};

/// How long an answer whose write has not ended yet is waited for.
const ANSWER_PATIENCE_NS: u64 = 2_000_000_000;
/// Turns on stdin/stdout kept back until it is known whether better requests turn up.
const MOST_FALLBACKS: usize = 100_000;

/// A request with a known end, ready to be walked.
#[derive(Debug)]
pub struct Found {
    pub request: Request,
    pub goal: Goal,
}

/// A client's message and the reads that may have brought its answer.
#[derive(Debug, Clone)]
struct Turn {
    object: Object,
    client: ThreadId,
    process: ProcessId,
    start_ns: u64,
    from: u64,
    to: u64,
    reads: Vec<(Object, Transfer)>,
    closed_ns: Option<u64>,
    /// Enclosing exec request, by its process.
    parent: Option<ProcessId>,
}

#[derive(Debug)]
struct Child {
    parent: ThreadId,
    start_ns: u64,
    request_id: Option<u64>,
    runs_program: bool,
}

/// Input read on descriptor 0 and what was written on descriptor 1 since.
#[derive(Debug)]
struct Stdio {
    thread: ThreadId,
    start_ns: u64,
    end_ns: Option<u64>,
    input: Object,
    request_bytes: u64,
    response_bytes: u64,
}

#[derive(Default)]
pub struct Detector {
    turns: HashMap<(ProcessId, Object), Turn>,
    /// Closed turns whose answer is not settled yet.
    unsettled: Vec<Turn>,
    children: HashMap<ProcessId, Child>,
    stdio: HashMap<ProcessId, Stdio>,
    /// The first traced process, and when its program began.
    pub root: Option<(ThreadId, u64)>,
    next_id: u64,
    pub found: Vec<Found>,
    /// Lower-grade requests, used when there are no others.
    pub fallback: Vec<Found>,
    /// A `pipe` or `exec` request was found.
    pub found_primary: bool,
}

impl Detector {
    /// Looks at an event the world has just applied.
    pub fn observe(&mut self, world: &World, event: &Event) {
        match &event.what {
            What::Fork { child_tgid, child, parent, enter_ns, .. } if child == child_tgid => {
                let (Some(process), Some(parent)) =
                    (world.process_of_tgid(*child_tgid), world.thread_by_tid(*parent))
                else {
                    return;
                };
                if world.processes[process as usize].traced && *enter_ns != 0 {
                    let child = Child {
                        parent,
                        start_ns: *enter_ns,
                        request_id: None,
                        runs_program: false,
                    };
                    self.children.insert(process, child);
                }
            }
            What::Exec(exec) => {
                let Some(thread) = world.thread_by_tid(exec.tid) else { return };
                let process = world.thread(thread).process;
                if let Some(child) = self.children.get_mut(&process) {
                    child.runs_program = true;
                }
            }
            What::Call { tid, call } => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                self.call(world, thread, call);
            }
            What::Exit { tid, tgid, .. } if tid == tgid => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                let process = world.thread(thread).process;
                let mine: Vec<_> =
                    self.turns.keys().filter(|(owner, _)| *owner == process).copied().collect();
                for key in mine {
                    let turn = self.turns.remove(&key).expect("just listed");
                    self.close(turn, event.ts_ns);
                }
                if let Some(turn) = self.stdio.remove(&process) {
                    self.end_stdio(world, process, turn);
                }
            }
            _ => {}
        }
        if !self.unsettled.is_empty() {
            self.settle(world, false);
        }
    }

    /// The earliest instant an open request may still need.
    pub fn horizon_ns(&self) -> u64 {
        let turns = self.turns.values().chain(&self.unsettled).map(|turn| turn.start_ns);
        let children = self.children.values().map(|child| child.start_ns);
        let fallbacks = self.stdio.values().map(|turn| turn.start_ns);
        let root = self.root.filter(|_| !self.found_primary).map(|(_, start_ns)| start_ns);
        turns.chain(children).chain(fallbacks).chain(root).min().unwrap_or(u64::MAX)
    }

    fn call(&mut self, world: &World, thread: ThreadId, call: &Call) {
        let process = world.thread(thread).process;
        if (call.nr == NR_EXECVE || call.nr == NR_EXECVEAT) && call.ret == 0 && !call.unfinished {
            self.root.get_or_insert((thread, call.enter_ns));
        }
        let reaped = call.reaped || (call.nr == NR_WAIT4 && call.ret > 0);
        if reaped && !call.unfinished {
            self.reap(world, thread, call);
        }
        let Some(io) = call.io else { return };
        if call.ret <= 0 || call.unfinished {
            return;
        }
        if io.object.type_bits == TYPE_FIFO {
            let transfer = Transfer {
                from: io.offset,
                to: io.offset + call.ret as u64,
                thread,
                enter_ns: call.enter_ns,
                exit_ns: call.exit_ns,
            };
            if io.is_write {
                self.write(world, process, io.object, transfer);
            } else {
                for turn in self.turns.values_mut().filter(|turn| turn.process == process) {
                    if turn.object != io.object {
                        turn.reads.push((io.object, transfer));
                    }
                }
            }
        }
        self.stdio_call(world, process, thread, call);
    }

    // ---- pipes --------------------------------------------------------------------------------

    fn write(&mut self, world: &World, process: ProcessId, object: Object, bytes: Transfer) {
        let key = (process, object);
        if let Some(turn) = self.turns.get_mut(&key) {
            if turn.reads.is_empty() {
                turn.to = turn.to.max(bytes.to);
                return;
            }
            let turn = self.turns.remove(&key).expect("present");
            self.close(turn, bytes.enter_ns);
        }
        let turn = Turn {
            object,
            client: bytes.thread,
            process,
            start_ns: bytes.enter_ns,
            from: bytes.from,
            to: bytes.to,
            reads: Vec::new(),
            closed_ns: None,
            parent: self.enclosing(world, process),
        };
        self.turns.insert(key, turn);
    }

    fn close(&mut self, mut turn: Turn, at_ns: u64) {
        turn.closed_ns = Some(at_ns);
        self.unsettled.push(turn);
    }

    /// Decides closed turns whose answers are all accounted for.
    fn settle(&mut self, world: &World, over: bool) {
        for turn in std::mem::take(&mut self.unsettled) {
            match self.answer(world, &turn) {
                Answer::Found { server, object, from, to, end_ns, client } => {
                    self.pipe_found(world, &turn, server, object, from, to, end_ns, client);
                }
                Answer::None => {}
                Answer::Open => {
                    let waited_ns =
                        world.now_ns.saturating_sub(turn.closed_ns.unwrap_or(world.now_ns));
                    if over || waited_ns > ANSWER_PATIENCE_NS {
                        self.unanswered(world, &turn);
                    } else {
                        self.unsettled.push(turn);
                    }
                }
                Answer::Missing => self.unanswered(world, &turn),
            }
        }
    }

    /// The process that read the turn's message, if it is another and traced.
    fn reader(world: &World, turn: &Turn) -> Option<(ProcessId, Transfer)> {
        let channel = world.channels.get(&turn.object)?;
        let read =
            (channel.reads.iter()).find(|read| read.from < turn.to && turn.from < read.to)?;
        let process = world.thread(read.thread).process;
        (process != turn.process).then_some((process, *read))
    }

    fn answer(&self, world: &World, turn: &Turn) -> Answer {
        let Some((server, _)) = Self::reader(world, turn) else {
            return Answer::None;
        };
        let request_channel = &world.channels[&turn.object];
        let mut open = false;
        let mut found: Option<(Object, u64, u64, u64, ThreadId)> = None;
        for (object, read) in &turn.reads {
            let Some(channel) = world.channels.get(object) else { continue };
            match Channel::find(&channel.writes, read.to - 1) {
                Some(write) => {
                    if world.thread(write.thread).process != server {
                        continue;
                    }
                    // Who wrote first on the pair is the client.
                    if channel.first_write_ns < request_channel.first_write_ns {
                        return Answer::None;
                    }
                    let asked_first = request_channel.reads.iter().any(|asked| {
                        asked.from < turn.to
                            && turn.from < asked.to
                            && asked.exit_ns <= write.exit_ns
                    });
                    if !asked_first {
                        continue;
                    }
                    let entry = found.get_or_insert((*object, read.from, read.to, 0, read.thread));
                    if entry.0 == *object {
                        entry.2 = entry.2.max(read.to);
                        if read.exit_ns > entry.3 {
                            (entry.3, entry.4) = (read.exit_ns, read.thread);
                        }
                    }
                }
                None => open = true,
            }
        }
        match found {
            Some((object, from, to, end_ns, client)) => {
                Answer::Found { server, object, from, to, end_ns, client }
            }
            None if open => Answer::Open,
            None => Answer::Missing,
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of an answer
    fn pipe_found(
        &mut self,
        world: &World,
        turn: &Turn,
        server: ProcessId,
        object: Object,
        from: u64,
        to: u64,
        end_ns: u64,
        client: ThreadId,
    ) {
        self.found_primary = true;
        let parent_request_id = turn.parent.and_then(|process| self.exec_id(process));
        let server_thread = Self::reader(world, turn).map(|(_, read)| read.thread);
        let request = Request {
            request_id: self.new_id(),
            parent_request_id,
            kind: Kind::Pipe,
            start_ns: turn.start_ns,
            latency_ns: end_ns - turn.start_ns,
            complete: true,
            reason: None,
            client: Some(end_of(world, client, end_ns)),
            server: server_thread.map(|thread| end_of(world, thread, end_ns)),
            channel: Some(format!("{} {}", turn.object, object)),
            stream_id: None,
            xid: None,
            method: None,
            status: None,
            request_bytes: Some(turn.to - turn.from),
            response_bytes: Some(to - from),
        };
        let goal = Goal {
            start_ns: turn.start_ns,
            end_ns,
            client,
            client_process: turn.process,
            server_process: Some(server),
            messages: vec![
                Message { object: turn.object, from: turn.from, to: turn.to },
                Message { object, from, to },
            ],
        };
        self.found.push(Found { request, goal });
    }

    /// Whether the turn's message is itself an answer: its reader wrote first to its writer.
    fn is_answer(world: &World, turn: &Turn, reader: ProcessId) -> bool {
        let wrote = |channel: &Channel, process| {
            channel.writes.iter().any(|write| world.thread(write.thread).process == process)
        };
        let read = |channel: &Channel, process| {
            channel.reads.iter().any(|read| world.thread(read.thread).process == process)
        };
        let own = world.channels.get(&turn.object).and_then(|channel| channel.first_write_ns);
        world.channels.values().any(|channel| {
            channel.first_write_ns < own && wrote(channel, reader) && read(channel, turn.process)
        })
    }

    /// A turn that ended without an answer is an incomplete request if the pipe carries requests,
    /// or if the client was waiting on a pipe when it, or the capture, ended.
    fn unanswered(&mut self, world: &World, turn: &Turn) {
        let Some((server, read)) = Self::reader(world, turn) else { return };
        let thread = world.thread(turn.client);
        let waiting = thread.off.back().is_some_and(|off| {
            off.start_ns >= turn.start_ns
                && off
                    .call
                    .and_then(|call| call.object)
                    .is_some_and(|object| object.type_bits == TYPE_FIFO && object != turn.object)
        });
        let carries = (world.channels.get(&turn.object)).is_some_and(|c| c.carries_requests);
        if !(carries || waiting) || !turn.reads.is_empty() || Self::is_answer(world, turn, server) {
            return;
        }
        let end_ns = turn.closed_ns.unwrap_or(world.now_ns).max(turn.start_ns);
        let client = &world.processes[turn.process as usize];
        let server_exit = world.processes[server as usize].exited_ns;
        let reason = match (client.exited_ns, server_exit) {
            (Some(client_ns), Some(server_ns)) if server_ns < client_ns => {
                exit_reason("the server", world, server)
            }
            (Some(_), _) => exit_reason("the client", world, turn.process),
            (None, Some(_)) => exit_reason("the server", world, server),
            (None, None) => "the capture ended before the answer".to_string(),
        };
        self.found_primary = true;
        let parent_request_id = turn.parent.and_then(|process| self.exec_id(process));
        let request = Request {
            request_id: self.new_id(),
            parent_request_id,
            kind: Kind::Pipe,
            start_ns: turn.start_ns,
            latency_ns: end_ns - turn.start_ns,
            complete: false,
            reason: Some(reason),
            client: Some(end_of(world, turn.client, end_ns)),
            server: Some(end_of(world, read.thread, end_ns)),
            channel: Some(turn.object.to_string()),
            stream_id: None,
            xid: None,
            method: None,
            status: None,
            request_bytes: Some(turn.to - turn.from),
            response_bytes: None,
        };
        let goal = Goal {
            start_ns: turn.start_ns,
            end_ns,
            client: turn.client,
            client_process: turn.process,
            server_process: Some(server),
            messages: Vec::new(),
        };
        self.found.push(Found { request, goal });
    }

    // ---- processes ----------------------------------------------------------------------------

    fn reap(&mut self, world: &World, thread: ThreadId, call: &Call) {
        let Ok(pid) = u32::try_from(call.ret) else { return };
        let Some(process) = world.process_of_tgid(pid) else { return };
        let Some(child) = self.children.get(&process) else { return };
        let parent_process = world.thread(thread).process;
        if world.thread(child.parent).process != parent_process {
            return;
        }
        if !child.runs_program {
            self.children.remove(&process);
            return;
        }
        let id = self.exec_id(process).expect("present");
        let child = self.children.remove(&process).expect("present");
        self.found_primary = true;
        let request = Request {
            request_id: id,
            complete: true,
            reason: None,
            ..self.exec_request(world, process, thread, &child, call.exit_ns)
        };
        let goal = exec_goal(world, process, thread, &child, call.exit_ns);
        self.found.push(Found { request, goal });
    }

    fn exec_request(
        &mut self,
        world: &World,
        process: ProcessId,
        client: ThreadId,
        child: &Child,
        end_ns: u64,
    ) -> Request {
        let p = &world.processes[process as usize];
        let parent = world.thread(child.parent).process;
        let parent_request_id =
            self.enclosing(world, parent).and_then(|process| self.exec_id(process));
        Request {
            request_id: 0,
            parent_request_id,
            kind: Kind::Exec,
            start_ns: child.start_ns,
            latency_ns: end_ns.saturating_sub(child.start_ns),
            complete: false,
            reason: None,
            client: Some(end_of(world, client, child.start_ns)),
            server: Some(end_of(world, p.leader, end_ns)),
            channel: None,
            stream_id: None,
            xid: None,
            method: p.programs.last().and_then(|program| program.path.as_deref().map(Into::into)),
            status: p.exit_code,
            request_bytes: None,
            response_bytes: None,
        }
    }

    /// The nearest process, this one or an ancestor, whose own exec request is open.
    fn enclosing(&self, world: &World, process: ProcessId) -> Option<ProcessId> {
        let mut at = Some(process);
        while let Some(process) = at {
            if self.children.get(&process).is_some_and(|child| child.runs_program) {
                return Some(process);
            }
            at = world.processes[process as usize].parent;
        }
        None
    }

    /// The id of a process's exec request, given out when first asked for.
    fn exec_id(&mut self, process: ProcessId) -> Option<u64> {
        let child = self.children.get(&process)?;
        if child.request_id.is_none() {
            let id = self.new_id();
            self.children.get_mut(&process)?.request_id = Some(id);
        }
        self.children.get(&process)?.request_id
    }

    // ---- standard input and output ------------------------------------------------------------

    fn stdio_call(&mut self, world: &World, process: ProcessId, thread: ThreadId, call: &Call) {
        if self.found_primary {
            self.stdio.clear();
            return;
        }
        let Some(io) = call.io else { return };
        match (io.fd, io.is_write) {
            (0, false) => {
                if let Some(turn) = self.stdio.get_mut(&process) {
                    if turn.end_ns.is_none() {
                        turn.request_bytes += call.ret as u64;
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
                    turn.response_bytes += call.ret as u64;
                }
            }
            _ => {}
        }
    }

    fn end_stdio(&mut self, world: &World, process: ProcessId, turn: Stdio) {
        let Some(end_ns) = turn.end_ns else { return };
        if self.fallback.len() >= MOST_FALLBACKS {
            return;
        }
        let request = Request {
            request_id: 0,
            parent_request_id: None,
            kind: Kind::Stdio,
            start_ns: turn.start_ns,
            latency_ns: end_ns - turn.start_ns,
            complete: true,
            reason: None,
            client: None,
            server: Some(end_of(world, turn.thread, end_ns)),
            channel: Some(turn.input.to_string()),
            stream_id: None,
            xid: None,
            method: None,
            status: None,
            request_bytes: Some(turn.request_bytes),
            response_bytes: Some(turn.response_bytes),
        };
        let goal = Goal {
            start_ns: turn.start_ns,
            end_ns,
            client: turn.thread,
            client_process: process,
            server_process: Some(process),
            messages: Vec::new(),
        };
        self.fallback.push(Found { request, goal });
    }

    // ---- the end ------------------------------------------------------------------------------

    /// No more events will come: decides everything still open.
    pub fn finish(&mut self, world: &World) {
        let end_ns = world.now_ns;
        for (_, turn) in std::mem::take(&mut self.turns) {
            self.close(turn, end_ns);
        }
        self.unsettled.sort_by_key(|turn| turn.start_ns);
        self.settle(world, true);

        let mut children: Vec<ProcessId> =
            self.children.iter().filter(|(_, c)| c.runs_program).map(|(id, _)| *id).collect();
        children.sort_by_key(|id| self.children[id].start_ns);
        for process in children {
            let id = self.exec_id(process).expect("present");
            let child = self.children.remove(&process).expect("present");
            let exited_ns = world.processes[process as usize].exited_ns;
            let reason = match exited_ns {
                Some(_) => "its parent never waited for it",
                None => "the capture ended before it did",
            };
            let end_ns = exited_ns.unwrap_or(end_ns);
            let request = Request {
                request_id: id,
                complete: false,
                reason: Some(reason.into()),
                ..self.exec_request(world, process, child.parent, &child, end_ns)
            };
            let goal = exec_goal(world, process, child.parent, &child, end_ns);
            self.found_primary = true;
            self.found.push(Found { request, goal });
        }
        if !self.found_primary {
            for (process, turn) in std::mem::take(&mut self.stdio) {
                self.end_stdio(world, process, turn);
            }
            self.whole_life(world);
        }
    }

    /// The life of the target, from its execve() to the end of its main thread.
    fn whole_life(&mut self, world: &World) {
        let Some((root, start_ns)) = self.root else { return };
        let thread = world.thread(root);
        let process = world.process_of(root);
        let died_ns = thread.off.back().filter(|off| off.why == Why::Dead).map(|off| off.start_ns);
        let end_ns = died_ns.or(thread.exited_ns).unwrap_or(world.now_ns);
        let request = Request {
            request_id: 0,
            parent_request_id: None,
            kind: Kind::Process,
            start_ns,
            latency_ns: end_ns - start_ns,
            complete: thread.exited_ns.is_some(),
            reason: thread.exited_ns.is_none().then(|| "the capture ended before it did".into()),
            client: None,
            server: Some(end_of(world, root, end_ns)),
            channel: None,
            stream_id: None,
            xid: None,
            method: process.programs.last().and_then(|p| p.path.as_deref().map(Into::into)),
            status: process.exit_code,
            request_bytes: None,
            response_bytes: None,
        };
        let goal = Goal {
            start_ns,
            end_ns,
            client: root,
            client_process: thread.process,
            server_process: Some(thread.process),
            messages: Vec::new(),
        };
        self.fallback.insert(0, Found { request, goal });
    }

    /// The next request id: 1, 2, ...
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

enum Answer {
    Found {
        server: ProcessId,
        object: Object,
        from: u64,
        to: u64,
        end_ns: u64,
        client: ThreadId,
    },
    /// Nobody traced read the message, or it is itself an answer.
    None,
    /// A read's bytes have no known writer yet.
    Open,
    /// The message was read, and nothing came back.
    Missing,
}

fn exec_goal(
    world: &World,
    process: ProcessId,
    client: ThreadId,
    child: &Child,
    end_ns: u64,
) -> Goal {
    Goal {
        start_ns: child.start_ns,
        end_ns,
        client,
        client_process: world.thread(child.parent).process,
        server_process: Some(process),
        messages: Vec::new(),
    }
}

fn end_of(world: &World, thread: ThreadId, at_ns: u64) -> End {
    let t = world.thread(thread);
    End { pid: world.process_of(thread).tgid, tid: t.tid, comm: t.name_at(at_ns).to_string() }
}

fn exit_reason(who: &str, world: &World, process: ProcessId) -> String {
    let code = world.processes[process as usize].exit_code.unwrap_or(0);
    match code & 0x7f {
        0 => format!("{who} exited with status {} before the answer", (code >> 8) & 0xff),
        signal => format!("{who} was killed by signal {signal} before the answer"),
    }
}
