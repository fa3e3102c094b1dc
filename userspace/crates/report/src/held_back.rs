//! Answers that the kernel held back after their servers had written them, so that the clients received them later than
//! the requests' latencies say.

use super::breakdown::{HeldBack, KindBreakdown};
use super::sums::{Sum, Sums};
use super::units::{count, format_exact, format_ns};
use rpcprobe_model::{HeldBy, Request};

/// Held-back answers get a line if one answer was held back this long, or if all held-back time reaches the share of
/// the latency that earns a part a line in the tables ([`super::tables`]: 1 %). Passing through the network stack takes
/// microseconds; the shortest delayed acknowledgement is 40 ms (`TCP_DELACK_MIN`, include/net/tcp.h).
const LONG_NS: u64 = 1_000_000;
const SHARE: u64 = 100;

/// Sums over requests.
#[derive(Default)]
pub struct HeldBackSums {
    told: HeldBack,
    sums: Sums,
}

impl HeldBackSums {
    /// Adds a complete request.
    pub fn add(&mut self, request: &Request) {
        match (request.held_back_ns, request.held_back_by) {
            (None, None) => return,
            (None, Some(_)) => self.told.not_timed += 1,
            (Some(0), _) => self.told.known += 1,
            (Some(ns), _) => {
                self.told.known += 1;
                self.told.requests += 1;
                self.sums.add(Sum::measured(ns));
            }
        }
        if let Some(by) = request.held_back_by {
            *self.told.by.entry(by).or_default() += 1;
        }
    }

    /// Returns the sums; `None` if nothing is known.
    pub fn finish(mut self) -> Option<HeldBack> {
        let HeldBack { known, requests, not_timed, .. } = self.told;
        let time = self.sums.distribution(requests);
        (known + not_timed > 0).then_some(HeldBack { time, ..self.told })
    }
}

/// Explains what kept the bytes back, to a reader who does not know the term.
fn why(by: HeldBy) -> &'static str {
    match by {
        HeldBy::Window => "the client had no room for more (its receive window was full)",
        HeldBy::Congestion => {
            "as many packets were under way as TCP allows itself (the congestion window was full)"
        }
        HeldBy::Nagle => {
            "less than a packet, they waited until the client's kernel had acknowledged what was written before, \
             which it may delay by 40 ms and more; TCP_NODELAY, or an answer in one write, avoids it (Nagle's \
             algorithm)"
        }
        HeldBy::Cork => "less than a packet, they waited for more (TCP_CORK or MSG_MORE)",
        HeldBy::Pacing => "TCP paced them, or had given the device enough",
    }
}

/// Lines for the header of a report: one for each kind whose held-back answers matter.
pub(super) fn answers(kinds: &[KindBreakdown]) -> Vec<String> {
    let of = |kind: &KindBreakdown| {
        let held = kind.held_back.as_ref()?;
        let HeldBack { known, requests, not_timed, by, time } = held;
        let large = time.max_ns >= LONG_NS
            || u128::from(time.total_ns) * u128::from(SHARE) >= u128::from(kind.latency.total_ns);
        let all = known + not_timed;
        let mut by: Vec<_> = by.iter().collect();
        by.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let why = match by[..] {
            [] => return None,
            [(by, _)] => why(*by).to_owned(),
            _ => {
                let each =
                    by.iter().map(|(by, n)| format!("{} ({})", why(**by), format_exact(**n)));
                each.collect::<Vec<_>>().join("; ")
            }
        };
        let of_all = format!("of {}", format_exact(all));
        let untimed = match not_timed {
            0 => String::new(),
            n => format!("; of {} more it is not known how long", format_exact(*n)),
        };
        Some(match (*requests, large) {
            (0, _) => format!(
                "the kernel held back the end of {} {of_all}, nobody knows for how long: {why}. The clients see \
                 that in addition to the latencies below",
                count(*not_timed, &format!("{} answer", kind.kind)),
            ),
            (_, false) => return None,
            (n, true) => format!(
                "the kernel held back the end of {} {of_all} for {} in the median and {} at most after the server \
                 had written it{untimed}: {why}. The clients see this in addition to the latencies below: {} a \
                 request on average, beside a latency of {}",
                count(n, &format!("{} answer", kind.kind)),
                format_ns(time.p50_ns),
                format_ns(time.max_ns),
                format_ns(time.total_ns / (*known).max(1)),
                format_ns(kind.latency.mean_ns as u64),
            ),
        })
    };
    kinds.iter().filter_map(of).collect()
}

/// Describes the held-back answer of one request, however short the time.
pub(super) fn answer(request: &Request) -> Option<String> {
    let why = why(request.held_back_by?);
    Some(match request.held_back_ns {
        Some(ns) => format!(
            "the kernel held back the end of the answer for {} after the server had written it: {why}. The client \
             sees this in addition to the latency",
            format_ns(ns)
        ),
        None => format!(
            "the kernel held back the end of the answer after the server had written it, nobody knows for how \
             long: {why}. The client sees that in addition to the latency"
        ),
    })
}

#[cfg(test)]
mod tests {
    use rpcprobe_model::{Category, Kind, Side};

    use super::super::fixtures::{broken_down, segment, tiled};
    use super::super::survey::Query;
    use super::*;

    /// Reports requests of 1 ms that were held back for these times.
    fn told(held_back: &[(Option<u64>, Option<HeldBy>)]) -> (Vec<String>, Option<HeldBack>) {
        let requests: Vec<_> = (1..)
            .zip(held_back)
            .map(|(id, (held_back_ns, held_back_by))| {
                let user = segment(Category::User, Side::Server, 1_000_000);
                let (mut row, segments) = tiled(id, vec![user]);
                row.request.kind = Kind::Http1;
                row.request.held_back_ns = *held_back_ns;
                row.request.held_back_by = *held_back_by;
                (row, segments)
            })
            .collect();
        let breakdown = broken_down(&requests, &Query::default());
        (answers(&breakdown.kinds), breakdown.kinds[0].held_back.clone())
    }

    #[test]
    fn long_ones_are_told_with_figures() {
        let nagle = Some(HeldBy::Nagle);
        let (lines, held) = told(&[
            (Some(40_000_000), nagle),
            (Some(44_000_000), nagle),
            (Some(0), None),
            (None, nagle),
        ]);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            line.starts_with(
                "the kernel held back the end of 2 http1 answers of 4 for 40.0 ms in the median and 44.0 ms at \
                 most after the server had written it; of 1 more it is not known how long: less than a packet"
            ),
            "{line}"
        );
        assert!(
            line.ends_with(
                "latencies below: 28.0 ms a request on average, beside a latency of 1.00 ms"
            ),
            "{line}"
        );
        let held = held.expect("known");
        assert_eq!((held.known, held.requests, held.not_timed), (3, 2, 1));
        assert_eq!((held.by[&HeldBy::Nagle], held.time.total_ns), (3, 84_000_000));
    }

    #[test]
    fn what_does_not_matter_is_not() {
        assert_eq!(told(&[(None, None)]), (Vec::new(), None));
        let (lines, held) = told(&[(Some(0), None)]);
        assert_eq!((lines, held.expect("known").known), (Vec::new(), 1));
        let few = (Some(9_000), Some(HeldBy::Pacing));
        assert_eq!(told(&[few, few]).0, Vec::<String>::new());
        // The share that earns a line in the tables, and one answer held back for long.
        let (enough, long) =
            ((Some(20_000), Some(HeldBy::Cork)), (Some(1_000_000), Some(HeldBy::Window)));
        assert_eq!(told(&[enough, few]).0.len(), 1);
        let mut many = vec![(Some(0), None); 1_000];
        many.push(long);
        assert_eq!(told(&many).0.len(), 1);
    }
}
