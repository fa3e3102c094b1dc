//! Requests that were asked by the same calls and answered by the same calls, as many streams of a connection are: the
//! result of one request is reused for the next.

use crate::ownership::claims::{Claimant, Claims};
use crate::timeline::World;
use crate::walk::{alike, Goal};
use rpcprobe_model::Segments;

/// The result of the last request, as long as it holds: until something is added to the world or claimed.
#[derive(Default)]
pub(crate) struct ToldAgain(Option<Told>);

struct Told {
    goal: Goal,
    complete: bool,
    segments: Segments,
    /// The requests that kept this one from work that its walk had come to.
    kept_by: Vec<u64>,
}

impl ToldAgain {
    /// Forgets the result: the world has changed.
    #[inline]
    pub fn forget(&mut self) {
        if self.0.is_some() {
            self.0 = None;
        }
    }

    /// Keeps the result of a request. `kept_by`: the requests whose work its path led to, if this request has claimed
    /// nothing for itself; otherwise the next request finds more claimed than this one did.
    pub fn keep(
        &mut self,
        (goal, complete): (&Goal, bool),
        segments: &Segments,
        kept_by: Option<Vec<u64>>,
    ) {
        self.0 = kept_by.map(|kept_by| {
            let (goal, segments) = (goal.clone(), segments.clone());
            Told { goal, complete, segments, kept_by }
        });
    }

    /// The segments of another request, if all of its messages were moved by the same calls, and the same work belongs
    /// to other requests.
    pub fn of(
        &self,
        world: &World,
        claims: &mut Claims,
        (goal, complete): (&Goal, bool),
        claimant: Claimant,
    ) -> Option<Segments> {
        let told = self.0.as_ref()?;
        let same = told.complete == complete && alike(world, &told.goal, goal);
        (same && claims.is_kept(claimant, &told.kept_by)).then(|| told.segments.clone())
    }
}
