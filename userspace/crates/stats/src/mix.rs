//! Splits the change of a mean into a changed mix of groups and changes within the groups.
//!
//! Kitagawa (1955), Oaxaca (1973), in the symmetric form: changes of shares are weighted by the average of both sides'
//! means, and changes of means by the average of both sides' shares. So neither side is the reference, and nothing is
//! left over.

/// One group (such as a method) on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Share of the requests, 0 to 1.
    pub share: f64,
    /// Mean of the group's requests; meaningless if `share` is 0.
    pub mean: f64,
}

/// What a group contributes to `B's mean - A's mean`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Contribution {
    /// Because the group's share changed.
    pub mix: f64,
    /// Because the group's own mean changed.
    pub within: f64,
}

/// Splits the change from `a` to `b`. The contributions of all groups sum to the change exactly, if the shares of each
/// side sum to 1. A group that only one side has counts entirely as mix. `overall`, the average of both sides' overall
/// means, is subtracted from each group's mean. A group's mix is then its effect on the mean beyond replacing average
/// requests.
pub fn contribution(a: Group, b: Group, overall: f64) -> Contribution {
    // If a mean is not known, uses the other side's.
    let a_mean = if a.share > 0.0 { a.mean } else { b.mean };
    let b_mean = if b.share > 0.0 { b.mean } else { a.mean };
    Contribution {
        mix: (b.share - a.share) * ((a_mean + b_mean) / 2.0 - overall),
        within: (b_mean - a_mean) * (a.share + b.share) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributions_sum_to_the_change() {
        let a = [(0.5, 10.0), (0.5, 30.0), (0.0, 0.0)];
        let b = [(0.2, 12.0), (0.5, 30.0), (0.3, 99.0)];
        let group = |(share, mean)| Group { share, mean };
        let mean = |side: &[(f64, f64)]| side.iter().map(|(share, mean)| share * mean).sum::<f64>();
        let overall = (mean(&a) + mean(&b)) / 2.0;
        let parts: Vec<_> =
            a.into_iter().zip(b).map(|(a, b)| contribution(group(a), group(b), overall)).collect();
        let sum: f64 = parts.iter().map(|part| part.mix + part.within).sum();
        assert!((sum - (mean(&b) - mean(&a))).abs() < 1e-9);
        assert_eq!(parts[1], Contribution { mix: 0.0, within: 0.0 });
        assert_eq!(parts[2].within, 0.0);
        assert!((parts[0].within - 2.0 * 0.35).abs() < 1e-9);
    }
}
