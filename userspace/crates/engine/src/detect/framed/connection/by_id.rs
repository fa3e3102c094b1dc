//! Pairs questions and answers by number: HTTP/2's streams, ONC RPC's XIDs.

use crate::detect::framed::connection::*;
use rpcprobe_record::{UNIT_LAST, UNIT_MORE, UNIT_REQUEST, UNIT_RESPONSE};

/// Frames of HTTP/2 (RFC 9113, section 6), and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

impl Connection {
    /// A frame of HTTP/2.
    pub(super) fn frame(&mut self, world: &World, asks: bool, unit: &Unit, since_ns: u64) {
        if unit.kind == GOAWAY && !asks {
            let refused: Vec<_> = self.open.range(unit.numbers[0].saturating_add(1)..).collect();
            let refused: Vec<u32> = refused.into_iter().map(|(id, _)| *id).collect();
            for id in refused {
                self.end(world, id, Ended::Refused);
            }
            return;
        }
        // Clients' streams have odd numbers. The server's, pushed, answer no question of their own.
        if unit.id.is_multiple_of(2) {
            return;
        }
        if !self.open.contains_key(&unit.id) {
            // What goes on with a stream that began before the capture is not one.
            if unit.kind != HEADERS || self.open.len() >= MOST_OPEN {
                return;
            }
            let life = Life::asked(since_ns);
            let exchange = Exchange { id: unit.id, life, ..Exchange::default() };
            self.open.insert(unit.id, exchange);
        }
        let Some(exchange) = self.open.get_mut(&unit.id) else { return };
        exchange.life.seen(since_ns);
        if asks && exchange.asked.is_empty() {
            self.begun.push((unit.from, unit.id));
        }
        let bytes = if asks { &mut exchange.asked } else { &mut exchange.answered };
        bytes.add(unit.from, unit.to);
        if unit.named {
            exchange.unnamed.push((asks, unit.from));
        }
        if unit.kind == RST_STREAM {
            let reset = Ended::Reset { by_client: asks, code: unit.numbers[0] };
            return self.end(world, unit.id, reset);
        }
        if asks {
            if let Some((how, _)) = exchange.life.over() {
                self.end(world, unit.id, how); // its answer was told before
            }
            return;
        }
        let last = match unit.kind {
            DATA => unit.flags & END_STREAM != 0,
            HEADERS => {
                exchange.ending = unit.flags & END_STREAM != 0;
                exchange.ending && unit.flags & END_HEADERS != 0
            }
            CONTINUATION => exchange.ending && unit.flags & END_HEADERS != 0,
            _ => false,
        };
        if last {
            self.end(world, unit.id, Ended::Answered);
        }
    }

    /// A fragment of an ONC RPC record.
    pub(super) fn record(
        &mut self,
        world: &World,
        index: usize,
        asks: bool,
        unit: &Unit,
        since_ns: u64,
    ) {
        let id = match unit.kind {
            UNIT_MORE => self.last[index].unwrap_or(unit.id),
            // Calls the other way (NFS has them) are not followed.
            UNIT_REQUEST if !asks => return,
            UNIT_RESPONSE if asks => return,
            _ => unit.id,
        };
        self.last[index] = Some(id);
        if !self.open.contains_key(&id) {
            if unit.kind == UNIT_MORE || self.open.len() >= MOST_OPEN {
                return;
            }
            let life = Life::asked(since_ns);
            self.open.insert(id, Exchange { id, life, ..Exchange::default() });
        }
        let Some(exchange) = self.open.get_mut(&id) else { return };
        exchange.life.seen(since_ns);
        if asks {
            if unit.kind == UNIT_REQUEST && !exchange.asked.is_empty() {
                exchange.repeats += 1;
            }
            if exchange.method.is_none() && unit.kind == UNIT_REQUEST {
                let [program, version, procedure] = unit.numbers;
                exchange.method = Some(format!("{program}.{version}.{procedure}"));
            }
            if exchange.asked.is_empty() {
                self.begun.push((unit.from, id));
            }
            exchange.asked.add(unit.from, unit.to);
            if let Some((how, _)) = exchange.life.over() {
                self.end(world, id, how); // its answer was told before
            }
            return;
        }
        exchange.answered.add(unit.from, unit.to);
        if unit.status_known {
            exchange.status = i32::try_from(unit.numbers[0]).ok();
        }
        if unit.flags & UNIT_LAST != 0 {
            self.end(world, id, Ended::Answered);
        }
    }

    fn end(&mut self, world: &World, id: u32, how: Ended) {
        if let Some(mut exchange) = self.open.remove(&id) {
            exchange.life.end(how, world.now_ns);
            if exchange.asked.is_empty() && how == Ended::Answered {
                // The question is told later.
                self.open.insert(id, exchange);
                return;
            }
            self.ended.push(exchange);
        }
    }
}
