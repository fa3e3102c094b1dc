//! The claims on one thread's time. Access is quickest at the end, where nearly all claims come.

use crate::timeline::gallop::{count_before, count_in, History};

/// Limit of the claims in a chunk: an insertion moves at most this many.
const MOST_TOGETHER: usize = 128;

/// `[start_ns, end_ns)` of a thread's time belongs to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub start_ns: u64,
    pub end_ns: u64,
    pub id: u64,
    /// Number of requests that share it; 1: it belongs to this request alone.
    pub shared: u32,
}

/// Claims that do not overlap, in order of time.
#[derive(Debug, Default)]
pub struct ClaimList {
    /// None of the chunks is empty.
    chunks: History<Vec<Claim>>,
    /// Behind the claim that was added last, or that kept one from being added, if it is still there: a request's
    /// claims follow each other.
    cursor: (usize, usize),
}

impl ClaimList {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The position of the first claim that ends after `at_ns`: its chunk, and its place in the chunk.
    fn first_after(&self, at_ns: u64) -> (usize, usize) {
        match self.near_cursor(at_ns) {
            Some((chunk, index)) if index == self.chunks[chunk].len() => (chunk + 1, 0),
            Some(place) => place,
            None => self.search(at_ns),
        }
    }

    fn search(&self, at_ns: u64) -> (usize, usize) {
        let ended = |claim: &Claim| claim.end_ns <= at_ns;
        let chunk = count_before(&self.chunks, |chunk| chunk.last().is_some_and(ended));
        (chunk, self.chunks.get(chunk).map_or(0, |chunk| count_in(chunk, ended)))
    }

    /// That position, if it is the cursor or the one before. It may be the end of a chunk.
    fn near_cursor(&self, at_ns: u64) -> Option<(usize, usize)> {
        let (chunk, cursor) = self.cursor;
        let claims = self.chunks.get(chunk)?;
        [cursor, cursor.saturating_sub(1)].into_iter().find_map(|index| {
            let before = claims.get(index.checked_sub(1)?)?;
            let next = self.next((chunk, index));
            let is_there = before.end_ns <= at_ns && next.is_none_or(|next| next.end_ns > at_ns);
            is_there.then_some((chunk, index))
        })
    }

    /// The claim there or, if that is the end of a chunk, the next one.
    fn next(&self, (chunk, index): (usize, usize)) -> Option<&Claim> {
        let later = || self.chunks.get(chunk + 1)?.first();
        self.at((chunk, index)).or_else(later)
    }

    fn at(&self, (chunk, index): (usize, usize)) -> Option<&Claim> {
        self.chunks.get(chunk)?.get(index)
    }

    /// The claims that have a part of `[start_ns, end_ns)`.
    pub fn overlapping(&self, start_ns: u64, end_ns: u64) -> impl Iterator<Item = &Claim> {
        let (chunk, index) = self.first_after(start_ns);
        let first = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk[index..]);
        let later = self.chunks.range((chunk + 1).min(self.chunks.len())..).flatten();
        first.iter().chain(later).take_while(move |claim| claim.start_ns < end_ns)
    }

    /// Adds a claim if no other claim has any of its time. Returns whether that is so.
    pub fn add(&mut self, claim: Claim) -> bool {
        let near = self.near_cursor(claim.start_ns);
        let (chunk, index) = near.unwrap_or_else(|| self.search(claim.start_ns));
        if self.next((chunk, index)).is_some_and(|next| next.start_ns < claim.end_ns) {
            self.cursor = (chunk, index + 1);
            return false;
        }
        self.insert((chunk, index), claim);
        true
    }

    fn insert(&mut self, (chunk, index): (usize, usize), claim: Claim) {
        if chunk == self.chunks.len() {
            match self.chunks.back_mut().filter(|last| last.len() < MOST_TOGETHER) {
                Some(last) => {
                    last.push(claim);
                    self.cursor = (chunk - 1, last.len());
                }
                None => {
                    let mut new = Vec::with_capacity(MOST_TOGETHER);
                    new.push(claim);
                    self.chunks.push_back(new);
                    self.cursor = (chunk, 1);
                }
            }
            return;
        }
        self.cursor = (chunk, index + 1);
        let claims = &mut self.chunks[chunk];
        claims.insert(index, claim);
        if claims.len() > MOST_TOGETHER {
            let later = claims.split_off(MOST_TOGETHER / 2);
            self.chunks.insert(chunk + 1, later);
        }
    }

    /// Passes `[from_ns, to_ns)` of the claim there on to the request with this `id`.
    pub fn pass_on(&mut self, (from_ns, to_ns): (u64, u64), id: u64) {
        let (chunk, index) = self.first_after(from_ns);
        let Some(claim) = self.at((chunk, index)).copied() else { return };
        let (from_ns, to_ns) = (from_ns.max(claim.start_ns), to_ns.min(claim.end_ns));
        if from_ns >= to_ns {
            return;
        }
        self.chunks[chunk][index] = Claim { start_ns: from_ns, end_ns: to_ns, id, ..claim };
        for rest in [Claim { end_ns: from_ns, ..claim }, Claim { start_ns: to_ns, ..claim }] {
            if rest.start_ns < rest.end_ns {
                self.add(rest);
            }
        }
    }

    /// Drops a request's claims that begin in `[from_ns, to_ns)`. Returns their number.
    pub fn release(&mut self, (from_ns, to_ns): (u64, u64), id: u64) -> usize {
        let released = |c: &Claim| c.id == id && (from_ns..to_ns).contains(&c.start_ns);
        let (first, _) = self.first_after(from_ns);
        let (mut emptied, mut count) = (false, 0);
        for chunk in self.chunks.range_mut(first..) {
            if chunk.first().is_some_and(|claim| claim.start_ns >= to_ns) {
                break;
            }
            let before = chunk.len();
            chunk.retain(|claim| !released(claim));
            count += before - chunk.len();
            emptied |= chunk.is_empty();
        }
        if emptied {
            self.chunks.retain(|chunk| !chunk.is_empty());
        }
        count
    }

    /// Takes out what lies before `horizon_ns`, in order.
    pub fn take_before(&mut self, horizon_ns: u64) -> impl Iterator<Item = Claim> + use<> {
        let begun = |chunk: &Vec<Claim>| chunk.first().is_some_and(|c| c.start_ns < horizon_ns);
        let count = count_before(&self.chunks, begun);
        let mut before: Vec<Vec<Claim>> = self.chunks.drain(..count).collect();
        if let Some(chunk) = before.last_mut() {
            let begun = chunk.partition_point(|claim| claim.start_ns < horizon_ns);
            let later = chunk.split_off(begun);
            if !later.is_empty() {
                self.chunks.push_front(later);
            }
            if let Some(last) = chunk.last_mut().filter(|last| last.end_ns > horizon_ns) {
                let rest = Claim { start_ns: horizon_ns, ..*last };
                last.end_ns = horizon_ns;
                self.add(rest);
            }
        }
        before.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(start_ns: u64, end_ns: u64, id: u64) -> Claim {
        Claim { start_ns, end_ns, id, shared: 1 }
    }

    fn all(list: &ClaimList) -> Vec<(u64, u64, u64)> {
        list.overlapping(0, u64::MAX).map(|c| (c.start_ns, c.end_ns, c.id)).collect()
    }

    /// In whatever order they come.
    #[test]
    fn claims_stay_in_order_and_apart() {
        const MANY: u64 = 5 * MOST_TOGETHER as u64;
        for step in [1, 7, MANY - 1] {
            let mut list = ClaimList::default();
            for number in (0..MANY).map(|number| number * step % MANY) {
                let (start_ns, end_ns) = (number * 10, number * 10 + 8);
                assert!(list.add(claim(start_ns, end_ns, number)));
                assert!(!list.add(claim(start_ns + 7, end_ns + 1, 0)), "{number}");
                assert!(!list.add(claim(start_ns.saturating_sub(1), end_ns + 9, 0)), "{number}");
            }
            let expected: Vec<_> = (0..MANY).map(|n| (n * 10, n * 10 + 8, n)).collect();
            assert_eq!(all(&list), expected);
            let some: Vec<_> = list.overlapping(27, 51).map(|claim| claim.id).collect();
            assert_eq!(some, [2, 3, 4, 5]);
            assert_eq!(list.overlapping(28, 30).count(), 0);
            let before: Vec<_> = list.take_before(MANY * 5 + 3).collect();
            let mut parts: Vec<_> = before.iter().map(|c| (c.start_ns, c.end_ns, c.id)).collect();
            let (first, last) = (parts.pop().unwrap(), all(&list)[0]);
            assert_eq!(first, (MANY * 5, MANY * 5 + 3, MANY / 2));
            assert_eq!(last, (MANY * 5 + 3, MANY * 5 + 8, MANY / 2));
            assert_eq!((parts.len(), all(&list).len()), (MANY as usize / 2, MANY as usize / 2));
            assert!(list.chunks.iter().all(|chunk| !chunk.is_empty()));
            list.take_before(u64::MAX).for_each(drop);
            assert!(list.is_empty());
        }
    }

    #[test]
    fn what_is_released_is_free_again() {
        const MANY: u64 = 5 * MOST_TOGETHER as u64;
        let mut list = ClaimList::default();
        for number in 0..MANY {
            list.add(claim(number * 10, number * 10 + 10, number % 2));
        }
        assert_eq!(list.release((15, (MANY - 2) * 10), 1) as u64, (MANY - 4) / 2);
        assert_eq!(all(&list).len() as u64, MANY - (MANY - 4) / 2);
        assert!(list.add(claim(30, 40, 7)) && !list.add(claim(10, 20, 7)));
        list.release((0, MANY * 10), 0);
        assert_eq!(all(&list), [(10, 20, 1), (30, 40, 7), ((MANY - 1) * 10, MANY * 10, 1)]);
        list.release((0, MANY * 10), 1);
        list.release((0, MANY * 10), 7);
        assert!(list.is_empty());
    }

    #[test]
    fn a_part_is_passed_on() {
        let mut list = ClaimList::default();
        list.add(claim(10, 50, 1));
        list.pass_on((20, 30), 2);
        list.pass_on((30, 50), 3);
        list.pass_on((60, 70), 4);
        assert_eq!(all(&list), [(10, 20, 1), (20, 30, 2), (30, 50, 3)]);
    }
}
