//! What a loop gives out in one turn has the order in which its causes were taken in.
//!
//! A loop keeps what is to be done in a queue. A message that was read earlier is a step ahead; of two messages that
//! are equally far, the message that was read first goes first. So if two outputs follow each other in one turn, the
//! cause of the first was not read after the cause of the second. How far this holds for a loop is learned. For a loop
//! in which it does not hold, the order shows nothing.

use super::steps::Steps;

/// A cause of something given out: when it happened, from and to; and how likely the output is for it.
pub(super) type Cause = (u64, u64, f64);
/// A cause that is likelier than this counts as known.
const KNOWN: f64 = 0.7;
/// Less likely causes are left out.
pub(super) const LEAST_LIKELY: f64 = 1e-6;

/// The likely causes of all that is given out.
#[derive(Debug)]
pub(super) struct Order {
    causes: Vec<Causes>,
    /// Part of neighbours that are not in order.
    disorder: f64,
}

/// How likely something given out is for what happened before some time, and for what happened after it, as running
/// sums. A look-up costs the logarithm of the number of causes.
#[derive(Clone, Debug, Default)]
struct Causes {
    /// By the begin of causes: how likely it is for a cause that began then or later.
    since: Vec<(u64, f64)>,
    /// By the end of causes: how likely it is for a cause that ended then or earlier.
    until: Vec<(u64, f64)>,
}

impl Causes {
    /// From causes in order of their begin.
    fn new(all: &[Cause]) -> Causes {
        let mut since: Vec<(u64, f64)> = all.iter().map(|cause| (cause.0, cause.2)).collect();
        let mut sum = 0.0;
        for (_, likely) in since.iter_mut().rev() {
            sum += *likely;
            *likely = sum;
        }
        let mut until: Vec<(u64, f64)> = all.iter().map(|cause| (cause.1, cause.2)).collect();
        until.sort_unstable_by_key(|(ns, _)| *ns);
        let mut sum = 0.0;
        for (_, likely) in &mut until {
            sum += *likely;
            *likely = sum;
        }
        Causes { since, until }
    }

    fn after(&self, ns: u64) -> f64 {
        let at = self.since.partition_point(|(from_ns, _)| *from_ns <= ns);
        self.since.get(at).map_or(0.0, |(_, likely)| *likely)
    }

    fn before(&self, ns: u64) -> f64 {
        let at = self.until.partition_point(|(to_ns, _)| *to_ns < ns);
        at.checked_sub(1).map_or(0.0, |at| self.until[at].1)
    }
}

/// Merges causes that are the same, in order of begin.
fn merge(causes: &mut Vec<Cause>) {
    causes.sort_unstable_by_key(|cause| (cause.0, cause.1));
    causes.dedup_by(|cause, kept| {
        let same = (cause.0, cause.1) == (kept.0, kept.1);
        kept.2 += if same { cause.2 } else { 0.0 };
        same
    });
}

/// Whether an output and the output before it were given out in one turn.
fn follows(steps: &Steps, at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| steps.given_in.get(before));
    before.is_some() && before == steps.given_in.get(at)
}

/// Whether something else was given out in the same turn. Otherwise the order shows nothing.
pub(super) fn has_neighbour(steps: &Steps, number: u32) -> bool {
    let at = number as usize;
    follows(steps, at) || follows(steps, at + 1)
}

impl Order {
    pub(super) fn new(steps: &Steps) -> Order {
        Order { causes: vec![Causes::default(); steps.given_in.len()], disorder: 1.0 }
    }

    /// How much less likely it is that an output is for what happened then, given the causes of its neighbours.
    pub(super) fn factor(&self, steps: &Steps, number: u32, (from_ns, to_ns): (u64, u64)) -> f64 {
        let at = number as usize;
        let part = |against: f64| 1.0 - against.min(1.0) * (1.0 - self.disorder);
        let mut factor = 1.0;
        if follows(steps, at) {
            factor *= part(self.causes[at - 1].after(to_ns));
        }
        if follows(steps, at + 1) {
            factor *= part(self.causes[at + 1].before(from_ns));
        }
        factor
    }

    /// Takes in the causes found now; `beside`: how likely an output has the same cause as the output just before it.
    pub(super) fn learn(&mut self, steps: &Steps, causes: Vec<Vec<Cause>>, beside: &[f64]) {
        let (mut all, mut disordered) = (0.0, 0.0);
        let mut last: Vec<Cause> = Vec::new();
        for (at, mut causes) in causes.into_iter().enumerate() {
            let sum = causes.iter().map(|cause| cause.2).sum::<f64>() + beside[at];
            if sum > 1.0 {
                causes.iter_mut().for_each(|cause| cause.2 /= sum);
            }
            let follows = follows(steps, at);
            if follows && beside[at] > 0.0 {
                let part = beside[at] / sum.max(1.0);
                let same = last.iter().map(|(from, to, of)| (*from, *to, of * part));
                causes.extend(same.filter(|cause| cause.2 >= LEAST_LIKELY));
            }
            merge(&mut causes);
            let known = |of: &[Cause]| of.iter().find(|cause| cause.2 > KNOWN).copied();
            if let (true, Some(first), Some(second)) = (follows, known(&last), known(&causes)) {
                if (first.0, first.1) != (second.0, second.1) {
                    all += 1.0;
                    disordered += f64::from(u8::from(first.0 > second.1));
                }
            }
            self.causes[at] = Causes::new(&causes);
            last = causes;
        }
        self.disorder = (disordered + 1.0) / (all + 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUTS: usize = 1_000;
    const CAUSES: usize = 32;

    /// `OUTPUTS` outputs in one turn, each of them for any of the same questions.
    fn one_turn() -> (Steps, Vec<Vec<Cause>>) {
        let steps = Steps { given_in: vec![3; OUTPUTS], ..Steps::default() };
        let likely = 0.5 / CAUSES as f64;
        let causes = (0..CAUSES as u64).map(|at| (10 * at, 10 * at + 5, likely)).collect();
        (steps, vec![causes; OUTPUTS])
    }

    #[test]
    fn what_is_given_out_together_has_no_more_causes_than_there_are() {
        let (steps, causes) = one_turn();
        let mut order = Order::new(&steps);
        order.learn(&steps, causes, &[0.5; OUTPUTS]);
        let most = order.causes.iter().map(|of| of.since.len().max(of.until.len())).max();
        assert_eq!(most, Some(CAUSES));
    }

    #[test]
    fn running_sums_tell_what_adding_up_tells() {
        let (_, all) = one_turn();
        let causes = Causes::new(&all[0]);
        for ns in [0, 1, 4, 5, 6, 100, 309, 310, 311, 315, 316, 1_000] {
            let sum = |of: &dyn Fn(&Cause) -> bool| {
                all[0].iter().filter(|cause| of(cause)).map(|cause| cause.2).sum::<f64>()
            };
            assert!((causes.after(ns) - sum(&|cause| cause.0 > ns)).abs() < 1e-9, "{ns}");
            assert!((causes.before(ns) - sum(&|cause| cause.1 < ns)).abs() < 1e-9, "{ns}");
        }
    }
}
