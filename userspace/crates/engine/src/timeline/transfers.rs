//! Applies system calls to channels and files: bytes they move, objects they name, connections and files they
//! open.

use crate::timeline::*;

impl World {
    /// Notes the path by which a file has just been opened.
    pub(super) fn name_file(&mut self, file: FileId, path: Arc<str>) {
        if self.files.len() >= MOST_FILES {
            self.files.clear();
        }
        self.files.insert(file, path);
    }

    /// Notes connections that begin and end.
    pub(super) fn record_opening(&mut self, thread: ThreadId, call: &Call) {
        const EINPROGRESS: i64 = 115;
        self.over = None;
        if let Some(io) = call.io.filter(|io| io.object.is_datagram() && !io.object.is_channel()) {
            match call.nr {
                syscall::NR_CONNECT if call.ret == 0 => self.datagrams_connected(io.object.ino),
                syscall::NR_CLOSE => self.datagrams_closed(io.object.ino),
                _ => {}
            }
            return;
        }
        let Some(io) = call.io.filter(|io| io.object.is_stream() && !call.unfinished) else {
            return;
        };
        let opening = Opening {
            thread,
            enter_ns: call.enter_ns,
            exit_ns: call.exit_ns,
            pending: call.ret != 0,
            established_ns: call.accepted_of_ns().filter(|at_ns| *at_ns != 0),
        };
        let socket = io.object.ino;
        if call.accepted_of_ns().is_some() {
            self.accepted.insert(socket, opening);
        } else if call.nr == syscall::NR_CONNECT && [0, -EINPROGRESS].contains(&call.ret) {
            self.connected.insert(socket, opening);
            self.threads[thread as usize].marks.opened(call.enter_ns);
        } else if call.nr == syscall::NR_CLOSE {
            self.close(thread, socket, call);
        } else if call.nr == syscall::NR_SHUTDOWN && io.is_write && call.ret == 0 {
            self.gave_end(socket, call.enter_ns);
        } else if finds_end(call) {
            self.found_end(socket, call.exit_ns);
        }
    }

    /// The channel on which the questions of the connection come that a thread's call has accepted, if bytes were moved
    /// through it.
    pub(crate) fn accepted_by(&self, thread: ThreadId, call: &Call) -> Option<&Channel> {
        call.accepted_of_ns()?;
        let accepts = &self.thread(thread).accepts;
        let at = count_before(accepts, |(enter_ns, _)| *enter_ns < call.enter_ns);
        let (_, object) = accepts.get(at).filter(|(enter_ns, _)| *enter_ns == call.enter_ns)?;
        let channel = self.channels.get(object)?;
        // Another connection may have the same ports since.
        let same = |accepted: Opening| accepted.enter_ns == call.enter_ns;
        channel.accepted.is_some_and(same).then_some(channel)
    }

    /// A process closes its descriptor of a socket. This ends the connection if the process was the last to move
    /// anything on it. A process that was not may have passed the connection on, as a server that forks does.
    fn close(&mut self, thread: ThreadId, socket: u64, call: &Call) {
        let Some(&End { channel: object, sends, ended }) = self.sockets.get(&socket) else {
            return;
        };
        let process = self.thread(thread).process;
        let reverse = self.channels.get(&object).and_then(|channel| channel.reverse);
        let both = || [Some(object), reverse].into_iter().flatten();
        let moved = |channel: &Channel| {
            let last = channel.writes.back().into_iter().chain(channel.reads.back());
            last.into_iter().any(|last| self.thread(last.thread).process == process)
        };
        if !both().filter_map(|object| self.channels.get(&object)).any(moved) {
            return;
        }
        // A process that was forked since may have the descriptor, too.
        let begun = both().filter_map(|object| self.channels.get(&object)).map(Channel::begun_ns);
        let is_shared = begun.min().unwrap_or(0) < self.processes[process as usize].forked_ns;
        self.sockets.remove(&socket);
        for object in both() {
            if let Some(channel) = self.channels.get_mut(&object) {
                channel.closed = true;
            }
        }
        let receives = if sends { reverse } else { Some(object) };
        let by_peer = ended.is_some_and(|ended| self.is_by_peer(ended, receives));
        let at_ns = call.enter_ns;
        let over = Over { channel: object, sends, by_peer, by: EndedBy::Close, at_ns };
        self.over = Some(over).filter(|_| !is_shared);
        if let (Some(reverse), false) = (reverse, is_shared) {
            let ends = if sends { [reverse, object] } else { [object, reverse] };
            self.mark_close(thread, call, ends);
        }
    }

    /// A process sends nothing more through a socket.
    fn gave_end(&mut self, socket: u64, at_ns: u64) {
        let Some(end) = self.sockets.get_mut(&socket) else { return };
        let ended = *end.ended.get_or_insert(Ended::Here);
        let End { channel, sends, .. } = *end;
        let receives =
            if sends { self.channels.get(&channel).and_then(|c| c.reverse) } else { Some(channel) };
        let by_peer = self.is_by_peer(ended, receives);
        self.over = Some(Over { channel, sends, by_peer, by: EndedBy::Shutdown, at_ns });
    }

    /// Whether the other end was the first to end its direction. It was not if bytes were received later: calls also
    /// return 0 for an empty buffer.
    fn is_by_peer(&self, ended: Ended, receives: Option<Object>) -> bool {
        let Ended::ByPeer { found_ns } = ended else { return false };
        let last = receives.and_then(|channel| self.channels.get(&channel)?.reads.back());
        last.is_none_or(|last| last.exit_ns <= found_ns)
    }

    /// A call on a socket finds that the other end sends nothing more.
    fn found_end(&mut self, socket: u64, at_ns: u64) {
        let Some(end) = self.sockets.get_mut(&socket) else { return };
        end.ended.get_or_insert(Ended::ByPeer { found_ns: at_ns });
        let End { channel, sends, .. } = *end;
        self.over = Some(Over { channel, sends, by_peer: true, by: EndedBy::Peer, at_ns });
    }

    /// Numbers bytes that are counted anew so that they come after all earlier bytes of their channel.
    pub(super) fn renumber(&mut self, call: &mut Call) {
        let exit_ns = call.exit_ns;
        let more = call.rare.iter_mut().flat_map(|rare| &mut rare.more);
        let all = more.chain(&mut call.io);
        for io in all.filter(|io| io.is_transfer()) {
            if self.channels_forgotten == 0 && io.offset > 0 {
                continue;
            }
            let channel = self.channels.entry(io.object).or_default();
            if channel.begins_again(io) {
                self.channels_forgotten += 1;
                channel.begin_anew(io.object, exit_ns);
                channel.begins_again(io);
            }
            io.offset = io.offset.saturating_add(channel.base);
        }
    }

    /// The number from which a channel's bytes are counted, since they were last counted anew.
    pub fn base(&self, channel: Object) -> u64 {
        match self.channels_forgotten {
            0 => 0,
            _ => self.channels.get(&channel).map_or(0, |channel| channel.base),
        }
    }

    pub(super) fn record_transfers(&mut self, thread: ThreadId, call: &Call) {
        for io in call.transfers() {
            let transfer = Transfer::new(thread, call, io);
            // A splice first had to read what it writes.
            let gets = io.is_write && call.transfers().any(|io| !io.is_write);
            let begun_ns = if gets { call.exit_ns } else { call.enter_ns };
            let is_opened = self.bind_opening(io, begun_ns);
            let channel = self.channels.entry(io.object).or_default();
            channel.note(io.is_write);
            if io.is_write && channel.connected.is_some() {
                // A read of the answer, or of a greeting, may be reported before.
                channel.first_since_connected_ns.get_or_insert(begun_ns);
            }
            channel.end = channel.end.max(transfer.to);
            let list = if io.is_write { &mut channel.writes } else { &mut channel.reads };
            let is_first = list.is_empty() && io.object.is_socket();
            match count_before(list, |t| t.from <= transfer.from) {
                at if at < list.len() => list.insert(at, transfer),
                _ => list.push_back(transfer),
            }
            if io.is_write && channel.first_write_ns.is_none() {
                channel.first_write_ns = Some(begun_ns);
                let lost_ns = self.begin_lost_ns(io.object, io.reverse, io.offset);
                let channel = self.channels.entry(io.object).or_default();
                channel.maybe_written_ns = Some(lost_ns.map_or(begun_ns, |ns| ns.min(begun_ns)));
            }
            if is_first || is_opened {
                self.note_connection(io);
            }
            if is_first && io.object.is_datagram() {
                self.note_flow(io, begun_ns);
            }
            self.mark(thread, call, io);
        }
    }

    /// The first bytes that are moved through a socket show which connection was opened by it, or accepted. The end
    /// that opened the connection asks, whichever end writes first (a server may greet).
    fn bind_opening(&mut self, io: &Io, begun_ns: u64) -> bool {
        let socket = u64::from(io.socket);
        let connected = self.connected.remove(&socket);
        let accepted = if connected.is_none() { self.accepted.remove(&socket) } else { None };
        // The end that connected writes questions; the end that accepted reads them.
        let (asked, answer) = match (connected.is_some(), accepted.is_some()) {
            (false, false) => return false,
            (by_client, _) if by_client == io.is_write => (Some(io.object), io.reverse),
            _ => (io.reverse, Some(io.object)),
        };
        if let Some(asked) = asked {
            let channel = self.channels.entry(asked).or_default();
            if connected.is_some() {
                channel.connected = connected;
                channel.first_since_connected_ns = Some(begun_ns).filter(|_| io.is_write);
            } else {
                channel.accepted = accepted;
                if let Some(accepted) = accepted {
                    let accepts = &mut self.threads[accepted.thread as usize].accepts;
                    let at = count_before(accepts, |(enter_ns, _)| *enter_ns < accepted.enter_ns);
                    accepts.insert(at, (accepted.enter_ns, asked));
                }
            }
        }
        self.know_roles(asked, answer);
        true
    }

    /// Notes which of two channels carries requests, whichever was written first.
    pub(super) fn know_roles(&mut self, asked: Option<Object>, answer: Option<Object>) {
        let known = [(asked, Carries::Requests, 0), (answer, Carries::Answers, NEVER)];
        for (object, role, first_write_ns) in known {
            let Some(object) = object else { continue };
            let channel = self.channels.entry(object).or_default();
            channel.role = Some(role);
            channel.closed = false; // another connection may have had the same ports
            channel.first_write_ns = Some(first_write_ns);
            channel.maybe_written_ns = Some(first_write_ns);
        }
    }

    /// Notes the first bytes, as far as is remembered, that one end moves in one direction of a connection. From then
    /// on the other direction exists, too, even if nothing comes on it for long.
    fn note_connection(&mut self, io: &Io) {
        if io.socket != 0 {
            let end = End { channel: io.object, sends: io.is_write, ended: None };
            self.sockets.insert(u64::from(io.socket), end);
        }
        let Some(reverse) = io.reverse else { return };
        for (object, other) in [(io.object, reverse), (reverse, io.object)] {
            self.channels.entry(object).or_default().reverse = Some(other);
        }
    }

    /// Since when a channel, whose first bytes so far are those from `offset` on, may have had earlier bytes whose
    /// records were lost; `None`: these are its first bytes.
    pub fn begin_lost_ns(
        &self,
        object: Object,
        reverse: Option<Object>,
        offset: u64,
    ) -> Option<u64> {
        // TCP's numbers begin anywhere.
        if offset == 0 && object.type_bits != TYPE_TCP {
            return None;
        }
        let opened = |object| {
            let channel: &Channel = self.channels.get(&object)?;
            let connected_ns = channel.connected.map(|opening| opening.enter_ns);
            connected_ns.or(channel.accepted.and_then(|opening| opening.established_ns))
        };
        let opened_ns = [Some(object), reverse].into_iter().flatten().filter_map(opened).min();
        self.losses.first(opened_ns.unwrap_or(0), self.now_ns)
    }

    /// Which of the two channels was written to first; `None`: the record of that was lost.
    pub fn first_written(&self, a: Object, b: Object) -> Option<Object> {
        let times = |object| {
            let channel = self.channels.get(&object);
            let first = channel.and_then(|c| Some((c.maybe_written_ns?, c.first_write_ns?)));
            first.unwrap_or((NEVER, NEVER))
        };
        let (of_a, of_b) = (times(a), times(b));
        // One's latest possible time is before the other's earliest.
        if of_a.1 <= of_b.0 {
            return Some(a);
        }
        if of_b.1 <= of_a.0 {
            return Some(b);
        }
        // The end that opened a connection asks.
        let opened = |object| self.channels.get(&object).is_some_and(|c| c.connected.is_some());
        [a, b].into_iter().find(|object| opened(*object))
    }
}

/// Whether a call on a stream socket shows that the other end has closed the connection or reset it (tcp_recvmsg(),
/// tcp_sendmsg(), net/ipv4/tcp.c). A recvmsg() that returns 0 may have read the socket's queue of errors.
fn finds_end(call: &Call) -> bool {
    const ECONNRESET: i64 = 104;
    const EPIPE: i64 = 32;
    match call.ret {
        0 => syscall::reads_bytes(call.nr),
        ret => [-ECONNRESET, -EPIPE].contains(&ret),
    }
}
