//! Paired test of many quantities at once: sign flips with the largest studentized mean.
//!
//! Each pair of runs gives one difference per quantity. If the order within each pair was drawn at random and nothing
//! differs, then each pair's differences, for all quantities together, were as likely to have the opposite sign. Each
//! observed |t| is judged against the distribution of the largest |t| over all quantities, over all flips of signs
//! (Westfall and Young, 1993). The probability of any false alarm among all quantities is then at most the level,
//! whatever their dependence.

/// Up to this many pairs, all flips are tried. With more pairs, 2 to this power flips are drawn at random.
const EXACT_UP_TO: usize = 14;
/// A difference counts as at most this many times the median difference of its quantity, both in absolute value. Then a
/// single disturbed run does not hide a change that all other runs show: in the simulation of the tests below, nearly
/// all such changes are found instead of about half. Flips change only signs, so the limit is the same under all flips,
/// and the test stays exact.
const CLIPPED_AT: f64 = 1.5;
/// Seed of the flips drawn at random, so that results are reproducible.
const SEED: u64 = 0x5eed;

/// The result for one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// Mean of the differences.
    pub mean: f64,
    /// Standard error of the mean of the clipped differences; `None` with one pair.
    pub standard_error: Option<f64>,
    /// Probability that any quantity looks as extreme as this one if nothing differs.
    pub p: f64,
    /// 95 % interval of the difference, for this quantity by itself; `None` with fewer than 6 pairs.
    pub interval_95: Option<(f64, f64)>,
}

/// The results for the whole family of quantities.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub tested: Vec<Tested>,
    /// A quantity with |t| above this has p <= `level`; `None` if so few pairs cannot reach it.
    pub critical_t: Option<f64>,
    /// Number of flips tried, including the identity.
    pub flips: u64,
}

/// The 95 % interval of the mean of differences, one difference per pair; `None` with fewer than 6 pairs.
pub fn interval_95(differences: &[f64]) -> Option<(f64, f64)> {
    interval(differences, 0.95)
}

/// The smallest p that this many pairs can give.
pub fn smallest_p(pairs: usize) -> f64 {
    match pairs {
        0 => 1.0,
        pairs => 2.0 / 2_f64.powi(pairs.min(EXACT_UP_TO) as i32),
    }
}

/// Tests whether the mean of each quantity's differences is 0.
///
/// `differences[q][pair]`: all of the same length. `floor` is added to each standard error (in the unit of the
/// differences). It prevents a quantity that hardly varies from becoming significant through an irrelevant difference,
/// or from raising the threshold for all other quantities. `level`: the level of [`Family::critical_t`].
pub fn sign_flips(differences: &[Vec<f64>], floor: f64, level: f64) -> Family {
    with_limit(differences, floor, level, CLIPPED_AT)
}

fn with_limit(whole: &[Vec<f64>], floor: f64, level: f64, limit: f64) -> Family {
    let differences: Vec<Vec<f64>> = whole.iter().map(|d| clipped(d, limit)).collect();
    let pairs = differences.first().map_or(0, Vec::len);
    let flips = flips(pairs);
    let squares: Vec<f64> = differences.iter().map(|d| d.iter().map(|x| x * x).sum()).collect();
    let mut largest = Vec::with_capacity(flips.len());
    for flip in &flips {
        let t = differences.iter().zip(&squares).map(|(d, square)| {
            let sum: f64 = d.iter().enumerate().map(|(i, x)| signed(*x, flip >> i & 1 == 1)).sum();
            student(sum, *square, pairs, floor)
        });
        largest.push(t.fold(0.0, f64::max));
    }
    largest.sort_by(f64::total_cmp);
    let count = largest.len();
    let tested = differences
        .iter()
        .zip(&squares)
        .zip(whole)
        .map(|((d, square), whole)| {
            let sum: f64 = d.iter().sum();
            let t = student(sum, *square, pairs, floor);
            // Values that differ only by rounding count as equal.
            let below = largest.partition_point(|other| *other < t * (1.0 - 1e-9));
            Tested {
                mean: whole.iter().sum::<f64>() / pairs.max(1) as f64,
                standard_error: standard_error(sum, *square, pairs),
                p: ((count - below) as f64 / count.max(1) as f64).min(1.0),
                interval_95: interval(whole, 0.95),
            }
        })
        .collect();
    let allowed = (level * count as f64).floor() as usize;
    let critical_t = (allowed >= 2).then(|| largest.get(count.wrapping_sub(allowed + 1)).copied());
    Family { tested, critical_t: critical_t.flatten(), flips: count as u64 }
}

fn clipped(differences: &[f64], limit: f64) -> Vec<f64> {
    let mut sizes: Vec<f64> = differences.iter().map(|x| x.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let middle = sizes.len() / 2;
    let median = match sizes.len() {
        0 => return Vec::new(),
        count if count % 2 == 1 => sizes[middle],
        _ => (sizes[middle - 1] + sizes[middle]) / 2.0,
    };
    // If most differences are 0, the others are the only information and are not limited.
    let most = if median > 0.0 { limit * median } else { f64::INFINITY };
    differences.iter().map(|x| x.clamp(-most, most)).collect()
}

fn signed(value: f64, flipped: bool) -> f64 {
    if flipped {
        -value
    } else {
        value
    }
}

/// Returns flips as bit masks of the pairs to flip. The opposite of each flip is also included.
fn flips(pairs: usize) -> Vec<u64> {
    if pairs <= EXACT_UP_TO {
        return (0..1_u64 << pairs).collect();
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let drawn = (1..1 << (EXACT_UP_TO - 1)).map(|_| random.u64(..));
    [0].into_iter().chain(drawn).flat_map(|flip| [flip, !flip]).collect()
}

fn standard_error(sum: f64, square: f64, pairs: usize) -> Option<f64> {
    let k = pairs as f64;
    (pairs > 1).then(|| ((square - sum * sum / k).max(0.0) / (k * (k - 1.0))).sqrt())
}

/// Returns |mean| / (standard error + floor).
fn student(sum: f64, square: f64, pairs: usize, floor: f64) -> f64 {
    let mean = (sum / pairs.max(1) as f64).abs();
    let error = standard_error(sum, square, pairs).unwrap_or(mean) + floor;
    match mean > 0.0 && error > 0.0 {
        true => mean / error,
        // Without variance and floor, any difference is beyond chance.
        false if mean > 0.0 => f64::MAX,
        false => 0.0,
    }
}

/// Returns the interval that holds the true difference with at least this confidence, by inverting the sign-flip test
/// of the mean. Its ends are means of subsets of the differences (Hartigan, "Using subsample values as typical values",
/// JASA 64, 1969).
fn interval(differences: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let subsets: Vec<u64> = match differences.len() {
        0 => return None,
        pairs if pairs <= EXACT_UP_TO => (1..1_u64 << pairs).collect(),
        pairs => flips(pairs).into_iter().filter(|set| set << (64 - pairs.min(64)) != 0).collect(),
    };
    let mut means: Vec<f64> = subsets
        .iter()
        .map(|set| {
            let members = differences.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
            let (sum, count) = members.fold((0.0, 0), |(sum, n), (_, x)| (sum + x, n + 1));
            sum / f64::from(count)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    // Between the j-th smallest and the j-th largest of m typical values, the confidence is 1 - 2j/(m+1).
    let j = ((1.0 - confidence) / 2.0 * (means.len() + 1) as f64).floor() as usize;
    (j >= 1).then(|| (means[j - 1], means[means.len() - j]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_pairs_reach_one_in_128() {
        let d = vec![
            vec![5.0, 5.1, 4.9, 5.2, 4.8, 5.0, 5.05, 4.95],
            vec![1.0, -1.0, 2.0, -2.0, 1.5, -1.5, 0.5, -0.5],
        ];
        let family = sign_flips(&d, 0.0, 0.01);
        assert_eq!(family.flips, 256);
        assert_eq!(family.tested[0].p, 2.0 / 256.0);
        assert_eq!(smallest_p(8), 2.0 / 256.0);
        assert!(family.tested[1].p > 0.9, "{family:?}");
        assert!((family.tested[0].mean - 5.0).abs() < 1e-9);
        let (low, high) = family.tested[0].interval_95.unwrap();
        assert!(low > 4.8 && low < 5.0 && high > 5.0 && high < 5.2, "{low} {high}");
    }

    #[test]
    fn few_pairs_show_nothing() {
        for pairs in [0, 1, 2, 5] {
            let family = sign_flips(&[vec![9.0; pairs]], 0.1, 0.01);
            assert!(family.tested[0].p >= smallest_p(pairs));
            assert!(family.tested[0].p > 0.05);
            assert_eq!(family.tested[0].interval_95, None);
            assert_eq!(family.critical_t, None);
        }
        assert!(sign_flips(&[], 0.0, 0.01).tested.is_empty());
    }

    #[test]
    fn a_difference_below_the_floor_is_not_extreme() {
        let tiny = vec![1e-6; 8];
        let noise = vec![3.0, -1.0, 2.0, -2.5, 1.0, 0.5, -0.5, 1.5];
        let family = sign_flips(&[tiny.clone(), noise.clone()], 1.0, 0.01);
        assert!(family.tested[0].p > 0.5, "{family:?}");
        // Without a floor, the tiny difference is extreme.
        let family = sign_flips(&[tiny, noise], 0.0, 0.01);
        assert_eq!(family.tested[0].p, 2.0 / 256.0);
    }

    /// False alarms are no more frequent than the level, with many quantities and no difference.
    #[test]
    fn false_alarms_are_as_rare_as_the_level() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let trials = 2_000;
        let mut alarms = 0;
        for _ in 0..trials {
            let differences: Vec<Vec<f64>> =
                (0..10).map(|q| (0..8).map(|_| normal() * f64::from(1 << q)).collect()).collect();
            let family = sign_flips(&differences, 0.0, 0.05);
            alarms += u32::from(family.tested.iter().any(|tested| tested.p <= 0.05));
        }
        // Expected: 12/256 = 4.7 % of 2,000 = 94, standard deviation 9.5.
        assert!((55..135).contains(&alarms), "{alarms} of {trials}");
    }

    /// A change of 5 in all runs, one in eight of which is disturbed by up to 30, among a hundred quantities without a
    /// change and with noise of various sizes.
    #[test]
    fn a_disturbed_run_does_not_hide_a_change() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut found = [0, 0];
        for _ in 0..60 {
            let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let mut differences: Vec<Vec<f64>> = (0..100)
                .map(|q| (0..8).map(|_| normal() * 1.07_f64.powi(q) / 100.0).collect())
                .collect();
            differences.push((0..8).map(|_| 5.0 + normal() / 5.0).collect());
            for x in differences.last_mut().into_iter().flatten() {
                if random.u32(..8) == 0 {
                    *x += 30.0 * random.f64();
                }
            }
            for (found, limit) in found.iter_mut().zip([f64::INFINITY, CLIPPED_AT]) {
                let family = with_limit(&differences, 0.1, 0.01, limit);
                *found += u32::from(family.tested.last().is_some_and(|of| of.p <= 0.01));
            }
        }
        assert!(found[1] >= 55 && found[0] <= 40, "{found:?} of 60");
    }

    #[test]
    fn intervals_cover() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let covered = (0..2_000)
            .filter(|_| {
                let d: Vec<f64> = (0..8).map(|_| normal() + 3.0).collect();
                let (low, high) = interval(&d, 0.95).unwrap();
                low <= 3.0 && 3.0 <= high
            })
            .count();
        assert!((1_860..1_960).contains(&covered), "{covered}");
    }

    #[test]
    fn many_pairs_are_sampled() {
        let d: Vec<f64> = (0..40).map(|i| 1.0 + f64::from(i % 7) / 10.0).collect();
        let family = sign_flips(&[d], 0.0, 0.01);
        assert_eq!(family.flips, 1 << 14);
        assert!(family.tested[0].p <= 0.001);
        let (low, high) = family.tested[0].interval_95.unwrap();
        assert!(low < 1.3 && 1.3 < high && high - low < 0.3, "{low} {high}");
    }
}
