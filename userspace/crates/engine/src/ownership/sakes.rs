//! For whose sake a server's thread asks another server, and what was asked for each question.

use crate::event::Object;
use crate::ownership::adjacent::{given_after, Adjacency, Given};
use crate::ownership::marks::{Mark, MarkKind, Question};
use crate::timeline::gallop::{count_before, last_before, History};
use crate::timeline::{Channel, ThreadId, World};
use crate::walk::{Goal, Message};

/// A server's thread asked another server, or heard its answer, for the sake of a question.
#[derive(Clone, Copy, Debug)]
pub struct Sake {
    pub of: Question,
    pub thread: ThreadId,
    pub exit_ns: u64,
}

impl World {
    /// The question for whose sake the last one was asked on a channel, and whether that is sure. If nothing has been
    /// asked yet, the other end greets: what its connection was opened for.
    pub(super) fn asks_for(&self, asked: Object) -> Option<(Question, bool)> {
        let channel = self.channels.get(&asked)?;
        let greets = channel.connected.filter(|_| channel.first_since_connected_ns.is_none());
        match greets {
            Some(opened) => self.works_for(opened.thread, opened.enter_ns),
            None => channel.asked_for,
        }
    }

    /// A thread has answered a question just after it had heard an answer, and it is not sure for which question the
    /// heard request was asked: it was for the question that the thread answered. If the framing is known, this is
    /// noted when the request is found.
    pub(super) fn heard_for_it(&mut self, id: ThreadId) {
        let marks = &self.thread(id).marks.list;
        let [Some(heard), Some(answer)] =
            [2, 1].map(|back| marks.len().checked_sub(back).map(|at| marks[at]))
        else {
            return;
        };
        if heard.kind != MarkKind::Hears || heard.of == answer.of || self.is_told(&heard, &heard) {
            return;
        }
        let answers = heard.moved;
        let of = match given_after(self, id, heard.exit_ns, answers.object) {
            Given::Answer { of, adjacency: Adjacency::Alone, .. } => of,
            _ => return,
        };
        if self.is_answered_before(&of, heard.enter_ns) {
            return;
        }
        if let Some(asked) = self.asked_before(&heard) {
            let heard = Message { object: answers.object, from: answers.from, to: answers.to };
            self.for_whose_sake([&asked, &heard], of, false);
        }
    }

    /// Whether it is known for whose sake a message was moved. If nothing shows it, the message was for the thread itself,
    /// unless an event loop passed the connection on with the question before `heard`: for a request that waited for it.
    fn is_told(&self, mark: &Mark, heard: &Mark) -> bool {
        let passed_on = || {
            let answers = self.channels.get(&heard.moved.object);
            let channel = answers.and_then(|known| self.channels.get(&known.reverse?))?;
            let asked = last_before(&channel.writes, |write| write.enter_ns < heard.enter_ns)?;
            let at_will = last_before(&channel.asked_at_will, |ns| *ns < heard.enter_ns);
            Some(at_will.is_none_or(|at_will_ns| *at_will_ns < asked.enter_ns))
        };
        mark.sure && (mark.of.is_some() || heard.polls == 0 || !passed_on().unwrap_or(false))
    }

    /// Whether a part of the answer to `of` was written before `at_ns`.
    pub(super) fn is_answered_before(&self, of: &Question, at_ns: u64) -> bool {
        let questions = self.channels.get(&of.object);
        let answers = questions.and_then(|known| self.channels.get(&known.reverse?));
        let last =
            answers.and_then(|known| last_before(&known.writes, |write| write.enter_ns < at_ns));
        let read = self.read_of(of);
        last.is_some_and(|last| read.is_none_or(|read| last.enter_ns >= read.exit_ns))
    }

    /// The question to which `heard` is the answer, on a connection without known framing, if it is not sure for whose
    /// sake it was asked. It is what one call has written since the read before. What several calls have written may be
    /// several questions.
    fn asked_before(&self, heard: &Mark) -> Option<Message> {
        let answers = self.channels.get(&heard.moved.object)?;
        let object = answers.reverse?;
        let questions = self.channels.get(&object).filter(|known| known.heads.is_empty())?;
        let before = last_before(&answers.reads, |read| read.exit_ns < heard.exit_ns);
        let since_ns = before.map_or(0, |before| before.exit_ns);
        let last = last_before(&questions.writes, |write| write.enter_ns < heard.enter_ns)?;
        let first = count_before(&questions.writes, |write| write.enter_ns < since_ns);
        let first = questions.writes.get(first).filter(|first| first.enter_ns == last.enter_ns)?;
        let mut asks = self.thread(first.thread).marks.of_call(first.enter_ns);
        let told = asks.any(|mark| mark.moved.object == object && self.is_told(mark, heard));
        (!told).then_some(Message { object, from: first.from, to: last.to })
    }

    /// Notes that a request was asked for the sake of question `of`, which is known once the request is answered:
    /// changes the marks of its messages, and the list of what was asked for that question.
    pub(crate) fn for_whose_sake(
        &mut self,
        [asked, heard]: [&Message; 2],
        of: Question,
        sure: bool,
    ) {
        let World { channels, threads, .. } = self;
        let mut told_anew = Vec::new();
        let sides = [(asked, MarkKind::Asks), (heard, MarkKind::Hears)];
        for (message, kind) in sides {
            let Some(channel) = channels.get(&message.object) else { continue };
            let list = if kind == MarkKind::Asks { &channel.writes } else { &channel.reads };
            for moved in Channel::overlapping(list, message.from, message.to) {
                let marks = &mut threads[moved.thread as usize].marks.list;
                let first = count_before(marks, |mark| mark.enter_ns < moved.enter_ns);
                let call = marks.range_mut(first..);
                for mark in call.take_while(|mark| mark.enter_ns == moved.enter_ns) {
                    if mark.kind == kind && mark.moved.object == message.object {
                        let before = mark.of.replace(of);
                        mark.sure = sure;
                        // If a call moved several messages, each has its own question: the entry of the former question
                        // stays.
                        let alone = channel.messages(mark.moved.from, mark.moved.to) <= 1;
                        if before != Some(of) {
                            let before = before.filter(|_| alone);
                            told_anew.push((before, moved.thread, mark.exit_ns));
                        }
                    }
                }
            }
        }
        for (before, thread, exit_ns) in told_anew {
            let sake = Sake { of, thread, exit_ns };
            let taken_for = before.and_then(|before| {
                find_sake(&mut channels.get_mut(&before.object)?.sakes, Sake { of: before, ..sake })
            });
            match taken_for {
                Some((sakes, at)) if before.is_some_and(|before| before.object == of.object) => {
                    sakes[at] = sake;
                    continue;
                }
                Some((sakes, at)) => _ = sakes.remove(at),
                None => {}
            }
            let sakes = &mut channels.entry(of.object).or_default().sakes;
            let at = count_before(sakes, |sake| sake.exit_ns <= exit_ns);
            sakes.insert(at, sake);
        }
        // What is heard next on the connection is the rest of the answer.
        if let Some(channel) = channels.get_mut(&asked.object) {
            if channel.writes.back().is_some_and(|last| last.to <= asked.to) {
                channel.asked_for = Some((of, sure));
            }
        }
    }

    /// Whether anything was asked for the sake of what came on the connection of a request's question.
    pub(crate) fn has_asked(&self, goal: &Goal) -> bool {
        let asked = goal.messages.first().and_then(|asked| self.channels.get(&asked.object));
        asked.is_some_and(|channel| !channel.sakes.is_empty())
    }
}

/// The place of `sake` among `sakes`.
fn find_sake(sakes: &mut History<Sake>, sake: Sake) -> Option<(&mut History<Sake>, usize)> {
    let first = count_before(sakes, |known| known.exit_ns < sake.exit_ns);
    let same = sakes.range(first..).take_while(|known| known.exit_ns == sake.exit_ns);
    let at = { same }.position(|known| known.thread == sake.thread && known.of == sake.of)?;
    Some((sakes, first + at))
}
