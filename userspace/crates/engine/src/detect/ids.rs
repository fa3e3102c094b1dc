//! Ids of requests, as the engine assigns them: with gaps. The tables have other ids. Also how requests are referred to
//! before they are found, and by their children.

use crate::event::Object;

/// Marks ids to which other requests may refer.
const AHEAD: u64 = 1 << 62;

/// Ids assigned so far.
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

    /// An id for a request that will perhaps be found later. Other requests may name it as their parent.
    pub(super) fn ahead(&mut self) -> u64 {
        AHEAD | self.next()
    }
}

/// A request, named by the channel and first byte of its question.
pub(super) type Asked = (Object, u64);

/// The request for which another request seems to be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) asked: Asked,
    /// Its id, assigned before it is found.
    pub(super) id: u64,
}

/// The parent of a request that has been found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) id: u64,
    /// The parent was answered before its child was.
    pub(super) detached: bool,
}

/// Whether others may refer to a request with this id. No other requests are named as parents.
pub fn is_ahead(id: u64) -> bool {
    id & AHEAD != 0
}
