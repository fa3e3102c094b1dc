//! RESP, the protocol of Redis. A value is one unit; what a server sends unasked is aside (`bpf/resp.h`). A command's
//! name comes in a record of its own. The status is 1 for an error, and 0 otherwise.

use super::{ended, End, Pairing, Said, Speaks, Unit};
use rpcprobe_model::Kind;
use rpcprobe_record::{PROTOCOL_RESP, UNIT_ERROR, UNIT_RESPONSE};

pub(super) struct Resp;

impl Speaks for Resp {
    fn kind(&self) -> Kind {
        Kind::Resp
    }

    fn number(&self) -> u8 {
        PROTOCOL_RESP
    }

    fn pairing(&self) -> Pairing {
        Pairing::InOrder
    }

    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End> {
        if !asks && unit.kind == UNIT_RESPONSE {
            said.status = Some(i32::from(unit.flags & UNIT_ERROR != 0));
        }
        ended(unit)
    }
}
