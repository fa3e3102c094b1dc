//! Requests of kinds that are given only where there are no others: turns on standard input and output, and the
//! target's life. They are explained as they are found and held until the capture is over. What is held is bounded:
//! when it is too much, the turns are what requests are, those that were held are given, and from then on each as it
//! is found. Should others come after that, attribution has to begin anew without turns ([`FallbackGiven`]), so no
//! capture ever has both, and none has less than it should.

use std::fmt;

use crate::ownership::claims::Claimant;
use crate::walk::Worker;
use rpcprobe_model::{Request, Segments};

/// Most turns held, and segments of them.
pub(crate) const MOST_HELD: usize = 10_000;
pub(crate) const MOST_HELD_SEGMENTS: usize = 1 << 18;

/// An explained request of a kind that is given only where there are no others.
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
    /// They are given as they are found.
    given: bool,
    /// There are others.
    refused: bool,
}

impl Default for Fallback {
    fn default() -> Fallback {
        let most = (MOST_HELD, MOST_HELD_SEGMENTS);
        Fallback { held: Vec::new(), segments: 0, most, given: false, refused: false }
    }
}

impl Fallback {
    /// Holds one more. True: what is held is to be given.
    pub(crate) fn hold(&mut self, more: HeldBack) -> bool {
        self.segments += more.segments.list.len();
        self.held.push(more);
        self.given |= self.held.len() > self.most.0 || self.segments > self.most.1;
        self.given
    }

    /// Whether any is held: what those have worked for is not known to the ledger yet.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// All that is held, in order, to be given.
    pub(crate) fn take(&mut self) -> Vec<HeldBack> {
        let mut held = std::mem::take(&mut self.held);
        self.segments = 0;
        held.sort_by_key(|HeldBack { request, .. }| {
            (request.start_ns, u64::MAX - request.latency_ns)
        });
        held
    }

    /// Whether none is given, because there are others.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// There are others, so none is given.
    ///
    /// # Errors
    /// Some were.
    pub(crate) fn refuse(&mut self) -> Result<(), FallbackGiven> {
        if self.given {
            return Err(FallbackGiven);
        }
        (self.held, self.segments, self.refused) = (Vec::new(), 0, true);
        Ok(())
    }
}

/// Turns were given as requests, and then others came: begin anew with an engine that leaves turns out
/// ([`crate::Engine::leave_out_fallback`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackGiven;

impl fmt::Display for FallbackGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("requests came after turns on standard input and output had been given")
    }
}

impl std::error::Error for FallbackGiven {}
