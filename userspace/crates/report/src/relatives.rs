//! The parent and the children of a request: what it was made for, and what was made for it.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::covered::Covered;
use super::layout::wrap;
use super::text::{bold, indented, table};
use super::units::{count, format_at, format_exact, format_ns, format_share};
use super::{words, Style};
use rpcprobe_model::{Certainty, Request};
use rpcprobe_tables::RequestRow;

/// Maximum number of children that are kept: those with the largest latency.
const KEPT: usize = 100;
/// Number of children shown, unless all are wanted.
const SHOWN: usize = 10;

/// The relatives of a request.
#[derive(Default)]
pub struct Relatives {
    /// The request that this one was made for, if it is in the capture.
    pub parent: Option<Request>,
    /// The children with the largest latency, the largest first.
    longest: Vec<Request>,
    children: u64,
    /// Begin and end of the complete children.
    windows_ns: Vec<(u64, u64)>,
}

/// Summary of the children of a request.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    requests: u64,
    /// How long at least one complete child was under way within the request, in nanoseconds.
    took_ns: u64,
    /// In order of begin. If there are many, only those with the largest latency.
    pub longest: Vec<&'a Request>,
}

impl Relatives {
    /// Finds the relatives of each of these requests, in their order.
    ///
    /// # Errors
    /// Passes on errors of `rows`.
    pub fn of(
        requests: &[&Request],
        rows: impl IntoIterator<Item = Result<RequestRow>>,
    ) -> Result<Vec<Relatives>> {
        let mut all: Vec<Relatives> = requests.iter().map(|_| Relatives::default()).collect();
        let mut by_id: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut by_parent: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, request) in requests.iter().enumerate() {
            by_id.entry(request.request_id).or_default().push(at);
            if let Some(parent) = request.parent_request_id {
                by_parent.entry(parent).or_default().push(at);
            }
        }
        for row in rows {
            let request = row?.request;
            for at in by_parent.get(&request.request_id).into_iter().flatten() {
                all[*at].parent = Some(request.clone());
            }
            let parent = request.parent_request_id;
            for at in parent.and_then(|parent| by_id.get(&parent)).into_iter().flatten() {
                all[*at].child(&request);
            }
        }
        all.iter_mut().for_each(Relatives::cut);
        Ok(all)
    }

    fn child(&mut self, child: &Request) {
        self.children += 1;
        if child.complete {
            self.windows_ns.push((child.start_ns, child.start_ns.saturating_add(child.latency_ns)));
        }
        self.longest.push(child.clone());
        if self.longest.len() > 2 * KEPT {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.longest.sort_by_key(|child| (std::cmp::Reverse(child.latency_ns), child.request_id));
        self.longest.truncate(KEPT);
    }

    pub(super) fn told(&self, request: &Request, most: usize) -> Told<'_> {
        let mut longest: Vec<&Request> = self.longest.iter().take(most).collect();
        longest.sort_by_key(|child| (child.start_ns, child.request_id));
        let mut windows_ns = self.windows_ns.clone();
        windows_ns.sort_unstable();
        let end_ns = request.start_ns.saturating_add(request.latency_ns);
        let mut covered = Covered::of(request.start_ns, end_ns);
        let took_ns =
            windows_ns.into_iter().map(|(start_ns, end_ns)| covered.add(start_ns, end_ns));
        let took_ns = took_ns.sum();
        Told { requests: self.children, took_ns, longest }
    }

    /// Describes the request that this one was made for; `None` if there is none.
    pub(super) fn parent(&self, request: &Request) -> Option<String> {
        let id = request.parent_request_id?;
        let certainty = match not_sure(request) {
            Some(certainty) => format!("{certainty} "),
            None => String::new(),
        };
        let what = match request.detached {
            true => format!("{certainty}begun by request {id}, which did not wait for it"),
            false => format!("{certainty}part of request {id}"),
        };
        Some(match &self.parent {
            Some(parent) => {
                format!("{what} ({}, {})", name(parent), format_ns(parent.latency_ns))
            }
            None => what,
        })
    }

    /// Writes the children; nothing if there are none.
    pub(super) fn children(
        &self,
        out: &mut dyn Write,
        request: &Request,
        all: bool,
        style: Style,
    ) -> Result<()> {
        if self.children == 0 {
            return Ok(());
        }
        let told = self.told(request, if all { KEPT } else { SHOWN });
        let share = format_share(told.took_ns, request.latency_ns);
        let title = format!("made for it: {}", count(told.requests, "request"));
        let line = format!("{title}, under way in {share} of its time");
        writeln!(out)?;
        write!(out, "{}", wrap(&line, "  ", style).replacen(&title, &bold(&title, style), 1))?;
        let header = ["at", "lasts", "request", "what", "how sure"];
        let mut table = table(&header, &[0, 1, 2], style);
        for child in &told.longest {
            let at = format_at(child.start_ns.saturating_sub(request.start_ns), request.latency_ns);
            let lasts = format_ns(child.latency_ns);
            let lasts = if child.complete { lasts } else { format!("≥ {lasts}") };
            let certainty = child.parent_certainty.map_or("-", Certainty::name);
            let detached = if child.detached { ", not waited for" } else { "" };
            table.add_row([
                at,
                lasts,
                child.request_id.to_string(),
                name(child),
                format!("{certainty}{detached}"),
            ]);
        }
        write!(out, "{}", indented(&table, "  "))?;
        let more = told.requests - told.longest.len() as u64;
        if more > 0 {
            writeln!(out, "  and {} that took less", format_exact(more))?;
        }
        Ok(())
    }
}

/// Returns the confidence in the parent, unless it is sure.
fn not_sure(request: &Request) -> Option<Certainty> {
    request.parent_certainty.filter(|certainty| *certainty != Certainty::Sure)
}

fn name(request: &Request) -> String {
    words::asked(request.kind, request.back_end(), request.method.as_deref())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{request, row, text, PLAIN, START_NS};
    use super::*;

    fn child(id: u64, start_ns: u64, latency_ns: u64) -> Request {
        Request {
            start_ns: START_NS + start_ns,
            parent_request_id: Some(1),
            parent_certainty: Some(Certainty::Likely),
            ..request(id, latency_ns)
        }
    }

    fn outer() -> Request {
        Request { start_ns: START_NS, method: Some("GET /\x1b[2J".into()), ..request(1, 1_000_000) }
    }

    fn of(request: &Request, others: &[Request]) -> Relatives {
        let rows = others.iter().map(|other| Ok(row(other.clone(), &[])));
        Relatives::of(&[request], rows).unwrap().remove(0)
    }

    #[test]
    fn what_ran_at_once_took_its_time_once_and_only_within_the_request() {
        let mut late = child(4, 900_000, 600_000);
        late.detached = true;
        let others = [child(3, 200_000, 200_000), child(2, 100_000, 200_000), late];
        let relatives = of(&outer(), &others);
        let told = relatives.told(&outer(), 10);
        assert_eq!((told.requests, told.took_ns), (3, 400_000));
        let ids: Vec<u64> = told.longest.iter().map(|child| child.request_id).collect();
        assert_eq!(ids, [2, 3, 4]);
        let shown = text(|out| relatives.children(out, &outer(), false, PLAIN));
        assert!(
            shown.contains("made for it: 3 requests, under way in 40.0 % of its time"),
            "{shown}"
        );
        assert!(shown.contains("likely, not waited for"), "{shown}");
        assert_eq!(text(|out| of(&outer(), &[]).children(out, &outer(), false, PLAIN)), "");
    }

    #[test]
    fn a_parent_is_named_and_cannot_steer_the_terminal() {
        let found = of(&child(2, 5, 5), &[outer(), child(3, 5, 5)]).parent(&child(2, 5, 5));
        let expected = "likely part of request 1 (pipe server GET /\\x1b[2J, 1.00 ms)";
        assert_eq!(found.as_deref(), Some(expected));
        // A parent that is not in the capture.
        let found = of(&child(2, 5, 5), &[]).parent(&child(2, 5, 5));
        assert_eq!(found.as_deref(), Some("likely part of request 1"));
    }

    #[test]
    fn of_many_the_longest_are_shown() {
        let others: Vec<Request> = (2..1_002).map(|id| child(id, id, id)).collect();
        let shown = text(|out| of(&outer(), &others).children(out, &outer(), false, PLAIN));
        assert!(shown.contains("made for it: 1,000 requests"), "{shown}");
        assert!(
            shown.contains(" 992 ") && shown.contains(" 1001 ") && !shown.contains(" 991 "),
            "{shown}"
        );
        assert!(shown.ends_with("  and 990 that took less\n"), "{shown}");
    }
}
