//! The sentences of a report.

use super::breakdown::{Breakdown, Ends, KindBreakdown, Part};
use super::tail::{Tail, TailPart};
use super::text::{escape, marks, MODELLED, SAMPLED};
use super::units::{format_exact, format_ns, format_share, format_signed_ns};
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::{Category, Kind, Reason, Side};

/// Maximum number of parts named in a sentence.
const NAMED: usize = 3;
/// A part is named if it is at least 1/`NAMED_FROM` of the tail's difference.
const NAMED_FROM: u64 = 20;

/// Where a part's time was spent: the side and, for `middle`, the thread's name.
pub fn place(side: Side, comm: Option<&str>) -> String {
    match (side, comm) {
        (Side::Middle, Some(comm)) => format!("{side}: {}", escape(comm)),
        _ => side.to_string(),
    }
}

/// Names what requests ask, such as `http1 nginx 127.0.0.1:80 GET /a`.
pub(super) fn asked(kind: Kind, whom: Option<&str>, what: Option<&str>) -> String {
    let mut words = kind.to_string();
    for part in [whom, what].into_iter().flatten() {
        words += &format!(" {}", escape(part));
    }
    words
}

/// Returns the reason why a request is incomplete.
pub(super) fn reason(reason: Option<&Reason>) -> String {
    reason.map_or("no reason given".to_owned(), Reason::to_string)
}

/// Names the largest parts of the time.
pub(super) fn answer(kind: &KindBreakdown) -> String {
    let mut parts: Vec<_> =
        kind.parts.iter().filter(|part| part.per_request.total_ns > 0).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.per_request.total_ns));
    if parts.is_empty() {
        return "nowhere, every latency is 0".to_owned();
    }
    let named = |part: &&Part| {
        let share = format_share(part.per_request.total_ns, kind.latency.total_ns);
        let place = part.side.map_or(String::new(), |side| place(side, part.comm.as_deref()));
        let what = part.detail.as_deref().map_or(String::new(), |of| format!("; {}", escape(of)));
        format!("{share} {} ({place}{what})", part_name(part))
    };
    parts.iter().take(NAMED).map(named).collect::<Vec<_>>().join(", ")
}

/// Names a part's category with its marks, such as `copy ~`.
pub fn part_name(part: &Part) -> String {
    marked(part.category, part.modelled_ns, part.sampled_ns)
}

/// Names a category with the marks for its modelled and sampled time.
pub fn marked(category: Category, modelled_ns: u64, sampled_ns: u64) -> String {
    format!("{category}{}", marks(modelled_ns > 0, sampled_ns > 0))
}

/// Names the tail: `slowest 1 %`, or a larger share if many latencies are equal.
pub fn slowest(tail: &Tail, complete: u64) -> String {
    let requests = tail.tail.requests;
    match requests.saturating_mul(100) < complete.saturating_mul(2) {
        true => "slowest 1 %".to_owned(),
        false => format!("slowest {}", format_share(requests, complete)),
    }
}

/// Says what the slowest requests have more than typical ones; `None` if they do not take longer. `of` names the kind
/// if there are several.
pub(super) fn tail(kind: &KindBreakdown, of: &str) -> Option<String> {
    let tail = kind.tail.as_ref()?;
    let whole_ns = u64::try_from(tail.difference_ns).ok().filter(|ns| *ns > 0)?;
    // Gives times instead of shares: if the slowest have less of something, the other parts exceed the whole.
    let mut parts: Vec<_> = tail.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.difference_ns.unsigned_abs()));
    let named: Vec<_> = parts
        .iter()
        .filter(|of| of.difference_ns.unsigned_abs().saturating_mul(NAMED_FROM) >= whole_ns)
        .take(NAMED)
        .map(|part| {
            let place = place(part.side, part.comm.as_deref());
            // The name applies to the time of the slowest requests.
            let mostly = mostly(part).filter(|_| part.difference_ns > 0);
            let mostly = mostly.map_or(String::new(), |what| format!(", mostly {what}"));
            let sign = if part.difference_ns > 0 { "+" } else { "" };
            let more = format_signed_ns(part.difference_ns);
            let name = marked(part.category, part.modelled_ns, part.sampled_ns);
            format!("{name} ({place}{mostly}) {sign}{more}")
        })
        .collect();
    let methods = match (&tail.tail.method, &tail.typical.method) {
        (Some(slow), typical) if Some(slow) != typical.as_ref() => {
            format!(", mostly {},", escape(slow))
        }
        _ => String::new(),
    };
    let more = format_ns(whole_ns);
    let slowest = slowest(tail, kind.complete());
    let said = format!("The {slowest}{of}{methods} take {more} more than typical ones");
    Some(match named.is_empty() {
        true => said,
        false => format!("{said}: {}", named.join(", ")),
    })
}

/// Says what a wait in the tail was for, if one thing explains most of it.
fn mostly(part: &TailPart) -> Option<String> {
    let by = part.by.as_deref().map(escape);
    match part.category {
        Category::RunqueueWakeup | Category::RunqueuePreempted => Some(format!("behind {}", by?)),
        Category::Lock => Some(format!("held by {}", by?)),
        Category::Journal | Category::BlockIo => part.cause.as_deref().map(escape),
        _ => by.map(|by| format!("for {by}")).or_else(|| part.cause.as_deref().map(escape)),
    }
}

/// Says which ends of a kind's requests are traced, and what that means for their latency. Empty for processes: they
/// have no ends, or both ends are in the capture.
pub(super) fn ends(kind: Kind, ends: &Ends) -> String {
    const CLIENT: &str = "the rest is idle.peer";
    const SERVER: &str = "from arrival to answer";
    let all = [ends.both, ends.client_only, ends.server_only, ends.neither];
    match all {
        _ if matches!(kind, Kind::Exec | Kind::Process) => String::new(),
        [0, 0, 0, 0] => String::new(),
        [_, 0, 0, 0] => "both ends traced".to_owned(),
        [0, _, 0, 0] => format!("client side only: {CLIENT}"),
        [0, 0, _, 0] => format!("server side only: {SERVER}"),
        [0, 0, 0, _] => "neither end traced".to_owned(),
        _ => {
            let texts = [
                ("both ends", ""),
                ("client side only", CLIENT),
                ("server side only", SERVER),
                ("neither end", ""),
            ];
            let of = |(number, (what, means)): (u64, (&str, &str))| {
                let means = if means.is_empty() { String::new() } else { format!(" ({means})") };
                (number > 0).then(|| format!("{what} of {}{means}", format_exact(number)))
            };
            all.into_iter().zip(texts).filter_map(of).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Says which programs asked and served; for a whole process, names the program.
pub(super) fn who(kind: Kind, ends: &Ends) -> String {
    let end = |traced: u64, comm: &Option<String>, program: &Option<String>| match traced {
        0 => "an untraced end".to_owned(),
        _ => comm
            .as_ref()
            .or(program.as_ref())
            .map_or("several programs".to_owned(), |name| escape(name)),
    };
    let client = end(ends.both + ends.client_only, &ends.client_comm, &ends.client_program);
    let server = end(ends.both + ends.server_only, &ends.server_comm, &ends.server_program);
    match kind {
        Kind::Process => server,
        _ if ends.both == 0 && ends.client_only > 0 && ends.server_only > 0 => {
            // The requests of a proxy: each is present twice, as it is served and as another request is made for it.
            let [served, asked] = [ends.server_only, ends.client_only].map(format_exact);
            let apart = match (&ends.server_comm, &ends.client_comm) {
                (Some(_), Some(_)) => {
                    format!(" (alone: --server {server}, --client {client})")
                }
                _ => String::new(),
            };
            format!("{served} to {server} and {asked} from {client}, all in these figures{apart}")
        }
        _ => format!("{client} to {server}"),
    }
}

/// A kind of evidence other than measurement.
struct NotMeasured {
    mark: &'static str,
    how: &'static str,
    /// The time in a part that has this evidence, in nanoseconds.
    figure: fn(&Part) -> u64,
}

const NOT_MEASURED: [NotMeasured; 2] = [
    NotMeasured { mark: MODELLED, how: "modelled, not measured", figure: |part| part.modelled_ns },
    NotMeasured { mark: SAMPLED, how: "sampled", figure: |part| part.sampled_ns },
];

/// Returns one sentence for each kind of evidence other than measurement.
pub fn evidence_shares(breakdown: &Breakdown) -> Vec<String> {
    let kinds: Vec<_> = breakdown.kinds.iter().filter(|kind| kind.complete() > 0).collect();
    let several = kinds.len() > 1;
    let sentence = |NotMeasured { mark, how, figure }| {
        let of_kind = |kind: &&KindBreakdown| {
            let (ns, categories) = categories(kind, figure);
            let of = if several { format!("{} ", kind.kind) } else { String::new() };
            let share = format_share(ns, kind.latency.total_ns);
            (ns > 0).then(|| format!("{of}{share} of the time ({})", categories.join(", ")))
        };
        let kinds: Vec<_> = kinds.iter().filter_map(of_kind).collect();
        (!kinds.is_empty()).then(|| format!("{mark} {how}: {}", kinds.join("; ")))
    };
    NOT_MEASURED.into_iter().filter_map(sentence).collect()
}

/// Minimum share of the time, in per cent, of servers' waits that tasks would explain, for the hint to be given.
const LEAST_UNTOLD_PERCENT: u128 = 5;

/// Returns a hint that tasks can be followed, if they were not and servers' waits that tasks would explain are
/// modelled.
pub fn tasks_would_tell(breakdown: &Breakdown, manifests: &[&Manifest]) -> Option<String> {
    let untold = |part: &&Part| {
        let waits = matches!(part.category, Category::Sleep | Category::Lock);
        waits && part.side == Some(Side::Server)
    };
    let kinds = &breakdown.kinds;
    let all_ns: u128 = kinds.iter().map(|kind| u128::from(kind.latency.total_ns)).sum();
    let parts = kinds.iter().flat_map(|kind| kind.parts.iter().filter(untold));
    let untold_ns: u128 = parts.map(|part| u128::from(part.modelled_ns)).sum();
    let is_much = untold_ns > 0 && untold_ns * 100 >= all_ns * LEAST_UNTOLD_PERCENT;
    let none_followed = manifests.iter().all(|manifest| manifest.options.tasks == Some(false));
    (is_much && none_followed).then(|| {
        let share = format_share(untold_ns, all_ns);
        format!(
            "Modelled waits of servers (sleep, lock) are {share} of the time: if these run tasks of Go, asyncio, Node or tokio, a capture \
             with --tasks tells what each was for."
        )
    })
}

/// Returns how much of a kind's time has this evidence, and in which categories.
fn categories(kind: &KindBreakdown, figure: fn(&Part) -> u64) -> (u128, Vec<String>) {
    let mut whole = 0;
    let mut names = Vec::new();
    for category in Category::ALL {
        let parts = kind.parts.iter().filter(|part| part.category == *category);
        let (ns, all_ns) = parts.fold((0, 0), |(ns, all_ns), part| {
            (ns + u128::from(figure(part)), all_ns + u128::from(part.per_request.total_ns))
        });
        whole += ns;
        if ns > 0 {
            let part = if ns < all_ns { "part of " } else { "" };
            names.push(format!("{part}{category}"));
        }
    }
    (whole, names)
}

/// Returns every part that is not completely measured, with the share that is not.
pub fn evidence_in_full(breakdown: &Breakdown) -> Vec<String> {
    let sentence = |NotMeasured { mark, how, figure }| {
        let mut list = Vec::new();
        for kind in &breakdown.kinds {
            for part in kind.parts.iter().filter(|part| figure(part) > 0) {
                let share = format_share(figure(part), part.per_request.total_ns);
                let side = part.side.map_or("", |side| side.name());
                list.push(format!("{} {side} {} {share}", kind.kind, part.category));
            }
        }
        (!list.is_empty())
            .then(|| format!("{mark} {how}, in whole or in part: {}", list.join(", ")))
    };
    NOT_MEASURED.into_iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request of a proxy is present twice, and no request goes from the proxy to itself.
    #[test]
    fn both_sides_of_a_proxy_are_told_apart() {
        let nginx = || Some("nginx".to_owned());
        let (client_comm, server_comm) = (nginx(), nginx());
        let mut ends = Ends {
            client_only: 200,
            server_only: 1600,
            client_comm,
            server_comm,
            ..Ends::default()
        };
        let told = "1,600 to nginx and 200 from nginx, all in these figures (alone: --server nginx, --client nginx)";
        assert_eq!(who(Kind::Http1, &ends), told);
        ends.client_comm = None;
        let told = "1,600 to nginx and 200 from several programs, all in these figures";
        assert_eq!(who(Kind::Http1, &ends), told);
        ends.both = 1;
        assert_eq!(who(Kind::Http1, &ends), "several programs to nginx");
        ends.client_program = Some("java".to_owned());
        assert_eq!(who(Kind::Http1, &ends), "java to nginx", "its threads have names of their own");
    }
}
