//! Assembles header blocks from the pieces of their frames (RFC 9113, section 4.3).

use rpcprobe_record::RecHeaderBlock;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Maximum size of a block: more than peers commonly accept.
const MOST_BYTES: usize = 1 << 16;

/// A block that is being assembled.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Offset and stream of the block's HEADERS frame.
    offset: u64,
    id: u32,
    /// The payload of the current frame, as far as it has been received.
    frame: Vec<u8>,
    block: Vec<u8>,
    within: bool,
    too_large: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Whole {
    NotYet,
    /// The complete block `bytes` that began with the HEADERS frame at `offset`.
    Block {
        offset: u64,
        id: u32,
        bytes: Vec<u8>,
    },
    /// Part of the block is missing.
    Broken,
}

impl Blocks {
    pub(super) fn push(&mut self, piece: &RecHeaderBlock, bytes: &[u8]) -> Whole {
        let begins = piece.at == 0;
        if begins {
            self.frame.clear();
            let first = matches!(piece.kind, HEADERS | PUSH_PROMISE);
            if first {
                (self.offset, self.id) = (piece.offset, piece.id);
                self.block.clear();
                (self.within, self.too_large) = (true, false);
            }
        }
        if !self.within || self.frame.len() != piece.at as usize {
            *self = Blocks::default();
            return Whole::Broken;
        }
        if self.block.len() + self.frame.len() + bytes.len() > MOST_BYTES {
            *self = Blocks::default();
            return Whole::Broken;
        }
        self.frame.extend_from_slice(bytes);
        if self.frame.len() < piece.frame_bytes as usize {
            return Whole::NotYet;
        }
        let Some(fragment) = fragment(piece, &self.frame) else {
            *self = Blocks::default();
            return Whole::Broken;
        };
        self.block.extend_from_slice(fragment);
        self.frame.clear();
        if piece.flags & END_HEADERS == 0 {
            return Whole::NotYet;
        }
        self.within = false;
        Whole::Block { offset: self.offset, id: self.id, bytes: std::mem::take(&mut self.block) }
    }
}

/// Returns the part of a frame's payload that belongs to the block.
fn fragment<'f>(piece: &RecHeaderBlock, frame: &'f [u8]) -> Option<&'f [u8]> {
    let (padded, priority) = match piece.kind {
        HEADERS => (piece.flags & PADDED != 0, if piece.flags & PRIORITY != 0 { 5 } else { 0 }),
        PUSH_PROMISE => (piece.flags & PADDED != 0, 4),
        _ => (false, 0),
    };
    let padding = if padded { usize::from(*frame.first()?) } else { 0 };
    frame.get(usize::from(padded) + priority..frame.len().checked_sub(padding)?)
}
