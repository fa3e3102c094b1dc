//! Compares all kinds of request that both sides have.

use std::collections::BTreeSet;

use anyhow::{bail, Result};

use super::comparison::{Basis, Comparison, KindComparison, NotCompared, SideSummary, Verdict};
use super::judge::{Judge, Judgement, LEVEL};
use super::run::Run;
use super::sides::Sides;
use crate::model::Kind;
use crate::stats::sign_flips::smallest_p;

/// Compares the runs of two sides. With pairs, `a[i]` and `b[i]` form a pair.
///
/// # Errors
/// When a side has no runs, or the two have no kind of request in common.
pub fn compare(
    a_what: String,
    a: &[Run],
    b_what: String,
    b: &[Run],
    basis: Basis,
) -> Result<Comparison> {
    if a.is_empty() || b.is_empty() {
        bail!("nothing to compare: {} has no runs", if a.is_empty() { "A" } else { "B" });
    }
    let (matched, not_compared) = matched(a, b)?;
    let sides: Vec<Sides> =
        matched.into_iter().map(|(a_kind, b_kind)| Sides::of(a, a_kind, b, b_kind)).collect();
    let paired = matches!(basis, Basis::RandomPairs | Basis::Neighbours);
    let pairs = if paired { a.len() } else { 0 };
    let judgement = paired.then(|| judge(&sides));
    let kinds: Vec<_> = sides
        .iter()
        .enumerate()
        .map(|(place, sides)| sides.compare(place, judgement.as_ref(), basis))
        .collect();
    let (level, smallest_p) = (LEVEL, smallest_p(pairs));
    let no_verdict = match basis {
        Basis::OneCaptureEach => {
            Some("one capture a side: the variation between runs is not known".to_owned())
        }
        Basis::Unpaired => Some(
            "the runs do not form pairs in time: drift of the machine cannot be told from a change"
                .to_owned(),
        ),
        _ if smallest_p > level => {
            Some(format!("{pairs} pairs cannot show a change at p <= {level}: 8 can"))
        }
        _ => None,
    };
    let verdict = match &no_verdict {
        Some(_) => Verdict::NoVerdict,
        None if kinds.iter().any(|kind| kind.verdict == Verdict::Changed) => Verdict::Changed,
        None => Verdict::NoDifferenceShown,
    };
    let warnings = warnings(a, b, &kinds);
    let side = |what, runs: &[Run]| SideSummary {
        what,
        runs: runs.iter().map(|run| run.name.clone()).collect(),
    };
    Ok(Comparison {
        a: side(a_what, a),
        b: side(b_what, b),
        basis,
        pairs,
        level,
        smallest_p,
        flips: judgement.map_or(0, |judgement| judgement.flips),
        verdict,
        no_verdict,
        kinds,
        not_compared,
        warnings,
    })
}

/// A's kind, and B's kind that it is compared with.
type Matched = (Kind, Kind);

/// Returns the kinds that every run has, and the other kinds.
fn matched(a: &[Run], b: &[Run]) -> Result<(Vec<Matched>, Vec<NotCompared>)> {
    let runs_with = |runs: &[Run], kind: Kind| {
        runs.iter().filter(|run| run.kinds.get(&kind).is_some_and(|k| k.complete > 0)).count()
    };
    let (mut both, mut only_a, mut only_b, mut not_compared) = (vec![], vec![], vec![], vec![]);
    for kind in crate::report::ORDER {
        let (in_a, in_b) = (runs_with(a, kind), runs_with(b, kind));
        match (in_a == a.len(), in_b == b.len()) {
            (true, true) => both.push((kind, kind)),
            (true, false) if in_b == 0 => only_a.push(kind),
            (false, true) if in_a == 0 => only_b.push(kind),
            _ if in_a + in_b == 0 => {}
            _ => not_compared.push(NotCompared { kind, a_runs: in_a, b_runs: in_b }),
        }
    }
    // One transport is compared with another if each side has exactly one further kind.
    match (&only_a[..], &only_b[..]) {
        ([of_a], [of_b]) => both.push((*of_a, *of_b)),
        _ => {
            let of_a =
                only_a.iter().map(|kind| NotCompared { kind: *kind, a_runs: a.len(), b_runs: 0 });
            let of_b =
                only_b.iter().map(|kind| NotCompared { kind: *kind, a_runs: 0, b_runs: b.len() });
            not_compared.extend(of_a.chain(of_b));
        }
    }
    if both.is_empty() {
        let named = |runs: &[Run]| {
            let kinds: BTreeSet<_> = runs.iter().flat_map(|run| run.kinds.keys()).collect();
            match kinds.is_empty() {
                true => "no requests".to_owned(),
                false => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", "),
            }
        };
        bail!(
            "nothing to compare: no kind of request has complete requests in every run of both sides \
             (A: {}; B: {})",
            named(a),
            named(b)
        );
    }
    // The life of the whole program shows nothing that its requests do not show better.
    if both.len() > 1 {
        both.retain(|(kind, _)| *kind != Kind::Process);
    }
    Ok((both, not_compared))
}

fn judge(sides: &[Sides]) -> Judgement {
    let mut judge = Judge::default();
    sides.iter().enumerate().for_each(|(place, sides)| sides.add_to(&mut judge, place));
    judge.judge()
}

fn warnings(a: &[Run], b: &[Run], kinds: &[KindComparison]) -> Vec<String> {
    let mut warnings = Vec::new();
    let all = || a.iter().chain(b);
    let lost: u64 = all().map(|run| run.manifest.counts.records_lost).sum();
    if lost > 0 {
        let of: Vec<_> = all().filter(|run| run.manifest.counts.records_lost > 0).collect();
        warnings.push(format!(
            "{lost} records lost in {} of {} captures; the requests they touch are incomplete and not \
             in the figures",
            of.len(),
            all().count()
        ));
    }
    for kind in kinds {
        let share = |incomplete: u64, complete: u64| {
            incomplete as f64 / (incomplete + complete).max(1) as f64
        };
        let (a, b) =
            (share(kind.a_incomplete, kind.a_requests), share(kind.b_incomplete, kind.b_requests));
        if a.max(b) > 0.01 {
            warnings.push(format!(
                "{}: {:.1} % of A's and {:.1} % of B's requests are incomplete and not in the figures",
                kind.kind,
                a * 100.0,
                b * 100.0
            ));
        }
    }
    for (what, of) in [
        ("hosts", (|run: &Run| run.manifest.host.name.clone()) as fn(&Run) -> String),
        ("kernels", |run| run.manifest.host.kernel.clone()),
        ("versions of rpcprobe", |run| run.manifest.rpcprobe_version.clone()),
    ] {
        let values: BTreeSet<String> = all().map(of).collect();
        if values.len() > 1 {
            let list: Vec<_> = values.into_iter().collect();
            warnings.push(format!("the captures are of different {what}: {}", list.join(", ")));
        }
    }
    warnings
}
