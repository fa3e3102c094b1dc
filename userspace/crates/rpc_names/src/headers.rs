//! Header blocks, as far as a request's method and status go.

use super::inflate::{Broken, Inflater};
use rpcprobe_record::{METHOD_REQUEST, METHOD_RESPONSE, METHOD_RESULT, METHOD_STATUS};

/// Most a peer may make its table, and what one of unknown size is taken to be.
const MOST_TABLE_BYTES: usize = 1 << 14;
/// What HPACK counts for an entry with neither name nor value.
const ENTRY_BYTES: usize = 32;

/// What a block says of its request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Headers {
    pub(super) path: Option<Vec<u8>>,
    /// `:status`
    pub(super) status: Option<i32>,
    /// `grpc-status`
    pub(super) result: Option<i32>,
    /// It has something that only requests have.
    pub(super) asks: bool,
}

impl Headers {
    /// For [`rpcprobe_record::RecMethod`].
    pub(super) fn flags_and_status(&self) -> (u8, i32) {
        match self {
            Headers { result: Some(result), .. } => (METHOD_RESPONSE | METHOD_RESULT, *result),
            Headers { status: Some(status), .. } => (METHOD_RESPONSE | METHOD_STATUS, *status),
            Headers { path, asks, .. } if *asks || path.is_some() => (METHOD_REQUEST, 0),
            _ => (0, 0),
        }
    }

    fn see(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":path" => self.path = Some(value.to_vec()),
            b":method" | b":scheme" | b":authority" => self.asks = true,
            b":status" => self.status = number(value),
            b"grpc-status" => self.result = number(value),
            _ => {}
        }
    }
}

fn number(value: &[u8]) -> Option<i32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A peer's table. What was put into it before the capture, or in blocks that were lost, is not known:
/// such entries have an empty name, which no header has.
pub(super) struct Table(Inflater);

impl Default for Table {
    /// That of a new connection.
    fn default() -> Table {
        Table(Inflater::new(MOST_TABLE_BYTES))
    }
}

impl Table {
    /// A table full of entries that are not known. Numbers of entries count from the latest, so later
    /// ones have theirs whatever the table's true size; that the peer has dropped more by then does not
    /// matter, as it does not speak of those.
    pub(super) fn unknown() -> Table {
        let mut table = Table::default();
        // Dynamic table size update: the most. Then literals with incremental indexing: no name, no
        // value.
        let mut block = vec![0x3f, 0xe1, 0x7f];
        block.extend([0x40, 0, 0].repeat(MOST_TABLE_BYTES / ENTRY_BYTES));
        table.0.decode(&block, |_, _| {}).expect("valid HPACK");
        table
    }

    /// Decodes a block; after an error the table is not known any more.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Headers> {
        let mut headers = Headers::default();
        match self.0.decode(block, |name, value| headers.see(name, value)) {
            Ok(()) => Some(headers),
            Err(Broken) => {
                *self = Table::unknown();
                None
            }
        }
    }
}
