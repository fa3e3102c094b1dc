//! Decides which end asks on a flow of datagrams that may be older than the capture (`attach`).
//!
//! The first datagram seen of such a flow may be the answer to an earlier question. The roles are decided by these
//! criteria, in this order:
//!
//! 1. *Begin*: a socket that was connected in the capture sends the first datagram of its flow. Its end asks.
//! 2. *Ports*: services have well-known ports, and clients have ports that the kernel gives out. The port of the lower
//!    [`PortClass`] is asked.
//! 3. *Peers*: an end that exchanges datagrams with several ports is asked, if the other end does not. This shows when
//!    more flows are seen, and corrects what was assumed of earlier ones.
//! 4. *Rest*: a flow that is first seen long after the `attach` had no question open then. The end that sends first
//!    asks.
//!
//! If ports and peers contradict each other, the ports count. If no criterion applies, the first datagram counts. In
//! both cases the roles are doubtful ([`Channel::role_is_doubtful`]).

use std::net::SocketAddr;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Io, Object, TYPE_UDP};
use crate::timeline::{Channel, World};

/// A question that was open at the `attach` is answered within this time, or never. Assumed, as for `Patience::Record`.
const ANSWERED_WITHIN_NS: u64 = 2_000_000_000;

/// The first port that Linux gives out by itself (/proc/sys/net/ipv4/ip_local_port_range as it is set by default). On a
/// machine where that range begins lower, its ports below this one look like registered ports and show nothing.
const FIRST_EPHEMERAL: u16 = 32_768;

/// Limit of the flows that are remembered for an end with one peer's port, in case it gets several.
const MOST_FLOWS: usize = 64;

/// What a port is used for by convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PortClass {
    Privileged,
    Registered,
    Ephemeral,
}

impl PortClass {
    fn of(port: u16) -> PortClass {
        match port {
            0..1024 => PortClass::Privileged,
            1024..FIRST_EPHEMERAL => PortClass::Registered,
            FIRST_EPHEMERAL.. => PortClass::Ephemeral,
        }
    }
}

/// What was seen of the begin of a flow of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowBegin {
    /// Its first datagram.
    Seen,
    /// Its first datagram after a rest in which all earlier questions must have been answered.
    Rested,
    Unseen,
}

/// The ports with which an end of flows exchanges datagrams.
#[derive(Debug)]
struct Peers {
    /// The first of them.
    port: u16,
    several: bool,
    /// Its flows, while it has one port only: the channels that lead to this end.
    flows: Vec<Object>,
}

/// What is known of the ends of flows; kept only for a capture of programs that ran before.
#[derive(Debug, Default)]
pub(super) struct DatagramRoles {
    attached_ns: Option<u64>,
    peers: FxHashMap<SocketAddr, Peers>,
    /// Sockets that were connected in the capture and have moved nothing since.
    connected: FxHashSet<u64>,
}

impl DatagramRoles {
    /// Notes that one end of a flow exchanges datagrams with that port. If it is the second port, returns the end's
    /// earlier flows.
    fn meet(&mut self, end: SocketAddr, port: u16, reached_by: Object) -> Vec<Object> {
        let new = || Peers { port, several: false, flows: Vec::new() };
        let peers = self.peers.entry(end).or_insert_with(new);
        if peers.several {
            return Vec::new();
        }
        if peers.port != port {
            peers.several = true;
            return std::mem::take(&mut peers.flows);
        }
        if peers.flows.len() < MOST_FLOWS && !peers.flows.contains(&reached_by) {
            peers.flows.push(reached_by);
        }
        Vec::new()
    }

    fn has_several(&self, end: &SocketAddr) -> bool {
        self.peers.get(end).is_some_and(|peers| peers.several)
    }

    /// Whether the end that a channel leads to is asked, and whether that is doubtful; `None`: nothing shows it.
    fn asked_there(&self, [from, to]: &[SocketAddr; 2]) -> Option<(bool, bool)> {
        let lower = |a, b| (a != b).then_some(a < b);
        let ports = lower(PortClass::of(to.port()), PortClass::of(from.port()));
        let (several_from, several_to) = (self.has_several(from), self.has_several(to));
        let peers = (several_from != several_to).then_some(several_to);
        match (ports, peers) {
            (Some(by_port), Some(by_peers)) => Some((by_port, by_port != by_peers)),
            (told, None) | (None, told) => told.map(|asked| (asked, false)),
        }
    }

    /// Forgets ends without a remembered flow.
    pub(super) fn forget(&mut self, channels: &FxHashMap<Object, Channel>) {
        if self.peers.is_empty() {
            return;
        }
        let flows = channels.iter().filter(|(object, _)| object.type_bits == TYPE_UDP);
        let ends: FxHashSet<_> = flows.filter_map(|(_, channel)| channel.ends).flatten().collect();
        self.peers.retain(|end, _| ends.contains(end));
        for peers in self.peers.values_mut() {
            peers.flows.retain(|flow| channels.contains_key(flow));
        }
    }
}

impl World {
    /// The programs ran before `attached_ns`: flows of datagrams may be older.
    pub fn attached_at(&mut self, attached_ns: u64) {
        self.datagram_roles.attached_ns = Some(attached_ns);
    }

    /// Notes that a socket for datagrams is connected.
    pub(super) fn datagrams_connected(&mut self, socket: u64) {
        if self.datagram_roles.attached_ns.is_some() {
            self.datagram_roles.connected.insert(socket);
        }
    }

    /// Notes that such a socket is closed. Its number may be reused.
    pub(super) fn datagrams_closed(&mut self, socket: u64) {
        self.datagram_roles.connected.remove(&socket);
    }

    /// Notes the first datagram that one end moves in one direction of a flow, as far as is remembered.
    pub(super) fn note_flow(&mut self, io: &Io, begun_ns: u64) {
        let Some(attached_ns) = self.datagram_roles.attached_ns else { return };
        let Some(reverse) = io.reverse else { return };
        let was_connected = self.datagram_roles.connected.remove(&u64::from(io.socket));
        if self.channels.get(&io.object).is_none_or(|channel| channel.flow.is_none()) {
            let begin = match begun_ns.saturating_sub(attached_ns) {
                _ if was_connected && io.is_write => FlowBegin::Seen,
                rested_ns if rested_ns >= ANSWERED_WITHIN_NS => FlowBegin::Rested,
                _ => FlowBegin::Unseen,
            };
            for object in [io.object, reverse] {
                self.channels.entry(object).or_default().flow = Some(begin);
            }
            if begin == FlowBegin::Seen {
                self.know_roles(Some(io.object), Some(reverse));
            }
        }
        let mut flows = vec![io.object];
        if let Some([from, to]) = self.channels[&io.object].ends {
            flows.extend(self.datagram_roles.meet(to, from.port(), io.object));
            flows.extend(self.datagram_roles.meet(from, to.port(), reverse));
        }
        for flow in flows {
            self.judge_flow(flow);
        }
    }

    /// Decides which end asks on a flow, by all that is known by now; `object`: one of its channels.
    fn judge_flow(&mut self, object: Object) {
        let Some(channel) = self.channels.get(&object) else { return };
        let (Some(reverse), Some(begin)) = (channel.reverse, channel.flow) else { return };
        if begin == FlowBegin::Seen {
            return;
        }
        let ends = channel.ends.as_ref();
        let told = ends.and_then(|ends| self.datagram_roles.asked_there(ends));
        let is_doubtful = match told {
            Some((is_asked, is_doubtful)) => {
                let (asked, answer) = if is_asked { (object, reverse) } else { (reverse, object) };
                self.know_roles(Some(asked), Some(answer));
                is_doubtful
            }
            None => begin == FlowBegin::Unseen,
        };
        for object in [object, reverse] {
            self.channels.entry(object).or_default().role_is_doubtful = is_doubtful;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: u16 = 5301;

    fn end(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn flow(ino: u64) -> Object {
        Object { dev: 0, ino, type_bits: TYPE_UDP }
    }

    #[test]
    fn the_port_of_the_lower_class_is_asked() {
        let roles = DatagramRoles::default();
        let told = |from, to| roles.asked_there(&[end(from), end(to)]);
        assert_eq!(told(40_000, SERVICE), Some((true, false)));
        assert_eq!(told(SERVICE, 40_000), Some((false, false)));
        assert_eq!(told(20_000, 53), Some((true, false)));
        assert_eq!(told(20_000, SERVICE), None);
        assert_eq!(told(40_000, 50_000), None);
    }

    #[test]
    fn an_end_with_several_peers_is_asked_and_what_was_before_is_judged_again() {
        let mut roles = DatagramRoles::default();
        let told = |roles: &DatagramRoles, from, to| roles.asked_there(&[end(from), end(to)]);
        assert_eq!(roles.meet(end(50_000), 40_000, flow(1)), []);
        assert_eq!(roles.meet(end(50_000), 40_000, flow(1)), []);
        assert_eq!(told(&roles, 40_000, 50_000), None);
        assert_eq!(roles.meet(end(50_000), 40_001, flow(2)), [flow(1)]);
        assert_eq!(told(&roles, 40_000, 50_000), Some((true, false)));
        assert_eq!(roles.meet(end(50_000), 40_002, flow(3)), []);
        // The other end has several, too.
        roles.meet(end(40_000), 50_000, flow(4));
        roles.meet(end(40_000), 50_001, flow(5));
        assert_eq!(told(&roles, 40_000, 50_000), None);
        // A client of several services: its port shows a client, and its several peers contradict that.
        assert_eq!(told(&roles, 40_000, SERVICE), Some((true, true)));
    }
}
