//! HTTP/1 (RFC 9112). A message is its head and its body in units (`bpf/http1.h`). The first number of a question's
//! head is the first four letters of the method; that of an answer's head is the status. The second number is the
//! length of the head in bytes. The method's name comes in a record of its own.

use super::{ended, End, Pairing, Said, Speaks, Unit};
use rpcprobe_model::Kind;
use rpcprobe_record::{PROTOCOL_HTTP1, UNIT_MORE, UNIT_RESPONSE};

/// "HEAD"
const HEAD: u32 = 0x4845_4144;

pub(super) struct Http1;

impl Speaks for Http1 {
    fn kind(&self) -> Kind {
        Kind::Http1
    }

    fn number(&self) -> u8 {
        PROTOCOL_HTTP1
    }

    fn pairing(&self) -> Pairing {
        Pairing::InOrder
    }

    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End> {
        if unit.kind != UNIT_MORE {
            said.head_only = asks && unit.numbers[0] == HEAD;
            said.head_bytes = u64::from(unit.numbers[1]);
        }
        if !asks && unit.kind == UNIT_RESPONSE {
            let status = i32::try_from(unit.numbers[0]).ok();
            said.status = status.filter(|_| unit.status_known);
        }
        ended(unit)
    }
}
