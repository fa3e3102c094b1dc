//! Decodes header blocks, as far as needed for a request's method and status.

use super::inflate::{Broken, Inflater};
use rpcprobe_record::{METHOD_REQUEST, METHOD_RESPONSE, METHOD_RESULT, METHOD_STATUS};

/// Maximum size to which a peer may set its table; also assumed if the size is not known.
const MOST_TABLE_BYTES: usize = 1 << 14;
/// Size that HPACK counts for an entry with neither name nor value.
const ENTRY_BYTES: usize = 32;

/// The request's headers found in a block.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Headers {
    pub(super) path: Option<Vec<u8>>,
    /// `:status`
    pub(super) status: Option<i32>,
    /// `grpc-status`
    pub(super) result: Option<i32>,
    /// The block has a header that only requests have.
    pub(super) asks: bool,
}

impl Headers {
    /// The flags and the status for [`rpcprobe_record::RecMethod`].
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

/// A peer's table. Entries that were added before the capture, or in lost blocks, are not known. Such an entry has an
/// empty name, which no header has.
pub(super) struct Table(Inflater);

impl Default for Table {
    /// The table of a new connection.
    fn default() -> Table {
        Table(Inflater::new(MOST_TABLE_BYTES))
    }
}

impl Table {
    /// Returns a table full of unknown entries. Entries are numbered from the latest one, so later entries get their
    /// right numbers whatever the true size of the table. The peer may have dropped more entries by then, but it does
    /// not refer to those, so this does no harm.
    pub(super) fn unknown() -> Table {
        let mut table = Table::default();
        // Dynamic table size update to the maximum. Then literals with incremental indexing, with no name and no value.
        let mut block = vec![0x3f, 0xe1, 0x7f];
        block.extend([0x40, 0, 0].repeat(MOST_TABLE_BYTES / ENTRY_BYTES));
        table.0.decode(&block, |_, _| {}).expect("valid HPACK");
        table
    }

    /// Decodes a block. After an error, the table's entries are no longer known.
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
