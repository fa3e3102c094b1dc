//! HTTP/2 (RFC 9113), and gRPC in it. A unit is a frame, with its type and flags (`bpf/http2.h`). Paths and statuses
//! are decoded from header blocks, and come in records of their own.

use super::{End, Id, Method, Pairing, Place, Said, Speaks, Unit};
use rpcprobe_model::Kind;
use rpcprobe_record::PROTOCOL_HTTP2;

/// Frames (section 6), and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

pub(super) struct Http2;

impl Speaks for Http2 {
    fn kind(&self) -> Kind {
        Kind::Http2
    }

    fn number(&self) -> u8 {
        PROTOCOL_HTTP2
    }

    fn pairing(&self) -> Pairing {
        Pairing::ById(Id::Stream)
    }

    fn begins_message(&self, unit: &Unit) -> bool {
        unit.kind == HEADERS
    }

    /// Both ends send the same frames.
    fn sent_by_client(&self, _unit: &Unit) -> Option<bool> {
        None
    }

    fn place(&self, unit: &Unit, asks: bool) -> Place {
        match unit.kind {
            GOAWAY if !asks => Place::Refuses { above: unit.numbers[0] },
            // Clients' streams have odd numbers. Streams that the server pushes have even numbers and answer no
            // question of their own.
            _ if unit.id.is_multiple_of(2) => Place::None,
            HEADERS => Place::Begins,
            _ => Place::Continues,
        }
    }

    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End> {
        let is_last = match unit.kind {
            RST_STREAM => return Some(End::Reset { by_client: asks, code: unit.numbers[0] }),
            _ if asks => false,
            DATA => unit.flags & END_STREAM != 0,
            HEADERS => {
                said.ending = unit.flags & END_STREAM != 0;
                said.ending && unit.flags & END_HEADERS != 0
            }
            CONTINUATION => said.ending && unit.flags & END_HEADERS != 0,
            _ => false,
        };
        is_last.then_some(End::Answered)
    }

    fn read_result(&self, method: &Method, said: &mut Said) {
        // Interim statuses (100 and the like) come before the answer's own.
        let status = method.status.filter(|status| *status >= 200);
        said.status = status.or(said.status);
        said.result = method.result.or(said.result);
    }
}
