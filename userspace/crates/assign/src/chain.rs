//! The children of a request, and how likely they are.

use rustc_hash::FxHashMap;

use crate::density::{Density, Gap, Length};
use crate::{Made, Served, MOST_CHILDREN};

/// Children of a request, as indices, in the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub struct Chain(Vec<u32>);

impl Chain {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn children(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn insert(&mut self, child: u32) {
        if let Err(at) = self.0.binary_search(&child) {
            self.0.insert(at, child);
        }
    }

    pub fn remove(&mut self, child: u32) {
        if let Ok(at) = self.0.binary_search(&child) {
            self.0.remove(at);
        }
    }

    /// Calls `tell` with each gap between the steps of the request, and the server that the gap's child asks; `with`
    /// one more child.
    pub fn gaps(
        &self,
        served: &Served,
        made: &[Made],
        with: Option<u32>,
        tell: impl FnMut(Gap, u64, Length),
    ) {
        let at = with.map_or(self.0.len(), |child| self.0.partition_point(|of| *of < child));
        let (before, after) = self.0.split_at(at);
        let all = before.iter().copied().chain(with).chain(after.iter().copied());
        gaps(served, all.map(|child| &made[child as usize]), tell);
    }
}

fn gaps<'a>(
    served: &Served,
    children: impl Iterator<Item = &'a Made>,
    mut tell: impl FnMut(Gap, u64, Length),
) {
    let mut heard = served.received;
    let mut last: Option<&Made> = None;
    for child in children {
        let (gap, since) = match last {
            None => (Gap::First, heard),
            Some(last) if child.asked.ns < heard.ns => (Gap::Beside, last.asked),
            Some(_) => (Gap::Next, heard),
        };
        tell(gap, child.whom, Length::between(since, child.asked));
        if child.heard.ns > heard.ns {
            heard = child.heard;
        }
        last = Some(child);
    }
    let rest = Length::between(heard, served.answered);
    match last {
        Some(last) => tell(Gap::Last, last.whom, rest),
        None => tell(Gap::Only, 0, rest),
    }
}

/// The distributions of gaps and of numbers of children.
#[derive(Debug, Default)]
pub struct Model {
    gaps: FxHashMap<(Gap, u64), Density>,
    unseen: Density,
    counts: Vec<f64>,
    parentless_score: f64,
}

impl Model {
    /// Adds a gap.
    pub fn add(&mut self, gap: Gap, whom: u64, length: Length) {
        self.gaps.entry((gap, whom)).or_default().add(length);
    }

    /// Adds a request with this number of children.
    pub fn count(&mut self, children: usize) {
        if self.counts.len() <= children {
            self.counts.resize(children + 1, 0.0);
        }
        self.counts[children] += 1.0;
    }

    /// Sets the rate of children without a parent, per nanosecond.
    pub fn parentless(&mut self, rate: f64) {
        self.parentless_score = rate.ln();
    }

    pub fn parentless_score(&self) -> f64 {
        self.parentless_score
    }

    /// Computes, from what was added, what is looked up.
    pub fn settle(&mut self) {
        self.gaps.values_mut().for_each(Density::settle);
        let total: f64 = self.counts.iter().sum();
        self.counts.resize(MOST_CHILDREN + 2, 0.0);
        for count in &mut self.counts {
            *count = ((*count + 0.5) / (total + 5.0)).ln();
        }
    }

    /// The logarithm of how likely such a gap is, per nanosecond.
    pub fn score(&self, gap: Gap, whom: u64, length: Length) -> f64 {
        self.gaps.get(&(gap, whom)).unwrap_or(&self.unseen).score(length)
    }

    /// The same for all steps of a request together, `with` one more child.
    pub fn of_chain(
        &self,
        served: &Served,
        made: &[Made],
        chain: &Chain,
        with: Option<u32>,
    ) -> f64 {
        let mut sum = self.counted(chain.len() + usize::from(with.is_some()));
        chain.gaps(served, made, with, |gap, whom, length| sum += self.score(gap, whom, length));
        sum
    }

    /// The same without one of its children.
    pub fn without(&self, served: &Served, made: &[Made], chain: &Chain, child: u32) -> f64 {
        let mut sum = self.counted(chain.len().saturating_sub(1));
        let others = chain.0.iter().filter(|of| **of != child).map(|of| &made[*of as usize]);
        gaps(served, others, |gap, whom, length| sum += self.score(gap, whom, length));
        sum
    }

    fn counted(&self, children: usize) -> f64 {
        self.counts[children.min(self.counts.len() - 1)]
    }
}
