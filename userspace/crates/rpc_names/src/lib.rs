//! What requests call: while the capture runs, the header blocks and request lines that the kernel side sends are
//! reduced to a path and a status. Nothing else of them is kept.
//!
//! The pieces of a connection's header blocks must be decoded in order, because HPACK refers to what was sent before.
//! But the pieces may come from the rings of several CPUs. A piece that arrives ahead of its turn waits, and holds back
//! its CPU's watermark, until all older records have been taken out of every ring. If its predecessor has not arrived
//! by then, the predecessor is lost. (One drain of each ring is not enough: if a program is preempted while it fills a
//! record, the records that others put behind it cannot be taken yet.)

mod blocks;
mod headers;
mod http1;
mod inflate;
mod resp;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use zerocopy::IntoBytes;

use blocks::{Blocks, Whole};
use headers::{Headers, Table};
use rpcprobe_record::{
    self as records, RecHdr, RecHeaderBlock, RecLine, RecMethod, METHOD_REQUEST, PATH_BYTES,
    PIECE_AFTER_GAP, PIECE_BEGIN, PIECE_READER, PROTOCOL_HTTP1, PROTOCOL_RESP, REC_HEADER_BLOCK,
    REC_LINE, REC_METHOD,
};

/// Extracts the name from a line.
type Name = fn(&[u8]) -> Option<Vec<u8>>;

/// How a line names its request, by protocol. HTTP/2 has header blocks instead of lines.
const LINES: [(u8, Name); 2] = [(PROTOCOL_HTTP1, http1::method), (PROTOCOL_RESP, resp::name)];

/// Maximum number of streams decoded at a time. Beyond it, the stream that has been idle longest is forgotten.
const MOST_STREAMS: usize = 4096;
/// Maximum number of pieces of one direction that wait for their turn.
const MOST_AHEAD: usize = 4096;

/// Decodes what requests call while a capture runs.
#[derive(Default)]
pub struct Methods {
    /// Streams by channel and by the side that saw them.
    streams: FxHashMap<(u64, bool), Stream>,
    done: Vec<(u32, Vec<u8>)>,
    /// Keys of the streams that hold pieces ahead of their turn.
    holding: Vec<(u64, bool)>,
    round: u64,
}

/// One direction of a connection, as seen by one side.
#[derive(Default)]
struct Stream {
    table: Table,
    blocks: Blocks,
    /// Sequence number of the next piece to decode.
    next: u32,
    ahead: BTreeMap<u32, Piece>,
    used_round: u64,
}

/// A piece of a header block, and the CPU it came from.
struct Piece {
    cpu: u32,
    record: RecHeaderBlock,
    bytes: Box<[u8]>,
}

impl Methods {
    /// Takes a record if it is of a kind that is not kept; returns whether it did.
    pub fn take(&mut self, cpu: u32, record: &[u8]) -> bool {
        let Some((hdr, _)) = records::read::<RecHdr>(record) else { return false };
        match hdr.kind {
            REC_HEADER_BLOCK => self.piece(cpu, record),
            REC_LINE => self.line(cpu, record),
            _ => return false,
        }
        true
    }

    /// To be called when the rings have been drained again and all records before `complete_ns` have been taken out of
    /// each. Returns the resulting records.
    pub fn drained(&mut self, complete_ns: u64) -> Vec<(u32, Vec<u8>)> {
        self.round += 1;
        for key in std::mem::take(&mut self.holding) {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            while let Some((&first, piece)) = stream.ahead.first_key_value() {
                // The thread that sent or read this piece had the connection after the thread that did so with the
                // previous piece. The previous piece's record was complete by then.
                if piece.record.hdr.ts_ns >= complete_ns {
                    self.holding.push(key);
                    break;
                }
                stream.skip_to(first, &mut self.done);
            }
        }
        std::mem::take(&mut self.done)
    }

    /// Decodes what is left: no more pieces will arrive.
    pub fn finish(&mut self) -> Vec<(u32, Vec<u8>)> {
        for key in std::mem::take(&mut self.holding) {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            while let Some((&first, _)) = stream.ahead.first_key_value() {
                stream.skip_to(first, &mut self.done);
            }
        }
        std::mem::take(&mut self.done)
    }

    /// Time of the oldest record of this CPU that is still held back.
    pub fn held_ns(&self, cpu: u32) -> u64 {
        let held = self.holding.iter().filter_map(|key| self.streams.get(key));
        let pieces = held.flat_map(|stream| stream.ahead.values());
        let times = pieces.filter(|piece| piece.cpu == cpu).map(|piece| piece.record.hdr.ts_ns);
        times.min().unwrap_or(u64::MAX)
    }

    fn piece(&mut self, cpu: u32, record: &[u8]) {
        let Some((record, rest)) = records::read::<RecHeaderBlock>(record) else { return };
        let Some(bytes) = rest.get(..record.piece_bytes as usize) else { return };
        let key = (record.channel, record.hdr.flags & PIECE_READER != 0);
        if !self.streams.contains_key(&key) && self.streams.len() >= MOST_STREAMS {
            self.forget_one();
        }
        let round = self.round;
        // If the stream was forgotten or began before the capture, its first pieces never arrive. Then nothing is known
        // about its table.
        let stream = self.streams.entry(key).or_default();
        stream.used_round = round;
        if record.sequence < stream.next {
            // The kernel side has forgotten the stream and begun again.
            *stream = Stream { used_round: round, ..Stream::default() };
        }
        let sequence = record.sequence;
        stream.ahead.insert(sequence, Piece { cpu, record, bytes: bytes.into() });
        stream.go_on(&mut self.done);
        if stream.ahead.len() > MOST_AHEAD {
            let first = stream.ahead.first_key_value().map_or(0, |(first, _)| *first);
            stream.skip_to(first, &mut self.done);
        }
        if !stream.ahead.is_empty() && !self.holding.contains(&key) {
            self.holding.push(key);
        }
    }

    fn forget_one(&mut self) {
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.used_round);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.streams.remove(&key);
        }
    }

    fn line(&mut self, cpu: u32, record: &[u8]) {
        let Some((record, rest)) = records::read::<RecLine>(record) else { return };
        let Some(bytes) = rest.get(..record.line_bytes as usize) else { return };
        let by_protocol = LINES.iter().find(|(protocol, _)| *protocol == record.protocol);
        let path = by_protocol.and_then(|(_, name)| name(bytes));
        let method = RecMethod {
            hdr: RecHdr { kind: REC_METHOD, flags: METHOD_REQUEST, ..record.hdr },
            channel: record.channel,
            offset: record.offset,
            id: 0,
            status: 0,
            path_bytes: 0,
            object_type: record.object_type,
            pad: 0,
        };
        self.done.push((cpu, encode(method, &path.unwrap_or_default())));
    }
}

impl Stream {
    /// Decodes the pieces whose turn it is.
    fn go_on(&mut self, done: &mut Vec<(u32, Vec<u8>)>) {
        while let Some(piece) = self.ahead.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
            if piece.record.hdr.flags & PIECE_AFTER_GAP != 0 {
                self.lose();
            }
            if piece.record.hdr.flags & PIECE_BEGIN != 0 {
                self.blocks = Blocks::default();
                self.table = Table::default();
            }
            match self.blocks.push(&piece.record, &piece.bytes) {
                Whole::NotYet => {}
                Whole::Broken => self.table = Table::unknown(),
                Whole::Block { offset, id, bytes } => {
                    let headers = self.table.decode(&bytes).unwrap_or_default();
                    done.push((piece.cpu, told(&piece.record, offset, id, &headers)));
                }
            }
        }
    }

    /// Continues with piece `first`: the pieces before it will not arrive.
    fn skip_to(&mut self, first: u32, done: &mut Vec<(u32, Vec<u8>)>) {
        self.lose();
        self.next = first;
        self.go_on(done);
    }

    fn lose(&mut self) {
        self.blocks = Blocks::default();
        self.table = Table::unknown();
    }
}

fn told(last: &RecHeaderBlock, offset: u64, id: u32, headers: &Headers) -> Vec<u8> {
    let (flags, status) = headers.flags_and_status();
    let method = RecMethod {
        hdr: RecHdr { kind: REC_METHOD, flags, ..last.hdr },
        channel: last.channel,
        offset,
        id,
        status,
        path_bytes: 0,
        object_type: last.object_type,
        pad: 0,
    };
    encode(method, headers.path.as_deref().unwrap_or_default())
}

/// Encodes the record with its path, which is cut at the query.
fn encode(mut method: RecMethod, path: &[u8]) -> Vec<u8> {
    let path = path.split(|&b| b == b'?').next().unwrap_or_default();
    let path = &path[..path.len().min(PATH_BYTES)];
    method.path_bytes = path.len() as u32;
    [method.as_bytes(), path].concat()
}

#[cfg(test)]
mod tests;
