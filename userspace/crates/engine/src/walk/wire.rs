//! Rule `wire`: splits the path of bytes through the network into device queue, link and receive stack.

use crate::event::Packet;
use crate::timeline::NEVER;
use crate::walk::*;

const HANDED: &str = "TCP hands the device the next packet";
const LOST: &str = "taken for lost: TCP sends it again after this";
const UNSEEN: &str = "passes a device, unseen";
const PACED: &str = "the device is still busy with the packet before";

/// Limit of the packets of one connection that are searched as being under way at once.
const MOST_UNDER_WAY: usize = 4096;

/// Where a connection's packets are at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the queue of the sender's device.
    Queued,
    /// In the queue of a router's device.
    Forwarded,
    /// Not in a queue yet, but delayed by what the link was still busy with: see [`between`].
    Paced,
    /// Not in a queue yet: TCP was about to hand it over.
    Handed,
    /// Between the devices.
    Link,
    /// Anywhere else.
    Elsewhere,
    /// Anywhere else, or at a device that did not report it: see [`Walk::passed_unseen`].
    Unseen,
}

/// What happened between two packets of a message that kept a link busy, if the second came to the device's queue only
/// after the first had left; `None`: the sender may have been slow.
///
/// A sender keeps few of a connection's packets in that queue (TCP small queues, `tcp_small_queue_check()` in
/// net/ipv4/tcp_output.c), and gives it the next one when one has left. A device that is limited by its rate is
/// meanwhile still busy with the packet before. If the second packet waited in the queue for at least as long as it
/// came late, it would have left no earlier had it come at once. If it did not wait that long, it was late by what TCP
/// took; this is assumed only if the first packet had waited for longer than that.
fn between(before: &Packet, packet: &Packet) -> Option<Place> {
    let late_ns = packet.queued_ns.checked_sub(before.sent_ns).filter(|ns| *ns > 0)?;
    let waited = |packet: &Packet| packet.sent_ns.saturating_sub(packet.queued_ns) >= late_ns;
    match (before.again || packet.again, waited(packet), waited(before)) {
        (false, true, _) => Some(Place::Paced),
        (false, false, true) => Some(Place::Handed),
        _ => None,
    }
}

impl Walk<'_> {
    /// The thread that sent the bytes up to `last`, and when the walk goes on there. While a link is never idle, what
    /// its sender does meanwhile delays nothing. So of a message in several packets, the first packet counts, or the
    /// first one after which the link always had something to send. Otherwise `latest`.
    pub(super) fn link_bound(
        &self,
        object: Object,
        last: u64,
        latest: (ThreadId, u64),
    ) -> (ThreadId, u64) {
        let Some(channel) = self.world.channels.get(&object) else { return latest };
        let message =
            self.goal.messages.iter().find(|m| m.object == object && m.from <= last && last < m.to);
        let Some(message) = message else { return latest };
        // Packets are in order of sending. What a router does with them later does not count.
        let ours = channel.packets.iter().rev().take_while(|p| p.sent_ns >= self.goal.start_ns);
        let packets: Vec<&Packet> = ours.filter(|packet| !packet.forwarded).collect();
        let has_it = |p: &&Packet| p.from <= last && last < p.end;
        // The packet with the last byte may have been queued by an interrupt, after the write.
        let in_time = packets.iter().position(|p| has_it(p) && p.queued_ns <= latest.1);
        let Some(awaited) = in_time.or_else(|| packets.iter().position(has_it)) else {
            return latest;
        };
        let mut at = awaited;
        while let Some(before) = packets.get(at + 1) {
            let packet = packets[at];
            let queued = packet.queued_ns <= before.sent_ns && !packet.again && !before.again;
            if before.end <= message.from || !(queued || between(before, packet).is_some()) {
                break;
            }
            at += 1;
        }
        if at == awaited {
            return latest;
        }
        let first = packets[at];
        let write = Channel::find(&channel.writes, first.from.max(message.from));
        match write.filter(|write| (write.enter_ns..latest.1).contains(&first.queued_ns)) {
            Some(write) => (write.thread, first.queued_ns.max(self.goal.start_ns)),
            None => latest,
        }
    }

    /// Emits `[from_ns, to_ns)`, in which a message whose last byte is `last` was sent and had not been delivered. The
    /// reader waited for the packet with that byte, and so for the packets before it.
    pub(super) fn wire(
        &mut self,
        thread: ThreadId,
        object: Object,
        last: u64,
        (from_ns, to_ns): (u64, u64),
    ) {
        let awaited = self.packet_with(object, last, to_ns);
        // The last time that the byte was sent again, at whichever device: a router's device may see it for the first
        // time then.
        let again = self.packets_with(object, last, to_ns).find(|packet| packet.again);
        let again_ns = again.map(|packet| packet.queued_ns);
        let received_ns = awaited.and_then(|packet| packet.received_ns).unwrap_or(to_ns);
        let received_ns = received_ns.clamp(from_ns, to_ns);
        let held = self.world.channels.get(&object).and_then(|channel| {
            let write = Channel::find(&channel.writes, last)?;
            let unsent_from = write.to.saturating_sub(write.unsent.bytes());
            write.unsent.reason().filter(|_| unsent_from <= last)
        });
        let under_way = held.unwrap_or("sent, not yet delivered");
        let (elsewhere, stack) = match self.passed_unseen(object, last, to_ns) {
            true => (Place::Unseen, UNSEEN),
            false if received_ns < to_ns => (Place::Elsewhere, "receive stack"),
            false => (Place::Elsewhere, under_way),
        };
        self.wire_piece(thread, (received_ns, to_ns), Category::WireStack, stack, elsewhere);
        for (start_ns, end_ns, place) in self.places(object, from_ns, received_ns) {
            let is_again = |at_ns: u64| again_ns.is_some_and(|ns| ns <= at_ns);
            let is_lost = again_ns.is_some_and(|ns| end_ns <= ns);
            let place = if place == Place::Elsewhere && !is_lost { elsewhere } else { place };
            let (category, detail) = match place {
                Place::Queued => (Category::WireQdisc, "queued at the sender's device"),
                Place::Forwarded => (Category::WireQdisc, "queued at a router's device"),
                Place::Paced => (Category::WireQdisc, PACED),
                Place::Handed => (Category::WireStack, HANDED),
                Place::Link if is_again(start_ns) => (Category::WireLink, "under way, sent again"),
                Place::Link => (Category::WireLink, "under way"),
                Place::Elsewhere if is_lost => (Category::WireStack, LOST),
                Place::Elsewhere => (Category::WireStack, under_way),
                Place::Unseen => (Category::WireStack, UNSEEN),
            };
            self.wire_piece(thread, (start_ns, end_ns), category, detail, place);
        }
    }

    /// If the client waits for a server elsewhere: why not all of the request had been sent when it began to wait.
    pub(super) fn held_back(&self, thread: ThreadId, off: &Off) -> Option<&'static str> {
        if thread != self.goal.client || self.goal.server_process.is_some() {
            return None;
        }
        let asked = self.goal.messages.first()?;
        let channel = self.world.channels.get(&asked.object)?;
        let write = Channel::find(&channel.writes, asked.to.checked_sub(1)?)?;
        let call = off.call.filter(|call| call.enter_ns >= write.exit_ns)?;
        let before = count_before(&self.world.thread(thread).calls, |c| c.enter_ns < call.enter_ns);
        let last = self.world.thread(thread).calls.get(before.checked_sub(1)?)?;
        // Only straight after the write: later, more may have been sent.
        write.unsent.reason().filter(|_| last.exit_ns == write.exit_ns)
    }

    /// Emits a sleep in a call that sends through the network: it waited for room while the bytes before were on their
    /// way. Returns false if nothing is known of their packets.
    pub(super) fn waits_for_wire(&mut self, thread: ThreadId, off: &Off, to_ns: u64) -> bool {
        if !self.applies(Rule::Wire) {
            return false;
        }
        let t = self.world.thread(thread);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, off.end_ns) else { return false };
        let sent = call.transfers().rev().find(|io| io.is_write && io.object.is_network());
        let Some(object) = sent.map(|io| io.object) else { return false };
        let from_ns = off.start_ns.max(self.goal.start_ns);
        let places = self.places(object, from_ns, to_ns);
        if places.iter().all(|(.., place)| *place == Place::Elsewhere) {
            return false;
        }
        for (start_ns, end_ns, place) in places {
            let (category, detail) = match place {
                Place::Queued | Place::Forwarded => {
                    (Category::WireQdisc, "socket buffer full, device's queue")
                }
                Place::Paced => (Category::WireQdisc, PACED),
                Place::Handed => (Category::WireStack, HANDED),
                Place::Link => (Category::WireLink, "socket buffer full, under way"),
                Place::Elsewhere | Place::Unseen => (Category::QueueSocket, "socket buffer full"),
            };
            self.wire_piece(thread, (start_ns, end_ns), category, detail, place);
        }
        true
    }

    /// The packets with that byte that were queued by `until_ns`, the last one first.
    fn packets_with(
        &self,
        object: Object,
        byte: u64,
        until_ns: u64,
    ) -> impl Iterator<Item = &Packet> {
        let channel = self.world.channels.get(&object);
        let packets = channel.into_iter().flat_map(|channel| channel.packets.iter().rev());
        packets.filter(move |packet| {
            packet.from <= byte && byte < packet.end && packet.queued_ns <= until_ns
        })
    }

    /// The last of these packets.
    fn packet_with(&self, object: Object, byte: u64, until_ns: u64) -> Option<Packet> {
        self.packets_with(object, byte, until_ns).next().copied()
    }

    /// Whether the packet with that byte passed a device where it was not seen (some kernels lose such records): the
    /// packet before it was received from a device, and no record of that device has that byte.
    fn passed_unseen(&self, object: Object, byte: u64, until_ns: u64) -> bool {
        let Some(channel) = self.world.channels.get(&object) else { return false };
        let mut packets = channel.packets.iter().rev();
        let before = packets.find(|packet| packet.end <= byte && packet.queued_ns <= until_ns);
        before.filter(|before| before.received_ns.is_some()).is_some_and(|before| {
            !self.packets_with(object, byte, NEVER).any(|packet| packet.device == before.device)
        })
    }

    /// When the byte was received, if that is known.
    pub(super) fn received_ns(&self, object: Object, byte: u64, until_ns: u64) -> Option<u64> {
        if !self.applies(Rule::Wire) {
            return None;
        }
        self.packet_with(object, byte, until_ns)?.received_ns
    }

    /// The last byte of the request that a read takes from a channel; 0: none.
    pub(super) fn last_of(&self, call: &Call, object: Object) -> u64 {
        let mut reads = call.transfers().rev().filter(|io| !io.is_write && io.object == object);
        let read = reads.find(|io| self.goal.has(io));
        read.map_or(0, |io| io.offset.saturating_add(io.bytes).saturating_sub(1))
    }

    /// The same for the read that a sleep led to.
    pub(super) fn last_byte(&self, thread: ThreadId, off: &Off, object: Object) -> u64 {
        let calls = &self.world.thread(thread).calls;
        let next = count_before(calls, |call| call.exit_ns < off.end_ns);
        calls.range(next..).map(|call| self.last_of(call, object)).find(|at| *at > 0).unwrap_or(0)
    }

    fn wire_piece(
        &mut self,
        thread: ThreadId,
        (start_ns, end_ns): (u64, u64),
        category: Category,
        detail: &str,
        place: Place,
    ) {
        // The place of a packet that no device has, or that was not seen where it was, is inferred from other packets.
        let evidence = match place {
            Place::Paced | Place::Handed | Place::Unseen => Evidence::Modelled,
            Place::Queued | Place::Forwarded | Place::Link | Place::Elsewhere => Evidence::Measured,
        };
        let detail = Some(self.output.names.texts.add(detail));
        self.emit(thread, start_ns, end_ns, category, detail, None, None, None, evidence);
    }

    /// Where a channel's packets are in `[from_ns, to_ns)`, latest first. If one is in a device's queue and another is
    /// under way, the queue counts.
    fn places(&self, object: Object, from_ns: u64, to_ns: u64) -> Vec<(u64, u64, Place)> {
        let clip = |at_ns: u64| at_ns.clamp(from_ns, to_ns);
        let mut changes: Vec<(u64, [i64; 5])> = Vec::new();
        let channel = self.world.channels.get(&object);
        let Some(packets) = channel.map(|channel| &channel.packets) else {
            return vec![(from_ns, to_ns, Place::Elsewhere)];
        };
        // Packets are in order of sending; those under way at the beginning had been sent before.
        let first = count_before(packets, |packet| packet.sent_ns < from_ns);
        let packets = packets.range(first.saturating_sub(MOST_UNDER_WAY)..);
        let mut before: FxHashMap<u32, &Packet> = FxHashMap::default();
        for packet in packets {
            let Packet { queued_ns, sent_ns, received_ns, forwarded, .. } = *packet;
            if let Some(before) = before.insert(packet.device, packet) {
                let change = match between(before, packet) {
                    Some(Place::Paced) => [0, 0, 0, 1, 0],
                    Some(_) => [0, 0, 0, 0, 1],
                    None => [0; 5],
                };
                changes.push((clip(before.sent_ns), change));
                changes.push((clip(queued_ns), change.map(|one: i64| -one)));
            }
            if queued_ns >= to_ns {
                break;
            }
            let ended_ns = received_ns.unwrap_or(sent_ns);
            let (sender, router) = if forwarded { (0, 1) } else { (1, 0) };
            changes.push((clip(queued_ns), [sender, router, 0, 0, 0]));
            changes.push((clip(sent_ns), [-sender, -router, 1, 0, 0]));
            changes.push((clip(ended_ns), [0, 0, -1, 0, 0]));
        }
        changes.sort_unstable();
        let mut places: Vec<(u64, u64, Place)> = Vec::new();
        let (mut at_ns, mut now) = (from_ns, [0i64; 5]);
        for (change_ns, change) in changes.into_iter().chain([(to_ns, [0; 5])]) {
            if change_ns > at_ns {
                let place = match now.map(|count| count > 0) {
                    [true, ..] => Place::Queued,
                    [_, true, ..] => Place::Forwarded,
                    [_, _, true, ..] => Place::Link,
                    [_, _, _, true, _] => Place::Paced,
                    [_, _, _, _, true] => Place::Handed,
                    _ => Place::Elsewhere,
                };
                match places.last_mut() {
                    Some(last) if last.2 == place => last.1 = change_ns,
                    _ => places.push((at_ns, change_ns, place)),
                }
                at_ns = change_ns;
            }
            (0..now.len()).for_each(|i| now[i] += change[i]);
        }
        places.reverse();
        places
    }
}
