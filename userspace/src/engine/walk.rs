//! The backward walk: from the moment the client has the answer to the moment it began to ask.
//!
//! State `(thread, time)`. Each step emits what the thread was doing just before that time and moves
//! back, or crosses an edge to the thread that made it wait. Every step lowers the time or uses up
//! an edge, so the walk ends; segments are emitted back to back, so they tile the request.

mod accept;
mod arrivals;
mod doubts;
mod messages;
mod rates;
mod run_queue;
mod segments;
mod turns;
mod wire;
mod workers;

use rustc_hash::{FxHashMap, FxHashSet};

use super::event::{Call, Io, Object, OpenCall, TYPE_EVENTFD, TYPE_FIFO};
use super::recent::{count_before, last_before};
use super::serve;
use super::sums::{stretch_before, Doing};
use super::syscall::{waits, waits_for_writeback, Waits, SOFTIRQ_NET_RX};
use super::tile::{self, InCall, Level};
use super::wait;
use super::world::{
    Channel, Off, ProcessId, Thread, ThreadId, Transfer, Wake, Why, Work, World, IDLE,
};
use crate::model::{Category, Evidence, Rule, Segment, Side};
pub use rates::Rates;
use turns::Turn;

/// `detail` of a `queue.pipe` segment.
const UNREAD: &str = "bytes ready, not yet read";

/// `detail` of a `queue.app` segment inside a server.
const UNSERVED: &str = "received, not yet served";

/// `detail` of a `queue.app` segment inside a thread that has the request and others.
const OTHERS_TURN: &str = "received, others are served";

/// `cause` of what a thread did that got the request from another one, nobody saw when.
pub const HANDED_UNSEEN: &str = "handed over in memory, unseen";

/// `phase` of what lies between the end of the read and the thread it was read for.
pub const HAND_OVER: &str = "hand-over";

/// What to explain.
#[derive(Clone, Debug)]
pub struct Goal {
    pub start_ns: u64,
    pub end_ns: u64,
    /// The thread that had the answer at `end_ns`.
    pub client: ThreadId,
    pub client_process: ProcessId,
    pub server_process: Option<ProcessId>,
    /// Bytes of this request on its channels; empty when it is not made of messages.
    pub messages: Vec<Message>,
    /// The child whose collection ended the request.
    pub child: Option<ProcessId>,
    /// Which other thread of the client had read the answer, and had it when, if one had.
    pub handed: Option<(ThreadId, u64)>,
    /// Who told the server by a word in shared memory that it was its turn, and when, if that is how it
    /// was told.
    pub passed: Option<(ThreadId, u64)>,
}

impl Goal {
    /// One of which nothing else is known; `client`: the thread that had the answer, and the process that
    /// asked.
    pub fn new(start_ns: u64, end_ns: u64, client: (ThreadId, ProcessId)) -> Goal {
        Goal {
            start_ns,
            end_ns,
            client: client.0,
            client_process: client.1,
            server_process: None,
            messages: Vec::new(),
            child: None,
            handed: None,
            passed: None,
        }
    }

    /// Whether bytes of the request's messages were moved.
    pub fn has(&self, io: &Io) -> bool {
        let end = io.offset.saturating_add(io.bytes);
        let overlaps = |m: &Message| m.object == io.object && m.from < end && io.offset < m.to;
        self.messages.iter().any(overlaps)
    }

    /// Number of the last byte of the request's that were moved, if any were.
    pub fn last_of(&self, io: &Io) -> Option<u64> {
        let end = io.offset.saturating_add(io.bytes);
        let of = self.messages.iter().filter(|m| m.object == io.object);
        let overlapping = of.filter(|m| m.from < end && io.offset < m.to);
        overlapping.map(|m| m.to.min(end) - 1).max()
    }
}

/// Bytes `[from, to)` of a channel that belong to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub object: Object,
    pub from: u64,
    pub to: u64,
}

/// The walk needs a record of this thread that has not come yet.
#[derive(Debug, PartialEq, Eq)]
pub struct NotYet(pub ThreadId);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub rates: Rates,
    /// The capture is over: what is not known will never be.
    pub no_more_records: bool,
}

/// Hand-offs followed one inside another before a wait is charged as it is.
const MAX_DEPTH: usize = 64;
/// Steps spent on one request before the rest is given up as unattributed.
const MAX_STEPS: usize = 4_000_000;

/// Followed wake-ups taken back, one by one, when the walk does not come out at the client; and the
/// steps spent on that.
const MOST_REFUSED: usize = 256;
const MOST_STEPS_REFUSING: usize = 200_000;

/// A segment before it gets its names; `[start_ns, end_ns)`.
struct Raw {
    start_ns: u64,
    end_ns: u64,
    thread: ThreadId,
    category: Category,
    detail: Option<String>,
    cause: Option<String>,
    by: Option<ThreadId>,
    cpu: Option<u32>,
    evidence: Evidence,
    rule: Rule,
    /// By how many requests the work is shared.
    shared: u32,
}

struct Walk<'w> {
    world: &'w World,
    goal: &'w Goal,
    settings: Settings,
    /// Latest first.
    out: Vec<Raw>,
    /// Threads whose work for this request is established.
    members: FxHashSet<ThreadId>,
    /// Whence nothing leads into the request: (thread, time).
    dead_ends: FxHashSet<(ThreadId, u64)>,
    /// Reads whose message was crossed already, by thread and entry: once is enough.
    crossed: FxHashSet<(ThreadId, u64)>,
    /// Where a thread's first read of a message found the bytes ready while it was being woken
    /// for them: the sleep to look out for, by thread.
    expected: FxHashMap<ThreadId, (Object, Transfer)>,
    /// The read (thread, entry) the walk is on its way back through, from a time when its bytes had
    /// begun to come.
    through: Option<(ThreadId, u64)>,
    steps: usize,
    /// Wake-ups (who was woken, when, by whom) the path itself followed; and those not to be.
    followed: Vec<(ThreadId, u64, ThreadId)>,
    refused: FxHashSet<(ThreadId, u64)>,
    /// At first: who looks like a lock's holder that lets go is not followed ([`Walk::is_lock`]), nor anybody who
    /// ended a wait for a futex back through answers to others ([`Walk::doubts`]). What that leaves without a
    /// way to the client gets another try without.
    strict: bool,
    /// Waits for futexes, one inside another, whose wakers are being explored.
    futexes: usize,
    /// Once nothing else leads to the client: see [`Walk::take_over`].
    received: Option<(ThreadId, u64)>,
    /// By how many requests the work being looked at is shared.
    shared: u32,
    /// How the walk came to the thread it is in; and what makes the next segment a wait, if its category does
    /// not tell.
    rule: Rule,
    wait_rule: Option<Rule>,
    /// The way back has come to the arrival of the request's bytes.
    came_in: bool,
}

/// Where a step leads.
enum Step {
    /// Same walk, new state.
    Go(ThreadId, u64),
    /// Crossed into a thread that already works for the request (or over one of its messages).
    Joined(ThreadId, u64),
    /// What a waker did from here on was for others.
    Nowhere,
}

/// The segments of a request, in order of time, and the thread of each.
///
/// # Errors
/// [`NotYet`]: try again when that thread has been heard of.
pub fn walk(
    world: &World,
    goal: &Goal,
    settings: Settings,
) -> Result<(Vec<Segment>, Vec<ThreadId>), NotYet> {
    let mut walk = Walk {
        world,
        goal,
        settings,
        out: Vec::with_capacity(32),
        members: FxHashSet::default(),
        dead_ends: FxHashSet::default(),
        crossed: FxHashSet::default(),
        expected: FxHashMap::default(),
        through: None,
        steps: 0,
        followed: Vec::new(),
        refused: FxHashSet::default(),
        strict: true,
        futexes: 0,
        received: None,
        shared: 1,
        rule: Rule::End,
        wait_rule: None,
        came_in: false,
    };
    walk.run()?;
    let mut segments: Vec<Segment> = Vec::with_capacity(walk.out.len());
    let mut threads: Vec<ThreadId> = Vec::new();
    while let Some(raw) = walk.out.pop() {
        let thread = raw.thread;
        let segment = walk.name(raw);
        match segments.last_mut() {
            Some(last) if joins(last, &segment) => last.duration_ns += segment.duration_ns,
            _ => {
                segments.push(segment);
                threads.push(thread);
            }
        }
    }
    if world.stacks.any() {
        for (segment, &thread) in segments.iter_mut().zip(&threads) {
            let (start_ns, end_ns) = (segment.start_ns, segment.end_ns());
            segment.stack = world.stack_of(thread, segment.category, start_ns, end_ns);
            if segment.category == Category::Interrupt
                && world.stacks.sampled_by_interrupt_at(thread, start_ns)
            {
                let detail = segment.detail.get_or_insert_default();
                detail.push_str(", taking a sample");
            }
        }
    }
    Ok((segments, threads))
}

/// Whether two neighbours differ in nothing but time.
pub(super) fn joins(a: &Segment, b: &Segment) -> bool {
    a.tid == b.tid
        && a.category == b.category
        && a.cpu == b.cpu
        && a.phase == b.phase
        && a.detail == b.detail
        && a.cause == b.cause
        && a.by == b.by
        && a.evidence == b.evidence
        && a.rule == b.rule
        && a.shared == b.shared
}

impl<'w> Walk<'w> {
    fn run(&mut self) -> Result<(), NotYet> {
        // Its thread may look at the word before it sleeps.
        self.received = self.goal.passed;
        loop {
            // The request began in its client: elsewhere, the walk has lost the thread. One that once
            // worked for the request wakes others for other reasons, too: the last wake-up that was
            // followed is kept as a wait instead.
            let lost = self.back()?.is_some();
            if lost && std::mem::take(&mut self.strict) {
                // One of those handed the request on, after all.
                continue;
            }
            let followed = if lost { self.followed.last().copied() } else { self.bypassing() };
            let go_on = self.refused.len() < MOST_REFUSED && self.steps < MOST_STEPS_REFUSING;
            // Where the read is known that brought it, its thread is where it was handed on from.
            let go_on = go_on && !self.must_come_in();
            match followed.filter(|_| go_on) {
                Some((thread, at_ns, _)) => self.refused.insert((thread, at_ns)),
                None if lost => return self.run_without_a_trace(),
                None => return Ok(()),
            };
        }
    }

    /// The way back came to the client by the accept() of the request's connection, but when the server's
    /// thread read what was asked, it was in another thread of the server, though later it had been in that
    /// one. Whoever of the server woke that thread did so for something else: the acceptor, say, that let
    /// go of a lock. The wake-up that was followed there.
    fn bypassing(&self) -> Option<(ThreadId, u64, ThreadId)> {
        let asked = self.goal.messages.first().filter(|_| !self.followed.is_empty())?;
        let channel = self.world.channels.get(&asked.object)?;
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let thread_at = |at_ns: u64| {
            let raw = self.out.iter().find(|raw| raw.start_ns < at_ns && at_ns <= raw.end_ns);
            raw.map(|raw| raw.thread)
        };
        let accepted = channel.accepted?;
        if thread_at(accepted.exit_ns) != Some(accepted.thread) {
            return None;
        }
        let left = |read: &Transfer| {
            let then = thread_at(read.exit_ns)?;
            if then == read.thread || process(then) != process(read.thread) {
                return None;
            }
            // For good.
            let left = self.followed.iter().rev().find(|(thread, ..)| *thread == read.thread)?;
            let (_, at_ns, waker) = *left;
            let by_own = process(waker) == process(read.thread) && read.exit_ns < at_ns;
            by_own.then_some(*left)
        };
        let mut reads = Channel::overlapping(&channel.reads, asked.from, asked.to);
        // What it read in pieces it may have handed over with any of them.
        let first = reads.next().and_then(left)?;
        reads.all(|read| left(read).is_some()).then_some(first)
    }

    /// No wake-up that was followed is to blame: perhaps the request was handed over without any.
    fn run_without_a_trace(&mut self) -> Result<(), NotYet> {
        self.refused.clear();
        self.steps = 0;
        let alone = self.must_come_in();
        let server = self.goal.server_process;
        let server = server.filter(|&id| alone || id != self.goal.client_process);
        self.received =
            server.and_then(|id| serve::received(self.world, self.goal, id, self.goal.end_ns));
        if self.received.is_some() && self.back()?.is_none() {
            return Ok(());
        }
        self.received = None;
        if let Some((thread, joined_at)) = self.back()? {
            self.out.truncate(joined_at);
            let end_ns = self.out.last().map_or(self.goal.end_ns, |raw| raw.start_ns);
            self.give_up(thread, end_ns, "nothing shows how the request reached this thread");
        }
        Ok(())
    }

    /// The whole way back. If it does not end in the client's process: in which thread it does, and how
    /// much had been emitted when it last joined one.
    fn back(&mut self) -> Result<Option<(ThreadId, usize)>, NotYet> {
        self.out.clear();
        self.rule = Rule::End;
        self.came_in = false;
        self.dead_ends.clear();
        self.crossed.clear();
        self.expected.clear();
        self.through = None;
        self.followed.clear();
        // The child whose life the request is does not have to be explored first.
        let child = self.goal.child.map(|child| self.world.processes[child as usize].leader);
        self.members = [self.goal.client].into_iter().chain(child).collect();
        self.members.extend(self.received.map(|(reader, _)| reader));
        self.members.extend(self.goal.handed.map(|(reader, _)| reader));
        if self.must_come_in() {
            // Whom it woke after its read, it woke for the request, if it had not turned to others.
            let server = self.goal.client_process;
            let received = serve::received(self.world, self.goal, server, self.goal.end_ns);
            self.members.extend(received.map(|(reader, _)| reader));
        }
        let (mut thread, mut at_ns) = (self.goal.client, self.goal.end_ns);
        let mut joined_at = 0;
        while at_ns > self.goal.start_ns {
            if self.steps > MAX_STEPS {
                self.give_up(thread, at_ns, "too many steps to explain");
                return Ok(None);
            }
            let step = self.step(thread, at_ns, 0)?;
            match self.take_over(thread, at_ns, joined_at).unwrap_or(step) {
                Step::Go(t, ns) => (thread, at_ns) = (t, ns),
                Step::Joined(t, ns) => {
                    self.join(t);
                    self.through = None;
                    joined_at = self.out.len();
                    (thread, at_ns) = (t, ns);
                }
                Step::Nowhere => unreachable!("only while a waker is explored"),
            }
        }
        let at_home = match self.must_come_in() {
            true => self.came_in,
            false => self.world.thread(thread).process == self.goal.client_process,
        };
        Ok((!at_home).then_some((thread, joined_at)))
    }

    /// Whether the request began as its bytes came to its server's socket: then only the read of those leads to its
    /// begin.
    fn must_come_in(&self) -> bool {
        let arrived = |asked: &Message| {
            let channel = self.world.channels.get(&asked.object)?;
            channel.arrived_ns(asked.to.checked_sub(1)?)
        };
        self.goal.server_process == Some(self.goal.client_process)
            && self.goal.messages.first().is_some_and(|asked| arrived(asked).is_some())
    }

    /// What led nowhere may lead to a thread that is new in the request.
    fn join(&mut self, thread: ThreadId) {
        if self.members.insert(thread) {
            self.dead_ends.clear();
        }
    }

    /// A server's thread that works for the request since before it was received has got it from the
    /// one that received it, without a trace: threads that look for work before they sleep (Go's, gRPC's)
    /// take it from memory. Somewhen since then; what it did is taken for the request's, modelled.
    ///
    /// To be called after a step from `(thread, at_ns)`: if that went too far, takes back what is
    /// too much and leads to the receiver.
    fn take_over(&mut self, thread: ThreadId, at_ns: u64, joined_at: usize) -> Option<Step> {
        let (reader, read_ns) = self.received?;
        let begun_ns = self.out.last()?.start_ns;
        let in_server = Some(self.world.thread(thread).process) == self.goal.server_process;
        if !in_server || thread == reader || at_ns <= read_ns || begun_ns > read_ns {
            return None;
        }
        while self.out.last().is_some_and(|raw| raw.end_ns <= read_ns) {
            self.out.pop();
        }
        for raw in &mut self.out[joined_at..] {
            raw.start_ns = raw.start_ns.max(read_ns);
            if raw.category == Category::Unattributed {
                if raw.end_ns > self.world.thread(raw.thread).born_ns {
                    continue;
                }
                // Whoever served it then was not there yet.
                (raw.category, raw.rule) = (Category::QueueApp, Rule::InMemory);
                raw.detail = Some(UNSERVED.into());
            }
            raw.evidence = Evidence::Modelled;
            raw.cause = Some(match raw.cause.take() {
                Some(cause) => format!("{cause}; {HANDED_UNSEEN}"),
                None => HANDED_UNSEEN.into(),
            });
        }
        self.rule = Rule::InMemory;
        Some(Step::Joined(reader, read_ns))
    }

    /// One step back from `(thread, at_ns)`.
    fn step(&mut self, thread: ThreadId, at_ns: u64, depth: usize) -> Result<Step, NotYet> {
        self.steps += 1;
        let t = self.world.thread(thread);
        let start_ns = self.goal.start_ns;
        self.shared = 1;
        match self.turn(thread, at_ns) {
            Some(Turn::Others { .. }) if depth > 0 && self.strict => return Ok(Step::Nowhere),
            Some(Turn::Others { from_ns }) if depth == 0 => {
                let from_ns = from_ns.max(start_ns);
                self.others_turn(thread, from_ns, at_ns);
                return Ok(Step::Go(thread, from_ns));
            }
            Some(Turn::Shared { by }) => self.shared = by,
            _ => {}
        }
        let off = t.off_before(at_ns);
        if let Some(off) = off.filter(|off| off.end_ns >= at_ns) {
            return self.off_cpu(thread, off, at_ns, depth);
        }
        let mut floor_ns = off.map_or(0, |off| off.end_ns).max(start_ns);
        // A thread that another's exit_group() ended: what it did before has nothing to do with it.
        if let Some((ended_ns, by)) = self.world.process_of(thread).group_exit {
            if by != thread && t.exited_ns.is_some_and(|exited_ns| exited_ns >= ended_ns) {
                if at_ns == ended_ns {
                    self.rule = Rule::GroupExit;
                    return Ok(Step::Go(by, ended_ns));
                }
                if at_ns > ended_ns {
                    floor_ns = floor_ns.max(ended_ns);
                }
            }
        }
        if at_ns <= t.known_from_ns {
            self.give_up(thread, at_ns, "before anything is known of this thread");
            return Ok(Step::Go(thread, start_ns));
        }
        let floor_ns = floor_ns.max(t.known_from_ns.min(at_ns - 1));
        let no_more = self.settings.no_more_records;
        let Some(piece) = tile::piece_before(t, at_ns, floor_ns, no_more) else {
            return Err(NotYet(thread));
        };
        // A read that found its bytes ready is where a message came in.
        if let Level::Call(call) = piece.level {
            let read = (thread, call.enter_ns);
            if !self.crossed.contains(&read) {
                if let Some(step) = self.read_without_sleep(thread, call, piece.start_ns, at_ns) {
                    self.crossed.insert(read);
                    return Ok(step);
                }
                if let Some(step) = self.arrived_before(thread, call, piece.start_ns, at_ns)? {
                    self.crossed.insert(read);
                    return Ok(step);
                }
            }
            if let Some(step) = self.accept_without_sleep(thread, call, piece.start_ns, at_ns) {
                return Ok(step);
            }
            if let Some(step) = self.wait_without_sleep(thread, call, &piece, at_ns)? {
                return Ok(step);
            }
            // A waker that is explored and answers others there need not have had this request.
            let taken = match depth == 0 || self.doubts() {
                true => serve::waiting_inside(self.world, self.goal, thread, call),
                false => None,
            };
            if let Some((reader, read_ns)) = taken.filter(|(_, read_ns)| *read_ns < at_ns) {
                if depth > 0 {
                    return Ok(Step::Nowhere);
                }
                self.queue(thread, (read_ns, at_ns), Category::QueueApp, UNSERVED, Rule::InMemory);
                self.rule = Rule::InMemory;
                return Ok(Step::Joined(reader, read_ns));
            }
        }
        self.on_cpu(thread, &piece, at_ns);
        Ok(Step::Go(thread, piece.start_ns))
    }

    // ---- on the CPU ---------------------------------------------------------------------------

    fn on_cpu(&mut self, thread: ThreadId, piece: &tile::Piece<'_>, end_ns: u64) {
        let (mut category, mut detail) = tile::describe(&piece.level);
        if let Level::Softirq(span) = piece.level {
            let t = self.world.thread(thread);
            if span.number == SOFTIRQ_NET_RX && tile::in_network_call(t, span.end_ns) {
                // Its own packet, on its way to the socket's other end.
                category = Category::WireStack;
                detail = Some("receive stack".into());
            }
        }
        let t = self.world.thread(thread);
        let (rates, mut outside) = (self.settings.rates, None);
        if let Level::User | Level::Call(_) = piece.level {
            // Entry and return cannot be bracketed: they count from the end on.
            let fault = last_before(&t.faults, |span| span.start_ns < piece.start_ns);
            let ended = fault.filter(|fault| fault.end_ns == piece.start_ns);
            if let Some(fault) = ended {
                let inside_ns = fault.end_ns - fault.start_ns;
                outside = Some((rates.outside_fault_ns(inside_ns), Category::Fault));
            } else if t.call_before(piece.start_ns).is_some_and(|c| c.exit_ns == piece.start_ns) {
                outside = Some((rates.call_outside_ns, Category::KernelOther));
            }
        }
        let copy = match piece.level {
            Level::Call(call) => rates.copied(t, call),
            _ => None,
        };
        let (outside_ns, around) = outside.unwrap_or((0, Category::User));
        let inside_from = end_ns.min(piece.start_ns.saturating_add(outside_ns));
        let (copy_from, copy_to) = match copy {
            Some((from, to)) => (from.clamp(inside_from, end_ns), to.clamp(inside_from, end_ns)),
            None => (end_ns, end_ns),
        };
        let outside_detail = (inside_from > piece.start_ns).then(|| "entry and return".to_string());
        for (from_ns, to_ns, category, detail, evidence) in [
            (copy_to, end_ns, category, &detail, Evidence::Measured),
            (copy_from, copy_to, Category::Copy, &detail, Evidence::Modelled),
            (inside_from, copy_from, category, &detail, Evidence::Measured),
            (piece.start_ns, inside_from, around, &outside_detail, Evidence::Modelled),
        ] {
            if from_ns < to_ns {
                let detail = detail.clone();
                self.emit(thread, from_ns, to_ns, category, detail, None, None, None, evidence);
            }
        }
    }

    /// The request's child had ended before its parent waited for it.
    fn wait_without_sleep(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece: &tile::Piece<'_>,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let Some(child) = self.goal.child else { return Ok(None) };
        if call.exit_ns != self.goal.end_ns || thread != self.goal.client {
            return Ok(None);
        }
        let t = self.world.thread(thread);
        let slept = (t.off.iter().rev())
            .skip_while(|off| off.start_ns >= call.exit_ns)
            .take_while(|off| off.start_ns >= call.enter_ns)
            .any(|off| matches!(off.why, Why::Slept { .. }));
        if slept || piece.start_ns > call.enter_ns {
            return Ok(None);
        }
        let Some(last) = self.world.processes[child as usize].last_exited else { return Ok(None) };
        let dead = self.world.thread(last);
        // Its last context switch comes a little after the moment it could be collected.
        let gone = dead.off.back().filter(|off| off.why == Why::Dead);
        let ended_ns = match (gone, dead.exited_ns) {
            (Some(off), _) => off.start_ns,
            (None, _) if !self.settings.no_more_records => return Err(NotYet(last)),
            (None, Some(exited_ns)) => exited_ns,
            (None, None) => return Ok(None),
        }
        .min(call.enter_ns);
        if ended_ns <= self.goal.start_ns {
            return Ok(None);
        }
        self.on_cpu(thread, piece, at_ns);
        let detail = "child ended, not yet waited for";
        self.queue(thread, (ended_ns, call.enter_ns), Category::QueueApp, detail, Rule::Child);
        self.rule = Rule::Child;
        Ok(Some(Step::Joined(last, ended_ns)))
    }

    /// `[from_ns, to_ns)`: it was there and `thread` had not asked for it; `cause` says what the thread did
    /// instead, most first.
    fn queue(
        &mut self,
        thread: ThreadId,
        (from_ns, to_ns): (u64, u64),
        category: Category,
        detail: &str,
        rule: Rule,
    ) {
        let from_ns = from_ns.max(self.goal.start_ns);
        if from_ns >= to_ns {
            return;
        }
        let t = self.world.thread(thread);
        let cause = match stretch_before(t, to_ns, from_ns) {
            (start_ns, doing) if start_ns <= from_ns => self.one_thing(t, doing, from_ns, to_ns),
            _ => self.world.sums.spent(thread, t, from_ns, to_ns).in_words(),
        };
        let (detail, evidence) = (Some(detail.to_string()), Evidence::Measured);
        self.wait_rule = Some(rule);
        self.emit(thread, from_ns, to_ns, category, detail, Some(cause), None, None, evidence);
    }

    /// `[from_ns, to_ns)`: the thread, which has the request, served others. If it rested after that, the request
    /// waited meanwhile for what ended that rest.
    fn others_turn(&mut self, thread: ThreadId, from_ns: u64, to_ns: u64) {
        let rested = self.out.last().filter(|raw| {
            let rests = matches!(raw.category, Category::IdlePeer | Category::Sleep);
            raw.thread == thread && raw.start_ns == to_ns && rests
        });
        match rested.map(|raw| (raw.category, raw.detail.clone(), raw.cause.clone(), raw.by)) {
            Some((category, detail, cause, by)) => {
                let evidence = Evidence::Measured;
                self.emit(thread, from_ns, to_ns, category, detail, cause, by, None, evidence);
            }
            None => {
                let span = (from_ns, to_ns);
                self.queue(thread, span, Category::QueueApp, OTHERS_TURN, Rule::Turn);
            }
        }
    }

    /// What a thread did all the time.
    fn one_thing(&self, thread: &Thread, doing: Doing, from_ns: u64, to_ns: u64) -> String {
        let piece = match doing {
            Doing::Ran(_) => tile::piece_before(thread, to_ns, from_ns, true),
            _ => None,
        };
        match piece.map(|piece| tile::describe(&piece.level)) {
            Some((category, Some(detail))) => format!("{category}: {detail}"),
            _ => doing.name().to_string(),
        }
    }

    // ---- off the CPU --------------------------------------------------------------------------

    fn off_cpu(
        &mut self,
        thread: ThreadId,
        off: &Off,
        at_ns: u64,
        depth: usize,
    ) -> Result<Step, NotYet> {
        let begin_ns = off.start_ns.max(self.goal.start_ns);
        match off.why {
            Why::Preempted => {
                self.run_queue(thread, off, begin_ns, at_ns, Category::RunqueuePreempted);
                return Ok(Step::Go(thread, begin_ns));
            }
            Why::Dead | Why::Unseen => {
                let detail = Some("a context switch was not recorded".to_string());
                let category = Category::Unattributed;
                let evidence = Evidence::Measured;
                self.emit(thread, begin_ns, at_ns, category, detail, None, None, None, evidence);
                return Ok(Step::Go(thread, begin_ns));
            }
            Why::Slept { .. } | Why::Born => {}
        }
        let Some(wake) = off.wake else {
            let reason = "asleep, and no wake-up was seen";
            self.charge(thread, off, begin_ns, at_ns, Some(reason));
            return Ok(Step::Go(thread, begin_ns));
        };
        let accepted = self.accepted_in_anothers_stead(thread, off, wake);
        if let Some((opener, there_ns)) = accepted.filter(|(_, ns)| *ns < at_ns) {
            let woken_ns = wake.at_ns.clamp(there_ns, at_ns);
            self.run_queue(thread, off, woken_ns, at_ns, Category::RunqueueWakeup);
            let span = (there_ns, woken_ns);
            self.queue(thread, span, Category::QueueAccept, accept::UNACCEPTED, Rule::Accept);
            self.rule = Rule::Accept;
            return Ok(Step::Joined(opener, there_ns));
        }
        let woken_ns = wake.at_ns.max(off.start_ns).clamp(begin_ns, at_ns);
        let message = self.message_edge(thread, off, wake, at_ns);
        if let Some((_, sender, handed_ns)) = message.filter(|(.., ns)| *ns > wake.at_ns) {
            // It had been woken for something else, and was still waiting for a CPU.
            let handed_ns = handed_ns.max(begin_ns);
            self.run_queue(thread, off, handed_ns, at_ns, Category::RunqueueWakeup);
            self.rule = Rule::Message;
            return Ok(Step::Joined(sender, handed_ns));
        }
        self.run_queue(thread, off, woken_ns, at_ns, Category::RunqueueWakeup);

        // A wake-up that came before the switch-out found the thread on its way to sleep: its last
        // steps are its own, and what it crosses to is the moment of the wake-up.
        let edge_ns = wake.at_ns.clamp(self.goal.start_ns, woken_ns);

        // A message of this request, or a thread already at work for it.
        if let Some((object, sender, handed_ns)) = message {
            self.awake(thread, edge_ns, woken_ns)?;
            let handed_ns = handed_ns.min(edge_ns);
            match object.is_network() {
                true => {
                    let last = self.last_byte(thread, off, object);
                    let (sender, sent_ns) = self.link_bound(object, last, (sender, handed_ns));
                    self.wire(thread, object, last, (sent_ns, edge_ns));
                    self.rule = Rule::Message;
                    return Ok(Step::Joined(sender, sent_ns));
                }
                false => {
                    let span = (handed_ns, edge_ns);
                    self.queue(thread, span, queue_category(object), UNREAD, Rule::Message);
                }
            }
            self.rule = Rule::Message;
            return Ok(Step::Joined(sender, handed_ns));
        }
        if let Some(step) = self.slept_for_arrival(thread, off, woken_ns) {
            return Ok(step);
        }
        if self.waits_for_wire(thread, off, woken_ns) {
            return Ok(Step::Go(thread, begin_ns));
        }
        if let Some(last) = self.slept_on(thread, off) {
            // Woken for nothing: one wait with the sleep after it, and for what ended that.
            let merged = Off { wake: last.wake, ..off.clone() };
            self.charge(thread, &merged, begin_ns, woken_ns, None);
            return Ok(Step::Go(thread, begin_ns));
        }
        if wake.by_waker() && edge_ns > self.goal.start_ns {
            let mark = self.out.len();
            self.awake(thread, edge_ns, woken_ns)?;
            if let Some((t, ns)) = self.work_edge(off, wake.waker, edge_ns, depth)? {
                return Ok(Step::Joined(t, ns));
            }
            let answered = thread == self.goal.client && self.passes_turn(wake.waker);
            // A lock convoy is contention, not delegation, even if we woke the holder earlier.
            let lock = off.call.is_some_and(|call| !answered && self.is_lock(thread, &call, &wake))
                || wait::kernel_lock(self.world, thread, off).is_some()
                || wait::throttled(self.world, thread, off);
            let asked = !self.before_asked(wake.waker, edge_ns);
            let refused = self.refused.contains(&(thread, edge_ns));
            let others = self.doubts() && self.answers_another(wake.waker, edge_ns, thread);
            let may_lead = asked && !lock && !refused && !others;
            if may_lead && self.world.thread(wake.waker).traced {
                let mut joined = None;
                let known = answered || self.members.contains(&wake.waker);
                let rule = std::mem::replace(&mut self.rule, Rule::WakeUp);
                if wake.waker != thread && known {
                    joined = Some((wake.waker, edge_ns));
                } else if depth < MAX_DEPTH {
                    let futex = off.call.is_some_and(|c| waits(c.nr, c.object) == Waits::Futex);
                    self.futexes += usize::from(futex);
                    let found = self.explore(wake.waker, edge_ns, depth + 1);
                    self.futexes -= usize::from(futex);
                    joined = found?;
                }
                if let Some((t, ns)) = joined {
                    self.members.insert(wake.waker);
                    if depth == 0 {
                        self.followed.push((thread, edge_ns, wake.waker));
                    }
                    return Ok(Step::Joined(t, ns));
                }
                self.rule = rule;
            }
            self.out.truncate(mark);
        }
        let mark = self.out.len();
        self.charge(thread, off, begin_ns, woken_ns, None);
        let was_idle = self.out[mark..].iter().any(|raw| raw.category == Category::IdlePeer);
        if was_idle && self.doubts() && wake.by_waker() && self.world.thread(wake.waker).traced {
            // Whoever ended that, it was not for this request.
            return Ok(Step::Nowhere);
        }
        Ok(Step::Go(thread, begin_ns))
    }

    /// Whether a thread is of the server whose only way to its client is a word in shared memory.
    fn passes_turn(&self, thread: ThreadId) -> bool {
        self.goal.passed.is_some()
            && Some(self.world.thread(thread).process) == self.goal.server_process
    }

    /// The last sleep in the call of `off`, if there is a later one and the call has one thing only to
    /// wait for. (A read or write may have got some of its bytes in between.)
    fn slept_on(&self, thread: ThreadId, off: &Off) -> Option<&'w Off> {
        let call = off.call?;
        if !matches!(waits(call.nr, call.object), Waits::Futex | Waits::Readiness | Waits::Child) {
            return None;
        }
        let sleeps = self.world.thread(thread).off.iter().rev();
        sleeps
            .take_while(|later| later.start_ns >= off.end_ns)
            .find(|later| waits_for_bytes(later) && later.call.is_some_and(|c| c == call))
    }

    /// What `thread` did on its CPU in `[from_ns, to_ns)`.
    fn awake(&mut self, thread: ThreadId, from_ns: u64, to_ns: u64) -> Result<(), NotYet> {
        let t = self.world.thread(thread);
        let mut at_ns = to_ns;
        while at_ns > from_ns {
            let no_more = self.settings.no_more_records;
            let Some(piece) = tile::piece_before(t, at_ns, from_ns, no_more) else {
                return Err(NotYet(thread));
            };
            self.on_cpu(thread, &piece, at_ns);
            at_ns = piece.start_ns;
        }
        Ok(())
    }

    /// Follows a waker back. If its path returns to a thread already in the request, keeps what it
    /// emitted and says where it came out; else leaves no trace.
    fn explore(
        &mut self,
        waker: ThreadId,
        woken_ns: u64,
        depth: usize,
    ) -> Result<Option<(ThreadId, u64)>, NotYet> {
        let mark = self.out.len();
        let (through, expected) = (self.through.take(), self.expected.clone());
        let came_in = self.came_in;
        let (mut thread, mut at_ns) = (waker, woken_ns);
        // Paths meet where a thread comes back on its CPU.
        let mut visited = vec![(waker, woken_ns)];
        while at_ns > self.goal.start_ns && self.steps <= MAX_STEPS {
            if self.dead_ends.contains(&(thread, at_ns)) {
                break;
            }
            match self.step(thread, at_ns, depth)? {
                Step::Go(t, ns) => (thread, at_ns) = (t, ns),
                Step::Nowhere => break,
                Step::Joined(t, ns) => {
                    self.join(waker);
                    return Ok(Some((t, ns)));
                }
            }
            if self.world.thread(thread).off_before(at_ns).is_some_and(|off| off.end_ns == at_ns) {
                visited.push((thread, at_ns));
            }
        }
        self.out.truncate(mark);
        (self.through, self.expected, self.came_in) = (through, expected, came_in);
        self.dead_ends.extend(visited);
        Ok(None)
    }

    /// The wait `[from_ns, to_ns)` of `thread`, kept as one wait; see [`wait::explain`].
    fn charge(
        &mut self,
        thread: ThreadId,
        off: &Off,
        from_ns: u64,
        to_ns: u64,
        unexplained: Option<&str>,
    ) {
        let parts = wait::explain(self.world, thread, off, from_ns, to_ns, unexplained);
        for mut part in parts.into_iter().rev() {
            if part.category == Category::IdlePeer && part.cause.is_none() {
                part.cause = self.held_back(thread, off).map(|why| format!("at first {why}"));
            }
            self.emit(
                thread,
                part.from_ns,
                part.to_ns,
                part.category,
                Some(part.detail),
                part.cause,
                part.by,
                off.cpu,
                Evidence::Measured,
            );
        }
    }
}

/// Whether a sleep can be the wait for a message: those can be interrupted, unlike the waits for pages
/// that reading it may bring.
fn waits_for_bytes(off: &Off) -> bool {
    matches!(off.why, Why::Slept { uninterruptible: false, .. })
}

/// What it is called when bytes wait in a channel.
fn queue_category(object: Object) -> Category {
    match object.type_bits {
        TYPE_FIFO => Category::QueuePipe,
        TYPE_EVENTFD => Category::QueueApp,
        _ => Category::QueueSocket,
    }
}

/// Whether an instant lies in the call that made the transfer.
fn within(at_ns: u64, transfer: &Transfer) -> bool {
    (transfer.enter_ns..=transfer.exit_ns).contains(&at_ns)
}
