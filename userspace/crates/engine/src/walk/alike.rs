//! Requests whose messages were moved by the same calls: their walks find the same.

use crate::walk::*;

/// The first and the last call that read part of a message; and that wrote part of it.
type MovedBy = [Option<(Transfer, Transfer)>; 2];

/// What a walk uses of a message's place among the bytes of its channel.
#[derive(PartialEq, Eq)]
struct Place {
    moved_by: MovedBy,
    /// When its begin and its end arrived, from an untraced peer.
    arrived_ns: [Option<u64>; 2],
}

fn moved_by(channel: &Channel, message: &Message) -> MovedBy {
    [&channel.reads, &channel.writes].map(|list| {
        let mut all = Channel::overlapping(list, message.from, message.to);
        let first = *all.next()?;
        Some((first, all.last().copied().unwrap_or(first)))
    })
}

/// `None`: the message is like no other. Of the messages that a read brought, the message with the read's last byte is
/// sent when the link is ready for it, as far as packets show ([`Walk::link_bound`]).
fn place(world: &World, message: &Message) -> Option<Place> {
    let channel = world.channels.get(&message.object)?;
    let last = message.to.checked_sub(1)?;
    let moved_by = moved_by(channel, message);
    let arrived_ns = [message.from, last].map(|byte| channel.arrived_ns(byte));
    let is_last = moved_by[0].is_some_and(|(first, _)| first.to <= message.to);
    (!is_last || channel.packets.is_empty()).then_some(Place { moved_by, arrived_ns })
}

/// Whether the same calls moved two messages.
pub(super) fn moved_by_same(world: &World, one: &Message, other: &Message) -> bool {
    let channel = world.channels.get(&one.object).filter(|_| one.object == other.object);
    channel.is_some_and(|channel| moved_by(channel, one) == moved_by(channel, other))
}

/// Whether two messages came in the same way, as far as a walk can see.
fn came_alike(world: &World, one: &Message, other: &Message) -> bool {
    let place = place(world, one);
    one.object == other.object && place.is_some() && place == self::place(world, other)
}

/// Whether the walks of two requests are the same, segment by segment, as long as nothing is added to the world. This
/// holds if the requests began and ended together, and the same calls moved their corresponding messages.
pub fn alike(world: &World, one: &Goal, other: &Goal) -> bool {
    let but_for_messages = |goal: &Goal| {
        let Goal { start_ns, end_ns, client, client_process, .. } = *goal;
        let Goal { server_process, answerer, child, handed, passed, .. } = *goal;
        (start_ns, end_ns, client, client_process, server_process, answerer, child, handed, passed)
    };
    let (ours, theirs) = (&one.messages, &other.messages);
    but_for_messages(one) == but_for_messages(other)
        && ours.len() == theirs.len()
        && !ours.is_empty()
        && ours.iter().zip(theirs).all(|(ours, theirs)| came_alike(world, ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Packet, TYPE_TCP};

    /// Two reads, of bytes 0 to 100 and 100 to 200. Bytes up to 120 came at 5, the others at 6. There are packets of
    /// them, or none.
    fn world(packets: bool) -> (World, Object) {
        let mut world = World::new(1, 0);
        let object = Object { dev: 1, ino: 1, type_bits: TYPE_TCP };
        let channel = world.channels.entry(object).or_default();
        for (number, from) in [0, 100].into_iter().enumerate() {
            let (enter_ns, exit_ns) = (10 * number as u64 + 10, 10 * number as u64 + 15);
            let (to, unsent) = (from + 100, Default::default());
            channel.reads.push_back(Transfer {
                from,
                to,
                thread: 1,
                enter_ns,
                exit_ns,
                empty: false,
                unsent,
            });
        }
        channel.arrivals.extend([(120, 5), (200, 6)]);
        if packets {
            let received_ns = Some(3);
            channel.packets.push_back(Packet { received_ns, ..Packet::new((0, 200), (1, 2)) });
        }
        (world, object)
    }

    fn goal(object: Object, (from, to): (u64, u64), end_ns: u64) -> Goal {
        Goal { messages: vec![Message { object, from, to }], ..Goal::new(5, end_ns, (1, 0)) }
    }

    #[test]
    fn messages_that_the_same_call_moved_are_alike() {
        let (world, object) = world(false);
        let alike = |one, other| alike(&world, &goal(object, one, 50), &goal(object, other, 50));
        assert!(alike((0, 10), (40, 100)));
        assert!(!alike((0, 10), (150, 160)), "another read");
        assert!(!alike((0, 10), (90, 110)), "two reads");
        assert!(!alike((100, 110), (150, 160)), "they arrived apart");
        assert!(alike((150, 160), (190, 200)));
        let later = goal(object, (0, 10), 51);
        assert!(!super::alike(&world, &goal(object, (0, 10), 50), &later), "they ended apart");
    }

    #[test]
    fn the_last_message_of_a_read_has_its_packets_for_itself() {
        let (world, object) = world(true);
        let alike = |one, other| alike(&world, &goal(object, one, 50), &goal(object, other, 50));
        assert!(alike((0, 10), (40, 90)) && !alike((0, 10), (40, 100)));
    }
}
