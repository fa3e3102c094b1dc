//! Judges whether the engine's answer to a request is what happened: segment by segment, nanosecond by nanosecond.

use rpcprobe::model::{Category, Evidence, Rule, Segment};

use super::facts::{Delay, Message, Opened, Packet, ReqNo};
use super::net::Way;
use super::programs::Trace;
use crate::walk::truth::{Away, Doing, TaskNo, Tick, Why};

/// The state of a thread in a nanosecond.
#[derive(Clone, Copy)]
enum State<'t> {
    On(Tick),
    Runnable(&'t Away),
    /// Asleep, or new and not woken yet.
    Off(&'t Away),
    Unborn,
}

/// How much of a segment is right.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub ns: u64,
    pub right_ns: u64,
    /// The state of a thread, a queue or the wire that the segment contradicts. Nothing excuses this.
    pub false_state: Option<String>,
}

pub struct Judge<'t> {
    trace: &'t Trace,
    req: ReqNo,
    end_ns: u64,
}

impl<'t> Judge<'t> {
    pub fn new(trace: &'t Trace, req: ReqNo, end_ns: u64) -> Judge<'t> {
        Judge { trace, req, end_ns }
    }

    pub fn judge(&self, segment: &Segment) -> Verdict {
        let mut verdict = Verdict { ns: segment.duration_ns, ..Verdict::default() };
        let Some(task) = self.task(segment.tid) else {
            verdict.false_state = Some("no such thread".into());
            return verdict;
        };
        for at_ns in segment.start_ns..segment.end_ns() {
            match self.at(segment, task, at_ns) {
                Ok(right) => verdict.right_ns += u64::from(right),
                Err(_) if segment.evidence != Evidence::Measured => {}
                Err(what) => {
                    verdict.false_state.get_or_insert(format!("at {at_ns}: {what}"));
                }
            }
        }
        verdict
    }

    fn task(&self, tid: u32) -> Option<TaskNo> {
        self.trace.truth.tasks.iter().position(|task| task.tid == tid)
    }

    fn state(&self, task: TaskNo, at_ns: u64) -> State<'t> {
        let truth = &self.trace.truth;
        let ticks = &truth.tasks[task].ticks;
        let Some(tick) = ticks.get((at_ns - truth.start_ns) as usize) else {
            return State::Unborn;
        };
        match tick.doing {
            Doing::Unborn => State::Unborn,
            Doing::Away(away) => {
                let away = &truth.aways[away];
                let runnable = match away.why {
                    Why::Preempted => true,
                    _ => away.wakeup.is_some_and(|wakeup| wakeup.at_ns <= at_ns),
                };
                if runnable {
                    State::Runnable(away)
                } else {
                    State::Off(away)
                }
            }
            _ => State::On(*tick),
        }
    }

    /// Whether the segment is right in this nanosecond, as far as it says which request a thread works for or what the
    /// request waits for.
    ///
    /// # Errors
    /// Says what the segment contradicts.
    fn at(&self, segment: &Segment, task: TaskNo, at_ns: u64) -> Result<bool, String> {
        let state = self.state(task, at_ns);
        let ours = self.trace.facts.messages(self.req);
        match segment.category {
            category if category.is_on_cpu() => self.works(category, task, state, at_ns),
            Category::RunqueueWakeup | Category::RunqueuePreempted => {
                self.waits_for_cpu(segment, state, at_ns).map(|()| true)
            }
            Category::QueueSocket | Category::QueuePipe | Category::QueueApp
                if matches!(segment.rule, Some(Rule::Ready | Rule::Message | Rule::Arrival)) =>
            {
                let inside = segment.category != Category::QueueSocket;
                let lies = |message: Message| self.lies_unread(message, at_ns);
                if inside || { ours }.any(lies) {
                    return Ok(true);
                }
                // No record tells of a softirq that delivers bytes over loopback late.
                let late = |message: Message| self.is_under_way(message, at_ns);
                let over_loopback = |message: &Message| self.way(*message) == Way::Loopback;
                let facts = &self.trace.facts;
                if facts.messages(self.req).filter(over_loopback).any(late) {
                    return Ok(false);
                }
                // A writer that lost its CPU in the middle of its call may not have written yet.
                if facts.messages(self.req).any(|message| self.is_unwritten(message, at_ns)) {
                    return Ok(false);
                }
                // Or the bytes that it waits for belong to other requests.
                match facts.others(self.req).any(|message| lies(message) || late(message)) {
                    true => Ok(false),
                    false => Err("no bytes are there".into()),
                }
            }
            Category::QueueAccept => {
                let facts = &self.trace.facts;
                let waits = |opened: &Opened| {
                    opened.established_ns.is_some_and(|ns| ns <= at_ns)
                        && opened.accepted_ns.is_none_or(|ns| at_ns < ns)
                };
                // The connection of the request, or that of a request made for it, at the server of the latter.
                let is_there = |req: ReqNo| req == self.req || self.is_of_server(task, req);
                let mut family = facts.family(self.req).filter(|req| is_there(*req));
                if family.any(|req| waits(&facts.opened[facts.reqs[req].conn])) {
                    Ok(true)
                } else if facts.opened.iter().any(waits) {
                    Ok(false) // another request's
                } else {
                    Err("no connection waits".into())
                }
            }
            // A request that waits has no thread working for it.
            Category::QueueApp => Ok(!self.works_alone(state)
                && self.only_worker(at_ns).is_none()
                && !self.waits_for_timer(at_ns)),
            Category::Sleep => self.sleeps(segment, task, state, at_ns),
            Category::IdlePeer if self.serves(task) && self.waits_for_timer(at_ns) => Ok(false),
            Category::QueueSocket => match state {
                State::Off(_) => Ok(true),
                _ => Err("does not wait for room".into()),
            },
            Category::WireStack | Category::WireLink | Category::WireQdisc => {
                self.on_the_wire(segment.category, state, at_ns)
            }
            Category::IdlePeer if segment.rule == Some(Rule::Arrival) => {
                let awaited = { ours }.any(|message| self.is_awaited(message, at_ns));
                if awaited {
                    Ok(true)
                } else {
                    Err("nothing is awaited".into())
                }
            }
            Category::Lock => match state {
                State::Off(away) => Ok(matches!(away.why, Why::Mutex | Why::SemaphoreLock)),
                _ => Err("does not wait for a lock".into()),
            },
            Category::Unattributed => Ok(false),
            _ => self.waits(segment, task, state, at_ns),
        }
    }

    // ---- on a CPU -----------------------------------------------------------------------------

    fn works(
        &self,
        category: Category,
        task: TaskNo,
        state: State<'_>,
        at_ns: u64,
    ) -> Result<bool, String> {
        let State::On(tick) = state else { return Err("is not on a CPU".into()) };
        let call = tick.call.map(|call| self.trace.truth.calls[call].category);
        let fits = match tick.doing {
            Doing::User => category == Category::User,
            Doing::Call => call == Some(category),
            Doing::Fault => category == Category::Fault,
            _ => category == Category::Interrupt,
        };
        if !fits && !self.is_told_late(task, at_ns, tick.doing) {
            return Err(format!("is in {:?} {call:?}", tick.doing));
        }
        Ok(self.is_for(tick))
    }

    /// Whether this is a fault or interrupt without a record before the end of the request.
    fn is_told_late(&self, task: TaskNo, at_ns: u64, doing: Doing) -> bool {
        matches!(doing, Doing::Fault | Doing::Softirq | Doing::Hardirq)
            && (at_ns..self.end_ns).all(|later_ns| match self.state(task, later_ns) {
                State::On(tick) => !matches!(tick.doing, Doing::User | Doing::Call),
                _ => true,
            })
    }

    /// Whether a thread works for the request then, possibly among others.
    fn is_for(&self, tick: Tick) -> bool {
        let facts = &self.trace.facts;
        let whose = &facts.whose[tick.whose as usize];
        whose.of.iter().any(|req| facts.is_for(*req, self.req))
    }

    fn works_alone(&self, state: State<'_>) -> bool {
        let State::On(tick) = state else { return false };
        let whose = &self.trace.facts.whose[tick.whose as usize];
        whose.of.len() == 1 && !whose.loose && self.is_for(tick)
    }

    /// Whether a thread, on or off its CPU, has this request then and no other.
    fn had_alone(&self, task: TaskNo, at_ns: u64) -> bool {
        let truth = &self.trace.truth;
        let tick = truth.tasks[task].ticks[(at_ns - truth.start_ns) as usize];
        let whose = &self.trace.facts.whose[tick.whose as usize];
        whose.of.len() == 1 && !whose.loose && self.is_for(tick)
    }

    /// The thread of the request's server, or of a server behind it, that computes for the request, if no other thread
    /// works for it.
    pub fn only_worker(&self, at_ns: u64) -> Option<u32> {
        let facts = &self.trace.facts;
        let mut found = None;
        for (no, task) in self.trace.truth.tasks.iter().enumerate().skip(1) {
            let State::On(tick) = self.state(no, at_ns) else { continue };
            if !self.is_for(tick) {
                continue;
            }
            let whose = &facts.whose[tick.whose as usize];
            let alone = whose.of.len() == 1 && !whose.loose;
            let served = &facts.reqs[whose.of[0]];
            let answer_ns = facts.links[served.answer.link].put.of(served.answer.from);
            let serves = served.server_tgid == task.tgid
                && served.received_ns.is_some_and(|ns| ns <= at_ns)
                && answer_ns.is_none_or(|ns| at_ns < ns);
            // In a call the thread may have handed the request on.
            let computes = tick.doing == Doing::User;
            if !alone || !serves || !computes || !task.traced || found.is_some() {
                return None;
            }
            found = Some(task.tid);
        }
        found
    }

    // ---- off it -------------------------------------------------------------------------------

    fn waits(
        &self,
        segment: &Segment,
        task: TaskNo,
        state: State<'_>,
        at_ns: u64,
    ) -> Result<bool, String> {
        match state {
            // The wait may have begun as the turn of other requests, before whose end the thread rested.
            State::Off(away) => {
                let fits = waits_so(segment.category, away);
                let ends = at_ns + 1 == segment.end_ns() && self.had_alone(task, at_ns);
                match fits || !ends {
                    true => Ok(fits),
                    false => Err(format!("waits for {:?}", away.why)),
                }
            }
            state => Ok(!self.works_alone(state)),
        }
    }

    /// Whether the request waits for a timer of its own: it was put off, or its thread sleeps.
    fn sleeps(
        &self,
        segment: &Segment,
        task: TaskNo,
        state: State<'_>,
        at_ns: u64,
    ) -> Result<bool, String> {
        let off = |away: &Away| matches!(away.why, Why::Readiness | Why::Condition | Why::Timer);
        match self.put_off(at_ns) {
            Some(delay) if at_ns < delay.due_ns => Ok(true),
            // The timer expires late, while the thread rests.
            Some(_) => Ok(matches!(state, State::Off(away) if off(away))),
            None => {
                // Whichever request the thread sleeps for: if it has this request, the request waits until it is awake.
                let fits = self.waits(segment, task, state, at_ns)?;
                let own = segment.rule != Some(Rule::Timer) || self.had(task, at_ns);
                Ok(fits && own && !matches!(state, State::Off(away) if away.why != Why::Timer))
            }
        }
    }

    /// The delay of the request, or of a request made for it, whose server has not gone on with it yet.
    fn put_off(&self, at_ns: u64) -> Option<&'t Delay> {
        let facts = &self.trace.facts;
        facts.delays.iter().find(|delay| {
            facts.is_for(delay.req, self.req)
                && delay.from_ns <= at_ns
                && delay.resumed_ns.is_none_or(|ns| at_ns < ns)
        })
    }

    /// Whether such a delay is not due yet.
    pub fn waits_for_timer(&self, at_ns: u64) -> bool {
        self.put_off(at_ns).is_some_and(|delay| at_ns < delay.due_ns)
    }

    fn serves(&self, task: TaskNo) -> bool {
        self.is_of_server(task, self.req)
    }

    fn is_of_server(&self, task: TaskNo, req: ReqNo) -> bool {
        self.trace.truth.tasks[task].tgid == self.trace.facts.reqs[req].server_tgid
    }

    fn had(&self, task: TaskNo, at_ns: u64) -> bool {
        let truth = &self.trace.truth;
        self.is_for(truth.tasks[task].ticks[(at_ns - truth.start_ns) as usize])
    }

    fn waits_for_cpu(&self, segment: &Segment, state: State<'_>, at_ns: u64) -> Result<(), String> {
        let State::Runnable(away) = state else { return Err("does not wait for a CPU".into()) };
        let preempted = away.why == Why::Preempted;
        if preempted != (segment.category == Category::RunqueuePreempted) {
            return Err(format!("waits for a CPU after {:?}", away.why));
        }
        let Some(by) = &segment.by else { return Ok(()) };
        let said = Some(by.tid.unwrap_or(0));
        let truth = &self.trace.truth;
        let had = &truth.cpus[away.queue_at(at_ns)][(at_ns - truth.start_ns) as usize];
        match had.map(|task| truth.tasks[task].tid) {
            had if had == said || had.is_none() => Ok(()),
            had => Err(format!("{had:?} had the CPU")),
        }
    }

    /// Whether some byte of the message is in its reader's socket and has not been read.
    fn lies_unread(&self, message: Message, at_ns: u64) -> bool {
        let link = &self.trace.facts.links[message.link];
        (message.from..message.to).any(|byte| {
            link.there.of(byte).is_some_and(|ns| ns <= at_ns)
                && link.taken.of(byte).is_none_or(|ns| at_ns < ns)
        })
    }

    fn way(&self, message: Message) -> Way {
        self.trace.ways[message.link / 2]
    }

    fn is_unwritten(&self, message: Message, at_ns: u64) -> bool {
        let put = &self.trace.facts.links[message.link].put;
        (message.from..message.to).any(|byte| put.of(byte).is_none_or(|ns| at_ns < ns))
    }

    /// Whether some byte of the message has been written and is not in its reader's socket.
    fn is_under_way(&self, message: Message, at_ns: u64) -> bool {
        let link = &self.trace.facts.links[message.link];
        (message.from..message.to).any(|byte| {
            link.put.of(byte).is_some_and(|ns| ns <= at_ns)
                && link.there.of(byte).is_none_or(|ns| at_ns < ns)
        })
    }

    /// Whether some byte of the message has not reached its reader's socket.
    fn is_awaited(&self, message: Message, at_ns: u64) -> bool {
        let link = &self.trace.facts.links[message.link];
        (message.from..message.to).any(|byte| link.there.of(byte).is_none_or(|ns| at_ns < ns))
    }

    fn on_the_wire(
        &self,
        category: Category,
        state: State<'_>,
        at_ns: u64,
    ) -> Result<bool, String> {
        let facts = &self.trace.facts;
        if let (State::On(tick), Category::WireStack) = (state, category) {
            if tick.doing == Doing::Softirq && tick.call.is_some() {
                return Ok(self.is_for(tick));
            }
        }
        let in_packet = |message: Message| {
            let here = |packet: &Packet| {
                let from_to = match category {
                    Category::WireQdisc => (Some(packet.queued_ns), packet.sent_ns),
                    _ => (packet.sent_ns, packet.received_ns),
                };
                from_to.0.is_some_and(|ns| ns <= at_ns) && from_to.1.is_none_or(|ns| at_ns < ns)
            };
            facts.packets.iter().any(|packet| packet.link == message.link && here(packet))
        };
        let fits = |message: Message| match category {
            Category::WireStack => self.is_under_way(message, at_ns),
            _ => in_packet(message),
        };
        match facts.messages(self.req).any(fits) {
            true => Ok(true),
            // Messages of other requests are there.
            false if facts.others(self.req).any(fits) => Ok(false),
            false => Err("nothing is there".into()),
        }
    }
}

fn waits_so(category: Category, away: &Away) -> bool {
    match category {
        Category::Sleep => matches!(away.why, Why::Timer | Why::Readiness),
        Category::BlockIo => matches!(away.why, Why::Disk { .. }),
        Category::IdlePeer => matches!(away.why, Why::Pipe | Why::Readiness),
        _ => false,
    }
}
