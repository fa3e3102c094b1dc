//! Detects `shm` requests: turns in memory that two processes share, passed by a futex that says whose turn
//! it is.
//!
//! The messages lie in the memory and are not seen; the wake-up that passes the turn is seen. A client wakes a server
//! and has its answer once the server has woken it. A word is taken for such a futex if two processes wait for it to
//! change from different values ("it is the other's turn"); waiters for a lock or a semaphore all wait for the same
//! value.
//!
//! A process that finds the word already changed makes no call to wait for it. So waits may be missing, in the worst
//! case all waits of one side. Then it has to suffice that the two processes wake each other in turns.

use rustc_hash::FxHashMap;

use crate::detect::book::Book;
use crate::detect::found::{end_of, exit_reason, Found, MadeFor};
use crate::detect::lifecycle::{Clock, Patience};
use crate::detect::{Detect, Recent, Seen};
use crate::event::{Call, Io, Object, TYPE_SHARED_WORD};
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Reason, Request, Who};

/// Limit of the words that are remembered, of whatever kind.
const MOST_WORDS: usize = 65_536;

/// Limit of the calls of one word that are examined together.
const MOST_CALLS: usize = 64;

/// Number of turns after which a word is taken to pass turns although only one of the two processes was seen
/// waiting.
const TURNS_TO_BELIEVE: usize = 2;

/// The value from which threads wait for a mutex; see [`crate::event::OpenCall::lock`].
const LOCKED: i32 = 2;

#[derive(Clone, Copy, Debug)]
struct WordCall {
    thread: ThreadId,
    process: ProcessId,
    enter_ns: u64,
    exit_ns: u64,
    /// Of a wait: the word had changed before.
    changed: bool,
    /// Of a wake-up: the process in whose exec request it lies.
    parent: Option<ProcessId>,
}

/// A process that uses a word, and from which value it last waited for a change.
#[derive(Clone, Copy, Debug)]
struct Party {
    process: ProcessId,
    from_value: Option<i32>,
}

/// A word, and the calls since the last turn that was found.
#[derive(Debug, Default)]
struct SharedWord {
    parties: Vec<Party>,
    /// The word does not pass turns: it is a lock or a semaphore.
    ruled_out: bool,
    /// The process that woke first, and when.
    first: Option<(ProcessId, u64)>,
    /// A turn was found: the word passes turns, and `first` is final.
    settled: bool,
    /// In order of entry.
    wakes: Vec<WordCall>,
    waits: Vec<WordCall>,
}

/// A client's message and the server's answer.
struct Turn {
    ask: WordCall,
    answer: WordCall,
    /// When the client asked again.
    next_ns: u64,
}

impl SharedWord {
    fn since_ns(&self) -> Option<u64> {
        self.wakes.first().map(|wake| wake.enter_ns)
    }

    fn threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.wakes.iter().chain(&self.waits).map(|call| call.thread)
    }

    fn processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let parents = self.wakes.iter().filter_map(|wake| wake.parent);
        self.parties.iter().map(|party| party.process).chain(parents)
    }

    /// Whether both processes wait for their turn; or one does, and the other was never seen to wait. `over`: there
    /// will be no more calls.
    fn passes_turns(&self, over: bool) -> bool {
        let values: Vec<_> = self.parties.iter().filter_map(|party| party.from_value).collect();
        let by_turns = || self.wakes.windows(2).all(|pair| pair[0].process != pair[1].process);
        let enough = if over { 2 } else { 2 * TURNS_TO_BELIEVE };
        match values[..] {
            [_, _] => true,
            [value] if value != LOCKED => {
                self.settled || (self.wakes.len() >= enough && by_turns())
            }
            _ => false,
        }
    }

    fn client(&self) -> Option<ProcessId> {
        self.first.map(|(process, _)| process)
    }

    /// Takes in a call. Returns false if the word does not pass turns.
    fn take(&mut self, call: WordCall, waits_from: Option<i32>) -> bool {
        let known = self.parties.iter().position(|party| party.process == call.process);
        let at = known.unwrap_or_else(|| {
            self.parties.push(Party { process: call.process, from_value: None });
            self.parties.len() - 1
        });
        if waits_from.is_some() {
            self.parties[at].from_value = waits_from;
            let same = self.parties.iter().filter(|party| party.from_value == waits_from).count();
            self.ruled_out |= same > 1;
        }
        self.ruled_out |= self.parties.len() > 2;
        if self.ruled_out {
            (self.wakes, self.waits) = (Vec::new(), Vec::new());
            return false;
        }
        let calls = if waits_from.is_some() { &mut self.waits } else { &mut self.wakes };
        // A call's record comes when it ends.
        let at = calls.partition_point(|other| other.enter_ns <= call.enter_ns);
        calls.insert(at, call);
        if calls.len() > MOST_CALLS {
            calls.remove(0);
        }
        if waits_from.is_none() && !self.settled {
            let first = self.first.get_or_insert((call.process, call.enter_ns));
            if call.enter_ns < first.1 {
                *first = (call.process, call.enter_ns);
            }
        }
        true
    }

    /// The call at whose end the client knew of the answer.
    fn waited(&self, turn: &Turn) -> Option<WordCall> {
        let after = |wait: &&WordCall| {
            wait.process == turn.ask.process
                && (turn.ask.enter_ns..turn.next_ns).contains(&wait.enter_ns)
                && (wait.changed || wait.exit_ns >= turn.answer.enter_ns)
        };
        self.waits.iter().filter(after).min_by_key(|wait| wait.exit_ns).copied()
    }

    /// The only turn there is, if the client has waited for its answer.
    fn waited_for(&self) -> Option<Turn> {
        let client = self.client()?;
        let [ask, answer] = self.wakes[..] else { return None };
        let turn = Turn { ask, answer, next_ns: u64::MAX };
        let is_turn = ask.process == client && answer.process != client;
        (is_turn && self.waited(&turn).is_some()).then_some(turn)
    }

    /// The turns that the wake-ups so far form, without a last question that is not answered. `torn`: some wake-ups may
    /// be missing.
    fn turns(&self, torn: bool) -> Vec<Turn> {
        let client = self.client();
        let of_client = |wake: &&WordCall| Some(wake.process) == client;
        let asks: Vec<_> = self.wakes.iter().filter(of_client).copied().collect();
        let answers: Vec<_> = self.wakes.iter().filter(|wake| !of_client(wake)).copied().collect();
        let next = |at: usize| asks.get(at).map_or(u64::MAX, |ask| ask.enter_ns);
        // The word changes before the call that wakes begins. A client may have seen the change, and asked again,
        // before that call. So questions and answers are paired by number if there are as many of both.
        if asks.len() == answers.len() && !torn {
            let turn = |(at, (ask, answer)): (usize, (&WordCall, &WordCall))| Turn {
                ask: *ask,
                answer: *answer,
                next_ns: next(at + 1),
            };
            return asks.iter().zip(&answers).enumerate().map(turn).collect();
        }
        // A client that asks again without an answer continues its message.
        let mut turns: Vec<Turn> = Vec::new();
        let mut at = 0;
        for answer in answers {
            let before = asks.partition_point(|ask| ask.enter_ns < answer.enter_ns);
            if before > at {
                turns.push(Turn { ask: asks[at], answer, next_ns: next(before) });
                at = before;
            }
        }
        turns
    }

    /// Forgets wake-ups that began, and waits that ended, before `at_ns`.
    fn forget_before(&mut self, at_ns: u64) {
        self.wakes.retain(|call| call.enter_ns >= at_ns);
        self.waits.retain(|call| call.exit_ns >= at_ns);
    }
}

/// Futexes in memory that processes share.
#[derive(Debug, Default)]
pub(super) struct SharedFutex {
    words: FxHashMap<Object, SharedWord>,
}

impl Detect for SharedFutex {
    #[inline]
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        if let Seen::Called { thread, call, .. } = *seen {
            for io in call.more().iter().filter(|io| io.object.type_bits == TYPE_SHARED_WORD) {
                self.word_call(world, thread, call, io, book);
            }
        }
    }

    /// Questions to the process will not be answered, and its own questions are over.
    fn exit(&mut self, world: &World, process: ProcessId, at_ns: u64, book: &mut Book) {
        let uses = |word: &SharedWord| word.parties.iter().any(|party| party.process == process);
        let words: Vec<Object> =
            self.words.iter().filter(|(_, word)| uses(word)).map(|(key, _)| *key).collect();
        for object in words {
            if let Some(mut word) = self.words.remove(&object) {
                word.end(world, object, Some((process, at_ns)), book);
            }
        }
    }

    fn horizon_ns(&self, _recent: Recent, _book: &Book) -> Option<u64> {
        self.words.values().filter_map(SharedWord::since_ns).min()
    }

    fn hold(&self, held: &mut Held) {
        for word in self.words.values() {
            held.threads.extend(word.threads());
            held.processes.extend(word.processes());
        }
    }

    fn forget(&mut self, world: &World, book: &mut Book) {
        for (object, word) in &mut self.words {
            word.end_if_late(world, *object, book);
        }
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        let mut words: Vec<_> = std::mem::take(&mut self.words).into_iter().collect();
        words.sort_by_key(|(object, _)| *object);
        for (object, mut word) in words {
            word.end(world, object, None, book);
        }
    }
}

impl SharedFutex {
    /// A thread has waited for a word to change, or woken a waiter.
    #[inline(never)] // most calls are none
    fn word_call(
        &mut self,
        world: &World,
        thread: ThreadId,
        call: &Call,
        io: &Io,
        book: &mut Book,
    ) {
        let process = world.thread(thread).process;
        let called = WordCall {
            thread,
            process,
            enter_ns: call.enter_ns,
            exit_ns: call.exit_ns,
            changed: call.ret < 0,
            parent: io
                .is_write
                .then(|| book.causality.programs.enclosing(world, process))
                .flatten(),
        };
        let is_new = !self.words.contains_key(&io.object);
        if is_new && self.words.len() >= MOST_WORDS {
            self.words.retain(|_, word| !word.ruled_out && word.parties.len() > 1);
            if self.words.len() >= MOST_WORDS {
                return;
            }
        }
        let word = self.words.entry(io.object).or_default();
        if !word.ruled_out && word.take(called, (!io.is_write).then_some(io.fd)) {
            word.turns_of(world, io.object, book);
        }
    }
}

impl SharedWord {
    /// Finds the turns that are over as of the last call.
    fn turns_of(&mut self, world: &World, object: Object, book: &mut Book) {
        if !self.passes_turns(false) {
            return;
        }
        if let Some(turn) = self.waited_for() {
            self.passed(world, object, &turn, book);
            self.forget_before(turn.answer.enter_ns + 1);
            return;
        }
        // If the client asked again after it was answered, what was before is complete. (If a thread is preempted in
        // the call that wakes, the call is reported late.)
        let client = self.client();
        let asks = |wake: &WordCall| Some(wake.process) == client;
        let Some(again) = self.wakes.iter().rposition(asks) else { return };
        if !self.wakes[..again].iter().all(asks) {
            let later = self.wakes.split_off(again);
            self.end_turns(world, object, later[0].enter_ns, book);
            self.wakes = later;
        }
    }

    /// Ends all turns of the wake-ups so far; the client's next turn begins at `next_ns`.
    fn end_turns(&mut self, world: &World, object: Object, next_ns: u64, book: &mut Book) {
        let since_ns = self.since_ns().unwrap_or(next_ns);
        let torn = world.losses.first(since_ns, next_ns.min(world.now_ns)).is_some();
        for turn in self.turns(torn) {
            let turn = Turn { next_ns: turn.next_ns.min(next_ns), ..turn };
            self.passed(world, object, &turn, book);
        }
        self.forget_before(next_ns);
    }

    fn passed(&mut self, world: &World, object: Object, turn: &Turn, book: &mut Book) {
        let Turn { ask, answer, next_ns } = *turn;
        self.settled = true;
        let (client, end_ns) = match self.waited(turn) {
            Some(wait) => (wait.thread, wait.exit_ns),
            // The client saw the change itself, at the earliest opportunity. (The word changes shortly before the call
            // that wakes begins. A client that looks at that moment has its answer that much earlier.)
            None => {
                let off = world.thread(ask.thread).off_before(answer.enter_ns + 1);
                let back_ns = off.map_or(0, |off| off.end_ns).max(ask.exit_ns);
                (ask.thread, back_ns.max(answer.enter_ns))
            }
        };
        let end_ns = end_ns.min(next_ns);
        let began_ns = self.first.map_or(ask.enter_ns, |(_, at_ns)| at_ns);
        let new = is_new(world, ask.process) && is_new(world, answer.process);
        let doubt = match book.attached_ns.is_some() && !new {
            true => Some(Reason::WordOlder),
            false => world.losses.first(0, began_ns).map(|_| Reason::AskerUnknown),
        };
        found(world, object, ask, Some(answer), (client, end_ns), doubt, book);
    }

    /// Ends the turns of a client that was answered and has made no call for long.
    fn end_if_late(&mut self, world: &World, object: Object, book: &mut Book) {
        let answered = self.wakes.last().filter(|wake| Some(wake.process) != self.client());
        let clock = Clock::new(world, false);
        let late = |wake: &WordCall| clock.gives_up(Patience::NextCall, wake.exit_ns);
        if self.passes_turns(false) && answered.is_some_and(late) {
            self.end_turns(world, object, world.now_ns, book);
        }
    }

    /// No more calls will come.
    fn end(
        &mut self,
        world: &World,
        object: Object,
        exited: Option<(ProcessId, u64)>,
        book: &mut Book,
    ) {
        if !self.passes_turns(true) {
            return;
        }
        let client = self.client();
        let open = self.wakes.iter().rposition(|wake| Some(wake.process) != client);
        let open: Vec<_> = self.wakes.drain(open.map_or(0, |last| last + 1)..).collect();
        let open = open.first().copied();
        let next_ns = open.map_or(u64::MAX, |ask| ask.enter_ns);
        self.end_turns(world, object, next_ns, book);
        // It is known that a question was asked only if the word has passed turns.
        let Some(ask) = open.filter(|_| self.settled) else { return };
        let (reason, end_ns) = match exited {
            Some((process, _)) if process == ask.process => return,
            Some((process, at_ns)) => {
                // A server that is woken and exits with 0 was told to end: that is no request.
                if world.processes[process as usize].exit_code.unwrap_or(0) == 0 {
                    return;
                }
                (exit_reason(Who::Server, world, process), at_ns)
            }
            None => (Reason::CaptureEnded, world.now_ns),
        };
        found(world, object, ask, None, (ask.thread, end_ns), Some(reason), book);
    }
}

fn found(
    world: &World,
    object: Object,
    ask: WordCall,
    answer: Option<WordCall>,
    (client, end_ns): (ThreadId, u64),
    reason: Option<Reason>,
    book: &mut Book,
) {
    if end_ns <= ask.enter_ns {
        return;
    }
    let request = Request {
        request_id: book.causality.ids.next(),
        complete: reason.is_none(),
        reason,
        client: Some(end_of(world, client, end_ns)),
        server: answer.map(|answer| end_of(world, answer.thread, end_ns)),
        channel: Some(object.to_string()),
        ..Request::new(Kind::Shm, ask.enter_ns, end_ns)
    };
    let goal = Goal {
        server_process: answer.map(|answer| answer.process),
        passed: Some((ask.thread, ask.enter_ns)),
        ..Goal::new(ask.enter_ns, end_ns, (client, ask.process))
    };
    let made_for = MadeFor { program: ask.parent, ..MadeFor::default() };
    book.found(world, Found { made_for, ..Found::without_channels(request, goal) });
}

/// Whether a process has nothing in its memory from before the capture: it has begun a program since then, or is a
/// child of a process that had.
fn is_new(world: &World, process: ProcessId) -> bool {
    let (mut at, mut until_ns) = (process, u64::MAX);
    loop {
        let process = &world.processes[at as usize];
        if process.programs.iter().any(|program| program.exec_ns <= until_ns) {
            return true;
        }
        let Some(parent) = process.parent else { return false };
        until_ns = until_ns.min(world.thread(process.leader).born_ns);
        at = parent;
    }
}
