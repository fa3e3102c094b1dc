//! The backward walk: explains a request from the moment the client has the answer back to the moment it
//! began to ask.
//!
//! Its state is `(thread, time)`. Each step emits what the thread was doing just before that time and moves
//! back, or crosses an edge to the thread that made it wait. Every step lowers the time or uses up an edge,
//! so the walk ends; segments are emitted back to back, so they tile the request. docs/design.md, "The walk",
//! has the steps and rules in order.

mod accept;
mod alike;
mod arrivals;
mod asked;
mod asking;
mod astray;
mod futex_roles;
mod goal;
mod handed_since;
mod helpers;
mod in_turn;
mod life;
mod made;
mod memory;
mod messages;
mod moves;
mod names;
mod off_cpu;
mod on_cpu;
mod queue;
mod reader;
mod run_queue;
mod segments;
mod state;
mod timer;
mod together;
mod turns;
mod wire;
mod workqueue;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::classify;
use crate::classify::on_cpu::{InCall, Level};
use crate::classify::syscall::{ends_connection, waits, waits_for_writeback, Waits};
use crate::event::{Call, Io, Object, OpenCall, Transport, TYPE_EVENTFD, TYPE_FIFO};
use crate::ownership::service_start;
use crate::ownership::sums::{stretch_before, Doing};
use crate::timeline::gallop::{count_before, last_before, latest_before};
use crate::timeline::{
    Channel, Off, Process, ProcessId, Thread, ThreadId, Transfer, Wake, Why, Work, World, IDLE,
};
pub use alike::alike;
pub use asked::Children;
use asked::Made;
use asking::Entered;
pub use asking::{Asking, Begin};
pub use astray::Astray;
use astray::Trail;
pub use goal::{Goal, Message, NotYet, Settings};
use moves::Moves;
use names::Names;
use rpcprobe_model::{Category, Evidence, Rule, Segments, Side, TextId, Texts, Told};
pub use segments::{Walked, Worker};
pub use state::Buffers;
use state::{Attempts, Output, Raw, Search};
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

/// `detail` of what is not explained.
pub const TOO_MANY_STEPS: &str = "too many steps to explain";

/// Limit of nested hand-offs that are followed; beyond it a wait is charged as one wait.
const MAX_DEPTH: usize = 64;

/// Limit of the hand-overs in a row, to threads that were awake, that are followed back to a thread of the request; and of the calls
/// of each, between what it was handed and what it handed on.
const MOST_HANDED_ON: usize = 8;
const MOST_CALLS_BETWEEN: usize = 8;

/// Limit of the threads of a process that are checked for having run while another thread served other requests.
const MOST_THREADS: usize = 64;

/// Steps of the first pass, with the lock rules on, through what other threads did, or the same for other requests. With more, it
/// is taken as one that found no way. With 10 requests in flight on gRPC's threads, 999 in 1,000 of the passes that do find one
/// need 153 at most; with 500 in flight and more the number grows with them (docs/evidence.md).
const MOST_STEPS_ASTRAY: usize = 256;

/// The same of each later pass, where the read is known from which the request may have been handed on in memory. One that goes
/// further is taken as one that found no way, or, if it goes back to that read, looks into no more wake-ups (docs/evidence.md).
const MOST_STEPS_ASTRAY_AGAIN: usize = 4096;

/// Steps through wakers of a program's life before its threads are taken to work for it (docs/evidence.md).
const MOST_STEPS_OF_LIFE: usize = 1 << 19;

/// Followed wake-ups taken back, one by one, when the walk does not come out at the client; and the
/// steps spent on that.
const MOST_REFUSED: usize = 256;
const MOST_STEPS_REFUSING: usize = 200_000;

/// The walk of one request.
struct Walk<'w> {
    // What it reads.
    world: &'w World,
    goal: &'w Goal,
    settings: Settings,
    /// The server's first read of the request.
    first_read: Option<Transfer>,
    moves: Moves<'w>,
    made: Made<'w>,
    /// What it says.
    output: &'w mut Output,
    /// What it knows on its way back.
    search: &'w mut Search,
    /// What it learnt from ways that led nowhere; and what other walks have.
    attempts: Attempts,
    trail: Trail,
    astray: &'w mut Astray,
    asking: Option<&'w Asking>,
    entered: Entered,
}

/// Where a step leads.
enum Step {
    /// Same walk, new state.
    Go(ThreadId, u64),
    /// Crossed into a thread that already works for the request (or over one of its messages).
    Joined(ThreadId, u64),
    /// The path of the waker being explored belongs to other requests.
    Nowhere,
    /// What was taken for a lock cannot have been one: see [`Walk::strict`].
    NoLock,
}

/// The segments of a request. `asking`: what is known of how others were asked, if that may be used; `of`: requests that were
/// made for others, and this one's number; `buffers`: of the walk before.
///
/// # Errors
/// [`NotYet`]: try again when that thread has been heard of.
pub fn walk(
    world: &World,
    goal: &Goal,
    settings: Settings,
    astray: &mut Astray,
    asking: Option<&Asking>,
    of: (&Children, u64),
    buffers: &mut Buffers,
) -> Result<Walked, NotYet> {
    let mut walk = Walk::new(world, goal, settings, astray, asking, of, buffers);
    walk.run()?;
    let (steps, begin) = (walk.attempts.steps, walk.begin());
    let (segments, workers) = walk.into_segments();
    Ok(Walked { segments, workers, steps, begin })
}

/// Whether two neighbours differ in nothing but time.
pub(super) fn joins(a: &Told, b: &Told) -> bool {
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
    fn new(
        world: &'w World,
        goal: &'w Goal,
        settings: Settings,
        astray: &'w mut Astray,
        asking: Option<&'w Asking>,
        (children, id): (&'w Children, u64),
        buffers: &'w mut Buffers,
    ) -> Walk<'w> {
        buffers.begin();
        let Buffers { output, search, calls } = buffers;
        Walk {
            world,
            goal,
            settings,
            first_read: reader::first_read(world, goal),
            moves: Moves::of(world, goal, calls),
            made: Made::of(world, children, id),
            output,
            search,
            attempts: Attempts::default(),
            trail: Trail::default(),
            astray,
            asking,
            entered: Entered::default(),
        }
    }

    /// Whether this rule is in force (not left out by the settings). Asked where the rule decides.
    fn applies(&self, rule: Rule) -> bool {
        self.settings.without != Some(rule)
    }

    fn run(&mut self) -> Result<(), NotYet> {
        // Its thread may look at the word before it sleeps.
        self.attempts.received = self.goal.passed.filter(|_| self.applies(Rule::InMemory));
        loop {
            // The request began in its client: elsewhere, the walk has lost the thread. One that once
            // worked for the request wakes others for other reasons, too: the last wake-up that was
            // followed is kept as a wait instead.
            let lost = self.back()?.is_some();
            if lost && std::mem::take(&mut self.attempts.strict) {
                self.attempts.is_bounded = self.handed_on_from().is_some();
                // One of those handed the request on, after all.
                continue;
            }
            let followed =
                if lost { self.search.followed.last().copied() } else { self.bypassing() };
            let go_on = self.attempts.refused.len() < MOST_REFUSED
                && self.attempts.steps < MOST_STEPS_REFUSING;
            // Where the read is known that brought it, its thread is where it was handed on from.
            let go_on = go_on && !self.must_come_in() && !self.is_astray();
            match followed.filter(|_| go_on) {
                Some((thread, at_ns, _)) => self.attempts.refused.insert((thread, at_ns)),
                None if lost => return self.run_without_a_trace(),
                None => return Ok(()),
            };
        }
    }

    /// Who of the server had read the request last, and when: from there it may have been handed on in memory.
    fn handed_on_from(&self) -> Option<(ThreadId, u64)> {
        let alone = self.must_come_in();
        let server = self.goal.server_process;
        let server = server.filter(|&id| alone || id != self.goal.client_process);
        let server = server.filter(|_| self.applies(Rule::InMemory))?;
        service_start::received(self.world, self.goal, server, self.goal.end_ns)
    }

    /// Last attempt, when taking back wake-ups did not help: the request may have been handed over in memory,
    /// without a wake-up.
    fn run_without_a_trace(&mut self) -> Result<(), NotYet> {
        self.attempts.refused.clear();
        self.attempts.steps_before += std::mem::take(&mut self.attempts.steps);
        self.attempts.received = self.handed_on_from();
        if self.attempts.received.is_some() && self.back()?.is_none() {
            return Ok(());
        }
        self.attempts.received = None;
        self.attempts.is_bounded = false;
        if let Some((thread, joined_at)) = self.back()? {
            // Which had it at the last edge that is known.
            let thread = self.output.out.get(joined_at).map_or(thread, |raw| raw.thread);
            self.output.out.truncate(joined_at);
            let end_ns = self.output.out.last().map_or(self.goal.end_ns, |raw| raw.start_ns);
            self.give_up(thread, end_ns, "nothing shows how the request reached this thread");
        }
        Ok(())
    }

    /// The whole way back. If it does not end in the client's process: in which thread it does, and how
    /// much had been emitted when it last joined one.
    fn back(&mut self) -> Result<Option<(ThreadId, usize)>, NotYet> {
        self.output.clear();
        self.search.clear();
        // The child whose life the request is does not have to be explored first.
        let child = self.goal.child.map(|child| self.world.processes[child as usize].leader);
        self.search.members.clear();
        self.search.members.extend([self.goal.client].into_iter().chain(child));
        self.search.members.extend(self.attempts.received.map(|(reader, _)| reader));
        self.search.members.extend(self.goal.handed.map(|(reader, _)| reader));
        if self.goal.server_process == Some(self.goal.client_process) {
            // Whom it woke after its read, it woke for the request, if it had not turned to others.
            let server = self.goal.client_process;
            let received = service_start::received(self.world, self.goal, server, self.goal.end_ns);
            self.search.members.extend(received.map(|(reader, _)| reader));
        }
        let (mut thread, mut at_ns) = (self.goal.client, self.goal.end_ns);
        let mut joined_at = 0;
        self.entered = Entered::default();
        self.attempts.astray = 0;
        self.begin_trail();
        while at_ns > self.goal.start_ns {
            if self.attempts.steps > self.settings.most_steps {
                self.give_up(thread, at_ns, TOO_MANY_STEPS);
                return Ok(None);
            }
            let strict = self.attempts.strict;
            if self.is_astray() && (strict || self.attempts.received.is_none()) {
                if strict {
                    self.remember_astray(None);
                }
                return Ok(Some((thread, joined_at)));
            }
            if self.comes_in_too_late(thread, at_ns) || self.goes_astray(thread, at_ns) {
                return Ok(Some((thread, joined_at)));
            }
            let step = self.step(thread, at_ns, 0)?;
            match self.take_over(thread, at_ns, joined_at).unwrap_or(step) {
                Step::Go(t, ns) => (thread, at_ns) = (t, ns),
                Step::Joined(t, ns) => {
                    self.join(t);
                    self.search.through = None;
                    joined_at = self.output.out.len();
                    (thread, at_ns) = (t, ns);
                    if self.enters(t, ns) {
                        return Ok(None);
                    }
                }
                Step::NoLock => return Ok(Some((thread, joined_at))),
                Step::Nowhere => unreachable!("only while a waker is explored"),
            }
        }
        let at_home = match self.must_come_in() {
            true => self.search.came_in,
            false => self.world.thread(thread).process == self.goal.client_process,
        };
        Ok((!at_home).then_some((thread, joined_at)))
    }

    /// Whether the request began as its bytes came to its server's socket: then only the read of those leads to its
    /// begin.
    pub(super) fn must_come_in(&self) -> bool {
        let arrived = |asked: &Message| {
            let channel = self.world.channels.get(&asked.object)?;
            channel.arrived_ns(asked.to.checked_sub(1)?)
        };
        self.applies(Rule::Arrival)
            && self.goal.server_process == Some(self.goal.client_process)
            && self.goal.messages.first().is_some_and(|asked| arrived(asked).is_some())
    }

    /// Adds a member. Dead ends are forgotten, because they may lead to the new member.
    fn join(&mut self, thread: ThreadId) {
        if self.search.members.insert(thread) {
            self.search.dead_ends.clear();
        }
    }

    /// A server's thread that works for the request since before it was received has got it from the
    /// one that received it, without a trace: threads that look for work before they sleep (Go's, gRPC's)
    /// take it from memory. Somewhen since then; what it did is taken for the request's, modelled.
    ///
    /// To be called after a step from `(thread, at_ns)`: if that went too far, takes back what is
    /// too much and leads to the receiver.
    fn take_over(&mut self, thread: ThreadId, at_ns: u64, joined_at: usize) -> Option<Step> {
        let (reader, read_ns) = self.attempts.received?;
        let begun_ns = self.output.out.last()?.start_ns;
        let in_server = Some(self.world.thread(thread).process) == self.goal.server_process;
        if !in_server || thread == reader || at_ns <= read_ns || begun_ns > read_ns {
            return None;
        }
        while self.output.out.last().is_some_and(|raw| raw.end_ns <= read_ns) {
            self.output.out.pop();
        }
        for raw in &mut self.output.out[joined_at..] {
            raw.start_ns = raw.start_ns.max(read_ns);
            if raw.category == Category::Unattributed {
                if raw.end_ns > self.world.thread(raw.thread).born_ns {
                    continue;
                }
                // Whoever served it then was not there yet.
                (raw.category, raw.rule) = (Category::QueueApp, Rule::InMemory);
                raw.detail = Some(self.output.names.texts.add(UNSERVED));
            }
            raw.evidence = Evidence::Modelled;
            raw.cause = Some(self.output.names.texts.extend(raw.cause, HANDED_UNSEEN));
        }
        self.output.rule = Rule::InMemory;
        Some(Step::Joined(reader, read_ns))
    }

    /// One step back from `(thread, at_ns)`.
    fn step(&mut self, thread: ThreadId, at_ns: u64, depth: usize) -> Result<Step, NotYet> {
        self.attempts.steps += 1;
        self.note_time(at_ns);
        self.note_thread(thread);
        self.note_first_read(thread, at_ns);
        if depth > 0 && self.is_before_read(thread, at_ns) {
            return Ok(Step::Nowhere);
        }
        if let Some(step) = self.through_child(thread, at_ns)? {
            return Ok(step);
        }
        let t = self.world.thread(thread);
        let start_ns = self.goal.start_ns;
        (self.output.shared, self.output.likely) = (1, false);
        let turn = self.turn(thread, at_ns);
        // A helper's own work may be long. Where there is another way to explain the request only what is known to be for others counts.
        let for_another = || self.goes_on_with_another(thread, at_ns);
        let is_astray = match depth > 0 {
            true => !self.attempts.is_bounded || for_another(),
            false => turn.is_none() && for_another(),
        };
        self.attempts.astray += usize::from(is_astray);
        self.output.by_marks = matches!(turn, Some(Turn::Own | Turn::Shared { .. } | Turn::Likely));
        match turn {
            Some(Turn::Others { .. }) if depth > 0 && self.attempts.strict => {
                return Ok(Step::Nowhere)
            }
            Some(Turn::Others { from_ns }) => {
                let from_ns = from_ns.max(start_ns);
                self.others_turn(thread, from_ns, at_ns);
                return Ok(Step::Go(thread, from_ns));
            }
            Some(Turn::Shared { by, likely }) => {
                (self.output.shared, self.output.likely) = (by, likely);
                if let Some(step) = self.worked_together(thread, at_ns) {
                    return Ok(step);
                }
            }
            Some(Turn::Likely) => self.output.likely = true,
            Some(_) => {}
            None => {
                if let Some(step) = self.at_work_for_another(thread, at_ns, depth) {
                    return Ok(step);
                }
                let unseen = self.output.rule == Rule::InMemory;
                self.output.likely = self.may_be_anothers(thread, at_ns)
                    || unseen && self.has_taken_anothers(thread, at_ns);
            }
        }
        let off = t.off_before(at_ns);
        if let Some(off) = off.filter(|off| off.end_ns >= at_ns) {
            return self.off_cpu(thread, off, at_ns, depth);
        }
        let mut floor_ns = off.map_or(0, |off| off.end_ns).max(start_ns);
        // A thread that another's exit_group() ended: what it did before has nothing to do with it.
        let group_exit = self.world.process_of(thread).group_exit;
        if let Some((ended_ns, by)) = group_exit.filter(|_| self.applies(Rule::GroupExit)) {
            if by != thread && t.exited_ns.is_some_and(|exited_ns| exited_ns >= ended_ns) {
                if at_ns == ended_ns {
                    self.output.rule = Rule::GroupExit;
                    return Ok(Step::Go(by, ended_ns));
                }
                if at_ns > ended_ns {
                    floor_ns = floor_ns.max(ended_ns);
                }
            }
        }
        if let Some(maker) = t.made_by.filter(|_| at_ns <= t.born_ns && t.was_made_asleep()) {
            return Ok(self.at_birth(thread, maker, at_ns));
        }
        if at_ns <= t.known_from_ns {
            self.give_up(thread, at_ns, "before anything is known of this thread");
            return Ok(Step::Go(thread, start_ns));
        }
        let floor_ns = floor_ns.max(t.known_from_ns.min(at_ns - 1));
        let no_more = self.settings.no_more_records;
        let Some(piece) = classify::on_cpu::piece_before(t, at_ns, floor_ns, no_more) else {
            return Err(NotYet(thread));
        };
        // A read that found its bytes ready is where a message came in.
        if let Level::Call(call) = piece.level {
            let read = (thread, call.enter_ns);
            if !self.search.crossed.contains(&read) {
                if let Some(step) = self.read_without_sleep(thread, call, piece.start_ns, at_ns) {
                    self.search.crossed.insert(read);
                    return Ok(step);
                }
                if let Some(step) = self.arrived_before(thread, call, piece.start_ns, at_ns)? {
                    self.search.crossed.insert(read);
                    return Ok(step);
                }
            }
            if let Some(step) = self.accept_without_sleep(thread, call, piece.start_ns, at_ns) {
                return Ok(step);
            }
            // A way that is explored is judged by where it leads.
            if depth == 0 {
                let span = (piece.start_ns, at_ns);
                if let Some(step) = self.accepted_for_another(thread, call, span) {
                    return Ok(step);
                }
            }
            if let Some(step) = self.wait_without_sleep(thread, call, &piece, at_ns)? {
                return Ok(step);
            }
            // A waker that is explored and answers others there need not have had this request.
            let followed = depth == 0 || self.doubts();
            let taken = match followed && self.applies(Rule::InMemory) {
                true => service_start::waiting_inside(self.world, self.goal, thread, call),
                false => None,
            };
            if let Some((reader, read_ns)) = taken.filter(|(_, read_ns)| *read_ns < at_ns) {
                if depth > 0 {
                    return Ok(Step::Nowhere);
                }
                return Ok(match self.waited_in_memory(thread, (reader, read_ns), at_ns) {
                    Step::Go(to, ns) if to == reader => Step::Joined(to, ns),
                    step => step,
                });
            }
        }
        self.on_cpu(thread, &piece, at_ns);
        Ok(Step::Go(thread, piece.start_ns))
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
