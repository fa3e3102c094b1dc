//! Numbers of requests, as the engine gives them: with gaps. The tables have others.

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

/// Whether an id was given before its request was found: no others are named as parents.
pub fn is_ahead(id: u64) -> bool {
    id & AHEAD != 0
}
