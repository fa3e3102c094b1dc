//! Compares one kind of request in the runs of both sides.

use std::collections::{BTreeMap, BTreeSet};

use super::comparison::{
    Basis, Change, KindComparison, MethodChange, MixOfMethods, NameChange, NoIntervals, PartChange,
    StatisticComparison, Verdict,
};
use super::judge::{Judge, Judgement, Quantity, LEAST_OF_MEAN, LEVEL};
use super::names::Name;
use super::run::{Run, RunKind};
use super::series::Resampled;
use super::shift::{shift, ShiftPoint};
use super::{Part, Statistic};
use crate::model::Kind;
use crate::stats::apportion::{apportion, rounded};
use crate::stats::bootstrap::{interval_of_difference, FEWEST_BLOCKS};
use crate::stats::mix::{contribution, Group};

/// Maximum number of listed names, those whose time in waits changed most.
const MOST_NAMES: usize = 8;
/// Names with a change below this fraction of the mean latency are not listed.
const LEAST_NAMED: f64 = 0.005;
/// Maximum number of listed methods; the others are combined in one line.
const MOST_METHODS: usize = 20;

/// The runs of both sides, for one kind of request.
pub struct Sides<'r> {
    a_kind: Kind,
    b_kind: Kind,
    a: Vec<&'r RunKind>,
    b: Vec<&'r RunKind>,
    a_probe_cost_ns: Option<f64>,
    b_probe_cost_ns: Option<f64>,
    parts: BTreeSet<Part>,
}

fn of_statistic(run: &RunKind, statistic: Statistic) -> Option<&BTreeMap<Part, f64>> {
    run.figures[statistic as usize].as_ref()
}

fn part_ns(run: &RunKind, statistic: Statistic, part: Option<Part>) -> f64 {
    let figures = of_statistic(run, statistic);
    match part {
        None => figures.map_or(0.0, |parts| parts.values().sum()),
        Some(part) => figures.and_then(|parts| parts.get(&part)).copied().unwrap_or(0.0),
    }
}

fn average(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// Takes the median, so that one run with a disturbed calibration has no influence.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

impl<'r> Sides<'r> {
    pub fn of(a: &'r [Run], a_kind: Kind, b: &'r [Run], b_kind: Kind) -> Sides<'r> {
        let of = |runs: &'r [Run], kind| -> Vec<&'r RunKind> {
            runs.iter().filter_map(|run| run.kinds.get(&kind)).collect()
        };
        let cost = |runs: &[Run], kind| {
            let costs: Option<Vec<f64>> = runs.iter().map(|run| run.probe_cost_ns(kind)).collect();
            costs.map(median)
        };
        let (of_a, of_b) = (of(a, a_kind), of(b, b_kind));
        let figures = of_a.iter().chain(&of_b).flat_map(|run| run.figures.iter().flatten());
        Sides {
            a_kind,
            b_kind,
            parts: figures.flat_map(|parts| parts.keys().copied()).collect(),
            a: of_a,
            b: of_b,
            a_probe_cost_ns: cost(a, a_kind),
            b_probe_cost_ns: cost(b, b_kind),
        }
    }

    /// Adds the differences of all quantities to `judge`. Only for pairs.
    pub fn add_to(&self, judge: &mut Judge, place: usize) {
        let mean_ns = self.mean_ns();
        for statistic in self.statistics() {
            let parts = self.parts.iter().map(|part| Some(*part));
            for part in parts.chain([None]) {
                let pairs = self.a.iter().zip(&self.b);
                let differences: Vec<f64> = pairs
                    .map(|(a, b)| part_ns(b, statistic, part) - part_ns(a, statistic, part))
                    .collect();
                judge.add(Quantity { kind: place, statistic, part }, &differences, mean_ns);
            }
        }
    }

    /// The statistics that every run has enough requests for.
    fn statistics(&self) -> impl Iterator<Item = Statistic> + '_ {
        Statistic::ALL.into_iter().filter(|statistic| {
            self.a.iter().chain(&self.b).all(|run| of_statistic(run, *statistic).is_some())
        })
    }

    fn mean_ns(&self) -> f64 {
        average(self.a.iter().map(|run| part_ns(run, Statistic::Mean, None)))
    }

    fn least_ns(&self) -> f64 {
        let probe_ns =
            self.a_probe_cost_ns.zip(self.b_probe_cost_ns).map_or(0.0, |(a, b)| (b - a).abs());
        (LEAST_OF_MEAN * self.mean_ns()).max(probe_ns)
    }

    /// Compares the sides. `place`: index of the kind among the kinds that are judged together.
    pub fn compare(
        &self,
        place: usize,
        judgement: Option<&Judgement>,
        basis: Basis,
    ) -> KindComparison {
        let series = match (basis, &self.a[..], &self.b[..]) {
            (Basis::OneCaptureEach, [a], [b]) => a.series.as_ref().zip(b.series.as_ref()),
            _ => None,
        };
        let resampled = series.and_then(|(a, b)| a.resampled(1).zip(b.resampled(2)));
        let no_intervals = series.filter(|_| resampled.is_none()).map(|(a, b)| NoIntervals {
            a_requests: a.requests(),
            b_requests: b.requests(),
            block_requests: a.block_length.max(b.block_length) as u64,
            blocks_needed: FEWEST_BLOCKS as u64,
        });
        let statistics: Vec<_> = self
            .statistics()
            .map(|statistic| self.statistic(place, statistic, judgement, resampled.as_ref()))
            .collect();
        let sum = |runs: &[&RunKind], of: fn(&RunKind) -> u64| runs.iter().map(|run| of(run)).sum();
        let mean_change_ns = statistics
            .iter()
            .find(|of| of.statistic == Statistic::Mean)
            .map_or(0, |of| of.total.change_ns);
        KindComparison {
            kind: self.a_kind,
            b_kind: self.b_kind,
            a_requests: sum(&self.a, |run| run.complete),
            b_requests: sum(&self.b, |run| run.complete),
            a_incomplete: sum(&self.a, |run| run.incomplete),
            b_incomplete: sum(&self.b, |run| run.incomplete),
            a_probe_cost_ns: self.a_probe_cost_ns,
            b_probe_cost_ns: self.b_probe_cost_ns,
            least_ns: self.least_ns(),
            verdict: match judgement {
                None => Verdict::NoVerdict,
                Some(_) if statistics.iter().any(StatisticComparison::is_changed) => {
                    Verdict::Changed
                }
                Some(_) => Verdict::NoDifferenceShown,
            },
            too_few_for: Statistic::ALL
                .into_iter()
                .filter(|statistic| statistics.iter().all(|of| of.statistic != *statistic))
                .collect(),
            shift: self.shift(basis, resampled.as_ref()),
            no_intervals,
            statistics,
            names: self.names(),
            methods: self.methods(mean_change_ns),
        }
    }

    fn shift(&self, basis: Basis, resampled: Option<&(Resampled, Resampled)>) -> Vec<ShiftPoint> {
        let of = |runs: &[&'r RunKind]| -> Vec<&'r [f64]> {
            runs.iter().map(|run| run.quantiles_ns.as_slice()).collect()
        };
        let paired = matches!(basis, Basis::RandomPairs | Basis::Neighbours);
        let resampled = resampled.map(|(a, b)| (&a.quantiles[..], &b.quantiles[..]));
        shift(&of(&self.a), &of(&self.b), paired, resampled)
    }

    fn statistic(
        &self,
        place: usize,
        statistic: Statistic,
        judgement: Option<&Judgement>,
        resampled: Option<&(Resampled, Resampled)>,
    ) -> StatisticComparison {
        let parts: Vec<Part> = self.parts.iter().copied().collect();
        let of_side = |runs: &[&RunKind]| -> Vec<f64> {
            let of_part =
                |part: &Part| average(runs.iter().map(|run| part_ns(run, statistic, Some(*part))));
            parts.iter().map(of_part).collect()
        };
        let (a_total_ns, a_ns) = rounded(&of_side(&self.a));
        let (b_total_ns, b_ns) = rounded(&of_side(&self.b));
        let least_ns = self.least_ns();
        let change = |part: Option<Part>, a_ns: i64, b_ns: i64| {
            let change_ns = b_ns - a_ns;
            let judged =
                judgement.and_then(|all| all.of(Quantity { kind: place, statistic, part }));
            let within = resampled.and_then(|(a, b)| match part {
                None => {
                    let (a, b) = (&a.totals[statistic as usize], &b.totals[statistic as usize]);
                    interval_of_difference(a.as_deref()?, b.as_deref()?)
                }
                Some(part) if statistic == Statistic::Mean => {
                    let none = vec![0.0; a.means.values().chain(b.means.values()).next()?.len()];
                    let of =
                        |side: &Resampled| side.means.get(&part).cloned().unwrap_or(none.clone());
                    interval_of_difference(&of(a), &of(b))
                }
                Some(_) => None,
            });
            Change {
                a_ns,
                b_ns,
                change_ns,
                change_of_total: (a_total_ns > 0).then(|| change_ns as f64 / a_total_ns as f64),
                interval_ns: judged.and_then(|judged| judged.interval_95_ns).or(within),
                p: judged.map(|judged| judged.p),
                shown: judged.is_some_and(|judged| {
                    judged.p <= LEVEL && change_ns.unsigned_abs() as f64 >= least_ns
                }),
                detectable_ns: judged
                    .and_then(|judged| judged.detectable_ns)
                    .map(|ns| ns.max(least_ns)),
            }
        };
        let total = change(None, a_total_ns, b_total_ns);
        let of_part = |((part, a_ns), b_ns): ((&Part, &i64), &i64)| {
            let change = change(Some(*part), *a_ns, *b_ns);
            let unmeasured =
                |run: &&RunKind| run.evidence.get(part).is_some_and(|[_, not]| *not > 0);
            PartChange {
                category: part.0,
                side: part.1,
                change,
                share_of_change: (total.change_ns != 0)
                    .then(|| change.change_ns as f64 / total.change_ns as f64),
                modelled: self.a.iter().chain(&self.b).any(unmeasured),
            }
        };
        let mut parts: Vec<_> = parts.iter().zip(&a_ns).zip(&b_ns).map(of_part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.change.change_ns.unsigned_abs()));
        StatisticComparison { statistic, total, parts }
    }

    fn names(&self) -> Vec<NameChange> {
        let all: BTreeSet<&Name> =
            self.a.iter().chain(&self.b).flat_map(|run| run.names.keys()).collect();
        let of = |runs: &[&RunKind], name: &Name| {
            average(runs.iter().map(|run| run.names.get(name).copied().unwrap_or(0.0)))
        };
        let mut changes: Vec<_> = all
            .into_iter()
            .map(|name| {
                let (a_ns, b_ns) = (of(&self.a, name), of(&self.b, name));
                let Name { part: (category, side), says, name } = name.clone();
                NameChange { category, side, says, name, a_ns, b_ns, change_ns: b_ns - a_ns }
            })
            .filter(|change| change.change_ns.abs() >= LEAST_NAMED * self.mean_ns())
            .collect();
        changes.sort_by(|a, b| b.change_ns.abs().total_cmp(&a.change_ns.abs()));
        changes.truncate(MOST_NAMES);
        changes
    }

    fn methods(&self, mean_change_ns: i64) -> Option<MixOfMethods> {
        let all: BTreeSet<&Option<String>> =
            self.a.iter().chain(&self.b).flat_map(|run| run.methods.keys()).collect();
        if all.len() < 2 {
            return None;
        }
        // Shares and means are chosen such that `sum of share x mean` is the average of the runs'
        // means.
        let of = |runs: &[&RunKind], method: &Option<String>| {
            let mut group = Group::default();
            for run in runs {
                let Some(of_run) = run.methods.get(method) else { continue };
                let share = of_run.requests as f64 / run.complete as f64 / runs.len() as f64;
                let mean = of_run.latency_ns as f64 / of_run.requests as f64;
                group.share += share;
                group.mean += share * mean;
            }
            if group.share > 0.0 {
                group.mean /= group.share;
            }
            group
        };
        let mut groups: Vec<_> = all
            .into_iter()
            .map(|method| (method, of(&self.a, method), of(&self.b, method)))
            .collect();
        let weighted = |group: &Group| group.share * group.mean;
        let side_mean = |of: fn(&(&Option<String>, Group, Group)) -> Group| {
            groups.iter().map(|group| weighted(&of(group))).sum::<f64>()
        };
        let overall = (side_mean(|group| group.1) + side_mean(|group| group.2)) / 2.0;
        let contributions = |groups: &[(&Option<String>, Group, Group)]| -> Vec<f64> {
            let of = |(_, a, b): &(&Option<String>, Group, Group)| contribution(*a, *b, overall);
            groups.iter().map(of).flat_map(|part| [part.mix, part.within]).collect()
        };
        groups.sort_by(|x, y| {
            let size = |(_, a, b): &(&Option<String>, Group, Group)| {
                let part = contribution(*a, *b, overall);
                part.mix.abs() + part.within.abs()
            };
            size(y).total_cmp(&size(x))
        });
        let parts = apportion(mean_change_ns, &contributions(&groups));
        let mean = |group: &Group| (group.share > 0.0).then_some(group.mean);
        let mut methods: Vec<_> = groups
            .iter()
            .zip(parts.chunks(2))
            .map(|((method, a, b), parts)| MethodChange {
                method: (*method).clone(),
                others: 0,
                a_share: a.share,
                b_share: b.share,
                a_mean_ns: mean(a),
                b_mean_ns: mean(b),
                mix_ns: parts[0],
                within_ns: parts[1],
            })
            .collect();
        let (mix_ns, within_ns) = methods
            .iter()
            .fold((0, 0), |(mix, within), of| (mix + of.mix_ns, within + of.within_ns));
        if methods.len() > MOST_METHODS {
            let others = methods.split_off(MOST_METHODS - 1);
            methods.push(summed_up(&others));
        }
        Some(MixOfMethods { mix_ns, within_ns, methods })
    }
}

fn summed_up(others: &[MethodChange]) -> MethodChange {
    let side = |share: fn(&MethodChange) -> f64, mean: fn(&MethodChange) -> Option<f64>| {
        let shares: f64 = others.iter().map(share).sum();
        let total: f64 = others.iter().map(|of| share(of) * mean(of).unwrap_or(0.0)).sum();
        (shares, (shares > 0.0).then(|| total / shares))
    };
    let (a_share, a_mean_ns) = side(|of| of.a_share, |of| of.a_mean_ns);
    let (b_share, b_mean_ns) = side(|of| of.b_share, |of| of.b_mean_ns);
    MethodChange {
        method: None,
        others: others.len(),
        a_share,
        b_share,
        a_mean_ns,
        b_mean_ns,
        mix_ns: others.iter().map(|of| of.mix_ns).sum(),
        within_ns: others.iter().map(|of| of.within_ns).sum(),
    }
}
