//! Requests of kinds that are reported only where there are no others: turns on standard input and output, and the
//! target's life. They are explained when they are found and held until the capture is over. The number held is
//! bounded. If it is exceeded, turns are the capture's requests: the held ones are handed out, and from then on each
//! turn as it is found. If requests of other kinds come after that, attribution has to begin anew without turns
//! ([`FallbackGiven`]). So no capture ever has both, and none has fewer requests than it should.

use std::fmt;

use crate::ownership::claims::Claimant;
use crate::walk::Worker;
use rpcprobe_model::{Request, Segments};

/// Limits of the turns that are held, and of their segments.
pub(crate) const MOST_HELD: usize = 10_000;
pub(crate) const MOST_HELD_SEGMENTS: usize = 1 << 18;

/// An explained request of a kind that is reported only where there are no others.
pub(crate) struct HeldBack {
    pub(crate) request: Request,
    pub(crate) segments: Segments,
    pub(crate) workers: Vec<Worker>,
    pub(crate) claimant: Claimant,
}

/// What is held, and whether it still has to be.
pub(crate) struct Fallback {
    pub(crate) held: Vec<HeldBack>,
    pub(crate) segments: usize,
    pub(crate) most: (usize, usize),
    /// They are handed out as they are found.
    given: bool,
    /// There are requests of other kinds.
    refused: bool,
}

impl Default for Fallback {
    fn default() -> Fallback {
        let most = (MOST_HELD, MOST_HELD_SEGMENTS);
        Fallback { held: Vec::new(), segments: 0, most, given: false, refused: false }
    }
}

impl Fallback {
    /// Holds one more request. True: what is held is to be handed out.
    pub(crate) fn hold(&mut self, more: HeldBack) -> bool {
        self.segments += more.segments.list.len();
        self.held.push(more);
        self.given |= self.held.len() > self.most.0 || self.segments > self.most.1;
        self.given
    }

    /// Whether any is held. The work of held requests is not in the ledger yet.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes all that is held, in order, to be handed out.
    pub(crate) fn take(&mut self) -> Vec<HeldBack> {
        let mut held = std::mem::take(&mut self.held);
        self.segments = 0;
        held.sort_by_key(|HeldBack { request, .. }| {
            (request.start_ns, u64::MAX - request.latency_ns)
        });
        held
    }

    /// Whether none is handed out, because there are requests of other kinds.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// There are requests of other kinds, so none of these is handed out.
    ///
    /// # Errors
    /// Some were handed out before.
    pub(crate) fn refuse(&mut self) -> Result<(), FallbackGiven> {
        if self.given {
            return Err(FallbackGiven);
        }
        (self.held, self.segments, self.refused) = (Vec::new(), 0, true);
        Ok(())
    }
}

/// Turns were handed out as requests, and then requests of other kinds came. Attribution has to begin anew with an
/// engine that leaves turns out ([`crate::Engine::leave_out_fallback`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackGiven;

impl fmt::Display for FallbackGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("requests came after turns on standard input and output had been given")
    }
}

impl std::error::Error for FallbackGiven {}
