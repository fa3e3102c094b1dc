//! The walk once more: one nanosecond at a time, on the truth instead of on events, and written
//! for plainness. Time is told by its end: "at 100" is about the nanosecond from 99 to 100.

use std::collections::{BTreeMap, BTreeSet};

use rpcprobe::model::{Category, Kind};

use super::truth::{
    Asked, Away, AwayNo, Call, CallNo, Doing, TaskNo, Transfer, Truth, Wakeup, Why, EVENTFDS,
    IDLE_TASK,
};

/// A segment, as far as the truth knows it; `[start_ns, end_ns)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub category: Category,
    /// Who had the CPU, for time in a run queue.
    pub by: Option<u32>,
}

/// What it is called when something waits where a write has put it.
fn queue_of(write: &Call) -> Category {
    match write.transfer {
        Some(bytes) if bytes.pipe >= EVENTFDS => Category::QueueApp,
        _ => Category::QueuePipe,
    }
}

/// Puts equal neighbours together.
pub fn merged(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last)
                if last.tid == piece.tid
                    && last.category == piece.category
                    && last.by == piece.by
                    && last.end_ns == piece.start_ns =>
            {
                last.end_ns = piece.end_ns;
            }
            _ => all.push(piece),
        }
    }
    all
}

/// A nanosecond explained.
#[derive(Clone, Copy)]
struct Said {
    task: TaskNo,
    category: Category,
    by: Option<TaskNo>,
}

struct Walk<'t> {
    truth: &'t Truth,
    asked: &'t Asked,
    copy_ns_per_byte: f64,
    /// Latest nanosecond first, none left out.
    said: Vec<Said>,
    members: BTreeSet<TaskNo>,
    /// The write that woke a task for bytes which it read only later, awake.
    expected: BTreeMap<TaskNo, CallNo>,
    /// The read the walk is on its way back through, from a time when its bytes had begun to come.
    through: Option<CallNo>,
    /// Reads by a task that had been woken for the bytes, and read others' first: when it came to
    /// a CPU.
    behind_others: BTreeMap<CallNo, u64>,
    /// Wake-ups followed in vain since the last member joined: two threads that wake each other
    /// again and again would be followed twice as often for each time.
    vain: BTreeSet<(TaskNo, u64)>,
    steps: u64,
    /// Wakers being explored, one inside another.
    exploring: u32,
    /// Whether several hand-overs in a row, to threads that were awake, are followed; and whether such were met.
    in_a_row: bool,
    met_a_row: bool,
    /// Came through a transfer, fault or interrupt that had not ended when the request did: its
    /// record may come too late for the engine.
    saw_unended: bool,
    /// Wake-ups (of whom, when) that the path itself followed, and those it is not to follow.
    followed: Vec<(TaskNo, u64)>,
    refused: BTreeSet<(TaskNo, u64)>,
    /// Came out elsewhere than at the client: where, and how much was said when a thread last joined.
    lost: Option<(TaskNo, usize)>,
}

/// As the engine.
const MOST_REFUSED: usize = 256;
const MOST_HANDED_ON: usize = 8;
const MOST_CALLS_BETWEEN: usize = 8;

enum Step {
    Go(TaskNo, u64),
    /// To a thread known to work for the request.
    Joined(TaskNo, u64),
}

/// The segments of a request, and whether the engine can know all of them.
pub fn walk(truth: &Truth, asked: &Asked, copy_ns_per_byte: f64) -> (Vec<Piece>, bool) {
    let mut refused = BTreeSet::new();
    let mut walk = back(truth, asked, copy_ns_per_byte, &refused, None);
    let mut saw_unended = false;
    // Whoever asked is in the client's process: elsewhere, the thread was lost. Then the last wake-up
    // that was followed had nothing to do with the request.
    while let (Some(_), Some(edge)) = (walk.lost, walk.followed.last().copied()) {
        if refused.len() == MOST_REFUSED {
            break;
        }
        refused.insert(edge);
        saw_unended |= walk.saw_unended;
        walk = back(truth, asked, copy_ns_per_byte, &refused, None);
    }
    if walk.lost.is_some() {
        // Nor had any other: whoever received the request left it to another in memory.
        saw_unended |= walk.saw_unended;
        let received = walk.received(asked.server_tgid, asked.end_ns);
        if received.is_some() {
            walk = back(truth, asked, copy_ns_per_byte, &BTreeSet::new(), received);
            saw_unended |= walk.saw_unended;
        }
    }
    if walk.lost.is_some() {
        walk = back(truth, asked, copy_ns_per_byte, &BTreeSet::new(), None);
    }
    if let Some((task, joined)) = walk.lost {
        for said in &mut walk.said[joined..] {
            *said = Said { task, category: Category::Unattributed, by: None };
        }
    }
    let pieces = walk.said.iter().rev().zip(asked.start_ns..).map(|(said, start_ns)| Piece {
        start_ns,
        end_ns: start_ns + 1,
        tid: truth.tasks[said.task].tid,
        category: said.category,
        by: said.by.map(|by| truth.tasks[by].tid),
    });
    (merged(pieces), !(saw_unended || walk.saw_unended))
}

/// The whole way back, but for the wake-ups that are not to be followed. `received`: what the server does
/// from then on is for the request, whoever does it; before, it is that task's.
fn back<'t>(
    truth: &'t Truth,
    asked: &'t Asked,
    copy_ns_per_byte: f64,
    refused: &BTreeSet<(TaskNo, u64)>,
    received: Option<(TaskNo, u64)>,
) -> Walk<'t> {
    let mut walk = Walk {
        truth,
        asked,
        copy_ns_per_byte,
        said: Vec::new(),
        members: asked.child.into_iter().chain([asked.client]).collect(),
        expected: BTreeMap::new(),
        through: None,
        behind_others: BTreeMap::new(),
        vain: BTreeSet::new(),
        steps: 0,
        exploring: 0,
        in_a_row: false,
        met_a_row: false,
        saw_unended: false,
        followed: Vec::new(),
        refused: refused.clone(),
        lost: None,
    };
    walk.members.extend(received.map(|(reader, _)| reader));
    let (mut task, mut at_ns) = (asked.client, asked.end_ns);
    let mut joined = 0;
    while at_ns > asked.start_ns {
        let mut step = walk.step(task, at_ns);
        if let Some((reader, read_ns)) = received {
            let said_down_to_ns = asked.end_ns - walk.said.len() as u64;
            let serves = truth.tasks[task].tgid == asked.server_tgid && task != reader;
            if serves && at_ns > read_ns && said_down_to_ns <= read_ns {
                walk.said.truncate((asked.end_ns - read_ns) as usize);
                step = Step::Joined(reader, read_ns);
            }
        }
        match step {
            Step::Go(t, ns) => (task, at_ns) = (t, ns),
            Step::Joined(t, ns) => {
                (task, at_ns) = (t, ns);
                walk.through = None;
                walk.join(t);
                joined = walk.said.len();
            }
        }
    }
    if truth.tasks[task].tgid != truth.tasks[asked.client].tgid {
        walk.lost = Some((task, joined));
    }
    walk
}

/// With all time on a CPU alike.
pub fn roughly(pieces: &[Piece]) -> Vec<Piece> {
    merged(pieces.iter().cloned().map(|piece| match piece.category.name() {
        "fault" | "interrupt" | "copy" => Piece { category: Category::User, ..piece },
        kernel if kernel.starts_with("kernel.") => Piece { category: Category::User, ..piece },
        _ => piece,
    }))
}

impl<'t> Walk<'t> {
    fn say(&mut self, task: TaskNo, nanoseconds: u64, category: Category) {
        for _ in 0..nanoseconds {
            self.said.push(Said { task, category, by: None });
        }
    }

    fn join(&mut self, task: TaskNo) {
        if self.members.insert(task) {
            self.vain.clear();
        }
    }

    fn step(&mut self, task: TaskNo, at_ns: u64) -> Step {
        self.steps += 1;
        assert!(self.steps < 300_000, "the reference walk does not end");
        let tick = self.truth.before(task, at_ns);
        let category = match tick.doing {
            Doing::Unborn => {
                self.say(task, at_ns - self.asked.start_ns, Category::Unattributed);
                return Step::Go(task, self.asked.start_ns);
            }
            Doing::Away(away) => return self.away(task, away, at_ns),
            Doing::User => Category::User,
            Doing::Fault | Doing::Softirq | Doing::Hardirq => {
                self.saw_unended |= !self.ends_in_time(task, at_ns);
                match tick.doing {
                    Doing::Fault => Category::Fault,
                    _ => Category::Interrupt,
                }
            }
            Doing::Call => return self.in_call(task, tick.call.expect("in a call"), at_ns),
        };
        self.say(task, 1, category);
        Step::Go(task, at_ns - 1)
    }

    /// Whether the fault or interrupt a task is in ends before the request does.
    fn ends_in_time(&self, task: TaskNo, at_ns: u64) -> bool {
        (at_ns + 1..=self.asked.end_ns).any(|later_ns| {
            matches!(self.truth.before(task, later_ns).doing, Doing::User | Doing::Call)
        })
    }

    // ---- on the CPU, in a system call ---------------------------------------------------------

    fn in_call(&mut self, task: TaskNo, no: CallNo, at_ns: u64) -> Step {
        let call = &self.truth.calls[no];
        if let Some((reader, read_ns)) = self.waiting_inside(call) {
            if read_ns < at_ns && self.exploring == 0 {
                self.say(task, at_ns - read_ns, Category::QueueApp);
                return Step::Joined(reader, read_ns);
            }
        }
        let mut arrival = self.arrival(task, no);
        if let Some(write) = arrival.map(|write| &self.truth.calls[write]) {
            if write.exit_ns > call.enter_ns && write.enter_ns.max(call.enter_ns) >= at_ns {
                if self.through == Some(no) {
                    return self.under_way(call, write, at_ns);
                }
                // The walk came to the task while it still waited for the bytes.
                arrival = None;
            }
        }
        if arrival.is_some() {
            self.through = Some(no);
        }
        let category = if self.copies(call, at_ns) { Category::Copy } else { call.category };
        self.say(task, 1, category);
        let before_ns = at_ns - 1;
        if let Some(write) = arrival.map(|write| &self.truth.calls[write]) {
            if write.exit_ns > call.enter_ns {
                // Under way when the read began.
                if before_ns <= write.enter_ns.max(call.enter_ns) {
                    return self.under_way(call, write, before_ns);
                }
            } else if before_ns == call.enter_ns {
                // Over by then: until the read, the bytes were in the queue.
                self.say(task, before_ns - write.exit_ns, queue_of(write));
                return self.to_writer(call, write, write.exit_ns);
            }
        }
        if before_ns == call.enter_ns {
            if let Some(&woken_ns) = self.behind_others.get(&no) {
                self.say(task, before_ns - woken_ns, Category::QueuePipe);
                return Step::Go(task, woken_ns);
            }
            if let Some((child, ended_ns)) = self.ended_before(task, no) {
                self.say(task, before_ns - ended_ns, Category::QueueApp);
                return Step::Joined(child, ended_ns);
            }
        }
        Step::Go(task, before_ns)
    }

    /// If the call answers another request and this one's message had been read in its process by
    /// then: who read it, and when.
    fn waiting_inside(&self, call: &Call) -> Option<(TaskNo, u64)> {
        let tgid = |task: TaskNo| self.truth.tasks[task].tgid;
        let answer = call.transfer.filter(|transfer| transfer.is_write)?;
        let answers =
            |asked: &Asked| asked.messages.get(1).is_some_and(|(pipe, ..)| *pipe == answer.pipe);
        if tgid(call.task) == tgid(self.asked.client)
            || self.is_ours(&answer)
            || !self.truth.asked.iter().any(answers)
        {
            return None;
        }
        self.received(tgid(call.task), call.exit_ns)
    }

    /// Who read the request's message in that process, last before `before_ns`, and when.
    fn received(&self, tgid: u32, before_ns: u64) -> Option<(TaskNo, u64)> {
        let (pipe, from, to) = *self.asked.messages.first()?;
        (self.truth.calls.iter())
            .filter(|read| self.truth.tasks[read.task].tgid == tgid && read.exit_ns < before_ns)
            .filter(|read| read.exit_ns > self.asked.start_ns)
            .filter(|read| {
                read.transfer.is_some_and(|bytes| {
                    !bytes.is_write && bytes.pipe == pipe && bytes.from < to && from < bytes.to
                })
            })
            .max_by_key(|read| read.exit_ns)
            .map(|read| (read.task, read.exit_ns))
    }

    /// If this is the wait that collected the request's child without a sleep: the child, and when
    /// it ended or was at its end.
    fn ended_before(&self, task: TaskNo, no: CallNo) -> Option<(TaskNo, u64)> {
        let call = &self.truth.calls[no];
        let child = self.asked.child?;
        let aways = &self.truth.tasks[task].aways;
        let slept = aways
            .iter()
            .map(|&away| &self.truth.aways[away])
            .any(|away| away.call == Some(no) && away.why == Why::Child);
        if task != self.asked.client || call.exit_ns != self.asked.end_ns || slept {
            return None;
        }
        let last = *self.truth.tasks[child].aways.last().expect("it died");
        let ended_ns = self.truth.aways[last].from_ns.min(call.enter_ns);
        (ended_ns > self.asked.start_ns).then_some((child, ended_ns))
    }

    /// A write copies when it begins, a read just before it ends.
    fn copies(&mut self, call: &Call, at_ns: u64) -> bool {
        let Some(transfer) = call.transfer else { return false };
        self.saw_unended |= call.exit_ns > self.asked.end_ns;
        let bytes = (transfer.to - transfer.from) as f64;
        let copy_ns = (bytes * self.copy_ns_per_byte).round() as u64;
        if transfer.is_write {
            at_ns - call.enter_ns <= copy_ns
        } else {
            call.exit_ns - at_ns < copy_ns
        }
    }

    /// If this is where a message came in, found ready or being written: its write.
    fn arrival(&mut self, task: TaskNo, no: CallNo) -> Option<CallNo> {
        let read = &self.truth.calls[no];
        let (bytes, write) = self.brought(read)?;
        if read.exit_ns > self.asked.end_ns {
            // What it brings is known at its end.
            self.saw_unended = true;
            return None;
        }
        let slept =
            self.truth.tasks[task].aways.iter().map(|&away| &self.truth.aways[away]).any(|away| {
                away.from_ns >= read.enter_ns
                    && away.from_ns < read.exit_ns
                    && matches!(away.why, Why::Pipe | Why::Readiness)
            });
        let ours = self.is_ours(&bytes);
        // Bytes of a hand-off lead back to a member.
        let explored = !self.members.contains(&task);
        let row =
            explored && !slept && !ours && !self.of_member(write) && self.leads_back(write, task);
        self.met_a_row |= row;
        let back = explored && (self.of_member(write) || self.in_a_row && row);
        if slept || !(ours || back) || (ours && self.reads_on(task, &bytes)) {
            return None;
        }
        // Was it woken for them, to read them later?
        let w = &self.truth.calls[write];
        let woken = self.truth.tasks[task].aways.iter().map(|&away| &self.truth.aways[away]).rfind(
            |away| (w.enter_ns..=read.enter_ns).contains(&away.to_ns) && self.woke(away, write),
        );
        if let Some(away) = woken {
            self.expected.insert(task, write);
            if ours && self.read_others(task, away.to_ns, read.enter_ns) {
                self.behind_others.insert(no, away.to_ns);
            }
            return None;
        }
        Some(write)
    }

    /// Whether a member wrote that, not before it was asked.
    fn of_member(&self, write: CallNo) -> bool {
        let write = &self.truth.calls[write];
        self.members.contains(&write.task) && !self.unasked(write.task, write.exit_ns)
    }

    /// Whether what the writer had read before came from a member, or from one in the process of whom that is so.
    fn leads_back(&self, write: CallNo, reader: TaskNo) -> bool {
        let mut write = &self.truth.calls[write];
        for _ in 0..MOST_HANDED_ON {
            if self.truth.tasks[write.task].tgid != self.truth.tasks[reader].tgid {
                return false;
            }
            let before = |call: &&Call| {
                call.task == write.task
                    && call.enter_ns < write.enter_ns
                    && call.exit_ns > self.asked.start_ns
            };
            let mut calls: Vec<&Call> = self.truth.calls.iter().filter(before).collect();
            calls.sort_by_key(|call| std::cmp::Reverse(call.enter_ns));
            calls.truncate(MOST_CALLS_BETWEEN);
            let Some(got) = calls.into_iter().find_map(|call| self.written(call)) else {
                return false;
            };
            let from = &self.truth.calls[got];
            if [write.task, reader].contains(&from.task) || from.enter_ns < self.asked.start_ns {
                return false;
            }
            if self.of_member(got) {
                return true;
            }
            write = from;
        }
        false
    }

    /// To the writer of what a read brought: known to work for the request, or yet to show where that came from.
    fn to_writer(&self, read: &Call, write: &Call, ns: u64) -> Step {
        let ours = read.transfer.is_some_and(|bytes| self.is_ours(&bytes));
        match ours || self.members.contains(&write.task) {
            true => Step::Joined(write.task, ns),
            false => Step::Go(write.task, ns),
        }
    }

    /// Whether a task began to read others' messages in `[from_ns, to_ns)`.
    fn read_others(&self, task: TaskNo, from_ns: u64, to_ns: u64) -> bool {
        self.truth.calls.iter().any(|call| {
            call.task == task
                && (from_ns..to_ns).contains(&call.enter_ns)
                && self.brought_by_any(call).is_some_and(|bytes| !self.is_ours(&bytes))
        })
    }

    /// For a read: its bytes, if somebody traced wrote them.
    fn brought_by_any(&self, read: &Call) -> Option<Transfer> {
        let bytes = read.transfer.filter(|transfer| !transfer.is_write)?;
        let write = self.truth.writer(bytes.pipe, bytes.to - 1)?;
        self.truth.tasks[self.truth.calls[write].task].traced.then_some(bytes)
    }

    /// For a read: its bytes, and the write by someone else, in this request, of the last of them (of
    /// the request, if it has any).
    fn brought(&self, read: &Call) -> Option<(Transfer, CallNo)> {
        let (bytes, write) = (read.transfer?, self.written(read)?);
        let w = &self.truth.calls[write];
        (w.task != read.task && w.enter_ns >= self.asked.start_ns).then_some((bytes, write))
    }

    /// The write of the last byte that a read brought, of the request, if it has any.
    fn written(&self, read: &Call) -> Option<CallNo> {
        let bytes = read.transfer.filter(|transfer| !transfer.is_write)?;
        let ours =
            self.asked.messages.iter().filter(|(pipe, from, to)| {
                *pipe == bytes.pipe && *from < bytes.to && bytes.from < *to
            });
        let last = ours.map(|(_, _, to)| bytes.to.min(*to) - 1).max().unwrap_or(bytes.to - 1);
        let write = self.truth.writer(bytes.pipe, last)?;
        let w = &self.truth.calls[write];
        (self.truth.tasks[w.task].traced && w.enter_ns < read.exit_ns).then_some(write)
    }

    fn is_ours(&self, bytes: &Transfer) -> bool {
        let message = |(pipe, from, to): &(usize, u64, u64)| {
            *pipe == bytes.pipe && *from < bytes.to && bytes.from < *to
        };
        self.asked.messages.iter().any(message)
    }

    /// Whether the task reads the request only later: whatever it did before was not for it.
    fn unasked(&self, task: TaskNo, at_ns: u64) -> bool {
        let Some((pipe, from, to)) = self.asked.messages.first() else { return false };
        let first = self.truth.calls.iter().filter(|call| call.task == task).filter(|call| {
            call.transfer
                .is_some_and(|t| t.pipe == *pipe && !t.is_write && t.from < *to && t.to > *from)
        });
        first.map(|call| call.enter_ns).min().is_some_and(|enter_ns| at_ns <= enter_ns)
    }

    /// Whether the task read earlier bytes of the request on this pipe before.
    fn reads_on(&self, task: TaskNo, bytes: &Transfer) -> bool {
        let earlier =
            |(pipe, from, _): &&(usize, u64, u64)| *pipe == bytes.pipe && *from < bytes.from;
        self.asked.messages.iter().filter(earlier).any(|(pipe, from, to)| {
            self.truth.calls.iter().filter(|call| call.task == task).any(|call| {
                call.transfer.is_some_and(|t| {
                    t.pipe == *pipe && !t.is_write && t.to > *from && t.from < bytes.from.min(*to)
                })
            })
        })
    }

    /// Whether the writer itself woke someone from inside that write, who may have waited for its bytes:
    /// not one who waited for a device, whose softirq ran there.
    fn woke(&self, away: &Away, write: CallNo) -> bool {
        let write = &self.truth.calls[write];
        away.wakeup.is_some_and(|wakeup| {
            wakeup.own
                && !matches!(away.why, Why::Disk { .. } | Why::Other)
                && wakeup.waker == write.task
                && (write.enter_ns..=write.exit_ns).contains(&wakeup.at_ns)
        })
    }

    // ---- off the CPU --------------------------------------------------------------------------

    fn away(&mut self, task: TaskNo, no: AwayNo, at_ns: u64) -> Step {
        let away = &self.truth.aways[no];
        let begin_ns = away.from_ns.max(self.asked.start_ns);
        if away.why == Why::Preempted {
            if let Some((read, write, handed_ns)) = self.handed_meanwhile(task, away, at_ns) {
                self.run_queue(task, away, handed_ns, at_ns, Category::RunqueuePreempted);
                let calls = &self.truth.calls;
                return self.to_writer(&calls[read], &calls[write], handed_ns);
            }
            self.run_queue(task, away, begin_ns, at_ns, Category::RunqueuePreempted);
            return Step::Go(task, begin_ns);
        }
        let wakeup = away.wakeup.expect("all sleeps end");
        let woken_ns = wakeup.at_ns.max(begin_ns).min(at_ns);
        let message = self.message(task, away, wakeup, at_ns);
        if let Some((writer, handed_ns)) = message.filter(|(_, ns)| *ns > wakeup.at_ns) {
            // Written when something else had woken it and it was still waiting for a CPU.
            let handed_ns = handed_ns.max(begin_ns);
            self.run_queue(task, away, handed_ns, at_ns, Category::RunqueueWakeup);
            return Step::Joined(writer, handed_ns);
        }
        self.run_queue(task, away, woken_ns, at_ns, Category::RunqueueWakeup);
        // Woken on its way to sleep, it took its last steps itself.
        let edge_ns = wakeup.at_ns.max(self.asked.start_ns).min(woken_ns);
        let said = self.said.len();
        if let Some((writer, handed_ns)) = message {
            self.last_steps(task, edge_ns, woken_ns);
            // Bytes ready before another woke it for them.
            let handed_ns = handed_ns.min(edge_ns);
            self.say(task, edge_ns - handed_ns, Category::QueuePipe);
            return Step::Joined(writer, handed_ns);
        }
        if let Some(last) = self.slept_on(task, away) {
            let wakeup = last.wakeup.expect("all sleeps end");
            self.say(task, woken_ns - begin_ns, self.charged(last, wakeup));
            return Step::Go(task, begin_ns);
        }
        let traced = self.truth.tasks[wakeup.waker].traced;
        let inside = edge_ns > self.asked.start_ns && !self.unasked(wakeup.waker, edge_ns);
        let refused = self.refused.contains(&(task, edge_ns));
        if wakeup.own && traced && inside && away.why != Why::Mutex && !refused {
            self.last_steps(task, edge_ns, woken_ns);
            let joined = if wakeup.waker != task && self.members.contains(&wakeup.waker) {
                Some((wakeup.waker, edge_ns))
            } else {
                let met = std::mem::take(&mut self.met_a_row);
                let mut found = self.explore(wakeup.waker, edge_ns);
                let row = self.met_a_row && !self.in_a_row;
                if found.is_none() && row && self.slept_for_own(away, wakeup) {
                    let vain = std::mem::take(&mut self.vain);
                    self.in_a_row = true;
                    found = self.explore(wakeup.waker, edge_ns);
                    self.in_a_row = false;
                    self.vain = vain;
                }
                self.met_a_row |= met;
                found
            };
            if let Some((member, ns)) = joined {
                if self.exploring == 0 {
                    self.followed.push((task, edge_ns));
                }
                return Step::Joined(member, ns);
            }
            self.said.truncate(said);
        }
        self.say(task, woken_ns - begin_ns, self.charged(away, wakeup));
        Step::Go(task, begin_ns)
    }

    /// It lost its CPU in a read, and the bytes of this request that the read brings were written before it was back: the read,
    /// the write, and until when.
    fn handed_meanwhile(
        &mut self,
        task: TaskNo,
        away: &Away,
        at_ns: u64,
    ) -> Option<(CallNo, CallNo, u64)> {
        let read = self.truth.before(task, away.from_ns).call?;
        let no = self.arrival(task, read)?;
        let write = &self.truth.calls[no];
        if !(away.from_ns..at_ns).contains(&write.enter_ns) {
            return None;
        }
        let over = write.exit_ns <= at_ns;
        let latest_ns = if over { write.exit_ns } else { write.enter_ns };
        Some((read, no, self.handed_by(write, latest_ns)))
    }

    /// Whether the waker, of the same process, wrote what the sleeper then read.
    fn slept_for_own(&self, away: &Away, wakeup: Wakeup) -> bool {
        let Some(call) = away.call.map(|call| &self.truth.calls[call]) else { return false };
        let tgid = |task: TaskNo| self.truth.tasks[task].tgid;
        let written = self.written(call).map(|write| self.truth.calls[write].task);
        written == Some(wakeup.waker) && tgid(wakeup.waker) == tgid(call.task)
    }

    /// The last sleep for the same reason in the same call, if this one ended for nothing.
    fn slept_on(&self, task: TaskNo, away: &Away) -> Option<&'t Away> {
        if !matches!(away.why, Why::Mutex | Why::Condition | Why::Readiness | Why::Child) {
            return None;
        }
        let aways = self.truth.tasks[task].aways.iter().rev().map(|&no| &self.truth.aways[no]);
        aways
            .take_while(|later| later.from_ns >= away.to_ns)
            .find(|later| later.call.is_some() && later.call == away.call && later.why == away.why)
    }

    /// What the task did on its CPU between a wake-up and its switch-out.
    fn last_steps(&mut self, task: TaskNo, from_ns: u64, to_ns: u64) {
        for at_ns in (from_ns + 1..=to_ns).rev() {
            let category = self.did(task, at_ns);
            self.say(task, 1, category);
        }
    }

    /// The sleep ended because bytes of this request came: who wrote them, and up to when.
    fn message(
        &mut self,
        task: TaskNo,
        away: &Away,
        wakeup: Wakeup,
        at_ns: u64,
    ) -> Option<(TaskNo, u64)> {
        if let Some(&write) = self.expected.get(&task) {
            if self.woke(away, write) {
                self.expected.remove(&task);
                return Some((wakeup.waker, wakeup.at_ns));
            }
        }
        if away.why != Why::Pipe {
            return None;
        }
        let (bytes, no) = self.brought(&self.truth.calls[away.call?])?;
        let write = &self.truth.calls[no];
        if !self.is_ours(&bytes) || write.enter_ns >= at_ns {
            return None;
        }
        if self.woke(away, no) {
            return Some((write.task, wakeup.at_ns));
        }
        if write.enter_ns > wakeup.at_ns {
            return Some((write.task, self.handed_by(write, write.exit_ns.min(at_ns))));
        }
        Some((write.task, self.handed_by(write, write.exit_ns.min(wakeup.at_ns))))
    }

    /// Crosses over to a write that had not ended at `at_ns`.
    fn under_way(&mut self, read: &Call, write: &Call, at_ns: u64) -> Step {
        let handed_ns = self.handed_by(write, at_ns);
        self.say(read.task, at_ns - handed_ns, queue_of(write));
        self.to_writer(read, write, handed_ns)
    }

    /// The bytes were written by `latest_ns`; a writer without a CPU writes nothing.
    fn handed_by(&self, write: &Call, latest_ns: u64) -> u64 {
        let mut at_ns = latest_ns;
        while at_ns > write.enter_ns
            && matches!(self.truth.before(write.task, at_ns).doing, Doing::Away(_))
        {
            at_ns -= 1;
        }
        at_ns
    }

    /// Follows a waker back until an edge leads to a member; leaves nothing behind if none does.
    fn explore(&mut self, waker: TaskNo, woken_ns: u64) -> Option<(TaskNo, u64)> {
        if self.vain.contains(&(waker, woken_ns)) {
            return None;
        }
        let said = self.said.len();
        let (through, expected) = (self.through.take(), self.expected.clone());
        let (mut task, mut at_ns) = (waker, woken_ns);
        self.exploring += 1;
        while at_ns > self.asked.start_ns {
            match self.step(task, at_ns) {
                Step::Go(t, ns) => (task, at_ns) = (t, ns),
                Step::Joined(t, ns) => {
                    self.join(waker);
                    self.exploring -= 1;
                    return Some((t, ns));
                }
            }
        }
        self.exploring -= 1;
        self.said.truncate(said);
        (self.through, self.expected) = (through, expected);
        self.vain.insert((waker, woken_ns));
        None
    }

    /// The category of a wait that is left as it is.
    fn charged(&self, away: &Away, wakeup: Wakeup) -> Category {
        let jbd2 = self.truth.tasks[wakeup.waker].jbd2;
        let transfer = away.call.and_then(|call| self.truth.calls[call].transfer);
        let writes = transfer.is_some_and(|transfer| transfer.is_write);
        match away.why {
            Why::Disk { .. } if wakeup.own && jbd2 => Category::Journal,
            Why::Disk { iowait: true } => Category::BlockIo,
            Why::Timer => Category::Sleep,
            Why::Condition if !wakeup.own => Category::Sleep,
            Why::Mutex | Why::SemaphoreLock | Why::Condition => Category::Lock,
            Why::Readiness if !wakeup.own => Category::Sleep,
            // A full pipe whose reader does something else.
            Why::Pipe if wakeup.own && self.truth.tasks[wakeup.waker].traced && writes => {
                Category::QueuePipe
            }
            Why::Readiness | Why::Pipe => Category::IdlePeer,
            _ => Category::Unattributed,
        }
    }

    /// Says who had the CPU on whose queue the task was.
    fn run_queue(
        &mut self,
        task: TaskNo,
        away: &Away,
        from_ns: u64,
        to_ns: u64,
        category: Category,
    ) {
        for at_ns in (from_ns..to_ns).rev() {
            let by = self.truth.cpus[away.queue_at(at_ns)][(at_ns - self.truth.start_ns) as usize];
            let preempts = category == Category::RunqueuePreempted;
            match by.filter(|&by| preempts && by != task && self.helps(by, at_ns + 1, task)) {
                Some(helper) => {
                    let call = self.truth.before(helper, at_ns + 1).call;
                    let exit_ns = call.map(|call| self.truth.calls[call].exit_ns);
                    // Of what ends at the same moment the record may come later.
                    self.saw_unended |= exit_ns.is_some_and(|ns| ns >= self.asked.end_ns);
                    let category = self.did(helper, at_ns + 1);
                    self.say(helper, 1, category);
                }
                None => self.said.push(Said { task, category, by }),
            }
        }
    }

    /// Whether a task that had the CPU of another was woken out of its last sleep by that one, or by one that was, since
    /// the request began.
    fn helps(&self, by: TaskNo, at_ns: u64, preempted: TaskNo) -> bool {
        let task = &self.truth.tasks[by];
        let aways = task.aways.iter().map(|&away| &self.truth.aways[away]);
        let goes_on =
            |why: Why| matches!(why, Why::Preempted | Why::Mutex | Why::Disk { .. } | Why::Other);
        let slept = aways.rev().find(|away| away.from_ns < at_ns && !goes_on(away.why));
        let Some(wakeup) = slept.and_then(|away| away.wakeup) else { return false };
        let for_it = wakeup.own
            && wakeup.at_ns >= self.asked.start_ns
            && wakeup.waker != by
            && !self.unasked(wakeup.waker, wakeup.at_ns);
        task.traced
            && by != IDLE_TASK
            && for_it
            && (wakeup.waker == preempted || self.helps(wakeup.waker, wakeup.at_ns, preempted))
    }

    /// What a task did on its CPU just before that time.
    fn did(&mut self, task: TaskNo, at_ns: u64) -> Category {
        let tick = self.truth.before(task, at_ns);
        match (tick.doing, tick.call) {
            (Doing::User, _) => Category::User,
            (Doing::Call, Some(call)) if self.copies(&self.truth.calls[call], at_ns) => {
                Category::Copy
            }
            (Doing::Call, Some(call)) => self.truth.calls[call].category,
            (Doing::Fault, _) => {
                self.saw_unended |= !self.ends_in_time(task, at_ns);
                Category::Fault
            }
            (Doing::Softirq | Doing::Hardirq, _) => {
                self.saw_unended |= !self.ends_in_time(task, at_ns);
                Category::Interrupt
            }
            other => unreachable!("{other:?} on a CPU"),
        }
    }
}

/// What the walk of a request starts from, for messages of failing tests.
pub fn describe(truth: &Truth, asked: &Asked) -> String {
    let kind = match asked.kind {
        Kind::Exec => "exec",
        _ => "pipe",
    };
    let client = truth.tasks[asked.client].tid;
    debug_assert_ne!(asked.client, IDLE_TASK);
    format!("{kind} request [{}, {}) of {client}", asked.start_ns, asked.end_ns)
}
