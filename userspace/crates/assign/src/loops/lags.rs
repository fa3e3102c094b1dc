//! How long a loop takes from a step to the next step of the same request: in turns, or until a timer is due.

use super::steps::Instant;

/// Number of lags that are distinguished: the very next step of the loop, a later step of the same turn, a step of the
/// next turn, and so on.
pub(super) const NEAR: usize = 9;
/// The bins of the time until a timer is due: a thirty-second of a doubling each, from 16 us to 34 s.
const SHORTEST_BITS: u32 = 14;
const A_DOUBLING: usize = 32;
const BINS: usize = 21 * A_DOUBLING;
/// Smoothing: what is added to each lag that was learned, and to all times together.
const ANY_NEAR: f64 = 0.02;
const ANY_DUE: f64 = 2.0;

/// The distribution of one kind of gap. In part `near[k]` of the cases, the later step follows with lag `k`, whatever
/// the time. In part `due` of the cases, a timer is set, and the step follows in the turn that begins when the timer is
/// due: not before, and not a turn later.
#[derive(Clone, Debug)]
pub(super) struct Lags {
    near: [f64; NEAR],
    due: f64,
    /// The distribution of the time until the timer is due.
    times: Vec<f64>,
    sums: Vec<f64>,
    learned: Learned,
}

#[derive(Clone, Debug)]
struct Learned {
    near: [f64; NEAR],
    due: f64,
    times: Vec<f64>,
}

/// The interval in which a timer that led to a step was due: from, to.
pub(super) type Due = (u64, u64);

/// The lag of a gap, and the interval of its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// [`NEAR`] if it is longer than all distinguished lags.
    pub(super) lag: usize,
    pub(super) due: Option<Due>,
}

impl Gap {
    /// `delay`: number of turns from the turn in which a timer went off to the step that it leads to.
    pub(super) fn between(from: &Instant, to: &Instant, delay: usize) -> Gap {
        let turns = to.turn.saturating_sub(from.turn);
        let lag = match turns {
            0 if to.place == from.place + 1 => 0,
            _ => usize::try_from(turns).map_or(NEAR, |turns| (turns + 1).min(NEAR)),
        };
        let since = |at: usize| to.begun_ns[at].saturating_sub(from.ns);
        // A timer that is set in this turn goes off in a later turn.
        let due = (turns > delay as u64).then(|| (since(delay + 1), since(delay)));
        Gap { lag, due }
    }
}

fn bin(ns: u64) -> f64 {
    let ns = ns.max(1 << SHORTEST_BITS);
    let doublings = 63 - ns.leading_zeros();
    let within = ns as f64 / (1_u64 << doublings) as f64 - 1.0;
    let bin = (f64::from(doublings - SHORTEST_BITS) + within) * A_DOUBLING as f64;
    bin.min(BINS as f64 - 1.0)
}

impl Lags {
    /// A distribution of which only the parts of the lags are known. The rest are timers, at most `most`.
    pub(super) fn new(near: [f64; NEAR], most: f64) -> Lags {
        let due = (1.0 - near.iter().sum::<f64>()).clamp(0.0, most);
        let learned = Learned { near: [0.0; NEAR], due: 0.0, times: vec![0.0; BINS] };
        let times = vec![1.0 / BINS as f64; BINS];
        let mut lags = Lags { near, due, times, sums: vec![0.0; BINS + 1], learned };
        lags.sum();
        lags
    }

    fn sum(&mut self) {
        let mut sum = 0.0;
        for (time, all) in self.times.iter().zip(&mut self.sums[1..]) {
            sum += time;
            *all = sum;
        }
    }

    fn until(&self, bin: f64) -> f64 {
        let at = bin as usize;
        self.sums[at] + (bin - at as f64) * self.times[at]
    }

    /// How likely the step follows after such a gap: by its lag, and by a timer.
    pub(super) fn likely(&self, gap: Gap) -> (f64, f64) {
        let near = self.near.get(gap.lag).copied().unwrap_or(0.0);
        let due = match gap.due {
            Some((from_ns, to_ns)) if to_ns > 1 << SHORTEST_BITS && gap.lag > 0 => {
                self.due * (self.until(bin(to_ns)) - self.until(bin(from_ns))).max(0.0)
            }
            _ => 0.0,
        };
        (near, due)
    }

    /// Learns a gap. `near` and `due`: how likely it is of this kind, by its lag and by a timer.
    pub(super) fn learn(&mut self, gap: Gap, near: f64, due: f64) {
        if let Some(of) = self.learned.near.get_mut(gap.lag) {
            *of += near;
        }
        let Some((from_ns, to_ns)) = gap.due.filter(|_| due > 0.0) else { return };
        self.learned.due += due;
        let (from, to) = (bin(from_ns), bin(to_ns));
        let all = self.until(to) - self.until(from);
        if all <= 0.0 {
            return;
        }
        for at in from as usize..BINS.min(to.ceil() as usize) {
            let part = (at as f64 + 1.0).min(to) - (at as f64).max(from);
            self.learned.times[at] += due * self.times[at] * part.max(0.0) / all;
        }
    }

    /// Computes, from what was learned, what is looked up.
    pub(super) fn settle(&mut self) {
        let Learned { near, due, times } = &mut self.learned;
        let all = near.iter().sum::<f64>() + *due + ANY_NEAR * (NEAR + 1) as f64;
        for (part, near) in self.near.iter_mut().zip(near.iter()) {
            *part = (near + ANY_NEAR) / all;
        }
        self.due = (*due + ANY_NEAR) / all;
        let sum = *due + ANY_DUE;
        for at in 0..BINS {
            let beside = at.checked_sub(1).map_or(0.0, |at| times[at])
                + times.get(at + 1).copied().unwrap_or(0.0);
            let smoothed = times[at] / 2.0 + beside / 4.0;
            self.times[at] = (smoothed + ANY_DUE / BINS as f64) / sum;
        }
        *near = [0.0; NEAR];
        *due = 0.0;
        times.fill(0.0);
        self.sum();
    }
}
