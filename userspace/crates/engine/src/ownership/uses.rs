//! How a process uses its connections to other servers: passed on from one question to the next, or at will. Nobody has
//! waited for a connection that is used at will ([`crate::walk`], rule `connection`).

use crate::event::{Call, Object};
use crate::ownership::handed::was_given_by;
use crate::ownership::marks::{Mark, MarkKind, Question};
use crate::timeline::gallop::{count_before, last_before};
use crate::timeline::{ProcessId, ThreadId, World};

/// Number of the channels on which a process has asked, before closed ones among them are looked for.
const LEAST_ASKED_ON: usize = 64;

/// How a connection is used for another question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It has been in use since the last question: for the same client; or the thread asks without a rest since it read
    /// the answer, or was woken by the one that read it.
    PassedOn,
    AtWill,
    /// While another client's question is under way.
    ByTwo,
}

impl World {
    /// A process asks on this channel.
    pub(super) fn list_asked(&mut self, process: ProcessId, asked: Object) {
        let World { channels, processes, .. } = self;
        let process = &mut processes[process as usize];
        process.asks = true;
        if std::mem::replace(&mut channels.entry(asked).or_default().is_listed, true) {
            return;
        }
        if process.asks_on.len() >= process.prune_asks_on_at {
            process.asks_on.retain(|on| {
                channels.get_mut(on).is_some_and(|known| {
                    known.is_listed = !known.closed;
                    known.is_listed
                })
            });
            process.prune_asks_on_at = 2 * process.asks_on.len() + LEAST_ASKED_ON;
        }
        process.asks_on.push(asked);
    }

    /// A thread answers a question that came on `asker`: if it has just heard an answer on another connection, it has
    /// used that one for this asker.
    pub(super) fn note_passed_on(&mut self, thread: ThreadId, asker: Object) {
        let t = self.thread(thread);
        let just_heard = |last: &&Mark| last.kind == MarkKind::Hears && last.rests == t.rests;
        let Some(heard) = t.marks.list.back().filter(just_heard) else { return };
        let asked = self.channels.get(&heard.moved.object).and_then(|answers| answers.reverse);
        if let Some(channel) = asked.and_then(|asked| self.channels.get_mut(&asked)) {
            channel.answered_to = Some(asker);
        }
    }

    /// A thread asks on a connection, with `call` and for `of`: notes whether it does so at will, and whether questions of
    /// two clients are under way at a time.
    pub(super) fn note_use(
        &mut self,
        thread: ThreadId,
        call: &Call,
        (asked, answers): (Object, Object),
        of: Option<(Question, bool)>,
    ) {
        let used = self.use_of(thread, call, (asked, answers), of);
        let channel = self.channels.entry(asked).or_default();
        channel.is_shared |= used == Use::ByTwo;
        if used != Use::PassedOn {
            let times = &mut channel.asked_at_will;
            let at = count_before(times, |ns| *ns <= call.enter_ns);
            times.insert(at, call.enter_ns);
        }
    }

    fn use_of(
        &self,
        thread: ThreadId,
        call: &Call,
        (asked, answers): (Object, Object),
        of: Option<(Question, bool)>,
    ) -> Use {
        let passed_on_if = |passed_on: bool| if passed_on { Use::PassedOn } else { Use::AtWill };
        let Some(channel) = self.channels.get(&asked) else { return Use::AtWill };
        let before = last_before(&channel.writes, |write| write.enter_ns < call.enter_ns);
        let Some(before) = before else { return Use::AtWill };
        let answers = self.channels.get(&answers);
        let heard = answers
            .and_then(|known| last_before(&known.reads, |read| read.enter_ns < call.enter_ns));
        let heard = heard.filter(|heard| heard.enter_ns > before.enter_ns);
        let asker = |of: Option<(Question, bool)>| of.map(|(question, _)| question.object);
        let [now, last] = [asker(of), asker(channel.asked_for)];
        let t = self.thread(thread);
        let Some(heard) = heard else {
            // Another part of the same question, or another question.
            let mark = t.marks.list.back();
            let same_turn = mark.is_some_and(|mark| {
                mark.kind == MarkKind::Asks
                    && mark.moved.object == asked
                    && mark.rests == t.rests
                    && mark.of == of.map(|(question, _)| question)
            });
            return match (now, last) {
                (Some(now), Some(last)) if now != last => Use::ByTwo,
                _ => passed_on_if(same_turn || now.is_some() && now == last),
            };
        };
        if heard.thread != thread {
            let span = (heard.exit_ns, call.enter_ns);
            return passed_on_if(was_given_by(self, heard.thread, span, thread));
        }
        if before.thread != thread {
            return Use::AtWill;
        }
        let goes_on = now.is_some() && now == channel.answered_to;
        let rests = t.marks.of_call(heard.enter_ns).next().map(|mark| mark.rests);
        passed_on_if(goes_on || rests == Some(t.rests))
    }
}
