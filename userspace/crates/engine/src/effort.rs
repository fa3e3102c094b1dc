//! Bounds the steps that are spent on requests that were cut off.
//!
//! Of a request whose answer is known the walk skips most of what its threads did for others. Of one whose answer is not known,
//! because its record was lost or the capture had ended, it goes back through all of that, up to the request's end; and where
//! records are lost, or a capture ends under load, thousands of requests are cut off at once, over the same time. So for
//! all of these together there are two steps for each event, and some for each of them in any case. What these do not explain is
//! `unattributed`, and told so. (A program's life encloses the others. There are few of these, and they have what they need.)

use rpcprobe_model::Request;

/// Steps for each event, and for each request in any case. Walks of one client, one request after the other, take 0.9 steps an
/// event (docs/evidence.md).
const STEPS_AN_EVENT: usize = 2;
const LEAST_STEPS: usize = 64;
/// Steps spent on any request before the rest is given up.
const MOST_STEPS: usize = 4_000_000;

/// What is left to spend.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    steps: usize,
}

impl Effort {
    /// An event came.
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

    /// It took so many.
    pub(crate) fn spend(&mut self, request: &Request, steps: usize) {
        if is_bounded(request) {
            self.steps = self.steps.saturating_sub(steps);
        }
    }
}

/// Whether it was cut off, and does not enclose others.
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
