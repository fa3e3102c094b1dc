//! Channels: pipes, and the directions of connections.

use crate::timeline::*;

/// A write to or read from a channel: bytes `[from, to)` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub from: u64,
    pub to: u64,
    pub thread: ThreadId,
    pub enter_ns: u64,
    pub exit_ns: u64,
    /// A datagram without payload.
    pub empty: bool,
    pub unsent: SendLimit,
}

impl Transfer {
    pub fn new(thread: ThreadId, call: &Call, io: &Io) -> Transfer {
        Transfer {
            from: io.offset,
            to: io.offset.saturating_add(io.bytes),
            thread,
            enter_ns: call.enter_ns,
            exit_ns: call.exit_ns,
            empty: io.empty,
            unsent: io.unsent,
        }
    }
}

/// What the messages of a channel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    Requests,
    Answers,
}

/// A call that connected a socket or accepted a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub thread: ThreadId,
    pub enter_ns: u64,
    pub exit_ns: u64,
    /// The call returned before the connection was established.
    pub pending: bool,
    /// For an accepted connection: when it was established, if that is known.
    pub established_ns: Option<u64>,
}

/// The last question that was read on a channel.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    last: Question,
    exit_ns: u64,
    before: Option<Question>,
}

impl Taken {
    /// The question of an answer whose write began at `enter_ns`. While a call still writes the answer, the next
    /// question may come and be read by another thread.
    pub fn by(&self, enter_ns: u64) -> Question {
        match self.before {
            Some(before) if self.exit_ns > enter_ns => before,
            _ => self.last,
        }
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// A direction of the connection.
    pub channel: Object,
    /// Whether this end sends on it, rather than reads from it.
    pub sends: bool,
    /// Which end was the first to send nothing more, as calls of this end have shown.
    pub ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Here,
    /// A call found this out when it returned.
    ByPeer {
        found_ns: u64,
    },
}

/// What a call has shown of the end of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// A direction of the connection, and whether the end that made the call sends on it.
    pub channel: Object,
    pub sends: bool,
    pub by: EndedBy,
    /// The other end had sent its last bytes before, or reset the connection.
    pub by_peer: bool,
    pub at_ns: u64,
}

/// How the end that made a call is done with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// It closed the socket.
    Close,
    /// It sends nothing more, and may still read.
    Shutdown,
    /// The other end sends nothing more.
    Peer,
}

#[derive(Debug, Default)]
pub struct Channel {
    /// In order of offset (of exit, which is the same unless writers race).
    pub writes: History<Transfer>,
    pub reads: History<Transfer>,
    pub first_write_ns: Option<u64>,
    /// The earliest time at which it can have been written to: before the first write seen, if records may have been
    /// lost.
    pub maybe_written_ns: Option<u64>,
    /// Whether a traced thread has written and read, also in a call still in progress.
    pub is_written: bool,
    pub is_read: bool,
    /// What its messages are, if that is known other than by which end writes first.
    pub role: Option<Carries>,
    /// For a flow of datagrams that may be older than the capture: what was seen of its begin, and whether it is
    /// doubtful which end asks ([`crate::timeline::datagram_roles`]).
    pub(super) flow: Option<FlowBegin>,
    pub role_is_doubtful: bool,
    /// The channel carries answers, as detection has reported ([`World::answers_on`]).
    pub answers: bool,
    /// Its name for users.
    pub name: Option<Arc<str>>,
    /// When it was named, which is just before it is first used.
    pub(super) named_ns: u64,
    /// On the network: the addresses of its source and destination.
    pub ends: Option<[SocketAddr; 2]>,
    /// The other direction of its connection, once anything was moved on it.
    pub(crate) reverse: Option<Object>,
    /// One of its ends was closed.
    pub(crate) closed: bool,
    /// Its packets on their way through devices, as they were sent.
    pub packets: History<Packet>,
    /// Arrivals of bytes that no traced thread has written: (byte up to which they had come to the reader's socket,
    /// time).
    pub arrivals: History<(u64, u64)>,
    /// Where messages begin, if its framing is known.
    pub heads: History<u64>,
    /// Where the first record of its last handshake of TLS begins, and the last one so far.
    handshake: Option<(u64, u64)>,
    /// When the kernel side had forgotten the channel and begun to count its bytes anew: bytes that lay in it were seen
    /// at one end only.
    pub forgotten_ns: Option<u64>,
    /// What its bytes are numbered from since then, and the end of all bytes so far.
    pub(super) base: u64,
    pub(super) end: u64,
    /// Whether its first byte has been read, and written: counted bytes begin once.
    begun: [bool; 2],
    /// If questions come on it: the last one that was read; the question for which the last one was asked, and whether
    /// that is sure; and what was asked for such questions.
    pub taken: Option<Taken>,
    pub asked_for: Option<(Question, bool)>,
    pub sakes: History<Sake>,
    /// It is in the list of those on which its writer's process asks.
    pub(crate) is_listed: bool,
    /// When questions were asked on it at will: it had not been in use since the question before.
    pub asked_at_will: History<u64>,
    /// Questions of two clients have been under way on it at a time.
    pub is_shared: bool,
    /// The channel of the question to which the last answer to what was asked on it was passed on.
    pub answered_to: Option<Object>,
    /// The call by which its writer opened the connection, if it was seen; and when the first write since began.
    pub connected: Option<Opening>,
    pub first_since_connected_ns: Option<u64>,
    /// The call by which its reader accepted the connection, if it was seen.
    pub accepted: Option<Opening>,
}

/// Limit of the bytes between the records of a handshake. (Certificates take a few kilobytes.)
const MOST_HANDSHAKE_BYTES: u64 = 1 << 17;

impl Channel {
    /// Notes a record of a handshake, which begins at `from`.
    pub(super) fn note_handshake(&mut self, from: u64) {
        let same = |(first, last): &(u64, u64)| {
            *first <= from && from.saturating_sub(*last) <= MOST_HANDSHAKE_BYTES
        };
        let (first, last) = self.handshake.filter(same).unwrap_or((from, from));
        self.handshake = Some((first, last.max(from)));
    }

    /// Whether what begins at `from` is part of a handshake of TLS.
    pub fn is_handshake(&self, from: u64) -> bool {
        self.handshake.is_some_and(|(first, last)| (first..=last).contains(&from))
    }

    /// The earliest time at which an end of its connection is known to have existed.
    pub(super) fn begun_ns(&self) -> u64 {
        let connected_ns = self.connected.map(|opening| opening.enter_ns);
        let accepted_ns = self.accepted.map(|opening| opening.exit_ns);
        connected_ns.into_iter().chain(accepted_ns).min().unwrap_or(self.named_ns)
    }

    /// Whether one of its ends has that port.
    pub fn has_port(&self, port: u16) -> bool {
        self.ends.is_some_and(|ends| ends.iter().any(|end| end.port() == port))
    }

    /// When it was last used, or named.
    pub(super) fn used_ns(&self) -> u64 {
        self.uses_ns().max().unwrap_or(0)
    }

    /// Whether it was used, or named, at `at_ns` or since then.
    pub(super) fn is_used_since(&self, at_ns: u64) -> bool {
        self.uses_ns().any(|used_ns| used_ns >= at_ns)
    }

    /// When it was named, and when it was last used in each way.
    fn uses_ns(&self) -> impl Iterator<Item = u64> + '_ {
        let moved = [&self.writes, &self.reads].into_iter().filter_map(|list| list.back());
        let moved_ns = moved.map(|moved| moved.exit_ns);
        let arrived_ns = self.arrivals.back().map(|(_, at_ns)| *at_ns);
        std::iter::once(self.named_ns).chain(moved_ns).chain(arrived_ns)
    }

    /// Its bytes are counted from the first one on again, except on TCP, which has its own numbers.
    pub(super) fn begin_anew(&mut self, object: Object, now_ns: u64) {
        if object.type_bits == TYPE_TCP {
            return;
        }
        self.forgotten_ns = Some(now_ns);
        self.begun = [false; 2];
        self.base = self.end;
    }

    /// Whether a pipe is counted from its first byte on. Pipes have no names, so that byte shows it.
    pub(super) fn begins_again(&mut self, io: &Io) -> bool {
        let first = io.object.type_bits == TYPE_FIFO && io.offset == 0 && io.bytes > 0;
        first && std::mem::replace(&mut self.begun[usize::from(io.is_write)], true)
    }

    /// Notes that a question has been read.
    pub(crate) fn take(&mut self, question: Question, exit_ns: u64) {
        let before = self.taken.map(|taken| taken.last);
        self.taken = Some(Taken { last: question, exit_ns, before });
    }

    pub(super) fn note(&mut self, is_write: bool) {
        *(if is_write { &mut self.is_written } else { &mut self.is_read }) = true;
    }

    /// Number of messages that lie wholly or partly in bytes `[from, to)`; 1 if the framing is not known.
    pub fn messages(&self, from: u64, to: u64) -> u32 {
        let begun = count_before(&self.heads, |head| *head <= from);
        let more = count_before(&self.heads, |head| *head < to).saturating_sub(begun);
        u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// When the byte came to its reader's socket; `None` if a traced thread has written it, or if it is not known.
    pub fn arrived_ns(&self, byte: u64) -> Option<u64> {
        if self.is_written {
            return None;
        }
        let first = count_before(&self.arrivals, |(end, _)| *end <= byte);
        let (_, at_ns) = *self.arrivals.get(first)?;
        // If the byte was read before that, it had come before: only the arrival of bytes behind it was reported.
        let read = Channel::find(&self.reads, byte);
        read.is_none_or(|read| at_ns <= read.exit_ns).then_some(at_ns)
    }

    pub(super) fn arrive(&mut self, end: u64, at_ns: u64) {
        if self.is_written || self.arrivals.back().is_some_and(|(known, _)| *known >= end) {
            return; // sent again
        }
        if self.arrivals.len() == MOST_ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((end, at_ns));
    }

    /// The transfers in `list` that moved bytes of `[from, to)`, in order of offset.
    #[inline]
    pub fn overlapping(
        list: &History<Transfer>,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = &Transfer> {
        let first = Channel::first_after(list, from);
        // There are few: looking them up one by one costs less than setting up a range of the list.
        (first..).map_while(move |at| list.get(at).filter(|t| from < to && t.from < to))
    }

    /// The index of the first transfer in `list` that moved anything from byte `at` on.
    fn first_after(list: &History<Transfer>, at: u64) -> usize {
        count_before(list, |t| t.to <= at)
    }

    /// The transfer in `list` that moved byte `at`.
    pub fn find(list: &History<Transfer>, at: u64) -> Option<&Transfer> {
        list.get(Channel::first_after(list, at)).filter(|t| t.from <= at)
    }
}
