//! What the kernel side reports of a message, whatever its protocol.

use super::Protocol;
use crate::object::Object;

/// Bytes `[from, to)` of a channel that are one frame or (part of) one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub channel: Object,
    pub reverse: Object,
    pub from: u64,
    pub to: u64,
    pub protocol: Protocol,
    /// Stream or XID.
    pub id: u32,
    /// `UNIT_*`, or in HTTP/2 the type of the frame.
    pub kind: u8,
    /// `UNIT_*`, or in HTTP/2 the flags of the frame.
    pub flags: u8,
    /// The bytes before it could not be followed.
    pub after_gap: bool,
    /// A [`Method`] of the same offset follows.
    pub named: bool,
    /// Whether the channel is the client's; `None`: not known.
    pub from_client: Option<bool>,
    pub numbers: [u32; 3],
    pub status_known: bool,
}

impl Unit {
    /// Whether a question or an answer begins with it.
    pub fn begins_message(&self) -> bool {
        self.protocol.facts().begins_message(self)
    }
}

/// What a unit's message calls, or how it ended; reported after the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    pub channel: Object,
    /// Where its unit begins.
    pub offset: u64,
    /// Stream.
    pub id: u32,
    /// Whether this is said of a request (true) or of a response; `None`: not known.
    pub asks: Option<bool>,
    pub path: Option<Box<str>>,
    /// `:status`
    pub status: Option<i32>,
    /// `grpc-status`
    pub result: Option<i32>,
}
