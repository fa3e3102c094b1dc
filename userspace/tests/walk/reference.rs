//! A reference walk, written for plainness: it goes back one nanosecond at a time, and reads the truth instead of
//! events. Time is named by its end: "at 100" means the nanosecond from 99 to 100.

mod messages;
mod sleeps;

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
    /// The task that had the CPU, for time in a run queue.
    pub by: Option<u32>,
}

/// The category of time in which something waits where a write has put it.
fn queue_of(write: &Call) -> Category {
    match write.transfer {
        Some(bytes) if bytes.pipe >= EVENTFDS => Category::QueueApp,
        _ => Category::QueuePipe,
    }
}

/// Merges equal neighbours.
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

/// The explanation of a nanosecond.
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
    /// Latest nanosecond first, without gaps.
    said: Vec<Said>,
    members: BTreeSet<TaskNo>,
    /// By task: the write that woke it for bytes that it read only later, while awake.
    expected: BTreeMap<TaskNo, CallNo>,
    /// The read that the walk is going back through, from a time when the read's bytes had begun to come.
    through: Option<CallNo>,
    /// Reads by a task that was woken for the bytes but read messages of other requests first, with the time at which
    /// it came to a CPU.
    behind_others: BTreeMap<CallNo, u64>,
    /// Wake-ups followed in vain since the last member joined. Without this set, two threads that wake each other again
    /// and again would double the work with each wake-up.
    vain: BTreeSet<(TaskNo, u64)>,
    steps: u64,
    /// The depth of nested explorations of wakers.
    exploring: u32,
    /// Whether chains of several hand-overs to awake threads are followed; and whether such a chain was met.
    in_a_row: bool,
    met_a_row: bool,
    /// The walk came through a transfer, fault or interrupt that had not ended when the request did: its record may
    /// come too late for the engine.
    saw_unended: bool,
    /// Wake-ups (task, time) that the path itself followed, and those that it must not follow.
    followed: Vec<(TaskNo, u64)>,
    refused: BTreeSet<(TaskNo, u64)>,
    /// If the walk did not come out at the client: the task where it came out, and how much was said when a thread last
    /// joined.
    lost: Option<(TaskNo, usize)>,
}

/// The engine's limits.
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
    // The walk must come out in the client's process. Otherwise it lost the thread: then the last wake-up that it
    // followed had nothing to do with the request.
    while let (Some(_), Some(edge)) = (walk.lost, walk.followed.last().copied()) {
        if refused.len() == MOST_REFUSED {
            break;
        }
        refused.insert(edge);
        saw_unended |= walk.saw_unended;
        walk = back(truth, asked, copy_ns_per_byte, &refused, None);
    }
    if walk.lost.is_some() {
        // No other wake-up had either: the task that received the request left it to another in memory.
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

/// The whole way back, without the refused wake-ups. `received` is a task and a time: from then on, whatever the server
/// does is for the request, whichever thread does it; before, the request is with this task.
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

/// The pieces with all time on a CPU as `User`.
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

    /// Whether the fault or interrupt that a task is in ends before the request does.
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
                // The write was under way when the read began.
                if before_ns <= write.enter_ns.max(call.enter_ns) {
                    return self.under_way(call, write, before_ns);
                }
            } else if before_ns == call.enter_ns {
                // The write was over by then: until the read, the bytes were in the queue.
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

    /// If the call answers another request, and this request's message had been read in its process by then: the task
    /// that read it, and when.
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

    /// The task in this process that last read the request's message before `before_ns`, and when.
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

    /// If this call collected the request's child without a sleep: the child, and when it left its CPU for the last
    /// time, or the start of the call if that was earlier.
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

/// The request that a walk starts from, for messages of failing tests.
pub fn describe(truth: &Truth, asked: &Asked) -> String {
    let kind = match asked.kind {
        Kind::Exec => "exec",
        _ => "pipe",
    };
    let client = truth.tasks[asked.client].tid;
    debug_assert_ne!(asked.client, IDLE_TASK);
    format!("{kind} request [{}, {}) of {client}", asked.start_ns, asked.end_ns)
}
