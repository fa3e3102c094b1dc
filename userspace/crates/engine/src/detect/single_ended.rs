//! Detects requests on connections of which only one end is traced.
//!
//! The end that moved the first byte on a connection is its client. A traced client's request is a turn like
//! others, without the server's part. A traced server's request runs from the arrival of what it read to the
//! end of its last write before it reads again.

use std::collections::VecDeque;

use crate::classify::syscall::{waits, Waits};
use crate::detect::half_duplex::WHO_ASKS;
use crate::detect::{end_of, kind_of, name_of, Detector, Found, RECENT_READS};
use crate::event::{Call, Io, Object};
use crate::timeline::gallop::latest_before;
use crate::timeline::{Carries, ProcessId, ThreadId, Transfer, Why, World};
use crate::walk::{Goal, Message};
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

/// A read of a server, and when its first byte arrived.
#[derive(Debug, Clone, Copy)]
struct Taken {
    read: Transfer,
    arrived_ns: u64,
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
    /// Its first read.
    taken: Transfer,
    /// Its latest other reads, before it is answered: they may prove to be of the next question.
    more: VecDeque<Taken>,
}

impl Served {
    fn new(process: ProcessId, object: Object, Taken { read, arrived_ns }: Taken) -> Served {
        Served {
            process,
            thread: read.thread,
            start_ns: arrived_ns,
            asked: Message { object, from: read.from, to: read.to },
            answer: None,
            end_ns: 0,
            taken: read,
            more: VecDeque::new(),
        }
    }

    fn takes_more(&mut self, taken: Taken) {
        self.asked.to = taken.read.to;
        if self.more.len() == RECENT_READS {
            self.more.pop_front();
        }
        self.more.push_back(taken);
    }

    fn answered(&mut self, written: &Transfer, object: Object) {
        let begin = self.answer.map_or(written.from, |answer| answer.from);
        self.answer = Some(Message { object, from: begin, to: written.to });
        self.end_ns = self.end_ns.max(written.exit_ns);
        self.thread = written.thread;
    }

    /// What a write that began then cannot answer, as it was read later: that is another question. A call's
    /// record comes when it ends.
    fn asked_since(&mut self, began_ns: u64) -> Option<Served> {
        let later = self.more.iter().position(|taken| taken.read.exit_ns > began_ns)?;
        let mut later = self.more.split_off(later);
        let mut next = Served::new(self.process, self.asked.object, later.pop_front()?);
        self.asked.to = next.asked.from;
        next.asked.to = later.back().map_or(next.asked.to, |taken| taken.read.to);
        next.more = later;
        Some(next)
    }
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
        let moved = Transfer::new(thread, call, io);
        match io.is_write {
            true => self.one_sided_answer(world, process, &moved, (asked, answer)),
            false => {
                let arrived_ns = arrival_ns(world, thread, call, (asked, moved.from));
                self.one_sided_question(world, process, Taken { read: moved, arrived_ns }, asked);
            }
        }
    }

    fn one_sided_answer(
        &mut self,
        world: &World,
        process: ProcessId,
        written: &Transfer,
        (asked, answer): (Object, Object),
    ) {
        let key = (process, asked);
        let served = self.served.get_mut(&key);
        if served.as_ref().is_some_and(|served| written.enter_ns < served.taken.exit_ns) {
            return; // more of the answer before
        }
        self.parents.end_all(process, asked, written.exit_ns);
        let Some(served) = served else { return };
        self.parents.end(process, (asked, served.asked.from), written.exit_ns);
        let next = match served.answer {
            None => served.asked_since(written.enter_ns),
            Some(_) => None,
        };
        served.answered(written, answer);
        if let Some(next) = next {
            self.parents.begin(process, &next.taken, (asked, next.asked.from), true);
            if let Some(served) = self.served.insert(key, next) {
                self.end_served(world, served);
            }
        }
    }

    fn one_sided_question(
        &mut self,
        world: &World,
        process: ProcessId,
        taken: Taken,
        asked: Object,
    ) {
        self.parents.begin(process, &taken.read, (asked, taken.read.from), true);
        let key = (process, asked);
        match self.served.get_mut(&key) {
            Some(served) if served.answer.is_none() => served.takes_more(taken),
            _ => {
                if let Some(served) = self.served.insert(key, Served::new(process, asked, taken)) {
                    self.end_served(world, served);
                }
            }
        }
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
