//! What the engine knows of each protocol, one file a protocol, and the table of protocols. The kernel side finds where
//! messages begin and end. The files here say what the messages mean: which question an answer is to, which end asks,
//! how an exchange ended and what it called. How exchanges are kept and timed is the same for all protocols
//! (`detect/framed`).

mod http1;
mod http2;
mod oncrpc;
mod resp;
mod unit;

use rpcprobe_model::Kind;
use rpcprobe_record::{UNIT_ASIDE, UNIT_LAST, UNIT_MORE, UNIT_OPEN, UNIT_REQUEST, UNIT_RESPONSE};

pub use unit::{Method, Unit};

/// The table: a line a protocol.
macro_rules! protocols {
    ($($name:ident = $speaks:path),+ $(,)?) => {
        /// The protocol of a byte stream.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Protocol {
            $($name),+
        }

        const ALL: &[Protocol] = &[$(Protocol::$name),+];

        impl Protocol {
            /// The protocol's implementation.
            fn facts(self) -> &'static dyn Speaks {
                match self {
                    $(Protocol::$name => &$speaks),+
                }
            }
        }
    };
}

protocols! {
    Http2 = http2::Http2,
    OncRpc = oncrpc::OncRpc,
    Http1 = http1::Http1,
    Resp = resp::Resp,
}

/// How answers are paired with questions.
///
/// An answer of many messages that lasts until the server says so needs no pairing of its own. With either pairing, its
/// units up to the one with `UNIT_LAST` are one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// By a number in both, which is reported as this kind of number.
    ById(Id),
    /// The nth answer is to the nth question.
    InOrder,
}

/// What the number of an exchange means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Stream,
    /// The number of a question that may be sent again.
    Xid,
}

/// How a unit relates to the exchanges of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Part of no exchange, or of an exchange that is not followed.
    None,
    /// A question or an answer may begin with it.
    Begins,
    /// Part of an exchange that has begun, by its number.
    Continues,
    /// Part of the message before it on its channel.
    More,
    /// The server goes away, and has not looked at exchanges with higher numbers.
    Refuses { above: u32 },
}

/// How an exchange ended, according to its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// Its answer ends with the connection.
    UntilClose,
    /// One end gave the exchange up, with this error code.
    Reset {
        by_client: bool,
        code: u32,
    },
    /// The server goes away, and has not looked at the exchange.
    Refused,
}

/// What a protocol's messages say of an exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// The method that is called.
    pub(crate) method: Option<String>,
    /// The protocol's own status.
    pub(crate) status: Option<i32>,
    /// The status of the protocol that is spoken inside it, if that has one. It takes precedence over `status`.
    pub(crate) result: Option<i32>,
    /// A frame has ended the answer, except for more of the frame's headers.
    ending: bool,
    /// The answer has no body, whatever its head says.
    pub(crate) head_only: bool,
    /// Bytes of the answer's head.
    pub(crate) head_bytes: u64,
}

/// A protocol. The default methods are what most protocols have in common.
trait Speaks: Sync {
    /// The kind of its requests.
    fn kind(&self) -> Kind;

    /// `PROTOCOL_*` of records.
    fn number(&self) -> u8;

    fn pairing(&self) -> Pairing;

    /// Whether a complete exchange shows by itself that the protocol is this one.
    fn proves_itself(&self) -> bool {
        false
    }

    /// Whether a question or an answer begins with the unit.
    fn begins_message(&self, unit: &Unit) -> bool {
        matches!(unit.kind, UNIT_REQUEST | UNIT_RESPONSE)
    }

    /// Whether the client sent the unit; `None`: the unit does not show it.
    fn sent_by_client(&self, unit: &Unit) -> Option<bool> {
        match unit.kind {
            UNIT_REQUEST => Some(true),
            UNIT_RESPONSE | UNIT_ASIDE => Some(false),
            _ => None,
        }
    }

    /// The unit's place; `asks`: the client sent it.
    fn place(&self, unit: &Unit, asks: bool) -> Place {
        match unit.kind {
            UNIT_ASIDE => Place::None,
            UNIT_MORE => Place::More,
            kind if (kind == UNIT_REQUEST) == asks => Place::Begins,
            _ => Place::None,
        }
    }

    /// Whether a later [`Method`] says what the unit's message calls or how it ended.
    fn is_named(&self, unit: &Unit) -> bool {
        unit.named
    }

    /// Notes what a unit says. Returns how the message ended, if it ended with this unit.
    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End>;

    /// Notes how an answer ended, as a later record says.
    fn read_result(&self, _method: &Method, _said: &mut Said) {}
}

impl Protocol {
    /// The protocol with that number in records.
    pub(crate) fn of_number(number: u8) -> Option<Protocol> {
        ALL.iter().copied().find(|protocol| protocol.number() == number)
    }

    /// The protocol whose requests are of the kind.
    pub(crate) fn of_kind(kind: Kind) -> Option<Protocol> {
        ALL.iter().copied().find(|protocol| protocol.kind() == kind)
    }

    /// `PROTOCOL_*` of records.
    pub fn number(self) -> u8 {
        self.facts().number()
    }

    /// The kind of its requests.
    pub fn kind(self) -> Kind {
        self.facts().kind()
    }

    pub(crate) fn pairing(self) -> Pairing {
        self.facts().pairing()
    }

    pub(crate) fn proves_itself(self) -> bool {
        self.facts().proves_itself()
    }

    pub(crate) fn sent_by_client(self, unit: &Unit) -> Option<bool> {
        self.facts().sent_by_client(unit)
    }

    pub(crate) fn place(self, unit: &Unit, asks: bool) -> Place {
        self.facts().place(unit, asks)
    }

    pub(crate) fn is_named(self, unit: &Unit) -> bool {
        self.facts().is_named(unit)
    }

    pub(crate) fn read(self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End> {
        self.facts().read(unit, asks, said)
    }

    /// Notes what a later record says of a message: what it calls, or how it ended.
    pub(crate) fn read_method(self, method: &Method, asks: bool, said: &mut Said) {
        if asks {
            let path = method.path.as_deref().filter(|path| !path.is_empty());
            said.method = said.method.take().or(path.map(Into::into));
        } else {
            self.facts().read_result(method, said);
        }
    }
}

/// How a message ends with a unit, by the flags that most protocols' units have.
fn ended(unit: &Unit) -> Option<End> {
    match unit.flags & (UNIT_LAST | UNIT_OPEN) {
        0 => None,
        flags if flags & UNIT_OPEN != 0 => Some(End::UntilClose),
        _ => Some(End::Answered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two protocols may have the same number or the same kind.
    #[test]
    fn records_and_kinds_lead_to_one_protocol_each() {
        for &protocol in ALL {
            assert_eq!(Protocol::of_number(protocol.number()), Some(protocol));
            assert_eq!(Protocol::of_kind(protocol.kind()), Some(protocol));
        }
        assert_eq!(Protocol::of_number(0), None, "of what is not known");
        assert_eq!(Protocol::of_kind(Kind::Tcp), None);
    }
}
