//! Detects `shm` requests: turns in memory that two processes share, passed by a futex that says whose turn
//! it is.
//!
//! The messages lie in the memory and are not seen; the wake-up that passes the turn is. A client wakes a
//! server and has its answer once the server has woken it. A word is taken for such a futex if two processes
//! wait for it to change from different values ("it is the other's turn"); waiters for a lock or a semaphore
//! all wait for the same value.
//!
//! A process that finds the word changed already makes no call to wait for it, so waits may be missing, in
//! the worst case all of one side's. Then it has to suffice that the two wake each other in turns.

use crate::detect::half_duplex::{exit_reason, WHO_ASKS};
use crate::detect::{end_of, Detector, Found};
use crate::event::{Call, Io, Object};
use crate::timeline::{ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Request};

/// Words that are remembered, of whatever kind.
const MOST_WORDS: usize = 65_536;

/// Calls of one word that are looked at together.
const MOST_CALLS: usize = 64;

/// Number of turns after which a word is taken to pass turns although only one of the two processes was seen
/// waiting.
const TURNS_TO_BELIEVE: usize = 2;

/// From which value threads wait for a mutex; see [`crate::event::OpenCall::lock`].
const LOCKED: i32 = 2;

/// How long a client that was answered, and has made no call, is waited for.
const PATIENCE_NS: u64 = 2_000_000_000;

const OLDER: &str = "its word is older than the capture: who asks is not known";

#[derive(Clone, Copy, Debug)]
struct WordCall {
    thread: ThreadId,
    process: ProcessId,
    enter_ns: u64,
    exit_ns: u64,
    /// Of a wait: the word had changed before.
    changed: bool,
    /// Of a wake-up: whose exec request it is part of.
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
pub(super) struct SharedWord {
    parties: Vec<Party>,
    /// The word is something else than turns: a lock or a semaphore.
    ruled_out: bool,
    /// Who woke first, and when.
    first: Option<(ProcessId, u64)>,
    /// A turn was found, so that is settled.
    settled: bool,
    /// By entry.
    wakes: Vec<WordCall>,
    waits: Vec<WordCall>,
}

/// A client's message and a server's.
struct Turn {
    ask: WordCall,
    answer: WordCall,
    /// When the client asked again.
    next_ns: u64,
}

impl SharedWord {
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.wakes.first().map(|wake| wake.enter_ns)
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.wakes.iter().chain(&self.waits).map(|call| call.thread)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let parents = self.wakes.iter().filter_map(|wake| wake.parent);
        self.parties.iter().map(|party| party.process).chain(parents)
    }

    /// Whether both wait for their turn; or one does, and the other, as far as can be seen, has never had
    /// to. `over`: there will be no more calls.
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

    /// Takes a call in. False: the word is none that passes turns.
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

    /// The turns of the wake-ups so far, but for the last if a client's follows. `torn`: some may be
    /// missing.
    fn turns(&self, torn: bool) -> Vec<Turn> {
        let client = self.client();
        let of_client = |wake: &&WordCall| Some(wake.process) == client;
        let asks: Vec<_> = self.wakes.iter().filter(of_client).copied().collect();
        let answers: Vec<_> = self.wakes.iter().filter(|wake| !of_client(wake)).copied().collect();
        let next = |at: usize| asks.get(at).map_or(u64::MAX, |ask| ask.enter_ns);
        // The word changes before the call that wakes: a client may have seen that, and asked again,
        // before. So they go by number, where these agree.
        if asks.len() == answers.len() && !torn {
            let turn = |(at, (ask, answer)): (usize, (&WordCall, &WordCall))| Turn {
                ask: *ask,
                answer: *answer,
                next_ns: next(at + 1),
            };
            return asks.iter().zip(&answers).enumerate().map(turn).collect();
        }
        // Who asks again unanswered goes on with its message.
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

    /// Forgets the calls that began before.
    fn forget_before(&mut self, at_ns: u64) {
        self.wakes.retain(|call| call.enter_ns >= at_ns);
        self.waits.retain(|call| call.exit_ns >= at_ns);
    }
}

impl Detector {
    /// A thread has waited for a word to change, or woken who did.
    pub(super) fn shared_word(&mut self, world: &World, thread: ThreadId, call: &Call, io: &Io) {
        let process = world.thread(thread).process;
        let called = WordCall {
            thread,
            process,
            enter_ns: call.enter_ns,
            exit_ns: call.exit_ns,
            changed: call.ret < 0,
            parent: io.is_write.then(|| self.enclosing(world, process)).flatten(),
        };
        let is_new = !self.shared_words.contains_key(&io.object);
        if is_new && self.shared_words.len() >= MOST_WORDS {
            self.shared_words.retain(|_, word| !word.ruled_out && word.parties.len() > 1);
            if self.shared_words.len() >= MOST_WORDS {
                return;
            }
        }
        let mut word = self.shared_words.remove(&io.object).unwrap_or_default();
        if !word.ruled_out && word.take(called, (!io.is_write).then_some(io.fd)) {
            self.turns_of(world, io.object, &mut word);
        }
        self.shared_words.insert(io.object, word);
    }

    fn turns_of(&mut self, world: &World, object: Object, word: &mut SharedWord) {
        if !word.passes_turns(false) {
            return;
        }
        if let Some(turn) = word.waited_for() {
            self.turn_passed(world, object, word, &turn);
            word.forget_before(turn.answer.enter_ns + 1);
            return;
        }
        // Where the client asked again after it was answered, what was before is complete. (Whoever is
        // preempted in its call that wakes is told of late.)
        let client = word.client();
        let asks = |wake: &WordCall| Some(wake.process) == client;
        let Some(again) = word.wakes.iter().rposition(asks) else { return };
        if !word.wakes[..again].iter().all(asks) {
            let later = word.wakes.split_off(again);
            self.end_turns(world, object, word, later[0].enter_ns);
            word.wakes = later;
        }
    }

    /// All turns of the wake-ups so far, the client's next being at `next_ns`.
    fn end_turns(&mut self, world: &World, object: Object, word: &mut SharedWord, next_ns: u64) {
        let since_ns = word.since_ns().unwrap_or(next_ns);
        let torn = world.losses.first(since_ns, next_ns.min(world.now_ns)).is_some();
        for turn in word.turns(torn) {
            let turn = Turn { next_ns: turn.next_ns.min(next_ns), ..turn };
            self.turn_passed(world, object, word, &turn);
        }
        word.forget_before(next_ns);
    }

    fn turn_passed(&mut self, world: &World, object: Object, word: &mut SharedWord, turn: &Turn) {
        let Turn { ask, answer, next_ns } = *turn;
        word.settled = true;
        let (client, end_ns) = match word.waited(turn) {
            Some(wait) => (wait.thread, wait.exit_ns),
            // It saw for itself, at the earliest opportunity. (The word changes shortly before the call
            // that wakes begins, and who looks just then has its answer that much earlier.)
            None => {
                let off = world.thread(ask.thread).off_before(answer.enter_ns + 1);
                let back_ns = off.map_or(0, |off| off.end_ns).max(ask.exit_ns);
                (ask.thread, back_ns.max(answer.enter_ns))
            }
        };
        let end_ns = end_ns.min(next_ns);
        let began_ns = word.first.map_or(ask.enter_ns, |(_, at_ns)| at_ns);
        let new = is_new(world, ask.process) && is_new(world, answer.process);
        let doubt = match self.attached && !new {
            true => Some(OLDER),
            false => world.losses.first(0, began_ns).map(|_| WHO_ASKS),
        };
        self.shared_found(
            world,
            object,
            ask,
            Some(answer),
            (client, end_ns),
            doubt.map(Into::into),
        );
    }

    fn shared_found(
        &mut self,
        world: &World,
        object: Object,
        ask: WordCall,
        answer: Option<WordCall>,
        (client, end_ns): (ThreadId, u64),
        reason: Option<String>,
    ) {
        if end_ns <= ask.enter_ns {
            return;
        }
        self.found_primary = true;
        let parent = self.parent_of(world, None, ask.parent, (ask.enter_ns, end_ns));
        let request = Request {
            request_id: self.new_id(),
            parent_request_id: parent.map(|parent| parent.id),
            detached: parent.is_some_and(|parent| parent.detached),
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
        self.found.push(Found { request, goal });
    }

    /// A process is gone: what was asked of it will not be answered, and what it asked is over.
    pub(super) fn shared_exit(&mut self, world: &World, process: ProcessId, at_ns: u64) {
        let uses = |word: &SharedWord| word.parties.iter().any(|party| party.process == process);
        let words: Vec<Object> =
            self.shared_words.iter().filter(|(_, word)| uses(word)).map(|(key, _)| *key).collect();
        for object in words {
            let mut word = self.shared_words.remove(&object).expect("just listed");
            self.end_word(world, object, &mut word, Some((process, at_ns)));
        }
    }

    /// Of those whose client was answered, and has made no call since.
    pub(super) fn shared_late(&mut self, world: &World) {
        let mut words = std::mem::take(&mut self.shared_words);
        for (object, word) in &mut words {
            let answered = word.wakes.last().filter(|wake| Some(wake.process) != word.client());
            let late = |wake: &WordCall| wake.exit_ns.saturating_add(PATIENCE_NS) < world.now_ns;
            if word.passes_turns(false) && answered.is_some_and(late) {
                self.end_turns(world, *object, word, world.now_ns);
            }
        }
        self.shared_words = words;
    }

    /// No more calls will come.
    pub(super) fn end_shared(&mut self, world: &World) {
        let mut words: Vec<_> = std::mem::take(&mut self.shared_words).into_iter().collect();
        words.sort_by_key(|(object, _)| *object);
        for (object, mut word) in words {
            self.end_word(world, object, &mut word, None);
        }
    }

    fn end_word(
        &mut self,
        world: &World,
        object: Object,
        word: &mut SharedWord,
        exited: Option<(ProcessId, u64)>,
    ) {
        if !word.passes_turns(true) {
            return;
        }
        let client = word.client();
        let open = word.wakes.iter().rposition(|wake| Some(wake.process) != client);
        let open: Vec<_> = word.wakes.drain(open.map_or(0, |last| last + 1)..).collect();
        let open = open.first().copied();
        let next_ns = open.map_or(u64::MAX, |ask| ask.enter_ns);
        self.end_turns(world, object, word, next_ns);
        // Only of a word that has passed turns is it known that somebody was asked.
        let Some(ask) = open.filter(|_| word.settled) else { return };
        let (reason, end_ns) = match exited {
            Some((process, _)) if process == ask.process => return,
            Some((process, at_ns)) => {
                // Who is told to end, ends: that is no request.
                if world.processes[process as usize].exit_code.unwrap_or(0) == 0 {
                    return;
                }
                (exit_reason("the server", world, process), at_ns)
            }
            None => ("the capture ended before the answer".to_string(), world.now_ns),
        };
        self.shared_found(world, object, ask, None, (ask.thread, end_ns), Some(reason));
    }
}

/// Whether a process has nothing in its memory from before the capture: it has begun a program in it, or is a
/// child of one that had.
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
