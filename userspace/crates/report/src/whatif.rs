//! Estimates latencies without some categories on the critical path of each request.

use std::collections::BTreeMap;
use std::io::Write;
use std::str::FromStr;

use anyhow::{bail, Result};
use comfy_table::Cell;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::layout::wrap;
use crate::sums::{Sum, Sums};
use crate::text::{bold, indented, table};
use crate::units::{count, format_exact};
use crate::{format_ns, format_share, Distribution, Style, ORDER};
use rpcprobe_model::{Category, Kind, Request, Segment, Side};
use rpcprobe_tables::RequestRow;

/// Printed before any figure.
pub const ASSUMPTION: &str = "Estimate: each request as it was, less the time of these categories on its \
critical path. It assumes that nothing else takes their place: another path may take over (then less is \
gained), and what waits behind these requests would begin earlier (then more is)";

/// Categories to remove, at one side or at all sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// The argument as given.
    text: String,
    categories: Vec<Category>,
    side: Option<Side>,
}

impl Without {
    fn takes(&self, segment: &Segment) -> bool {
        self.categories.contains(&segment.category)
            && self.side.is_none_or(|side| side == segment.side)
    }
}

impl FromStr for Without {
    type Err = String;

    /// Parses arguments such as `journal`, `queue.*`, `runqueue.wakeup/server`.
    fn from_str(text: &str) -> Result<Without, String> {
        let (category, side) = match text.split_once('/') {
            Some((category, side)) => (category, Some(side)),
            None => (text, None),
        };
        let side = side.map(|name| {
            let names: Vec<_> = Side::ALL.iter().map(|side| side.name()).collect();
            let wrong = || format!("{name} is not a side ({})", names.join(", "));
            Side::from_name(name).ok_or_else(wrong)
        });
        let matches = |name: &str| match category.strip_suffix('*') {
            Some(prefix) => !prefix.is_empty() && name.starts_with(prefix),
            None => name == category,
        };
        let categories: Vec<_> =
            Category::ALL.iter().copied().filter(|of| matches(of.name())).collect();
        if categories.is_empty() {
            let names: Vec<_> = Category::ALL.iter().map(|of| of.name()).collect();
            return Err(format!("{category} is not a category ({})", names.join(", ")));
        }
        Ok(Without { text: text.to_owned(), categories, side: side.transpose()? })
    }
}

/// The estimate.
#[derive(Clone, Debug, Serialize)]
pub struct Whatif {
    pub assumption: &'static str,
    pub without: Vec<String>,
    pub kinds: Vec<KindWhatif>,
}

/// The complete requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindWhatif {
    pub kind: Kind,
    pub requests: u64,
    /// Requests that have any time in the removed categories.
    pub touched: u64,
    pub as_it_was: Distribution,
    pub without: Distribution,
    /// The time removed over all requests, by category and side. It sums to the difference of the
    /// totals.
    pub taken: Vec<Taken>,
}

/// Time of one category at one side.
#[derive(Clone, Debug, Serialize)]
pub struct Taken {
    pub category: Category,
    pub side: Side,
    pub total_ns: u64,
}

#[derive(Default)]
struct Collected {
    latencies_ns: Vec<u64>,
    left_ns: Vec<u64>,
    taken: BTreeMap<(Category, Side), u64>,
}

/// Removes the categories from the complete requests that `wanted` accepts.
///
/// # Errors
/// Passes on errors of `rows` and `segments`; fails if there is no complete request.
pub fn whatif(
    rows: impl IntoIterator<Item = Result<RequestRow>>,
    segments: impl IntoIterator<Item = Result<(u64, Segment)>>,
    without: &[Without],
    wanted: &dyn Fn(&Request) -> bool,
) -> Result<Whatif> {
    let mut kinds: BTreeMap<Kind, Collected> = BTreeMap::new();
    let mut places: FxHashMap<u64, (Kind, usize)> = FxHashMap::default();
    for row in rows {
        let request = row?.request;
        if request.complete && wanted(&request) {
            let kind = kinds.entry(request.kind).or_default();
            places.insert(request.request_id, (request.kind, kind.latencies_ns.len()));
            kind.latencies_ns.push(request.latency_ns);
            kind.left_ns.push(request.latency_ns);
        }
    }
    if places.is_empty() {
        bail!("no complete request to estimate from");
    }
    for item in segments {
        let (id, segment) = item?;
        if !without.iter().any(|of| of.takes(&segment)) {
            continue;
        }
        let Some((kind, at)) = places.get(&id) else { continue };
        let Some(kind) = kinds.get_mut(kind) else { continue };
        let left_ns = kind.left_ns[*at].checked_sub(segment.duration_ns);
        let Some(left_ns) = left_ns else {
            bail!("request {id} does not add up: its segments are longer than its latency");
        };
        kind.left_ns[*at] = left_ns;
        *kind.taken.entry((segment.category, segment.side)).or_default() += segment.duration_ns;
    }
    let in_order = ORDER.into_iter();
    let kinds =
        in_order.filter_map(|kind| kinds.remove(&kind).map(|of| finish(kind, of))).collect();
    let without = without.iter().map(|of| of.text.clone()).collect();
    Ok(Whatif { assumption: ASSUMPTION, without, kinds })
}

fn distribution(values_ns: Vec<u64>) -> Distribution {
    let count = values_ns.len() as u64;
    let mut sums = Sums::default();
    values_ns.into_iter().for_each(|ns| sums.add(Sum::measured(ns)));
    sums.distribution(count)
}

fn finish(kind: Kind, of: Collected) -> KindWhatif {
    let pairs = of.latencies_ns.iter().zip(&of.left_ns);
    let mut taken: Vec<_> = of
        .taken
        .into_iter()
        .map(|((category, side), total_ns)| Taken { category, side, total_ns })
        .collect();
    taken.sort_by_key(|taken| std::cmp::Reverse(taken.total_ns));
    KindWhatif {
        kind,
        requests: of.latencies_ns.len() as u64,
        touched: pairs.filter(|(was, left)| was != left).count() as u64,
        as_it_was: distribution(of.latencies_ns),
        without: distribution(of.left_ns),
        taken,
    }
}

/// Writes the estimate, beginning with its assumption.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(out: &mut dyn Write, whatif: &Whatif, style: Style) -> Result<()> {
    write!(out, "{}", wrap(&format!("{}.", whatif.assumption), "  ", style))?;
    writeln!(out, "Without: {}", whatif.without.join(", "))?;
    for kind in &whatif.kinds {
        let title = format!(
            "{}: {}, {} of them touched",
            kind.kind,
            count(kind.requests, "request"),
            format_exact(kind.touched)
        );
        writeln!(out, "\n{}\n", bold(&title, style))?;
        let mut table = table(&["latency", "as it was", "without ~", "less"], &[1, 2, 3], style);
        let (was, left) = (&kind.as_it_was, &kind.without);
        for (name, was_ns, left_ns) in [
            ("p50", was.p50_ns, left.p50_ns),
            ("p90", was.p90_ns, left.p90_ns),
            ("p99", was.p99_ns, left.p99_ns),
            ("max", was.max_ns, left.max_ns),
            ("mean", was.mean_ns.round() as u64, left.mean_ns.round() as u64),
        ] {
            table.add_row(vec![
                Cell::new(name),
                Cell::new(format_ns(was_ns)),
                Cell::new(format_ns(left_ns)),
                Cell::new(format_share(was_ns - left_ns, was_ns)),
            ]);
        }
        write!(out, "{}", indented(&table, "  "))?;
        for taken in &kind.taken {
            writeln!(
                out,
                "  taken: {} {}, {} of all time",
                taken.category,
                taken.side,
                format_share(taken.total_ns, was.total_ns)
            )?;
        }
        if kind.taken.is_empty() {
            writeln!(out, "  nothing taken: no request has any of it on its path")?;
        }
    }
    writeln!(out, "\n~ modelled, not measured")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{stream, ten, text, PLAIN};

    fn of(without: &[&str]) -> Whatif {
        let (rows, segments) = stream(&ten());
        let parsed: Vec<Without> = without.iter().map(|text| text.parse().unwrap()).collect();
        whatif(rows.into_iter().map(Ok), segments, &parsed, &|_| true).unwrap()
    }

    #[test]
    fn what_is_taken_is_gone() {
        let whatif = of(&["runqueue.*"]);
        let kind = &whatif.kinds[0];
        assert_eq!((kind.requests, kind.touched), (10, 10));
        assert_eq!((kind.as_it_was.p50_ns, kind.without.p50_ns), (5_000, 3_500));
        let taken: u64 = kind.taken.iter().map(|taken| taken.total_ns).sum();
        assert_eq!(kind.as_it_was.total_ns - kind.without.total_ns, taken);
        let said = text(|out| write(out, &whatif, PLAIN));
        assert!(said.starts_with("Estimate: "), "{said}");
        assert!(said.contains("p50        5.00 us    3.50 us  30.0 %"), "{said}");
    }

    #[test]
    fn all_of_it_leaves_nothing() {
        let whatif = of(&["user", "copy", "runqueue.wakeup/client"]);
        assert_eq!(whatif.kinds[0].without, Distribution::default());
        assert_eq!(of(&["user/server"]).kinds[0].touched, 0);
    }

    #[test]
    fn wrong_names_are_told() {
        for wrong in ["", "*", "disk", "queue", "user/nobody", "user/"] {
            let error = wrong.parse::<Without>().unwrap_err();
            assert!(error.contains("is not a"), "{wrong}: {error}");
        }
        assert_eq!("queue.*".parse::<Without>().unwrap().categories.len(), 4);
    }
}
