//! Measures the effect of each rule of the walk: `rules [--times N] CAPTURE...`.
//!
//! Each capture is attributed once with all rules, and once without each rule ([`Engine::leave_out`]). For each
//! capture, the program prints how much of the requests' time carries the rule, and how much of the time is
//! attributed otherwise without the rule; at the end, the same for each rule over all captures. Each attribution
//! runs N times (1), and the least CPU time counts. Each capture is also attributed with each request walked by itself
//! ([`Engine::walk_alone`]), which must give the same result: otherwise the exit status is 1.
//!
//! [`Engine::leave_out`]: rpcprobe::engine::Engine::leave_out
//! [`Engine::walk_alone`]: rpcprobe::engine::Engine::walk_alone

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{ensure, Context, Result};
use rpcprobe::attribute::{self, Given, EVENTS, MANIFEST};
use rpcprobe::capture::manifest::Manifest;
use rpcprobe::engine::detect::InferredParents;
use rpcprobe::laws::check_exclusive;
use rpcprobe::model::{check_conservation, Category, Evidence, Request, Rule, Segment, Segments};

/// The rules that the walk always needs: these cannot be left out.
const GROUND: [Rule; 4] = [Rule::End, Rule::RunQueue, Rule::Charge, Rule::Lost];
/// A smaller share of the requests' time is printed unchanged, but called small at the end.
const SMALL: f64 = 0.001;

/// A capture, attributed with one set of rules.
struct Answers {
    requests: Vec<(Request, Vec<Segment>)>,
    /// Parents that another pass has to know.
    inferred: InferredParents,
    /// Least CPU time of the walking thread.
    cpu_ns: u64,
}

/// Number and time of the requests' segments of some kind.
#[derive(Clone, Copy, Default)]
struct Sum {
    segments: u64,
    ns: u64,
    modelled_ns: u64,
}

/// The effect of leaving a rule out.
struct Left {
    /// Requests of which some time moves to another category or thread.
    changed: u64,
    moved_ns: u64,
    /// Increase of the time that is unattributed, or claimed by another request: signed.
    unattributed_ns: i64,
    claimed_ns: i64,
    /// The violation of law 6, if any.
    fault: Option<String>,
    lost: u64,
    cpu_ns: u64,
}

/// A rule in a capture.
struct Row {
    rule: Rule,
    carries: Sum,
    left: Option<Left>,
}

/// A capture and its rows.
struct Told {
    name: String,
    requests: u64,
    all_ns: u64,
    rows: Vec<Row>,
    /// Requests whose result differs if each is walked by itself: there must be none.
    otherwise_alone: usize,
}

fn thread_cpu_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    text.split(' ')
        .next()
        .context("an empty schedstat")?
        .parse()
        .context("schedstat")
}

fn attributed(dir: &Path, given: &Given<'_>, times: u32) -> Result<Answers> {
    let mut answers = Answers {
        requests: Vec::new(),
        inferred: InferredParents::default(),
        cpu_ns: u64::MAX,
    };
    for _ in 0..times {
        let mut requests = Vec::new();
        let mut sink = |request: Request, segments: Segments| {
            requests.push((request, segments.in_words()));
            Ok(())
        };
        let events = BufReader::with_capacity(1 << 20, File::open(dir.join(EVENTS))?);
        let before_ns = thread_cpu_ns()?;
        let tally = attribute::pass(events, given, &mut sink)
            .with_context(|| dir.join(EVENTS).display().to_string())?;
        answers.cpu_ns = answers.cpu_ns.min(thread_cpu_ns()? - before_ns);
        answers.requests = requests;
        answers.inferred = tally.inferred;
    }
    for (request, segments) in &answers.requests {
        if let Err(fault) = check_conservation(request, segments) {
            let rule = given.without.map_or("nothing", Rule::name);
            anyhow::bail!("{}, without {rule}: {fault}", dir.display());
        }
    }
    Ok(answers)
}

/// The complete requests. Programs' lives count only if there are no other requests, so that no time counts twice.
fn counted(answers: &Answers) -> impl Iterator<Item = &(Request, Vec<Segment>)> {
    let complete = || {
        answers
            .requests
            .iter()
            .filter(|(request, _)| request.complete)
    };
    let only_lives = complete().all(|(request, _)| request.kind.is_life());
    complete().filter(move |(request, _)| only_lives || !request.kind.is_life())
}

/// Number and time of the segments that `of` selects.
fn sum(answers: &Answers, of: impl Fn(&Segment) -> bool) -> Sum {
    let mut sum = Sum::default();
    for segment in counted(answers)
        .flat_map(|(_, segments)| segments)
        .filter(|s| of(s))
    {
        sum.segments += 1;
        sum.ns += segment.duration_ns;
        if segment.evidence == Evidence::Modelled {
            sum.modelled_ns += segment.duration_ns;
        }
    }
    sum
}

/// Time in which two accounts of one request name another category or thread.
fn moved_ns(a: &[Segment], b: &[Segment]) -> u64 {
    let (mut i, mut j, mut moved_ns) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (from_ns, to_ns) = (x.start_ns.max(y.start_ns), x.end_ns().min(y.end_ns()));
        if (x.category, x.tid) != (y.category, y.tid) {
            moved_ns += to_ns.saturating_sub(from_ns);
        }
        i += usize::from(x.end_ns() == to_ns);
        j += usize::from(y.end_ns() == to_ns);
    }
    moved_ns
}

fn compare(whole: &Answers, left: &Answers) -> Left {
    let by_id: HashMap<u64, &[Segment]> = (left.requests.iter())
        .map(|(request, segments)| (request.request_id, &segments[..]))
        .collect();
    let mut of = Left {
        changed: 0,
        moved_ns: 0,
        unattributed_ns: 0,
        claimed_ns: 0,
        fault: check_exclusive(&left.requests).err(),
        lost: 0,
        cpu_ns: left.cpu_ns,
    };
    for (request, segments) in counted(whole) {
        match by_id.get(&request.request_id) {
            None => of.lost += 1,
            Some(without) => {
                let moved_ns = moved_ns(segments, without);
                of.changed += u64::from(moved_ns > 0);
                of.moved_ns += moved_ns;
            }
        }
    }
    let more = |is: fn(&Segment) -> bool| sum(left, is).ns as i64 - sum(whole, is).ns as i64;
    of.unattributed_ns = more(|segment| segment.category == Category::Unattributed);
    of.claimed_ns = more(|segment| segment.rule == Some(Rule::Claimed));
    of
}

/// The number of requests whose result differs if each is walked by itself.
fn otherwise_alone(whole: &Answers, dir: &Path, given: &Given<'_>) -> Result<usize> {
    let given = Given {
        alone: true,
        ..*given
    };
    let alone = attributed(dir, &given, 1)?;
    let differ = |(a, b): &(&_, &_)| a != b;
    let both = whole.requests.iter().zip(&alone.requests);
    Ok(both.filter(differ).count() + whole.requests.len().abs_diff(alone.requests.len()))
}

fn share(part: f64, all: u64) -> f64 {
    part / all.max(1) as f64
}

/// A percentage that distinguishes "none" from "little".
fn percent(share: f64) -> String {
    match share {
        0.0 => "-".to_string(),
        _ if share.abs() < 0.0001 => "<0.01%".to_string(),
        _ => format!("{:.2}%", 100.0 * share),
    }
}

fn more(share: f64) -> String {
    let text = percent(share);
    match share > 0.0 {
        true if !text.starts_with('<') => format!("+{text}"),
        _ => text,
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// A table with minimum column widths, the first column left-aligned, the others right-aligned.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.len())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match at {
                0 => format!("{cell:width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| word.to_string()).collect()
}

fn study(dir: &Path, times: u32, out: &mut impl Write) -> Result<Told> {
    let bytes = fs::read(dir.join(MANIFEST))
        .with_context(|| format!("cannot read {}", dir.join(MANIFEST).display()))?;
    let manifest: Manifest = serde_json::from_slice(&bytes)?;
    let mut given = Given::of(&manifest);
    let mut whole = attributed(dir, &given, times)?;
    // Like an attribution, which makes another pass that knows the inferred parents.
    let parents = Rc::new(std::mem::take(&mut whole.inferred));
    if !parents.is_empty() {
        given.parents = Some(&parents);
        whole = attributed(dir, &given, times)?;
    }
    let requests = counted(&whole).count() as u64;
    let all = sum(&whole, |_| true);
    let name = dir
        .file_name()
        .unwrap_or(dir.as_os_str())
        .to_string_lossy()
        .into_owned();
    let unattributed = sum(&whole, |segment| segment.category == Category::Unattributed);
    writeln!(
        out,
        "{name}: {requests} requests, {} segments, {} in all, {} unattributed, attributed in {}{}\n",
        all.segments,
        milliseconds(all.ns),
        percent(share(unattributed.ns as f64, all.ns)),
        milliseconds(whole.cpu_ns),
        if check_exclusive(&whole.requests).is_ok() { "" } else { "; LAW 6 DOES NOT HOLD" },
    )?;
    let mut told = Told {
        name,
        requests,
        all_ns: all.ns,
        rows: Vec::new(),
        otherwise_alone: otherwise_alone(&whole, dir, &given)?,
    };
    if told.otherwise_alone > 0 {
        writeln!(
            out,
            "EACH WALKED BY ITSELF, {} REQUESTS ARE TOLD OTHERWISE\n",
            told.otherwise_alone
        )?;
    }
    for &rule in Rule::ALL {
        let carries = sum(&whole, |segment| segment.rule == Some(rule));
        let left = match GROUND.contains(&rule) {
            true => None,
            false => {
                let given = Given {
                    without: Some(rule),
                    ..given
                };
                Some(compare(&whole, &attributed(dir, &given, times)?))
            }
        };
        told.rows.push(Row {
            rule,
            carries,
            left,
        });
    }
    let mut rows = vec![
        words(&["", "", "", "", "without it:"]),
        words(&[
            "rule",
            "segments",
            "time",
            "modelled",
            "changed",
            "moved",
            "unattributed",
            "claimed",
            "law 6",
            "lost",
            "attributed in",
        ]),
    ];
    rows.extend(
        told.rows
            .iter()
            .filter(|row| row.matters())
            .map(|row| row.shown(&told, &whole)),
    );
    writeln!(out, "{}", table(&rows))?;
    for row in told.rows.iter().filter(|row| row.rule != Rule::Claimed) {
        if let Some(fault) = row.left.as_ref().and_then(|left| left.fault.as_ref()) {
            writeln!(out, "law 6 without {}: {fault}\n", row.rule)?;
        }
    }
    let none: Vec<&str> = told
        .rows
        .iter()
        .filter(|row| !row.matters())
        .map(|row| row.rule.name())
        .collect();
    if !none.is_empty() {
        writeln!(
            out,
            "neither occur nor change anything: {}\n",
            none.join(", ")
        )?;
    }
    Ok(told)
}

impl Row {
    /// Returns whether the rule occurs, or leaving it out changes anything.
    fn matters(&self) -> bool {
        let differs = |left: &Left| left.changed + left.lost > 0 || left.fault.is_some();
        self.carries.segments > 0 || self.left.as_ref().is_some_and(differs)
    }

    fn shown(&self, told: &Told, whole: &Answers) -> Vec<String> {
        let mut row = vec![
            self.rule.name().to_string(),
            self.carries.segments.to_string(),
            percent(share(self.carries.ns as f64, told.all_ns)),
            percent(share(self.carries.modelled_ns as f64, self.carries.ns)),
        ];
        let Some(left) = &self.left else { return row };
        let slower = left.cpu_ns as f64 / whole.cpu_ns.max(1) as f64 - 1.0;
        row.extend([
            percent(share(left.changed as f64, told.requests)),
            percent(share(left.moved_ns as f64, told.all_ns)),
            more(share(left.unattributed_ns as f64, told.all_ns)),
            more(share(left.claimed_ns as f64, told.all_ns)),
            if left.fault.is_none() {
                "holds"
            } else {
                "BROKEN"
            }
            .to_string(),
            if left.lost == 0 {
                "-".to_string()
            } else {
                left.lost.to_string()
            },
            format!("{:+.0}%", 100.0 * slower),
        ]);
        row
    }
}

/// For each capture, the percentage of the requests' time that is attributed otherwise without each rule.
fn matrix(all: &[Told]) -> String {
    let ruled = || {
        Rule::ALL
            .iter()
            .enumerate()
            .filter(|(_, rule)| !GROUND.contains(rule))
    };
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(ruled().map(|(_, rule)| rule.name().to_string()));
    for told in all {
        let moved = |at: usize| {
            let left = told.rows[at].left.as_ref();
            match left.map_or(0, |left| left.moved_ns) {
                0 => "-".to_string(),
                ns if 1000 * ns < told.all_ns => "<0.1".to_string(),
                ns => format!("{:.1}", 100.0 * share(ns as f64, told.all_ns)),
            }
        };
        let mut row = vec![told.name.clone()];
        row.extend(ruled().map(|(at, _)| moved(at)));
        rows.push(row);
    }
    table(&rows)
}

/// For each rule, over all captures: in how many it occurs, in how many it matters, and in which most.
fn conclude(all: &[Told], out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "moved without each rule, in percent:\n\n{}",
        matrix(all)
    )?;
    writeln!(out, "over all {} captures:\n", all.len())?;
    let mut rows = vec![words(&[
        "rule",
        "occurs in",
        "changes",
        "moved at most",
        "unattributed",
        "in",
    ])];
    let mut idle = Vec::new();
    let mut small = Vec::new();
    for (at, &rule) in Rule::ALL.iter().enumerate() {
        let of: Vec<(&Told, &Row)> = all.iter().map(|told| (told, &told.rows[at])).collect();
        let occurs = of
            .iter()
            .filter(|(_, row)| row.carries.segments > 0)
            .count();
        let mut line = vec![rule.name().to_string(), occurs.to_string()];
        if GROUND.contains(&rule) {
            rows.push(line);
            continue;
        }
        let moved = |(told, row): &(&Told, &Row)| {
            row.left
                .as_ref()
                .map_or(0.0, |left| share(left.moved_ns as f64, told.all_ns))
        };
        let changes = of.iter().filter(|of| moved(of) > 0.0).count();
        line.push(changes.to_string());
        let most = of.iter().max_by(|a, b| moved(a).total_cmp(&moved(b)));
        match most.filter(|most| moved(most) > 0.0) {
            Some(most) => {
                let (told, row) = most;
                let unattributed = row.left.as_ref().map_or(0, |left| left.unattributed_ns);
                line.push(percent(moved(most)));
                line.push(more(share(unattributed as f64, told.all_ns)));
                line.push(told.name.clone());
                if moved(most) < SMALL {
                    small.push(rule.name());
                }
            }
            None if occurs == 0 => idle.push(rule.name()),
            None => small.push(rule.name()),
        }
        rows.push(line);
    }
    writeln!(out, "{}", table(&rows))?;
    let list = |names: Vec<&str>| match names.is_empty() {
        true => "none".to_string(),
        false => names.join(", "),
    };
    writeln!(
        out,
        "Rules that occur in no capture and change nothing: {}",
        list(idle)
    )?;
    writeln!(
        out,
        "Rules that nowhere change more than {} of the requests' time: {}",
        percent(SMALL),
        list(small)
    )?;
    Ok(())
}

fn main() -> Result<()> {
    let mut times = 1;
    let mut captures: Vec<PathBuf> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--times" => {
                let number = arguments.next().context("--times takes a number")?;
                times = number.parse().context("--times takes a number")?;
            }
            _ => captures.push(argument.into()),
        }
    }
    ensure!(
        times > 0 && !captures.is_empty(),
        "usage: rules [--times N] CAPTURE..."
    );
    let mut out = std::io::stdout();
    let told: Vec<Told> = captures
        .iter()
        .map(|dir| study(dir, times, &mut out))
        .collect::<Result<_>>()?;
    conclude(&told, &mut out)?;
    let otherwise = told.iter().filter(|told| told.otherwise_alone > 0).count();
    ensure!(
        otherwise == 0,
        "walks that are shared tell otherwise in {otherwise} captures"
    );
    writeln!(
        out,
        "Each walked by itself, all requests are told the same."
    )?;
    Ok(())
}
