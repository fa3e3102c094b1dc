//! Pairs questions and answers by order, the nth with the nth.

use crate::detect::framed::connection::*;
/// If a client has reached its maximum of open questions this many times and never exceeded it, it is taken to keep to
/// that maximum.
const SETTLED_TIMES: u32 = 8;

impl Connection {
    /// A message, or part of one, of a protocol that answers in order.
    pub(super) fn in_turn(&mut self, world: &World, asks: bool, unit: &Unit, since_ns: u64) {
        let begins = match self.protocol.place(unit, asks) {
            Place::Begins => true,
            Place::More => false,
            Place::None | Place::Continues | Place::Refuses { .. } => return,
        };
        let queue = if asks { &mut self.asks } else { &mut self.answers };
        if queue.len() >= MOST_OPEN {
            return;
        }
        if begins {
            if asks {
                self.begun.push((unit.from, 0));
            }
            let is_named = self.protocol.is_named(unit);
            queue.push_back(Box::new(Exchange {
                life: Life::asked(since_ns),
                doubted: self.order.torn,
                unnamed: if is_named { vec![(asks, unit.from)] } else { Vec::new() },
                ..Exchange::default()
            }));
        }
        let Some(last) = queue.back_mut().filter(|last| last.whole.is_none()) else { return };
        let bytes = if asks { &mut last.asked } else { &mut last.answered };
        bytes.add(unit.from, unit.to);
        last.whole = self.protocol.read(unit, asks, &mut last.said);
        self.pair(world);
        let is_counted = asks && begins && !self.has_untold_answers(world);
        if is_counted && self.order.asked(self.asks.len()) {
            self.asks.iter_mut().for_each(|ask| ask.doubted = None);
        }
    }

    /// Whether bytes of answers have been read although their writer, which is traced, has not reported their messages
    /// yet: the writer is delayed at the end of its call, and the client asks again. Then it is not known how many
    /// questions are open. After a gap, such messages are not reported any more.
    fn has_untold_answers(&self, world: &World) -> bool {
        let Some(answers) = self.client.map(|client| 1 - client) else { return true };
        let Some(channel) = world.channels.get(&self.channels[answers]) else { return false };
        if self.gaps[answers].is_some() {
            return false;
        }
        let told = self.heard[answers].map_or(0, |(to, _)| to);
        let (read, written) = (channel.reads.back(), channel.writes.back());
        read.zip(written).is_some_and(|(read, written)| read.to > told.max(written.to))
    }

    /// Pairs questions and answers, oldest first.
    pub(super) fn pair(&mut self, world: &World) {
        let Some((asked_on, answered_on)) = self.ends() else { return };
        while let (Some(ask), Some(answer)) = (self.asks.front(), self.answers.front()) {
            // The answer may announce a body that is not there.
            if answer.whole.is_none() && !ask.said.head_only {
                return;
            }
            let moved = |object, bytes: &Bytes| first_moved(world, object, bytes);
            let before = match (moved(asked_on, &ask.asked), moved(answered_on, &answer.answered)) {
                (Some(asked), Some(answered)) => answered.exit_ns <= asked.enter_ns,
                _ => false,
            };
            let Some(answer) = self.answers.pop_front() else { return };
            if before {
                continue; // to a question of before the capture
            }
            let Some(mut exchange) = self.asks.pop_front() else { return };
            exchange.answered = answer.answered;
            exchange.said.status = answer.said.status;
            let mut how = answer.whole.unwrap_or(End::Answered);
            if exchange.said.head_only && answer.said.head_bytes > 0 {
                exchange.answered.cut(answer.said.head_bytes);
                how = End::Answered;
            }
            exchange.life.seen(answer.life.since_ns());
            exchange.life.end(Ended::Told(how), world.now_ns);
            self.ended.push(exchange);
        }
    }
}

/// Whether the nth reported answer belongs to the nth reported question. After lost records, unknown questions may be
/// open. There are none if as many questions are known to be open as the client ever had open, or if the connection
/// rested.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) torn: Option<Torn>,
    /// The most questions that were open at once, and how often that number was reached.
    most: usize,
    times: u32,
}

impl Order {
    /// `open` questions are open, including the question just asked. Returns whether it is known now that there are no
    /// others.
    fn asked(&mut self, open: usize) -> bool {
        if self.torn.is_some() {
            if self.times >= SETTLED_TIMES && open >= self.most {
                self.torn = None;
                return true;
            }
        } else if open > self.most {
            (self.most, self.times) = (open, 1);
        } else if open == self.most {
            self.times = self.times.saturating_add(1);
        }
        false
    }

    pub(super) fn sure(&mut self) {
        self.torn = None;
    }
}

/// The call that wrote the first of these bytes, or else the call that read it.
fn first_moved(world: &World, object: Object, bytes: &Bytes) -> Option<Transfer> {
    let channel = world.channels.get(&object)?;
    let first = bytes.first()?;
    Channel::find(&channel.writes, first).or(Channel::find(&channel.reads, first)).copied()
}
