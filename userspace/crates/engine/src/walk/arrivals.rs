//! Rule `arrival`: messages that no traced thread has written. They came to a socket and waited there for
//! their reader.
//!
//! What a thread did before such bytes arrived has nothing to do with them. What it did between their arrival and its
//! read of them was for other requests, unless it had just been woken for them. The same holds for the answer to what a
//! server has asked for the request.

use crate::ownership::marks::{is_rest, rested_ns};
use crate::walk::*;

/// `detail` of an `idle.peer` segment that ends with an arrival.
const AWAITED: &str = "not yet arrived";
const REST_AWAITED: &str = "the rest had not arrived";

/// Bytes of the request, or of the answer to what was asked for it, that no traced thread has written, as one read
/// finds them.
struct Arrived {
    object: Object,
    /// Number of the first byte of the request that the call reads.
    from: u64,
    at_ns: u64,
    /// The write of the question that they answer, if that question was asked for the request; and whether this is
    /// sure.
    asked: Option<(Transfer, bool)>,
}

impl<'w> Walk<'w> {
    /// Step back through a read of bytes that had arrived before the read began. `None`: it was no such read, or
    /// the walk goes on in it.
    pub(super) fn arrived_before(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece_start_ns: u64,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let Some(arrived) = self.arrived(thread, call) else { return Ok(None) };
        if arrived.at_ns >= call.enter_ns {
            return Ok(self.arrived_during(thread, (call, &arrived), piece_start_ns, at_ns));
        }
        if piece_start_ns > call.enter_ns {
            return Ok(None);
        }
        let t = self.world.thread(thread);
        let off = t.off_before(call.enter_ns).filter(|off| off.end_ns > arrived.at_ns);
        let woken = off.filter(|off| !self.moved_others(thread, off.end_ns, call.enter_ns));
        // A thread that rested in another call, for instance for a pipe, could not be woken by these bytes.
        let for_this = |off: &&Off| {
            let read = self.read_slept_for(thread, off);
            is_rest(off) && read.is_some_and(|read| read.enter_ns == call.enter_ns)
        };
        if let Some(off) = woken.filter(|off| off.start_ns <= arrived.at_ns).filter(for_this) {
            if self.waited_only(thread, &arrived, off.start_ns) {
                return Ok(None); // the step over the sleep will show it
            }
        }
        let piece = classify::on_cpu::Piece::of_call(call.enter_ns, call);
        self.on_cpu(thread, &piece, at_ns);
        let read_ns = match woken {
            Some(off) => {
                self.awake(thread, off.end_ns, call.enter_ns)?;
                let runnable_ns = off.runnable_ns().unwrap_or(off.end_ns);
                let runnable_ns = runnable_ns.clamp(arrived.at_ns, off.end_ns);
                let category = match off.why {
                    Why::Preempted => Category::RunqueuePreempted,
                    _ => Category::RunqueueWakeup,
                };
                self.run_queue(thread, off, runnable_ns, off.end_ns, category)?;
                runnable_ns
            }
            None => call.enter_ns,
        };
        self.unread_queue(thread, arrived.object, (arrived.at_ns, read_ns), Rule::Arrival);
        Ok(Some(self.before_arrival(thread, &arrived)))
    }

    /// Step back to where bytes of the answer arrived while their read was in progress. Before that, the request waited
    /// for its peer, whatever the thread did until it began to read. `None`: the thread slept for the bytes in the
    /// read, or was interrupted since.
    fn arrived_during(
        &mut self,
        thread: ThreadId,
        (call, arrived): (&Call, &Arrived),
        piece_start_ns: u64,
        at_ns: u64,
    ) -> Option<Step> {
        if self.is_question(arrived) {
            self.search.came_in = true;
            return None; // the server may have waited for some parts of the question only
        }
        let off = self.world.thread(thread).off_before(at_ns);
        let slept = off.is_some_and(|off| off.end_ns >= arrived.at_ns.max(call.enter_ns));
        if slept || arrived.at_ns < piece_start_ns {
            return None;
        }
        // The bytes arrived in this piece, or in the interrupt after it.
        let at_once_ns = arrived.at_ns.min(at_ns);
        let piece = classify::on_cpu::Piece::of_call(at_once_ns, call);
        if at_once_ns < at_ns {
            self.on_cpu(thread, &piece, at_ns);
        }
        Some(self.before_arrival(thread, &Arrived { at_ns: at_once_ns, ..*arrived }))
    }

    /// Step back over a sleep, until `woken_ns`, in a read or in the poll before it, during which bytes of the
    /// request arrived that no traced thread has written. `mark`: the number of segments before the thread's wait for a
    /// CPU.
    pub(super) fn slept_for_arrival(
        &mut self,
        thread: ThreadId,
        off: &Off,
        woken_ns: u64,
        mark: usize,
    ) -> Option<Step> {
        let call = self.read_slept_for(thread, off)?;
        let arrived = self.arrived(thread, call)?;
        if !(off.start_ns..=off.end_ns).contains(&arrived.at_ns) {
            return None;
        }
        let arrived_ns = arrived.at_ns.min(woken_ns);
        let category = queue_category(arrived.object);
        self.queue(thread, (arrived_ns, woken_ns), category, UNREAD, Rule::Arrival);
        let sure = arrived.asked.is_none_or(|(_, sure)| sure);
        // If the thread rested several times, the first rests timed out and it looked again: all were for these bytes.
        let before = self.moved_before(&arrived);
        let since_ns = before.map(|before| before.exit_ns);
        let t = self.world.thread(thread);
        let looked_again = since_ns.is_some_and(|ns| rested_ns(t, ns, off.start_ns).is_some());
        if looked_again || !self.waited_only(thread, &arrived, off.start_ns) {
            let step = self.before_arrival(thread, &Arrived { at_ns: arrived_ns, ..arrived });
            self.infer_since(mark, sure);
            return Some(step);
        }
        self.search.came_in |= self.is_question(&arrived);
        let begin_ns = off.start_ns.max(self.goal.start_ns);
        if begin_ns < arrived_ns {
            self.charge(thread, off, begin_ns, arrived_ns, None);
        }
        self.infer_since(mark, sure);
        self.search.awaits = since_ns.map(|since_ns| (thread, (since_ns, off.start_ns), sure));
        let at_ns = begin_ns.min(arrived_ns);
        Some(match arrived.asked {
            // What was asked for the request leads to it, also from a thread that may have had nothing to do with it.
            Some(_) => Step::Joined(thread, at_ns),
            None => Step::Go(thread, at_ns),
        })
    }

    /// Step back over a preemption of a thread that went on to wait for its peer. With a CPU it would have waited for
    /// longer, so it waited for the peer during the preemption, too.
    pub(super) fn awaited_without_cpu(
        &mut self,
        thread: ThreadId,
        off: &Off,
        at_ns: u64,
    ) -> Option<Step> {
        let (_, (since_ns, until_ns), sure) =
            self.search.awaits.filter(|(awaits, ..)| *awaits == thread)?;
        let begin_ns = off.start_ns.max(self.goal.start_ns);
        if off.start_ns < since_ns || at_ns > until_ns {
            return None;
        }
        let detail = Some(self.output.names.fixed(AWAITED));
        let evidence = if sure { Evidence::Measured } else { Evidence::Modelled };
        self.output.wait_rule = Some(Rule::Arrival);
        let category = Category::IdlePeer;
        self.emit(thread, begin_ns, at_ns, category, detail, None, None, None, evidence);
        Some(Step::Go(thread, begin_ns))
    }

    /// The call that moved what a thread slept for on a connection: the call in which it slept or, after a poll, the
    /// first call before the thread rests again.
    fn read_slept_for(&self, thread: ThreadId, off: &Off) -> Option<&'w Call> {
        if !waits_for_bytes(off) {
            return None;
        }
        let t = self.world.thread(thread);
        let InCall::Closed(slept_in) = classify::on_cpu::call_at(t, off.end_ns) else {
            return None;
        };
        if waits(slept_in.nr, None) != Waits::Readiness {
            return Some(slept_in);
        }
        let next = count_before(&t.calls, |call| call.enter_ns <= slept_in.enter_ns);
        let rested = count_before(&t.off, |off| off.start_ns < slept_in.exit_ns);
        let rest = t.off.range(rested..).find(|off| is_rest(off));
        let rest_ns = rest.map_or(u64::MAX, |rest| rest.start_ns);
        let mut later = t.calls.range(next..).take_while(|call| call.enter_ns < rest_ns);
        later.find(|call| call.transfers().any(|io| io.reverse.is_some()))
    }

    /// When the last byte of the request that the call reads arrived, if no traced thread has written it.
    fn arrived(&self, thread: ThreadId, call: &Call) -> Option<Arrived> {
        if !call.may_read() || !self.applies(Rule::Arrival) {
            return None;
        }
        let mut reads = call.transfers().rev().filter(|io| !io.is_write);
        let Some(io) = reads.find(|io| self.goal.has(io)) else {
            return self.heard(thread, call);
        };
        let channel = self.world.channels.get(&io.object)?;
        let at_ns = channel.arrived_ns(self.goal.last_of(io)?)?.max(self.goal.start_ns);
        let of = self.goal.messages.iter().filter(|message| message.object == io.object);
        let from = of.map(|message| message.from.max(io.offset)).min()?;
        Some(Arrived { object: io.object, from, at_ns, asked: None })
    }

    /// The same for an answer to what the server has asked for the request. Until the answer came, the request waited
    /// for it, whichever requests its threads served meanwhile. Only if the question is the last that was asked on the
    /// connection.
    fn heard(&self, thread: ThreadId, call: &Call) -> Option<Arrived> {
        let (mark, io) = self.hears_for_it(thread, call)?;
        let channel = self.world.channels.get(&io.object)?;
        let at_ns = channel.arrived_ns(io.offset.saturating_add(io.bytes).checked_sub(1)?)?;
        let questions = self.world.channels.get(&io.reverse?)?;
        let asked = last_before(&questions.writes, |write| write.enter_ns < at_ns)?;
        let sure = self.asks_for_it(asked)?.sure && mark.sure;
        let within = asked.enter_ns >= self.goal.start_ns;
        let asked = within.then_some((*asked, sure));
        asked.map(|asked| Arrived { object: io.object, from: io.offset, at_ns, asked: Some(asked) })
    }

    fn is_question(&self, arrived: &Arrived) -> bool {
        self.goal.messages.first().is_some_and(|asked| asked.object == arrived.object)
    }

    /// Whether the thread did nothing but go and wait for these bytes, from when the request's previous bytes were
    /// moved until `until_ns`.
    fn waited_only(&self, thread: ThreadId, arrived: &Arrived, until_ns: u64) -> bool {
        match self.moved_before(arrived) {
            None => true,
            Some(before) => {
                before.thread == thread && !self.moved_others(thread, before.exit_ns, until_ns)
            }
        }
    }

    /// The last call of the traced end that moved bytes of the request before these arrived: of the same message, or of
    /// the message that it answers.
    fn moved_before(&self, arrived: &Arrived) -> Option<Transfer> {
        if let Some((asked, _)) = arrived.asked {
            // Or the read of an earlier part of the answer.
            let reads = self.world.channels.get(&arrived.object).map(|channel| &channel.reads)?;
            let read = last_before(reads, |read| read.to <= arrived.from).copied();
            return Some(read.filter(|read| read.enter_ns > asked.exit_ns).unwrap_or(asked));
        }
        let mut last: Option<Transfer> = None;
        for message in &self.goal.messages {
            let Some(channel) = self.world.channels.get(&message.object) else { continue };
            let (list, to) = match message.object == arrived.object {
                true => (&channel.reads, message.to.min(arrived.from)),
                false => (&channel.writes, message.to),
            };
            let before = Channel::overlapping(list, message.from, to);
            let before = before.filter(|moved| moved.enter_ns < arrived.at_ns);
            last = before.chain(last.as_ref()).max_by_key(|moved| moved.exit_ns).copied();
        }
        last
    }

    /// Emits the wait for the peer (`idle.peer`), from what the traced end did last for the request to the arrival.
    fn before_arrival(&mut self, thread: ThreadId, arrived: &Arrived) -> Step {
        let start_ns = self.goal.start_ns;
        self.search.came_in |= self.is_question(arrived);
        let before = self.moved_before(arrived);
        let before_ns =
            before.map_or(start_ns, |moved| moved.exit_ns.clamp(start_ns, arrived.at_ns));
        let detail = match before
            .and_then(|moved| self.world.channels.get(&arrived.object).map(|c| (c, moved)))
        {
            Some((channel, moved)) if Channel::find(&channel.reads, moved.from) == Some(&moved) => {
                REST_AWAITED
            }
            // The request began when its first bytes arrived.
            None if self.is_question(arrived) => REST_AWAITED,
            _ => AWAITED,
        };
        let peer = self.world.channels.get(&arrived.object).and_then(|channel| channel.ends);
        let detail = match peer {
            Some([from, _]) => format!("{detail}, peer {from}"),
            None => detail.to_string(),
        };
        let category = Category::IdlePeer;
        let evidence = match arrived.asked {
            Some((_, false)) => Evidence::Modelled,
            _ => Evidence::Measured,
        };
        self.output.wait_rule = Some(Rule::Arrival);
        let detail = Some(self.output.names.texts.add(&detail));
        self.emit(thread, before_ns, arrived.at_ns, category, detail, None, None, None, evidence);
        match before {
            Some(moved) => {
                self.output.rule = Rule::Arrival;
                Step::Joined(moved.thread, before_ns)
            }
            None => Step::Go(thread, start_ns),
        }
    }

    /// Whether the thread moved bytes of other requests' connections in `[from_ns, to_ns)`.
    fn moved_others(&self, thread: ThreadId, from_ns: u64, to_ns: u64) -> bool {
        let calls = &self.world.thread(thread).calls;
        let before = count_before(calls, |call| call.enter_ns < to_ns);
        let within = calls.range(..before).rev().take_while(|call| call.enter_ns >= from_ns);
        let others = |io: &Io| io.reverse.is_some() && !self.goal.has(io);
        { within }.any(|call| call.transfers().any(others))
    }
}
