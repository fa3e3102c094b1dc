//! Pairs questions and answers by number.

use crate::detect::framed::connection::*;

impl Connection {
    /// A unit of a protocol whose answers have the numbers of their questions.
    pub(super) fn numbered(
        &mut self,
        world: &World,
        index: usize,
        asks: bool,
        unit: &Unit,
        since_ns: u64,
    ) {
        let place = self.protocol.place(unit, asks);
        let id = match place {
            Place::None => return,
            Place::Refuses { above } => return self.refuse(world, above),
            Place::More => self.last[index].unwrap_or(unit.id),
            Place::Begins | Place::Continues => unit.id,
        };
        self.last[index] = Some(id);
        if !self.open.contains_key(&id) {
            // A unit that continues an exchange from before the capture does not begin an exchange.
            if place != Place::Begins || self.open.len() >= MOST_OPEN {
                return;
            }
            let life = Life::asked(since_ns);
            self.open.insert(id, Box::new(Exchange { id, life, ..Exchange::default() }));
            self.unasked += 1;
        }
        let Some(exchange) = self.open.get_mut(&id) else { return };
        exchange.life.seen(since_ns);
        if asks && exchange.asked.is_empty() {
            self.begun.push((unit.from, id));
            self.unasked -= 1;
        } else if asks && place == Place::Begins {
            exchange.repeats += 1;
        }
        let bytes = if asks { &mut exchange.asked } else { &mut exchange.answered };
        bytes.add(unit.from, unit.to);
        if self.protocol.is_named(unit) {
            exchange.unnamed.push((asks, unit.from));
        }
        let ended = self.protocol.read(unit, asks, &mut exchange.said).map(Ended::Told);
        // Its answer may have been reported before.
        let before = exchange.life.over().filter(|_| asks).map(|(how, _)| how);
        if let Some(how) = ended.or(before) {
            self.end(world, id, how);
        }
    }

    /// The server has not looked at exchanges above that number.
    fn refuse(&mut self, world: &World, above: u32) {
        let refused: Vec<_> = self.open.range(above.saturating_add(1)..).collect();
        let refused: Vec<u32> = refused.into_iter().map(|(id, _)| *id).collect();
        for id in refused {
            self.end(world, id, Ended::Told(End::Refused));
        }
    }

    fn end(&mut self, world: &World, id: u32, how: Ended) {
        if let Some(mut exchange) = self.open.remove(&id) {
            exchange.life.end(how, world.now_ns);
            if exchange.asked.is_empty() && how == Ended::Told(End::Answered) {
                // The question is reported later.
                self.open.insert(id, exchange);
                return;
            }
            self.unasked -= usize::from(exchange.asked.is_empty());
            self.ended.push(exchange);
        }
    }
}
