//! Numbers of requests, as the engine gives them: with gaps. The tables have others. And how a request is referred to
//! before it is found, and by its children.

use crate::event::Object;

/// Marks ids given ahead.
const AHEAD: u64 = 1 << 62;

/// Ids given so far.
#[derive(Debug, Default)]
pub(super) struct Ids {
    last: u64,
}

impl Ids {
    /// An id for a request that was found.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// An id for a request that is yet to be found, if it ever is: others may name it as their parent.
    pub(super) fn ahead(&mut self) -> u64 {
        AHEAD | self.next()
    }
}

/// A request by the first byte of its message.
pub(super) type Asked = (Object, u64);

/// The request for which another one seems to be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) asked: Asked,
    /// Its id, given ahead.
    pub(super) id: u64,
}

/// The parent of a request that has been found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) id: u64,
    /// The parent was answered before its child was.
    pub(super) detached: bool,
    /// It is a request that its server served; else the life of a program.
    pub(super) serves: bool,
}

/// An id that others may name, made of one that was given to a request as it was found.
pub(super) fn as_ahead(id: u64) -> u64 {
    AHEAD | id
}

/// Whether an id was given before its request was found: no others are named as parents.
pub fn is_ahead(id: u64) -> bool {
    id & AHEAD != 0
}
