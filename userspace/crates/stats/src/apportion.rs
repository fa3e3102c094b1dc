//! Rounding to integers that sum to a given integer.

/// Rounds `parts` to integers that sum to `total`, by largest remainder: each part is rounded down or up, and the parts
/// with the largest remainders are rounded up. If the sum of the parts differs from `total` by more than their number,
/// the rest goes to the largest part, so that the sum always holds.
pub fn apportion(total: i64, parts: &[f64]) -> Vec<i64> {
    let mut rounded: Vec<i64> = parts.iter().map(|part| part.floor() as i64).collect();
    let mut by_remainder: Vec<usize> = (0..parts.len()).collect();
    by_remainder.sort_by(|a, b| {
        let remainder = |i: &usize| parts[*i] - parts[*i].floor();
        remainder(b).total_cmp(&remainder(a)).then(a.cmp(b))
    });
    let missing = |rounded: &[i64]| total - rounded.iter().sum::<i64>();
    let up = missing(&rounded).clamp(0, parts.len() as i64) as usize;
    for i in &by_remainder[..up] {
        rounded[*i] += 1;
    }
    let rest = missing(&rounded);
    let largest = (0..parts.len()).max_by(|a, b| parts[*a].abs().total_cmp(&parts[*b].abs()));
    if let (true, Some(largest)) = (rest != 0, largest) {
        rounded[largest] += rest;
    }
    rounded
}

/// Rounds `parts` to integers, and their sum as well. The integers sum to the rounded sum.
pub fn rounded(parts: &[f64]) -> (i64, Vec<i64>) {
    let total = parts.iter().sum::<f64>().round() as i64;
    (total, apportion(total, parts))
}

/// Returns whole numbers in proportion to `sums` that add up to `total`. The largest remainders are rounded up; of
/// equal remainders, the first. All numbers are 0 if all `sums` are.
pub fn in_proportion(sums: &[u128], total: u64) -> Vec<u64> {
    let whole: u128 = sums.iter().sum();
    if whole == 0 {
        return vec![0; sums.len()];
    }
    let scaled = |sum: &u128| sum.saturating_mul(total.into());
    let mut shares: Vec<u64> =
        sums.iter().map(|sum| u64::try_from(scaled(sum) / whole).unwrap_or(u64::MAX)).collect();
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(scaled(&sums[*i]) % whole));
    let missing = total.saturating_sub(shares.iter().sum());
    for i in order.into_iter().take(usize::try_from(missing).unwrap_or(usize::MAX)) {
        shares[i] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_remainders_are_rounded_up() {
        assert_eq!(apportion(10, &[3.4, 3.3, 3.3]), [4, 3, 3]);
        assert_eq!(apportion(0, &[0.4, -0.4]), [0, 0]);
        assert_eq!(apportion(-1, &[-0.6, -0.4]), [-1, 0]);
        assert_eq!(apportion(0, &[]), [] as [i64; 0]);
        assert_eq!(apportion(9, &[1.0, 2.0]), [2, 7]);
        assert_eq!(apportion(0, &[1.0, 2.0]), [1, -1]);
    }

    #[test]
    fn they_always_sum_up_and_are_close() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let parts: Vec<f64> =
                (0..random.usize(1..20)).map(|_| (random.f64() - 0.5) * 1e6).collect();
            let (total, integers) = rounded(&parts);
            assert_eq!(integers.iter().sum::<i64>(), total);
            assert!(integers.iter().zip(&parts).all(|(i, p)| (*i as f64 - p).abs() <= 1.0));
        }
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(in_proportion(&[1, 1, 1], 10), [4, 3, 3]);
        assert_eq!(in_proportion(&[10, 25, 65], 10), [1, 3, 6]);
        assert_eq!(in_proportion(&[0, 0], 10), [0, 0]);
        assert_eq!(in_proportion(&[], 10), [0; 0]);
        assert_eq!(in_proportion(&[5, 0], 0), [0, 0]);
    }
}
