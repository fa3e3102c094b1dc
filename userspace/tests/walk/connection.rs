//! A connection in a story.

use rpcprobe::engine::event::Object;

use super::story::*;

/// Both directions of a connection, as seen from the client.
pub struct Connection {
    pub there: Object,
    pub back: Object,
    pub sockets: [Object; 2],
}

impl Connection {
    pub fn new(type_bits: u16) -> Connection {
        Connection::numbered(1, type_bits)
    }

    pub fn numbered(number: u64, type_bits: u16) -> Connection {
        Connection {
            there: connection(2 * number, type_bits),
            back: connection(2 * number + 1, type_bits),
            sockets: [socket(70 + 2 * number, type_bits), socket(71 + 2 * number, type_bits)],
        }
    }

    pub fn asks(&self, s: &mut Story, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(0, tid, (SENDTO, self.there, self.back), bytes, span);
    }

    pub fn hears(&self, s: &mut Story, cpu: u32, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(cpu, tid, (RECVFROM, self.there, self.back), bytes, span);
    }

    /// As `asks`, for a connection that was opened or accepted as this socket.
    pub fn asks_through(
        &self,
        s: &mut Story,
        fd: u32,
        tid: u32,
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        s.moved_through(fd, (0, tid), (SENDTO, self.there, self.back), bytes, span);
    }

    pub fn hears_through(
        &self,
        s: &mut Story,
        fd: u32,
        tid: u32,
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        s.moved_through(fd, (1, tid), (RECVFROM, self.there, self.back), bytes, span);
    }

    pub fn answers(&self, s: &mut Story, cpu: u32, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(cpu, tid, (SENDTO, self.back, self.there), bytes, span);
    }

    pub fn gets_through(
        &self,
        s: &mut Story,
        fd: u32,
        tid: u32,
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        s.moved_through(fd, (0, tid), (RECVFROM, self.back, self.there), bytes, span);
    }

    pub fn gets(&self, s: &mut Story, tid: u32, bytes: (u64, i64), span: (u64, u64)) {
        s.moved(0, tid, (RECVFROM, self.back, self.there), bytes, span);
    }
}
