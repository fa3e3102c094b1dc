//! The state of a walk, in three parts: its result, what it knows on its way back, and what it learnt from paths that
//! led nowhere. A walk reads the world and changes nothing else.

use crate::walk::run_queue::Behind;
use crate::walk::*;

/// A segment before it gets its names; `[start_ns, end_ns)`.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) thread: ThreadId,
    pub(super) category: Category,
    pub(super) detail: Option<TextId>,
    pub(super) cause: Option<TextId>,
    pub(super) by: Option<ThreadId>,
    pub(super) cpu: Option<u32>,
    pub(super) evidence: Evidence,
    pub(super) rule: Rule,
    /// Number of requests that share the work.
    pub(super) shared: u32,
    /// The thread belongs to the server of the request, or of what was asked for it.
    pub(super) serves: bool,
    /// The thread's messages show that it worked for the request.
    pub(super) by_marks: bool,
}

/// The result of a walk: the segments so far, and properties of the next ones.
pub(super) struct Output {
    /// Latest first.
    pub(super) out: Vec<Raw>,
    pub(super) names: Names,
    /// Number of requests that share the work being emitted.
    pub(super) shared: u32,
    /// It is inferred that the work is the request's: the thread has other requests, too.
    pub(super) likely: bool,
    /// The thread's messages show that it works for the request.
    pub(super) by_marks: bool,
    /// The rule by which the walk came to its present thread; and the rule of the next segment, if that is a wait whose
    /// category does not imply the rule.
    pub(super) rule: Rule,
    pub(super) wait_rule: Option<Rule>,
    /// Empty memory for the pieces of a wait for a CPU.
    pub(super) behind: Vec<Behind>,
}

/// Memory that walks use one after the other.
#[derive(Default)]
pub struct Buffers {
    pub(super) output: Output,
    pub(super) search: Search,
    pub(super) calls: Vec<(u64, ThreadId)>,
}

/// Limit of the items whose memory is kept for the next walk: a long walk is no reason to keep much.
const MOST_KEPT: usize = 4096;

impl Buffers {
    /// To be called when a walk begins.
    pub(super) fn begin(&mut self) {
        self.output.begin();
        self.search.begin();
        self.calls.clear();
    }
}

impl Default for Output {
    fn default() -> Output {
        Output {
            out: Vec::with_capacity(32),
            names: Names::new(),
            shared: 1,
            likely: false,
            by_marks: false,
            rule: Rule::End,
            wait_rule: None,
            behind: Vec::new(),
        }
    }
}

impl Output {
    fn begin(&mut self) {
        // A walk that ended early has left its segments.
        let left = std::mem::take(&mut self.out);
        self.give_back(left);
        self.names.begin();
        (self.shared, self.likely, self.by_marks) = (1, false, false);
        self.wait_rule = None;
        self.clear();
    }

    /// Keeps the room of these segments for the next walk, unless it is a lot.
    pub(super) fn give_back(&mut self, mut out: Vec<Raw>) {
        out.clear();
        if out.capacity() <= MOST_KEPT {
            self.out = out;
        }
    }

    /// Takes back all segments.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.names.clear();
        self.rule = Rule::End;
    }
}

/// What a walk knows on its way back from the answer.
#[derive(Default)]
pub(super) struct Search {
    /// Threads whose work for this request is established.
    pub(super) members: FxHashSet<ThreadId>,
    /// States `(thread, time, through_read)` that were explored and do not lead to the request.
    pub(super) dead_ends: FxHashSet<(ThreadId, u64, bool)>,
    /// Reads whose message edge was already crossed, by thread and entry; each is crossed once.
    pub(super) crossed: FxHashSet<(ThreadId, u64)>,
    /// For each thread whose first read of a message found the bytes ready because it had been woken for them in an
    /// earlier sleep: the channel and the write by which that sleep is recognised.
    pub(super) expected: FxHashMap<ThreadId, (Object, Transfer)>,
    /// The read (thread, entry) that the walk is going back through, from a time when its bytes had begun to come.
    pub(super) through: Option<(ThreadId, u64)>,
    /// A thread that had nothing to do but wait for its peer, from when until when, and whether that is sure.
    pub(super) awaits: Option<(ThreadId, (u64, u64), bool)>,
    /// Wake-ups that the path itself followed: (woken thread, time, waker).
    pub(super) followed: Vec<(ThreadId, u64, ThreadId)>,
    /// Number of nested futex waits whose wakers are being explored.
    pub(super) futexes: usize,
    /// Hand-overs in a row to threads that were awake are followed: see [`Walk::handed_on_to`].
    pub(super) in_a_row: bool,
    /// Such a hand-over was met and not followed.
    pub(super) met_a_row: bool,
    /// The path leads through the server's first read of the request.
    pub(super) through_read: bool,
    /// The walk has reached the arrival of the request's bytes.
    pub(super) came_in: bool,
    /// The threads of the program whose life the request is are taken to work for it.
    pub(super) knows_life: bool,
    /// A stretch of a thread that is short ([`Walk::worked_together`]): from when until when.
    pub(super) short: Option<(ThreadId, u64, u64)>,
}

/// What is known of the reads on a path, put aside while another path is tried.
pub(super) struct Way {
    through: Option<(ThreadId, u64)>,
    expected: FxHashMap<ThreadId, (Object, Transfer)>,
    came_in: bool,
    through_read: bool,
}

impl Search {
    /// Sets out on another path, which is inside no read.
    pub(super) fn set_out(&mut self) -> Way {
        Way {
            through: self.through.take(),
            expected: self.expected.clone(),
            came_in: self.came_in,
            through_read: self.through_read,
        }
    }

    /// Returns to the former path.
    pub(super) fn return_to(&mut self, way: Way) {
        (self.through, self.expected) = (way.through, way.expected);
        (self.came_in, self.through_read) = (way.came_in, way.through_read);
    }

    fn begin(&mut self) {
        let sizes = [self.members.capacity(), self.dead_ends.capacity(), self.crossed.capacity()];
        if sizes.into_iter().any(|size| size > MOST_KEPT) {
            *self = Search::default();
        }
        self.members.clear();
        self.futexes = 0;
        self.clear();
    }

    /// Begins anew, outside of any exploration.
    pub(super) fn clear(&mut self) {
        self.dead_ends.clear();
        self.crossed.clear();
        self.expected.clear();
        self.through = None;
        self.followed.clear();
        self.awaits = None;
        (self.in_a_row, self.met_a_row) = (false, false);
        self.through_read = false;
        self.came_in = false;
        self.knows_life = false;
    }

    /// Whether nothing has been found out except which threads are members.
    pub(super) fn is_fresh(&self) -> bool {
        let nowhere = self.dead_ends.is_empty() && self.crossed.is_empty();
        let reads = self.expected.is_empty() && self.through.is_none();
        nowhere && reads && !self.through_read && !self.came_in
    }
}

/// What is known from passes that did not come out in the client.
pub(super) struct Attempts {
    pub(super) steps: usize,
    /// Steps of passes before the steps were counted anew.
    pub(super) steps_before: usize,
    /// Steps of this pass through work that is not known to be for the request.
    pub(super) astray: usize,
    /// Wake-ups that must not be followed.
    pub(super) refused: FxHashSet<(ThreadId, u64)>,
    /// The lock rules are on: a waker that looks like the holder of a lock is not followed ([`Walk::is_lock`]), nor
    /// is the waker of a futex wait followed through answers to other requests ([`Walk::doubts`]). If the walk then
    /// finds no path to the client, it is repeated with the lock rules off.
    pub(super) strict: bool,
    /// Without the lock rules, exploration is bounded, since there is another way to explain the request: see
    /// [`MOST_STEPS_ASTRAY_AGAIN`].
    pub(super) is_bounded: bool,
    /// The thread that read the request and when, set once nothing else leads to the client: see
    /// [`Walk::take_over`].
    pub(super) received: Option<(ThreadId, u64)>,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            steps: 0,
            steps_before: 0,
            astray: 0,
            refused: FxHashSet::default(),
            strict: true,
            is_bounded: false,
            received: None,
        }
    }
}
