//! How much of a stretch of time is covered by spans that may overlap.

/// Coverage so far. Spans must be added in order of their begins.
#[derive(Clone, Copy, Debug)]
pub struct Covered {
    until_ns: u64,
    end_ns: u64,
}

impl Covered {
    /// Begins with no coverage of `[start_ns, end_ns)`.
    pub fn of(start_ns: u64, end_ns: u64) -> Covered {
        Covered { until_ns: start_ns, end_ns }
    }

    /// Adds a span; returns the newly covered part of the stretch in nanoseconds.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) -> u64 {
        let end_ns = end_ns.min(self.end_ns);
        let new_ns = end_ns.saturating_sub(start_ns.max(self.until_ns));
        self.until_ns = self.until_ns.max(end_ns);
        new_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once_and_only_within() {
        let mut covered = Covered::of(100, 200);
        let spans = [(50, 110), (105, 120), (106, 107), (150, 160), (190, 500), (300, 400)];
        assert_eq!(
            spans.map(|(start_ns, end_ns)| covered.add(start_ns, end_ns)),
            [10, 10, 0, 10, 10, 0]
        );
    }
}
