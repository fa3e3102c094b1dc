//! Finds the largest of any number of named sums, in bounded memory.

use std::collections::HashMap;

/// Sums by name. Exact up to `2 * keep` different names. With more names, every name with over 1/`keep` of the whole is
/// kept, and its sum is too small by at most that fraction (Misra and Gries).
pub struct Largest {
    sums: HashMap<String, u128>,
    keep: usize,
    is_exact: bool,
}

impl Largest {
    pub fn new(keep: usize) -> Largest {
        Largest { sums: HashMap::new(), keep: keep.max(1), is_exact: true }
    }

    pub fn add(&mut self, name: &str, weight: u128) {
        // Looks the name up before it copies it: most names are repeated.
        match self.sums.get_mut(name) {
            Some(sum) => *sum += weight,
            None => {
                self.sums.insert(name.to_owned(), weight);
                self.cut();
            }
        }
    }

    /// Subtracts the `keep`th largest sum from every sum, and drops the names with nothing left.
    fn cut(&mut self) {
        if self.sums.len() <= 2 * self.keep {
            return;
        }
        let mut sums: Vec<u128> = self.sums.values().copied().collect();
        let (_, &mut taken, _) = sums.select_nth_unstable_by(self.keep - 1, |a, b| b.cmp(a));
        self.sums.retain(|_, sum| {
            *sum = sum.saturating_sub(taken);
            *sum > 0
        });
        self.is_exact = false;
    }

    /// Whether no name was ever dropped.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns all kept names, the largest sum first; names with equal sums in alphabetical order.
    pub fn sorted(&self) -> Vec<(&str, u128)> {
        let mut sums: Vec<_> = self.sums.iter().map(|(name, sum)| (&**name, *sum)).collect();
        sums.sort_unstable_by(|(a_name, a), (b_name, b)| b.cmp(a).then(a_name.cmp(b_name)));
        sums
    }

    /// Returns the name with at least `percent` of `whole`, and its sum. From 51 % on only one name can qualify.
    pub fn dominant(&self, whole: u128, percent: u128) -> Option<(&str, u128)> {
        let largest = self.sums.iter().max_by(|(a_name, a), (b_name, b)| {
            a.cmp(b).then_with(|| b_name.cmp(a_name)) // of equal sums, the first by name
        });
        let (name, sum) = largest?;
        (*sum > 0 && sum.saturating_mul(100) >= whole.saturating_mul(percent))
            .then_some((name.as_str(), *sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_names_are_exact() {
        let mut largest = Largest::new(2);
        for (name, weight) in [("a", 3), ("b", 5), ("c", 0), ("a", 4), ("d", 5)] {
            largest.add(name, weight);
        }
        assert!(largest.is_exact());
        assert_eq!(largest.sorted(), [("a", 7), ("b", 5), ("d", 5), ("c", 0)]);
        assert_eq!(largest.dominant(17, 40), Some(("a", 7)));
        assert_eq!(largest.dominant(17, 50), None);
    }

    #[test]
    fn what_is_large_stays_however_many_there_are() {
        let mut largest = Largest::new(50);
        for i in 0..100_000_u32 {
            largest.add(&format!("path {i}"), 10);
            if i % 40 == 0 {
                largest.add("large", 10); // 2.4 % of the whole
            }
            assert!(largest.sums.len() <= 101);
        }
        assert!(!largest.is_exact());
        let (name, sum) = largest.sorted()[0];
        assert_eq!(name, "large");
        let whole = 100_000 * 10 + 25_000;
        assert!(sum <= 25_000 && sum + whole / 50 >= 25_000, "{sum}");
    }
}
