//! Percentiles of any number of values in bounded memory.

use hdrhistogram::Histogram;

use super::units::nearest_rank;

/// Up to this many values are kept as they are. With more values, percentiles are within 0.1 %.
pub const EXACT_VALUES: usize = 1 << 15;
/// Larger values (more than a month) count as this one.
const LARGEST: u64 = 1 << 52;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A collection of values above 0.
#[derive(Default)]
pub struct Values {
    exact: Vec<u64>,
    counted: Option<Histogram<u32>>,
    max: u64,
}

impl Values {
    pub fn push(&mut self, value: u64) {
        self.max = self.max.max(value);
        if let Some(counted) = &mut self.counted {
            counted.saturating_record(value);
            return;
        }
        self.exact.push(value);
        if self.exact.len() > EXACT_VALUES {
            let bounds = Histogram::new_with_bounds(1, LARGEST, SIGNIFICANT_DIGITS);
            let mut counted = bounds.expect("as many digits, and such bounds, it can hold");
            for value in std::mem::take(&mut self.exact) {
                counted.saturating_record(value);
            }
            self.counted = Some(counted);
        }
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// As [`nearest_rank`]; `count` includes values of 0 that were not pushed.
    pub fn nearest_rank(&mut self, count: u64, percent: u32) -> u64 {
        self.rank_bounds(count, percent).1
    }

    /// Returns bounds of the result of [`Values::nearest_rank`], both inclusive. They differ only
    /// if the values are not kept as they are.
    pub fn rank_bounds(&mut self, count: u64, percent: u32) -> (u64, u64) {
        let Some(counted) = &self.counted else {
            self.exact.sort_unstable();
            let value = nearest_rank(&self.exact, count, percent);
            return (value, value);
        };
        let rank = (u128::from(percent) * u128::from(count)).div_ceil(100).max(1);
        let zeros = u128::from(count).saturating_sub(u128::from(counted.len()));
        let mut passed = zeros;
        if rank <= zeros {
            return (0, 0);
        }
        for step in counted.iter_recorded() {
            passed += u128::from(step.count_since_last_iteration());
            if passed >= rank {
                let highest = step.value_iterated_to();
                let lowest = counted.lowest_equivalent(highest);
                // Values beyond the histogram's range count as the maximum.
                let highest = if highest >= LARGEST { self.max } else { highest.min(self.max) };
                return (lowest.min(highest), highest);
            }
        }
        (self.max, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values over six orders of magnitude, in no particular order.
    fn value(i: u64) -> u64 {
        let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 + (mixed >> 40) * ((mixed & 0xff) + 1)
    }

    #[test]
    fn percentiles_are_exact_up_to_a_number_and_then_within_a_thousandth() {
        for count in [1, 1000, EXACT_VALUES as u64, EXACT_VALUES as u64 + 1, 500_000] {
            let mut values = Values::default();
            let mut all: Vec<u64> = (0..count).map(value).collect();
            for value in &all {
                values.push(*value);
            }
            all.sort_unstable();
            for (zeros, percent) in [(0, 50), (0, 99), (count, 50), (count, 90), (10 * count, 99)] {
                let exact = nearest_rank(&all, count + zeros, percent);
                let found = values.nearest_rank(count + zeros, percent);
                let most = if count <= EXACT_VALUES as u64 { 0 } else { exact / 1000 };
                assert!(
                    found.abs_diff(exact) <= most,
                    "{count} {zeros} {percent}: {found} {exact}"
                );
                let (from, to) = values.rank_bounds(count + zeros, percent);
                assert!(from <= exact && exact <= to && to == found, "{from} {exact} {to}");
            }
            assert_eq!(values.max(), all[all.len() - 1]);
        }
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let mut values = Values::default();
        for i in 0..=EXACT_VALUES as u64 {
            values.push(u64::MAX - i);
        }
        assert!(values.nearest_rank(EXACT_VALUES as u64, 99) >= LARGEST);
        assert_eq!(values.max(), u64::MAX);
    }
}
