//! Rule `accept`: requests whose connection had to wait to be accepted.

use crate::timeline::Opening;
use crate::walk::*;

/// `detail` of a `queue.accept` segment.
const UNACCEPTED: &str = "connected, not yet accepted";

impl Walk<'_> {
    /// Emits a span in which the connection was there. It was accepted later by `acceptor`, whose work meanwhile is the
    /// `cause`.
    pub(super) fn unaccepted(&mut self, acceptor: ThreadId, span: (u64, u64)) {
        self.queue(acceptor, span, Category::QueueAccept, UNACCEPTED, Rule::Accept);
    }

    /// Step back through a piece of a call that accepted another connection. The call was for the request on that
    /// connection; this request, if it was there, waited. `None`: the call accepted the request's own connection, or
    /// one that the server has opened itself, or nothing; or it is not known how the call relates to the request.
    pub(super) fn accepted_for_another(
        &mut self,
        thread: ThreadId,
        call: &Call,
        (from_ns, at_ns): (u64, u64),
    ) -> Option<Step> {
        let t = self.world.thread(thread);
        let is_servers = Some(t.process) == self.goal.server_process && self.applies(Rule::Turn);
        if call.accepted_of_ns().is_none() || !is_servers {
            return None;
        }
        let asked = self.goal.messages.first()?;
        let channel = self.world.channels.get(&asked.object)?;
        let own = channel.accepted?;
        let is_own = (own.thread, own.enter_ns) == (thread, call.enter_ns);
        if is_own || self.opener(thread, call) == Some(t.process) {
            return None;
        }
        let read = self.first_read?;
        if read.exit_ns <= from_ns {
            self.others_turn(thread, from_ns, at_ns);
            return Some(Step::Go(thread, from_ns));
        }
        let sent_ns = match Channel::find(&channel.writes, asked.from) {
            Some(write) => {
                self.received_ns(asked.object, asked.from, at_ns).unwrap_or(write.exit_ns)
            }
            None => self.goal.start_ns,
        };
        if read.thread != thread || sent_ns > from_ns {
            return None;
        }
        self.unread_queue(thread, asked.object, (from_ns, at_ns), Rule::Ready);
        Some(Step::Go(thread, from_ns))
    }

    /// The process that opened the connection which a call has accepted, if that is known.
    fn opener(&self, thread: ThreadId, call: &Call) -> Option<ProcessId> {
        let opened = self.world.accepted_by(thread, call)?.connected?;
        Some(self.world.thread(opened.thread).process)
    }

    /// The followed wake-up that led past the server's read of the question, if there is one. The path came to the
    /// client by the accept() of the request's connection. But when the server's thread read the question, the path was
    /// in another thread of the server, though later it had been in the reading thread. So the thread of the server
    /// that woke the reading thread did so for something else: the acceptor released a lock, for instance.
    pub(super) fn bypassing(&self) -> Option<(ThreadId, u64, ThreadId)> {
        let asked = self.goal.messages.first().filter(|_| !self.search.followed.is_empty())?;
        let channel = self.world.channels.get(&asked.object)?;
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let thread_at = |at_ns: u64| {
            let raw =
                self.output.out.iter().find(|raw| raw.start_ns < at_ns && at_ns <= raw.end_ns);
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
            // The last time the path left it.
            let left =
                self.search.followed.iter().rev().find(|(thread, ..)| *thread == read.thread)?;
            let (_, at_ns, waker) = *left;
            let by_own = process(waker) == process(read.thread) && read.exit_ns < at_ns;
            by_own.then_some(*left)
        };
        let mut reads = Channel::overlapping(&channel.reads, asked.from, asked.to);
        // A thread that read the question in pieces may have handed it over with any of them.
        let first = reads.next().and_then(left)?;
        reads.all(|read| left(read).is_some()).then_some(first)
    }

    /// The calls that accepted and opened the request's connection, as far as they are known.
    fn openings(&self) -> Option<(Opening, Option<Opening>)> {
        if !self.applies(Rule::Accept) {
            return None;
        }
        let asked = self.goal.messages.first()?;
        let channel = self.world.channels.get(&asked.object)?;
        Some((channel.accepted?, channel.connected))
    }

    /// Step for a read that found the request ready, if the request had come before its connection was accepted and
    /// so waited for the accept. `Some(None)`: the thread's own path leads to the accept.
    pub(super) fn came_unaccepted(
        &mut self,
        thread: ThreadId,
        call: &Call,
        write: &Transfer,
        (piece_start_ns, at_ns): (u64, u64),
    ) -> Option<Option<Step>> {
        let (accepted, connected) = self.openings()?;
        let t = self.world.thread(thread);
        let same_process = self.world.thread(accepted.thread).process == t.process;
        // Where packets are known, what is still on its way does not wait for the accept.
        let (object, until_ns) = (self.goal.messages.first()?.object, call.enter_ns);
        let last = self.last_of(call, object);
        let received_ns = self.received_ns(object, last, until_ns).unwrap_or(write.exit_ns);
        let there_ns = received_ns.clamp(write.exit_ns, until_ns.max(write.exit_ns));
        if !same_process || accepted.exit_ns <= there_ns || accepted.exit_ns > call.enter_ns {
            return None;
        }
        // What led to the accept belongs to the request only if the connection was opened for it.
        let opened_for_it = connected.is_some_and(|c| c.enter_ns >= self.goal.start_ns);
        if !opened_for_it {
            if piece_start_ns > call.enter_ns {
                return Some(None);
            }
            let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
            self.on_cpu(thread, &piece, at_ns);
            let accepted_ns = accepted.exit_ns;
            let read = (accepted_ns, call.enter_ns);
            self.queue(thread, read, Category::QueueSocket, UNREAD, Rule::Ready);
            let waits = (there_ns, accepted_ns);
            self.unaccepted(accepted.thread, waits);
            self.output.rule = Rule::Ready;
            if write.exit_ns < there_ns {
                self.wire(thread, object, last, (write.exit_ns, there_ns));
            }
            return Some(Some(Step::Joined(write.thread, write.exit_ns)));
        }
        let leads_there = match accepted.thread == thread {
            true => !self.read_others(t, accepted.exit_ns, call),
            false => self.told_by_acceptor(t, &accepted, call),
        };
        // The thread may have been woken for something else: the walk has been there before, and found nothing.
        let leads_there = leads_there && self.attempts.received.is_none();
        if leads_there || piece_start_ns > call.enter_ns {
            return Some(None);
        }
        let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
        self.on_cpu(thread, &piece, at_ns);
        let span = (accepted.exit_ns, call.enter_ns);
        self.queue(thread, span, Category::QueueSocket, UNREAD, Rule::Ready);
        self.output.rule = Rule::Accept;
        Some(Some(Step::Joined(accepted.thread, accepted.exit_ns)))
    }

    /// Whether the thread that accepted the request's connection woke this thread to serve it. It did not if the
    /// acceptor had gone on to another connection by then, or if this thread read or answered others' messages before
    /// it came to the request. Such a wake-up was for something else, for instance a lock that both use.
    fn told_by_acceptor(&self, t: &Thread, accepted: &Opening, call: &Call) -> bool {
        let acceptor = self.world.thread(accepted.thread);
        let next = count_before(&acceptor.calls, |other| other.enter_ns < accepted.exit_ns);
        let mut next =
            acceptor.calls.range(next..).filter(|other| other.accepted_of_ns().is_some());
        let accepts_ns = next.next().map_or(u64::MAX, |other| other.exit_ns);
        let first = count_before(&acceptor.off, |off| off.start_ns < accepted.exit_ns);
        let waits_ns = { acceptor.off.range(first..) }
            .find(|off| {
                off.call.is_some_and(|call| {
                    matches!(waits(call.nr, call.object), Waits::Peer | Waits::Readiness)
                })
            })
            .map_or(u64::MAX, |off| off.start_ns);
        let until_ns = accepts_ns.min(waits_ns);
        let mut sleeps = latest_before(&t.off, |off| off.end_ns <= call.enter_ns)
            .take_while(|off| off.end_ns > accepted.exit_ns);
        sleeps.any(|off| {
            off.wake.is_some_and(|wake| {
                wake.waker == accepted.thread && (accepted.exit_ns..until_ns).contains(&wake.at_ns)
            }) && !self.read_others(t, off.end_ns, call)
                && !self.answered_others(t, off.end_ns, call)
        })
    }

    /// The calls that accepted and opened the connection that `call` accepts: the request's own, or one that a thread
    /// of the request has opened to another server for it. What that server does with the latter is for the request,
    /// even before it reads anything (it may greet).
    fn openings_by(&self, thread: ThreadId, call: &Call) -> Option<(Opening, Opening)> {
        let own = self.openings().filter(|(accepted, _)| {
            (accepted.thread, accepted.enter_ns) == (thread, call.enter_ns)
        });
        if let Some((accepted, connected)) = own {
            return Some((accepted, connected?));
        }
        let process = self.world.thread(thread).process;
        if !self.applies(Rule::Accept) || Some(process) == self.goal.server_process {
            return None;
        }
        let channel = self.world.accepted_by(thread, call)?;
        let (accepted, connected) = (channel.accepted?, channel.connected?);
        self.is_opened_for_it(&connected).then_some((accepted, connected))
    }

    /// Whether a thread of the request opened that connection for it.
    pub(super) fn is_opened_for_it(&self, connected: &Opening) -> bool {
        let (opener, opened_ns) = (connected.thread, connected.enter_ns);
        opened_ns >= self.goal.start_ns
            && self.search.members.contains(&opener)
            && !self.before_asked(opener, opened_ns)
            && !matches!(self.turn(opener, opened_ns), Some(Turn::Others { .. }))
    }

    /// Step back through the call that accepted the request's connection, or another connection that was opened for
    /// it, if the thread did not sleep in the call. `None`: what the thread did before leads to the client by itself.
    pub(super) fn accept_without_sleep(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece_start_ns: u64,
        at_ns: u64,
    ) -> Option<Step> {
        call.accepted_of_ns()?;
        let (accepted, connected) = self.openings_by(thread, call)?;
        if connected.enter_ns < self.goal.start_ns {
            return None;
        }
        // Unix sockets do not report this time: the connection was there when connect() returned, at the latest.
        let established_ns = accepted.established_ns.unwrap_or(connected.exit_ns);
        let t = self.world.thread(thread);
        let sleeps = latest_before(&t.off, |off| off.start_ns < call.exit_ns);
        let mut sleeps = sleeps.filter(|off| matches!(off.why, Why::Slept { .. }));
        if sleeps.clone().take_while(|off| off.start_ns >= call.enter_ns).next().is_some() {
            return None;
        }
        if accepted.established_ns.is_some() && established_ns >= call.enter_ns {
            // The connection was established while the call was in progress.
            if piece_start_ns > established_ns {
                return None;
            }
            let there_ns = established_ns.min(at_ns);
            let piece = classify::on_cpu::Piece::of_call(there_ns, call);
            self.on_cpu(thread, &piece, at_ns);
            self.output.rule = Rule::Accept;
            return Some(Step::Joined(connected.thread, there_ns));
        }
        if established_ns >= call.enter_ns || piece_start_ns > call.enter_ns {
            return None;
        }
        // If this connection woke the thread in poll(), the sleep will show it.
        let by_it = |wake: &Wake| {
            wake.by_waker()
                && wake.waker == connected.thread
                && (connected.enter_ns..=connected.exit_ns).contains(&wake.at_ns)
        };
        let woken = sleeps.find(|off| waits_for_bytes(off) && off.wake.as_ref().is_some_and(by_it));
        let from_ns = woken.map_or(established_ns, |off| off.end_ns);
        if woken.is_some() && !self.read_others(t, from_ns, call) {
            return None;
        }
        let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
        self.on_cpu(thread, &piece, at_ns);
        let span = (from_ns, call.enter_ns);
        self.unaccepted(thread, span);
        if woken.is_none() {
            self.output.rule = Rule::Accept;
        }
        Some(match woken {
            Some(_) => Step::Go(thread, from_ns),
            None => Step::Joined(connected.thread, established_ns),
        })
    }

    /// If another connection ended the sleep in the accept() that returned the request's connection: the thread that
    /// opened the request's connection, and since when the connection was there. (A listener wakes its thread once, and
    /// the first connection in its queue is accepted.)
    pub(super) fn accepted_in_anothers_stead(
        &self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
    ) -> Option<(ThreadId, u64)> {
        let (accepted, connected) = self.openings()?;
        let connected = connected.filter(|c| c.enter_ns >= self.goal.start_ns)?;
        let there_ns = accepted.established_ns?;
        let woken_by_it = wake.by_waker() && wake.waker == connected.thread;
        let asleep_then = (off.start_ns..off.end_ns).contains(&there_ns);
        let in_it = off.call.is_some_and(|call| call.enter_ns == accepted.enter_ns);
        (accepted.thread == thread && in_it && asleep_then && !woken_by_it)
            .then_some((connected.thread, there_ns))
    }
}
