//! ONC RPC (RFC 5531). A unit is a fragment of a record, or a datagram (`bpf/oncrpc.h`). The numbers of a call are its
//! program, version and procedure. The first number of a reply is the status, if known.

use super::{End, Id, Pairing, Place, Said, Speaks, Unit};
use rpcprobe_model::Kind;
use rpcprobe_record::{PROTOCOL_ONCRPC, UNIT_LAST, UNIT_MORE, UNIT_REQUEST, UNIT_RESPONSE};

pub(super) struct OncRpc;

impl Speaks for OncRpc {
    fn kind(&self) -> Kind {
        Kind::OncRpc
    }

    fn number(&self) -> u8 {
        PROTOCOL_ONCRPC
    }

    fn pairing(&self) -> Pairing {
        Pairing::ById(Id::Xid)
    }

    /// The reply has the call's number.
    fn proves_itself(&self) -> bool {
        true
    }

    /// Calls in the other direction (NFS has them) are not followed.
    fn place(&self, unit: &Unit, asks: bool) -> Place {
        match unit.kind {
            UNIT_MORE => Place::More,
            UNIT_REQUEST if !asks => Place::None,
            UNIT_RESPONSE if asks => Place::None,
            _ => Place::Begins,
        }
    }

    /// A call's numbers are its name.
    fn is_named(&self, _unit: &Unit) -> bool {
        false
    }

    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End> {
        if asks {
            if said.method.is_none() && unit.kind == UNIT_REQUEST {
                let [program, version, procedure] = unit.numbers;
                said.method = Some(format!("{program}.{version}.{procedure}"));
            }
            return None;
        }
        if unit.status_known {
            said.status = i32::try_from(unit.numbers[0]).ok();
        }
        (unit.flags & UNIT_LAST != 0).then_some(End::Answered)
    }
}
