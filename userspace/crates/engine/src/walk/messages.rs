//! Rules `message` and `ready`: edges from a read to the write that brought its bytes.

use crate::ownership::marks::{is_rest, Mark, MarkKind};
use crate::walk::*;

/// What bytes a read brought without a sleep for them.
struct Brought {
    /// They are the request's.
    ours: bool,
    /// They are, or a thread that works for the request wrote them. Other writers have yet to show where they got them
    /// from.
    known: bool,
}

impl Walk<'_> {
    /// Step back through a read that found a message's bytes ready. `None`: the read is the thread's own business,
    /// and the walk goes on in it.
    pub(super) fn read_without_sleep(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece_start_ns: u64,
        at_ns: u64,
    ) -> Option<Step> {
        if !self.applies(Rule::Ready) {
            return None;
        }
        let (object, write) = self.writer_of(call)?;
        let Brought { ours, known } = self.brought(thread, call, (object, &write))?;
        let go = if known { Step::Joined } else { Step::Go };
        let t = self.world.thread(thread);
        if ours && self.goal.messages.first().is_some_and(|m| m.object == object) {
            let from = (piece_start_ns, at_ns);
            if let Some(step) = self.came_unaccepted(thread, call, &write, from) {
                return step;
            }
        }
        // If the thread was woken for these bytes, in poll() or an earlier read, the step over the sleep will show it.
        let before = latest_before(&t.off, |off| off.end_ns <= call.enter_ns);
        let woken = before.take_while(|off| off.end_ns >= write.enter_ns).find(|off| {
            waits_for_bytes(off)
                && off.wake.is_some_and(|wake| {
                    wake.by_waker() && wake.waker == write.thread && within(wake.at_ns, &write)
                })
        });
        if let Some(off) = woken {
            self.search.expected.insert(thread, (object, write));
            if !ours || piece_start_ns > call.enter_ns || !self.read_others(t, off.end_ns, call) {
                return None;
            }
            // The thread had a CPU, and began with others' messages.
            let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
            self.on_cpu(thread, &piece, at_ns);
            let span = (off.end_ns, call.enter_ns);
            self.queue(thread, span, queue_category(object), UNREAD, Rule::Ready);
            return Some(Step::Go(thread, off.end_ns));
        }
        // The latest time at which the bytes were there. A write still in progress when the read began handed them over
        // during the read.
        let read = (thread, call.enter_ns);
        if write.exit_ns > call.enter_ns {
            let begun_ns = write.enter_ns.max(call.enter_ns);
            if begun_ns >= at_ns && self.search.through != Some(read) {
                // The walk came to the thread by its wake-up of another one, while it still waited.
                return None;
            }
            self.search.through = Some(read);
            if begun_ns < piece_start_ns {
                return None; // an interrupt or fault splits the read: take the pieces first
            }
            // The bytes were written while the thread had no CPU, or in this piece.
            let begun_ns = begun_ns.min(at_ns);
            if begun_ns < at_ns {
                let piece = classify::on_cpu::Piece::of_call(begun_ns, call);
                self.on_cpu(thread, &piece, at_ns);
            }
            let handed_ns = self.handed_by(&write, begun_ns);
            let last = self.last_of(call, object);
            self.unread(thread, object, last, (handed_ns, begun_ns));
            self.output.rule = Rule::Ready;
            return Some(go(write.thread, handed_ns));
        }
        if piece_start_ns > call.enter_ns {
            return None; // an interrupt or fault splits the read: take the pieces first
        }
        let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
        self.on_cpu(thread, &piece, at_ns);
        let last = self.last_of(call, object);
        self.unread(thread, object, last, (write.exit_ns, call.enter_ns));
        self.output.rule = Rule::Ready;
        Some(go(write.thread, write.exit_ns))
    }

    /// Whether a sleep in a read ended when its waker, a thread of the same process, wrote to a pipe or an eventfd what
    /// was then read. Then the path leads through the waker.
    pub(super) fn slept_for_own(&self, thread: ThreadId, off: &Off, wake: &Wake) -> bool {
        let t = self.world.thread(thread);
        let back_ns = off.end_ns.min(self.goal.end_ns);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, back_ns) else { return false };
        let by_waker = |(object, write): (Object, Transfer)| {
            matches!(object.type_bits, TYPE_FIFO | TYPE_EVENTFD)
                && write.thread == wake.waker
                && self.world.thread(write.thread).process == t.process
        };
        self.writer_of(call).is_some_and(by_waker)
    }

    /// What bytes a write brought to a read that did not sleep for them, if they are the request's, or lead back to a
    /// thread of the request.
    fn brought(
        &mut self,
        thread: ThreadId,
        call: &Call,
        (object, write): (Object, &Transfer),
    ) -> Option<Brought> {
        let t = self.world.thread(thread);
        // If the thread slept for the bytes inside the read, the step over the sleep will show it.
        let slept = latest_before(&t.off, |off| off.start_ns < call.exit_ns)
            .take_while(|off| off.start_ns >= call.enter_ns)
            .any(waits_for_bytes);
        if slept {
            return None;
        }
        let ours = self.is_ours(call);
        self.note_thread(write.thread);
        // Bytes of other messages matter only on the way back from a thread being explored.
        let explored = !self.search.members.contains(&thread);
        let asks_another = !ours && self.asks_another(thread, object, write);
        let by_member = !asks_another && self.is_of_member(write);
        let in_a_row = explored && !ours && !by_member && self.handed_on_to(write, thread);
        self.search.met_a_row |= in_a_row;
        let returns = explored && (by_member || self.search.in_a_row && in_a_row);
        let others = self.doubts() && self.answers_another(write.thread, write.enter_ns, thread);
        if !ours && (!returns || others) {
            return None;
        }
        if write.thread == thread || write.enter_ns < self.goal.start_ns {
            return None;
        }
        // The path may lead through what was asked for others.
        self.output.likely |= !ours && self.asked_for_others(write, object);
        if ours && self.read_before(thread, object, call) && !rested_for(t, write, call) {
            return None; // already at work on this message
        }
        Some(Brought { ours, known: ours || by_member })
    }

    /// Whether a thread that works for the request wrote that, and not before it had read the request.
    fn is_of_member(&self, write: &Transfer) -> bool {
        self.search.members.contains(&write.thread)
            && !self.before_asked(write.thread, write.exit_ns)
    }

    /// Whether that is another question of the request's client, to a thread of its server. What the thread does then
    /// is for the other question.
    fn asks_another(&self, thread: ThreadId, object: Object, write: &Transfer) -> bool {
        object.is_network()
            && self.is_client_to_server(write.thread, thread)
            && self.asked_for_others(write, object)
    }

    /// Whether the request's client woke a thread of its server that waited for readiness, by what it wrote on other
    /// connections or by ending a connection. Then it did not wake the thread for this request.
    pub(super) fn woken_for_another(&self, thread: ThreadId, off: &Off, wake: &Wake) -> bool {
        let readiness = |call: &OpenCall| waits(call.nr, call.object) == Waits::Readiness;
        if !off.call.as_ref().is_some_and(readiness)
            || !self.is_client_to_server(wake.waker, thread)
        {
            return false;
        }
        let InCall::Closed(call) =
            classify::on_cpu::call_at(self.world.thread(wake.waker), wake.at_ns)
        else {
            return false;
        };
        let mut written = call.transfers().filter(|io| io.is_write).peekable();
        match written.peek() {
            Some(_) => written.all(|io| io.object.is_network() && !self.goal.has(io)),
            // It is not reported which connection that is. If it is the request's own, the server waited for its
            // client.
            None => ends_connection(call.nr),
        }
    }

    /// Whether these threads belong to the request's client and to its server, and those are two processes.
    fn is_client_to_server(&self, from: ThreadId, to: ThreadId) -> bool {
        let [from, to] = [from, to].map(|thread| self.world.thread(thread).process);
        from != to && from == self.goal.client_process && Some(to) == self.goal.server_process
    }

    /// Whether the writer's last read before it wrote was of something that a thread of the request wrote, or another
    /// thread of the process for which the same holds. The reader does not count: the bytes came back to it.
    fn handed_on_to(&self, write: &Transfer, reader: ThreadId) -> bool {
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let mut write = *write;
        for _ in 0..MOST_HANDED_ON {
            if process(write.thread) != process(reader) {
                return false;
            }
            let calls = &self.world.thread(write.thread).calls;
            let before = count_before(calls, |call| call.enter_ns < write.enter_ns);
            let recent = calls.range(..before).rev().take(MOST_CALLS_BETWEEN);
            let mut recent = recent.take_while(|call| call.exit_ns > self.goal.start_ns);
            let Some((_, got)) = recent.find_map(|call| self.writer_of(call)) else { return false };
            if [write.thread, reader].contains(&got.thread) || got.enter_ns < self.goal.start_ns {
                return false;
            }
            if self.is_of_member(&got) {
                return true;
            }
            write = got;
        }
        false
    }

    /// Whether a message was asked for a question that is not known, or that is not this request.
    fn asked_for_others(&self, write: &Transfer, object: Object) -> bool {
        let marks = self.world.thread(write.thread).marks.of_call(write.enter_ns);
        let asks = |mark: &&Mark| mark.kind == MarkKind::Asks && mark.moved.object == object;
        let mut asks = marks.filter(asks).peekable();
        asks.peek().is_some() && !asks.any(|mark| self.of_goal(mark))
    }

    /// Emits `[sent_ns, read_ns)`, in which bytes up to `last` were under way, as far as their packets show, and then
    /// lay unread.
    fn unread(
        &mut self,
        thread: ThreadId,
        object: Object,
        last: u64,
        (sent_ns, read_ns): (u64, u64),
    ) {
        let received_ns = self.received_ns(object, last, read_ns);
        let there_ns = received_ns.map_or(sent_ns, |ns| ns.clamp(sent_ns, read_ns));
        self.unread_queue(thread, object, (there_ns, read_ns), Rule::Ready);
        if sent_ns < there_ns {
            self.wire(thread, object, last, (sent_ns, there_ns));
        }
    }

    /// The message edge of a sleep that ended because bytes of this request reached the thread: channel, sender and
    /// time of sending.
    pub(super) fn message_edge(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
        at_ns: u64,
    ) -> Option<(Object, ThreadId, u64)> {
        let Wake { at_ns: woken_ns, waker, .. } = wake;
        let by_waker = wake.by_waker();
        if !waits_for_bytes(off) || !self.applies(Rule::Message) {
            return None; // a fault or the like on the way
        }
        if let Some((object, write)) = self.search.expected.get(&thread).copied() {
            if by_waker && write.thread == waker && within(woken_ns, &write) {
                self.search.expected.remove(&thread);
                return Some((object, waker, woken_ns));
            }
        }
        let t = self.world.thread(thread);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, off.end_ns.min(self.goal.end_ns))
        else {
            return None;
        };
        let (object, write) = self.writer_of(call)?;
        if !self.is_ours(call) || write.thread == thread {
            return None;
        }
        if write.enter_ns < self.goal.start_ns {
            return None;
        }
        let handed_ns = if by_waker && write.thread == waker && within(woken_ns, &write) {
            woken_ns
        } else if write.enter_ns >= at_ns {
            return None; // an earlier, vain wake-up
        } else if write.enter_ns > woken_ns {
            // The thread was woken for something else, and had not come to a CPU when the bytes came.
            write.exit_ns.min(at_ns)
        } else {
            write.exit_ns.min(woken_ns.max(write.enter_ns))
        };
        Some((object, write.thread, self.handed_by(&write, handed_ns)))
    }

    /// Step back over a wait for a CPU inside a read, during which the bytes came that the read then found. Until they
    /// were there, the request was with their sender. `None`: they came before or after, or do not lead to the request.
    pub(super) fn handed_while_preempted(
        &mut self,
        thread: ThreadId,
        off: &Off,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        if !self.applies(Rule::Message) {
            return Ok(None);
        }
        let back_ns = off.end_ns.min(self.goal.end_ns);
        let t = self.world.thread(thread);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, back_ns) else { return Ok(None) };
        let meanwhile = |write: &Transfer| (off.start_ns..at_ns).contains(&write.enter_ns);
        let written = self.writer_of(call).filter(|(_, write)| meanwhile(write));
        let Some((object, write)) = written else { return Ok(None) };
        let Some(Brought { known, .. }) = self.brought(thread, call, (object, &write)) else {
            return Ok(None);
        };
        let last = self.last_of(call, object);
        let received_ns = self.received_ns(object, last, at_ns);
        // A write that was in progress during the read handed the bytes over meanwhile, at an unseen time.
        let began_ns = if write.exit_ns <= at_ns { write.exit_ns } else { write.enter_ns };
        let handed_ns =
            received_ns.map_or(began_ns, |ns| write.exit_ns.min(ns.max(write.enter_ns)));
        let latest = (write.thread, self.handed_by(&write, handed_ns));
        let (sender, sent_ns) = match object.is_network() && self.applies(Rule::Wire) {
            true => self.link_bound(object, last, latest),
            false => latest,
        };
        let there_ns = received_ns.map_or(sent_ns, |ns| ns.clamp(sent_ns, at_ns));
        self.run_queue(thread, off, there_ns, at_ns, Category::RunqueuePreempted)?;
        if sent_ns < there_ns {
            self.wire(thread, object, last, (sent_ns, there_ns));
        }
        self.output.rule = Rule::Message;
        let go = if known { Step::Joined } else { Step::Go };
        Ok(Some(go(sender, sent_ns)))
    }

    /// When a write handed its bytes over, at the latest `latest_ns`. A writer that is off its CPU then handed them
    /// over before it left.
    fn handed_by(&self, write: &Transfer, latest_ns: u64) -> u64 {
        let away = self.world.thread(write.thread).off_before(latest_ns);
        match away.filter(|off| off.end_ns >= latest_ns && off.start_ns > write.enter_ns) {
            Some(off) => off.start_ns,
            None => latest_ns,
        }
    }

    /// For a read from a channel: the write that brought its last byte (the last byte of the request, if there is one:
    /// others' may have come later), if the writer is traced.
    fn writer_of(&self, call: &Call) -> Option<(Object, Transfer)> {
        if !call.may_read() {
            return None;
        }
        // Of several datagrams, the last of the request.
        let mut reads = call.transfers().rev().filter(|io| !io.is_write);
        let first = reads.clone().next();
        let io = reads.find(|io| self.goal.has(io)).or(first)?;
        let channel = self.world.channels.get(&io.object)?;
        let last = self.goal.last_of(io).unwrap_or(io.offset.saturating_add(io.bytes) - 1);
        // Bytes of writers that race may be counted to the wrong write, but never to one that began after the read.
        Channel::find(&channel.writes, last)
            .filter(|write| write.enter_ns < call.exit_ns)
            .map(|write| (io.object, *write))
    }

    /// Whether the thread read messages that are not the request's, from `from_ns` until the call.
    pub(super) fn read_others(&self, thread: &Thread, from_ns: u64, call: &Call) -> bool {
        let before = count_before(&thread.calls, |other| other.enter_ns < call.enter_ns);
        (thread.calls.range(..before).rev())
            .take_while(|other| other.enter_ns >= from_ns)
            .any(|other| self.writer_of(other).is_some_and(|_| !self.is_ours(other)))
    }

    /// Whether the thread answered other requests, from `from_ns` until the call.
    pub(super) fn answered_others(&self, thread: &Thread, from_ns: u64, call: &Call) -> bool {
        let before = count_before(&thread.calls, |other| other.enter_ns < call.enter_ns);
        (thread.calls.range(..before).rev())
            .take_while(|other| other.enter_ns >= from_ns)
            .any(|other| !self.is_ours(other) && service_start::answers(self.world, other))
    }

    /// Whether the call's bytes belong to the request's messages.
    pub(super) fn is_ours(&self, call: &Call) -> bool {
        call.transfers().any(|io| self.goal.has(io))
    }

    /// Whether the thread reads the request later and had not begun to read it at that time: what it did until then was
    /// for other requests.
    pub(super) fn before_asked(&self, thread: ThreadId, at_ns: u64) -> bool {
        let Some(asked) = self.goal.messages.first() else { return false };
        let Some(channel) = self.world.channels.get(&asked.object) else { return false };
        let mut reads = Channel::overlapping(&channel.reads, asked.from, asked.to);
        reads.find(|read| read.thread == thread).is_some_and(|read| at_ns <= read.enter_ns)
    }

    /// Whether the thread had read earlier bytes of the request on this channel before this call.
    fn read_before(&self, thread: ThreadId, object: Object, call: &Call) -> bool {
        let ours = |io: &&Io| io.object == object && !io.is_write && self.goal.has(io);
        let Some(io) = call.transfers().find(ours) else { return false };
        let Some(channel) = self.world.channels.get(&object) else { return false };
        let of = self.goal.messages.iter().filter(|m| m.object == object && m.from < io.offset);
        of.flat_map(|m| Channel::overlapping(&channel.reads, m.from, m.to.min(io.offset)))
            .any(|read| read.thread == thread)
    }
}

/// Whether a thread rested before a call and was woken, after that write, by something other than the writer: for
/// instance, the bytes had been held back until an acknowledgement came (Nagle's algorithm).
fn rested_for(t: &Thread, write: &Transfer, call: &Call) -> bool {
    let rested = latest_before(&t.off, |off| off.end_ns <= call.enter_ns).find(|off| is_rest(off));
    let by_writer = |wake: &Wake| wake.by_waker() && wake.waker == write.thread;
    rested
        .and_then(|off| off.wake)
        .is_some_and(|wake| wake.at_ns >= write.exit_ns && !by_writer(&wake))
}
