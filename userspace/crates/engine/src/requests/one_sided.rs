//! Requests on connections of which one end only is traced.
//!
//! Who moved the first byte on a connection is its client. A traced client's request is a turn as any
//! other, without the server's part. A traced server's runs from the arrival of what it read to the
//! end of its last write before it reads again.

use super::turns::WHO_ASKS;
use super::{end_of, kind_of, name_of, Detector, Found};
use crate::event::{Call, Io, Object};
use crate::recent::latest_before;
use crate::syscall::{waits, Waits};
use crate::walk::{Goal, Message};
use crate::world::{Carries, ProcessId, ThreadId, Transfer, Why, World};
use rpcprobe_model::Request;

/// What a traced process is on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// What it is taken for, and whether nothing can have been before what that is known from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    role: Role,
    sure: bool,
}

/// What a server read, and wrote since.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) process: ProcessId,
    pub(super) thread: ThreadId,
    pub(super) start_ns: u64,
    pub(super) asked: Message,
    pub(super) answer: Option<Message>,
    pub(super) end_ns: u64,
}

impl Detector {
    /// Looks at a transfer through a connection.
    pub(super) fn one_sided(
        &mut self,
        world: &World,
        process: ProcessId,
        thread: ThreadId,
        call: &Call,
        io: &Io,
    ) {
        let Some(reverse) = io.reverse else { return };
        let (asked, answer) = if io.is_write { (reverse, io.object) } else { (io.object, reverse) };
        let first = if io.is_write { Role::Client } else { Role::Server };
        // By the channel it reads from: one connection, one entry.
        let part = self.roles.entry((process, asked)).or_insert_with(|| {
            let lost_ns = world.begin_lost_ns(io.object, io.reverse, io.offset);
            Part { role: first, sure: lost_ns.is_none() }
        });
        match world.channels.get(&asked).and_then(|channel| channel.role) {
            Some(Carries::Requests) => *part = Part { role: Role::Server, sure: true },
            Some(Carries::Answers) => *part = Part { role: Role::Client, sure: true },
            None => {}
        }
        if part.role == Role::Client {
            return;
        }
        let (from, to) = (io.offset, io.offset.saturating_add(io.bytes));
        let key = (process, asked);
        if io.is_write {
            self.parents.end_all(process, asked, call.exit_ns);
            if let Some(served) = self.served.get_mut(&key) {
                self.parents.end(process, (asked, served.asked.from), call.exit_ns);
                let begin = served.answer.map_or(from, |answer| answer.from);
                served.answer = Some(Message { object: answer, from: begin, to });
                served.end_ns = served.end_ns.max(call.exit_ns);
                served.thread = thread;
            }
            return;
        }
        let taken = Transfer::new(thread, call, io);
        self.parents.begin(process, &taken, (asked, from), true);
        if let Some(served) = self.served.get_mut(&key) {
            if served.answer.is_none() {
                served.asked.to = to;
                return;
            }
            let served = self.served.remove(&key).expect("present");
            self.end_served(world, served);
        }
        let served = Served {
            process,
            thread,
            start_ns: arrival_ns(world, thread, call, (asked, from)),
            asked: Message { object: asked, from, to },
            answer: None,
            end_ns: 0,
        };
        self.served.insert(key, served);
    }

    /// The server has read again, or is gone: what it answered is a request, unless its client turned
    /// out to be traced, too.
    fn end_served(&mut self, world: &World, served: Served) {
        let Some(answer) = served.answer else { return };
        if !peer_is_unknown(world, answer.object, served.asked.object) {
            return; // a turn, with both ends
        }
        self.found_primary = true;
        let sure = self.is_surely(served.process, served.asked.object);
        let request = Request {
            request_id: self.id_of((served.asked.object, served.asked.from)),
            complete: sure,
            reason: (!sure).then(|| WHO_ASKS.to_string()),
            server: Some(end_of(world, served.thread, served.end_ns)),
            channel: Some(name_of(world, served.asked.object)),
            request_bytes: Some(served.asked.to.saturating_sub(served.asked.from)),
            response_bytes: Some(answer.to.saturating_sub(answer.from)),
            ..Request::new(kind_of(answer.object), served.start_ns, served.end_ns)
        };
        let goal = Goal {
            server_process: Some(served.process),
            messages: vec![served.asked, answer],
            ..Goal::new(
                served.start_ns,
                served.end_ns.max(served.start_ns),
                (served.thread, served.process),
            )
        };
        self.found.push(Found { request, goal });
    }

    /// Ends what is still open, of that process or of all.
    pub(super) fn end_all_served(&mut self, world: &World, process: Option<ProcessId>) {
        let ends = |owner: &ProcessId| process.is_none_or(|process| process == *owner);
        let mut ended: Vec<_> =
            self.served.keys().filter(|(owner, _)| ends(owner)).copied().collect();
        ended.sort_unstable();
        for key in ended {
            let served = self.served.remove(&key).expect("just listed");
            self.end_served(world, served);
        }
        self.roles.retain(|(owner, _), _| !ends(owner));
    }

    pub(super) fn is_client(&self, process: ProcessId, asked: Object) -> bool {
        self.roles.get(&(process, asked)).is_some_and(|part| part.role == Role::Client)
    }

    /// Whether it is known for sure who asks on a connection of that process.
    pub(super) fn is_surely(&self, process: ProcessId, asked: Object) -> bool {
        self.roles.get(&(process, asked)).is_some_and(|part| part.sure)
    }
}

/// Whether nobody traced is known at the other end of a connection on which we write to `ours`.
pub(super) fn peer_is_unknown(world: &World, ours: Object, theirs: Object) -> bool {
    let read = world.channels.get(&ours).is_some_and(|channel| channel.is_read);
    let written = world.channels.get(&theirs).is_some_and(|channel| channel.is_written);
    !read && !written
}

/// When the first byte of this read arrived, as far as it is known. Where its arrival was not told (of TCP it
/// is): at the wake-up, if the thread slept for it in the read or in the poll before it; else by the read's
/// begin.
pub(super) fn arrival_ns(
    world: &World,
    thread: ThreadId,
    call: &Call,
    (object, byte): (Object, u64),
) -> u64 {
    let told_ns = world.channels.get(&object).and_then(|channel| channel.arrived_ns(byte));
    if let Some(told_ns) = told_ns {
        return told_ns.min(call.exit_ns);
    }
    let t = world.thread(thread);
    let Some(off) = t.off_before(call.exit_ns) else { return call.enter_ns };
    let (Why::Slept { uninterruptible: false, .. }, Some(open)) = (off.why, off.call) else {
        return call.enter_ns;
    };
    let polled = waits(open.nr, None) == Waits::Readiness;
    // A poll may have told of several: what was read in between had been the first.
    let first = || {
        let calls = latest_before(&t.calls, |other| other.enter_ns < call.enter_ns);
        !{ calls }
            .take_while(|other| other.enter_ns >= off.end_ns)
            .any(|other| other.transfers().any(|io| !io.is_write))
    };
    if off.start_ns >= call.enter_ns || (polled && first()) {
        return off.runnable_ns().unwrap_or(call.enter_ns);
    }
    call.enter_ns
}
