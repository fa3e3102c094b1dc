//! How long the kernel held an answer back after its server had written it, where only the server is traced (Nagle's
//! algorithm, a full window). The request has ended by then, and its walk needs nothing more. The request is handed out
//! when the last byte of the answer has left, or when it is clear that this will not be known.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::event::{Object, Packet, TYPE_TCP};
use crate::send_limit::SendLimit;
use crate::timeline::gallop::count_before;
use crate::timeline::{Channel, World};
use crate::walk::Goal;
use rpcprobe_model::{Request, Segments};

/// Limit of the packets of a connection, sent since the write began, that are searched for the byte.
const MOST_PACKETS: usize = 4096;
/// How long the byte is awaited: a receiver that has had no room for that long may never have.
const LONGEST_NS: u64 = 60_000_000_000;
/// Limit of the segments of waiting requests. A request that would exceed it is handed out at once.
const MOST_SEGMENTS: usize = 1 << 18;

/// A request with its segments.
pub type Explained = (Request, Segments);

/// When the last byte of an answer left its server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The question does not arise (the client is traced, or it is not TCP), or nothing shows it.
    Unknown,
    /// By the end of the write.
    AtOnce,
    /// The byte was held back at the end of the write.
    Held {
        channel: Object,
        /// The byte's number.
        byte: u64,
        limit: SendLimit,
        /// When the byte left, if that is known by now.
        left_ns: Option<u64>,
    },
}

/// When the last byte of a request's answer left, as far as is known.
pub fn of(world: &World, goal: &Goal) -> Left {
    if goal.server_process != Some(goal.client_process) {
        return Left::Unknown;
    }
    let [_, .., answer] = goal.messages[..] else { return Left::Unknown };
    let found = || {
        let byte = answer.to.checked_sub(1).filter(|_| answer.object.type_bits == TYPE_TCP)?;
        let channel = world.channels.get(&answer.object)?;
        let write = Channel::find(&channel.writes, byte)?;
        let limit = write.unsent;
        let unsent_from = write.to.saturating_sub(limit.bytes());
        if !limit.is_some() || byte < unsent_from {
            return Some(Left::AtOnce);
        }
        limit.by()?;
        let first = count_before(&channel.packets, |packet| packet.sent_ns < write.enter_ns);
        let mut since = channel.packets.range(first..).take(MOST_PACKETS);
        let packet = since.find(|packet| has(packet, byte));
        let left_ns = packet.map(|packet| packet.queued_ns);
        Some(Left::Held { channel: answer.object, byte, limit, left_ns })
    };
    found().unwrap_or(Left::Unknown)
}

fn has(packet: &Packet, byte: u64) -> bool {
    packet.from <= byte && byte < packet.end
}

/// Reports the delay in the request, and in the cause of its last segment. `left_ns`: `None` if it is not known.
fn tell((request, segments): &mut Explained, limit: SendLimit, left_ns: Option<u64>) {
    let end_ns = request.start_ns.saturating_add(request.latency_ns);
    request.held_back_ns = left_ns.map(|left_ns| left_ns.saturating_sub(end_ns));
    if request.held_back_ns == Some(0) {
        return;
    }
    request.held_back_by = limit.by();
    let (Some(last), Some(why)) = (segments.list.last_mut(), limit.reason()) else { return };
    // A record holds eight binary digits of the number.
    let at_least = if limit.bytes() < 256 { "" } else { "at least " };
    let mut told = format!("{at_least}{} B of the answer {why}", limit.bytes());
    if let Some(ns) = request.held_back_ns {
        told += &format!(", but {}.{:03} ms later", ns / 1_000_000, ns / 1000 % 1000);
    }
    last.cause = Some(segments.texts.extend(last.cause, &told));
}

/// A request whose answer has not left.
struct Waiting {
    explained: Explained,
    byte: u64,
    limit: SendLimit,
}

/// Requests that are explained except for when their answers leave.
#[derive(Default)]
pub struct Unsent {
    /// By the channel of the answers, in order of explanation.
    by_channel: FxHashMap<Object, VecDeque<Waiting>>,
    segments: usize,
}

impl Unsent {
    /// Takes an explained request, and returns it if nothing more will be known of it.
    pub fn take(&mut self, mut explained: Explained, left: Left) -> Option<Explained> {
        match left {
            Left::Unknown => {}
            Left::AtOnce => explained.0.held_back_ns = Some(0),
            Left::Held { limit, left_ns: Some(left_ns), .. } => {
                tell(&mut explained, limit, Some(left_ns));
            }
            Left::Held { channel, byte, limit, left_ns: None } => {
                // A request without segments takes room, too.
                let segments = explained.1.list.len() + 1;
                if self.segments + segments <= MOST_SEGMENTS {
                    self.segments += segments;
                    let waiting = Waiting { explained, byte, limit };
                    self.by_channel.entry(channel).or_default().push_back(waiting);
                    return None;
                }
                tell(&mut explained, limit, None);
            }
        }
        Some(explained)
    }

    /// A packet has left. Takes out the requests whose answers left with it, or before it unseen.
    pub fn left(&mut self, channel: Object, packet: &Packet) -> Vec<Explained> {
        let Some(of_channel) = self.by_channel.get_mut(&channel) else { return Vec::new() };
        let gone = of_channel.iter().take_while(|waiting| waiting.byte < packet.end).count();
        let mut left = Vec::new();
        for mut waiting in of_channel.drain(..gone) {
            let left_ns = has(packet, waiting.byte).then_some(packet.queued_ns);
            tell(&mut waiting.explained, waiting.limit, left_ns);
            self.segments -= waiting.explained.1.list.len() + 1;
            left.push(waiting.explained);
        }
        if of_channel.is_empty() {
            self.by_channel.remove(&channel);
        }
        left
    }

    /// Takes out the requests that have waited too long, in the order in which they ended.
    pub fn given_up(&mut self, now_ns: u64) -> Vec<Explained> {
        self.without(|ended_ns| ended_ns.saturating_add(LONGEST_NS) < now_ns)
    }

    /// Takes out all requests: nothing more will be known.
    pub fn all(&mut self) -> Vec<Explained> {
        self.without(|_| true)
    }

    fn without(&mut self, gone: impl Fn(u64) -> bool) -> Vec<Explained> {
        let ended_ns = |(request, _): &Explained| request.start_ns + request.latency_ns;
        let mut given = Vec::new();
        for of_channel in self.by_channel.values_mut() {
            let gone = |waiting: &&Waiting| gone(ended_ns(&waiting.explained));
            let gone = of_channel.iter().take_while(gone).count();
            for mut waiting in of_channel.drain(..gone) {
                tell(&mut waiting.explained, waiting.limit, None);
                self.segments -= waiting.explained.1.list.len() + 1;
                given.push(waiting.explained);
            }
        }
        self.by_channel.retain(|_, of_channel| !of_channel.is_empty());
        given.sort_by_key(|explained| (ended_ns(explained), explained.0.request_id));
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcprobe_model::{HeldBy, Kind};

    const CHANNEL: Object = Object { dev: 0, ino: 7, type_bits: TYPE_TCP };
    const LIMIT: SendLimit = SendLimit::from_record(3 | 10 << 8);

    /// A request of `[0, 100)` whose answer ends with that byte.
    fn takes(unsent: &mut Unsent, byte: u64, left_ns: Option<u64>) -> Option<Explained> {
        let explained = (Request::new(Kind::Http1, 0, 100), Segments::default());
        unsent.take(explained, Left::Held { channel: CHANNEL, byte, limit: LIMIT, left_ns })
    }

    fn packet(from: u64, end: u64, queued_ns: u64) -> Packet {
        Packet::new((from, end), (queued_ns, queued_ns))
    }

    fn told(explained: &[Explained]) -> Vec<(Option<u64>, Option<HeldBy>)> {
        explained.iter().map(|(request, _)| (request.held_back_ns, request.held_back_by)).collect()
    }

    #[test]
    fn requests_wait_until_their_answers_have_left() {
        let nagle = Some(HeldBy::Nagle);
        let mut unsent = Unsent::default();
        let known = takes(&mut unsent, 9, Some(150)).expect("given back at once");
        assert_eq!(told(&[known]), [(Some(50), nagle)]);
        let soon = takes(&mut unsent, 9, Some(90)).expect("given back at once");
        assert_eq!(told(&[soon]), [(Some(0), None)]);
        for byte in [9, 19, 29, 39] {
            assert_eq!(takes(&mut unsent, byte, None), None);
        }
        assert_eq!(unsent.left(CHANNEL, &packet(0, 9, 200)), []);
        assert_eq!(unsent.left(Object { ino: 8, ..CHANNEL }, &packet(0, 99, 200)), []);
        assert_eq!(told(&unsent.left(CHANNEL, &packet(5, 15, 300))), [(Some(200), nagle)]);
        // The next one's packet was not seen.
        let left = unsent.left(CHANNEL, &packet(20, 30, 400));
        assert_eq!(told(&left), [(None, nagle), (Some(300), nagle)]);
        assert_eq!(unsent.given_up(100 + LONGEST_NS), []);
        assert_eq!(told(&unsent.given_up(101 + LONGEST_NS)), [(None, nagle)]);
        assert_eq!((unsent.all(), unsent.segments), (Vec::new(), 0));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut unsent = Unsent { segments: MOST_SEGMENTS - 1, ..Unsent::default() };
        assert_eq!(takes(&mut unsent, 9, None), None);
        let more = takes(&mut unsent, 19, None).expect("given back at once");
        assert_eq!(told(&[more]), [(None, Some(HeldBy::Nagle))]);
    }
}
