//! What the engine knows of each protocol, one file a protocol, and the table of them. The kernel side finds where
//! messages begin and end; here stands what they mean: which question an answer is to, which end asks, how it ended
//! and what it called. How exchanges are kept and timed is the same for all (`detect/framed`).

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
        /// What a byte stream speaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Protocol {
            $($name),+
        }

        const ALL: &[Protocol] = &[$(Protocol::$name),+];

        impl Protocol {
            /// What there is to know of it.
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
/// An answer of many messages that lasts until the server says so takes no way of its own: its units up to the one with
/// `UNIT_LAST` are one answer, in either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// By a number in both, which is told of the request as that.
    ById(Id),
    /// The nth answer is to the nth question.
    InOrder,
}

/// What the number of an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Stream,
    /// Of a question that may be sent again.
    Xid,
}

/// What a unit is to the exchanges of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Part of none, or of none that is followed.
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

/// How an exchange ended, as its protocol tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// Its answer ends with the connection.
    UntilClose,
    /// One end gave it up, with that error code.
    Reset {
        by_client: bool,
        code: u32,
    },
    /// The server goes away, and has not looked at it.
    Refused,
}

/// What a protocol's messages say of an exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// What is called.
    pub(crate) method: Option<String>,
    /// The protocol's own.
    pub(crate) status: Option<i32>,
    /// Of what is spoken inside it, if that has one: goes before.
    pub(crate) result: Option<i32>,
    /// A frame has ended the answer, but for more of its headers.
    ending: bool,
    /// The answer has no body, whatever it claims.
    pub(crate) head_only: bool,
    /// Bytes of the answer's head.
    pub(crate) head_bytes: u64,
}

/// A protocol. What most have in common is given.
trait Speaks: Sync {
    /// What its requests are called.
    fn kind(&self) -> Kind;

    /// `PROTOCOL_*` of records.
    fn number(&self) -> u8;

    fn pairing(&self) -> Pairing;

    /// A complete exchange shows by itself that the protocol is this one.
    fn proves_itself(&self) -> bool {
        false
    }

    /// Whether a question or an answer begins with the unit.
    fn begins_message(&self, unit: &Unit) -> bool {
        matches!(unit.kind, UNIT_REQUEST | UNIT_RESPONSE)
    }

    /// Whether who sent the unit is the client; `None`: it does not tell.
    fn sent_by_client(&self, unit: &Unit) -> Option<bool> {
        match unit.kind {
            UNIT_REQUEST => Some(true),
            UNIT_RESPONSE | UNIT_ASIDE => Some(false),
            _ => None,
        }
    }

    /// What the unit is; `asks`: sent by the client.
    fn place(&self, unit: &Unit, asks: bool) -> Place {
        match unit.kind {
            UNIT_ASIDE => Place::None,
            UNIT_MORE => Place::More,
            kind if (kind == UNIT_REQUEST) == asks => Place::Begins,
            _ => Place::None,
        }
    }

    /// Whether a [`Method`] tells later what the unit's message calls or how it ended.
    fn is_named(&self, unit: &Unit) -> bool {
        unit.named
    }

    /// Takes from a unit what it says; how the message ended, if with this unit.
    fn read(&self, unit: &Unit, asks: bool, said: &mut Said) -> Option<End>;

    /// Takes from what was told of an answer later how it ended.
    fn read_result(&self, _method: &Method, _said: &mut Said) {}
}

impl Protocol {
    /// That of a record.
    pub(crate) fn of_number(number: u8) -> Option<Protocol> {
        ALL.iter().copied().find(|protocol| protocol.number() == number)
    }

    /// That whose requests are of the kind.
    pub(crate) fn of_kind(kind: Kind) -> Option<Protocol> {
        ALL.iter().copied().find(|protocol| protocol.kind() == kind)
    }

    /// `PROTOCOL_*` of records.
    pub fn number(self) -> u8 {
        self.facts().number()
    }

    /// What its requests are called.
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

    /// Takes what was told of a message later: what it calls, or how it ended.
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

    /// Whoever adds a protocol may not take a number or a kind that is another's.
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
