//! Bounds the steps that are spent on requests that were cut off.
//!
//! If a request's answer is known, the walk skips most of what the request's threads did for others. If the answer is
//! not known, because its record was lost or the capture had ended, the walk goes back through all of that work. Where
//! records are lost, or a capture ends under load, thousands of requests are cut off at once, over the same time. So
//! all of these together get two steps for each event, and each of them gets some steps in any case. What these steps
//! do not explain is reported as `unattributed`. (A program's life encloses other requests. There are few lives, so
//! only `MOST_STEPS` bounds them.)

use rpcprobe_model::Request;

/// Steps for each event, and the least for each request. Walks of one client, one request after the other, take 0.9
/// steps an event (docs/evidence.md).
const STEPS_AN_EVENT: usize = 2;
const LEAST_STEPS: usize = 64;
/// Steps spent on any request before the rest is given up.
const MOST_STEPS: usize = 4_000_000;

/// The steps that are left to spend.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    steps: usize,
}

impl Effort {
    /// Adds the steps that an event earns.
    pub(crate) fn earn(&mut self) {
        self.steps = self.steps.saturating_add(STEPS_AN_EVENT);
    }

    /// How many steps the walk of a request may take.
    pub(crate) fn for_request(&self, request: &Request) -> usize {
        match is_bounded(request) {
            true => self.steps.clamp(LEAST_STEPS, MOST_STEPS),
            false => MOST_STEPS,
        }
    }

    /// Subtracts the steps that a request's walk took.
    pub(crate) fn spend(&mut self, request: &Request, steps: usize) {
        if is_bounded(request) {
            self.steps = self.steps.saturating_sub(steps);
        }
    }
}

/// Whether the request was cut off and encloses no others.
fn is_bounded(request: &Request) -> bool {
    !request.complete && !request.kind.is_life()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcprobe_model::Kind;

    fn request(kind: Kind, complete: bool) -> Request {
        Request { complete, ..Request::new(kind, 0, 100) }
    }

    #[test]
    fn those_that_are_cut_off_share_what_events_earn() {
        let (cut, whole) = (request(Kind::Resp, false), request(Kind::Resp, true));
        let program = request(Kind::Exec, false);
        let mut effort = Effort::default();
        assert_eq!(effort.for_request(&cut), LEAST_STEPS);
        for _ in 0..1000 {
            effort.earn();
        }
        assert_eq!(effort.for_request(&cut), 1000 * STEPS_AN_EVENT);
        for (request, left) in [(&whole, 2000), (&program, 2000), (&cut, 500), (&cut, LEAST_STEPS)]
        {
            effort.spend(request, 1500);
            assert_eq!(effort.for_request(&cut), left);
        }
        assert_eq!([&whole, &program].map(|of| effort.for_request(of)), [MOST_STEPS; 2]);
    }
}
