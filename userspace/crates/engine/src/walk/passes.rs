//! Passes: the whole path back, repeated until it comes out where the request began.
//!
//! The first pass has the lock rules on. A pass that does not come out in the request's client is repeated without
//! them, then with the wake-ups that it followed taken back, one by one, and at last from where the request was
//! received, handed on in memory.

use crate::walk::*;

/// Limit of the followed wake-ups that are taken back, one by one, when the walk does not come out at the client; and
/// of the steps spent on that.
const MOST_REFUSED: usize = 256;
const MOST_STEPS_REFUSING: usize = 200_000;

impl Walk<'_> {
    /// The whole walk: as many passes as it takes to come out at the client.
    ///
    /// # Errors
    /// [`NotYet`]: try again when a record of that thread has come.
    pub(super) fn run(&mut self) -> Result<(), NotYet> {
        // The server's thread may look at the word before it sleeps.
        self.attempts.received = self.goal.passed.filter(|_| self.applies(Rule::InMemory));
        loop {
            // The request began in its client: a walk that ends elsewhere has lost the path. A thread that once worked
            // for the request wakes others for other reasons, too, so the last wake-up that was followed is kept as a
            // wait instead.
            let lost = self.back()?.is_some();
            if lost && std::mem::take(&mut self.attempts.strict) {
                self.attempts.is_bounded = self.handed_on_from().is_some();
                // One of the supposed locks handed the request on, after all.
                continue;
            }
            let followed =
                if lost { self.search.followed.last().copied() } else { self.bypassing() };
            let go_on = self.attempts.refused.len() < MOST_REFUSED
                && self.attempts.steps < MOST_STEPS_REFUSING;
            // If the read that brought the request is known, it was handed on from the reading thread.
            let go_on = go_on && !self.must_come_in() && !self.is_astray();
            match followed.filter(|_| go_on) {
                Some((thread, at_ns, _)) => self.attempts.refused.insert((thread, at_ns)),
                None if lost => return self.run_without_a_trace(),
                None => return Ok(()),
            };
        }
    }

    /// The thread of the server that read the request last, and when: from there it may have been handed on in memory.
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
            // The thread that had the request at the last known edge.
            let thread = self.output.out.get(joined_at).map_or(thread, |raw| raw.thread);
            self.output.out.truncate(joined_at);
            let end_ns = self.output.out.last().map_or(self.goal.end_ns, |raw| raw.start_ns);
            self.give_up(thread, end_ns, "nothing shows how the request reached this thread");
        }
        Ok(())
    }

    /// The whole path back. If it does not end in the client's process: the thread in which it ends, and how many
    /// segments had been emitted when it last joined a thread.
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
            // The reader woke threads after its read for the request, unless it had turned to others.
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

    /// Whether the request began when its bytes came to its server's socket: then only the read of those bytes leads to
    /// its begin.
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
    pub(super) fn join(&mut self, thread: ThreadId) {
        if self.search.members.insert(thread) {
            self.search.dead_ends.clear();
        }
    }

    /// A server's thread that has worked for the request since before it was received has got it from the thread that
    /// received it, without a trace: threads that look for work before they sleep (Go's, gRPC's) take it from memory.
    /// This happened at some time since the read. What the thread did since then is taken for the request's, modelled.
    ///
    /// To be called after a step from `(thread, at_ns)`. If the step went too far, takes back what is too much and
    /// leads to the receiver.
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
                // The thread that served the request was not there yet.
                (raw.category, raw.rule) = (Category::QueueApp, Rule::InMemory);
                raw.detail = Some(self.output.names.texts.add(UNSERVED));
            }
            raw.evidence = Evidence::Modelled;
            raw.cause = Some(self.output.names.texts.extend(raw.cause, HANDED_UNSEEN));
        }
        self.output.rule = Rule::InMemory;
        Some(Step::Joined(reader, read_ns))
    }
}
