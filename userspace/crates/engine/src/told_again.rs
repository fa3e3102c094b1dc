//! Requests that were asked by the same calls and answered by the same calls, as many streams of a connection are: what
//! was told of one is told again of the next.

use crate::ownership::claims::{Claimant, Claims};
use crate::timeline::World;
use crate::walk::{alike, Goal};
use rpcprobe_model::Segments;

/// What was told of the last request, as long as it holds: until something is added to the world or claimed.
#[derive(Default)]
pub(crate) struct ToldAgain(Option<Told>);

struct Told {
    goal: Goal,
    complete: bool,
    segments: Segments,
    /// The requests that kept it from work that its walk had come to.
    kept_by: Vec<u64>,
}

impl ToldAgain {
    /// The world has changed.
    #[inline]
    pub fn forget(&mut self) {
        if self.0.is_some() {
            self.0 = None;
        }
    }

    /// Takes what was told of a request. `kept_by`: the requests whose work its way led to, if it has claimed nothing
    /// for itself; otherwise the next finds more claimed than this one did.
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

    /// What is to be told of another request, if all of its messages were moved by the same calls, and the same work is
    /// others'.
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
