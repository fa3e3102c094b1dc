//! Emits waits in queues: for what was ready and not read, and for a thread that served other requests.

use crate::walk::*;

impl Walk<'_> {
    /// Emits `[from_ns, to_ns)`: the message was ready and `thread` had not read it; `cause` says what the thread
    /// did instead, longest first.
    pub(super) fn queue(
        &mut self,
        thread: ThreadId,
        (from_ns, to_ns): (u64, u64),
        category: Category,
        detail: &'static str,
        rule: Rule,
    ) {
        let from_ns = from_ns.max(self.goal.start_ns);
        if from_ns >= to_ns {
            return;
        }
        let t = self.world.thread(thread);
        let cause = match stretch_before(t, to_ns, from_ns) {
            (start_ns, doing) if start_ns <= from_ns => self.one_thing(t, doing, from_ns, to_ns),
            _ => self.world.sums.spent(thread, t, from_ns, to_ns).in_words(),
        };
        let evidence = match rule {
            // The order of messages shows that the thread served others, not that the request was ready meanwhile.
            Rule::Turn => Evidence::Modelled,
            // The order of messages shows that the connection was not free, not that the request was ready to be asked.
            Rule::Connection => Evidence::Modelled,
            // What the server's threads did meanwhile may have been for the request, unseen.
            Rule::InMemory => Evidence::Modelled,
            // A thread that takes work from others is told by an eventfd to look for any available work.
            Rule::Ready
                if category == Category::QueueApp && self.world.process_of(thread).shares_work =>
            {
                Evidence::Modelled
            }
            _ => Evidence::Measured,
        };
        let names = &mut self.output.names;
        let (detail, cause) = (Some(names.fixed(detail)), Some(names.texts.add(&cause)));
        self.output.wait_rule = Some(rule);
        self.emit(thread, from_ns, to_ns, category, detail, cause, None, None, evidence);
    }

    /// Emits `[from_ns, to_ns)`, in which bytes of a channel lay unread. As long as their connection was not accepted,
    /// they waited for the accept.
    pub(super) fn unread_queue(
        &mut self,
        thread: ThreadId,
        object: Object,
        (from_ns, to_ns): (u64, u64),
        rule: Rule,
    ) {
        let accepted = self.world.channels.get(&object).and_then(|channel| channel.accepted);
        let accepted = accepted.filter(|_| self.applies(Rule::Accept));
        let accepted_ns = accepted.map_or(from_ns, |call| call.exit_ns.clamp(from_ns, to_ns));
        self.queue(thread, (accepted_ns, to_ns), queue_category(object), UNREAD, rule);
        if let Some(accepted) = accepted {
            self.unaccepted(accepted.thread, (from_ns, accepted_ns));
        }
    }

    /// Emits `[from_ns, to_ns)`, in which the thread, which has the request, served others. If it rested after that,
    /// the request waited in this span, too, for what ended that rest.
    pub(super) fn others_turn(&mut self, thread: ThreadId, from_ns: u64, to_ns: u64) {
        let rested = self.output.out.last().filter(|raw| {
            let rests = matches!(raw.category, Category::IdlePeer | Category::Sleep);
            raw.thread == thread && raw.start_ns == to_ns && rests
        });
        match rested.map(|raw| (raw.category, raw.detail, raw.cause, raw.by)) {
            Some((category, detail, cause, by)) => {
                self.note_more();
                let evidence = Evidence::Modelled;
                self.emit(thread, from_ns, to_ns, category, detail, cause, by, None, evidence);
            }
            None => {
                let span = (from_ns, to_ns);
                self.queue(thread, span, Category::QueueApp, OTHERS_TURN, Rule::Turn);
            }
        }
    }

    /// Describes the one thing that a thread did all the time.
    pub(super) fn one_thing(
        &self,
        thread: &Thread,
        doing: Doing,
        from_ns: u64,
        to_ns: u64,
    ) -> String {
        let piece = match doing {
            Doing::Ran(_) => classify::on_cpu::piece_before(thread, to_ns, from_ns, true),
            _ => None,
        };
        match piece.map(|piece| classify::on_cpu::describe(&piece.level)) {
            Some((category, Some(detail))) => format!("{category}: {detail}"),
            _ => doing.name().to_string(),
        }
    }
}
