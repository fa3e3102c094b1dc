//! What is given out in one turn of a loop is given out in the order in which that was taken in which it belongs to.
//!
//! A loop keeps what is to be done in a queue. A message that was read earlier is a step ahead, and of two that are equally far
//! the one goes first that was read first. So of two that are given out next to each other, in one turn, the first is not for what was
//! read after that which the second is for. How far this holds of a loop is learned: of none in which it does not, anything is told
//! by it.

use super::steps::Steps;

/// When that happened which something given out is for: from, to; and how likely it is for that.
pub(super) type Cause = (u64, u64, f64);
/// From this on a cause counts as known.
const KNOWN: f64 = 0.7;

/// The likely causes of all that is given out.
#[derive(Debug)]
pub(super) struct Order {
    causes: Vec<Vec<Cause>>,
    /// Part of neighbours that are not in order.
    disorder: f64,
}

impl Order {
    pub(super) fn new(steps: &Steps) -> Order {
        Order { causes: vec![Vec::new(); steps.given_in.len()], disorder: 1.0 }
    }

    /// How much less likely it is that this is for what happened then, beside what its neighbours are for.
    pub(super) fn factor(&self, steps: &Steps, number: u32, (from_ns, to_ns): (u64, u64)) -> f64 {
        let at = number as usize;
        let turn = steps.given_in[at];
        let same = |at: Option<usize>| {
            at.filter(|at| steps.given_in.get(*at) == Some(&turn)).map(|at| &self.causes[at])
        };
        let part = |causes: Option<&Vec<Cause>>, against: &dyn Fn(&Cause) -> bool| {
            let causes = causes.into_iter().flatten().filter(|cause| against(cause));
            1.0 - causes.map(|cause| cause.2).sum::<f64>().min(1.0) * (1.0 - self.disorder)
        };
        part(same(at.checked_sub(1)), &|cause| cause.0 > to_ns)
            * part(same(Some(at + 1)), &|cause| cause.1 < from_ns)
    }

    /// Takes in the causes found now; `beside`: how likely something is for that for which what was given out just before it is.
    pub(super) fn learn(&mut self, steps: &Steps, mut causes: Vec<Vec<Cause>>, beside: &[f64]) {
        for at in 0..causes.len() {
            let sum = causes[at].iter().map(|cause| cause.2).sum::<f64>() + beside[at];
            if sum > 1.0 {
                causes[at].iter_mut().for_each(|cause| cause.2 /= sum);
            }
            if at > 0 && beside[at] > 0.0 && steps.given_in[at] == steps.given_in[at - 1] {
                let part = beside[at] / sum.max(1.0);
                let same: Vec<Cause> =
                    causes[at - 1].iter().map(|(from, to, of)| (*from, *to, of * part)).collect();
                causes[at].extend(same);
            }
        }
        let known = |at: usize| causes[at].iter().find(|cause| cause.2 > KNOWN);
        let (mut all, mut disordered) = (0.0, 0.0);
        for at in 1..causes.len() {
            if steps.given_in[at] != steps.given_in[at - 1] {
                continue;
            }
            let (Some(first), Some(second)) = (known(at - 1), known(at)) else { continue };
            if (first.0, first.1) != (second.0, second.1) {
                all += 1.0;
                disordered += f64::from(u8::from(first.0 > second.1));
            }
        }
        self.disorder = (disordered + 1.0) / (all + 2.0);
        self.causes = causes;
    }
}
