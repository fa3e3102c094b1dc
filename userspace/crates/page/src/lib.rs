//! The page: one HTML file, without network access, that shows a capture, or two sides beside each other.
//!
//! The page holds tables, which work without JavaScript, and the compressed figures of [`rpcprobe_figures`] for each
//! choice of kind, method, band and category. The script in the page draws and switches figures; it computes none.

mod data;
mod html;
mod tables;

use std::io::Write;

use anyhow::Result;
use serde_json::{json, Value};

use data::{Budget, Packed};
use html::{entities, text};
use rpcprobe_figures::{Gathered, Name};
use rpcprobe_model::Kind;
use rpcprobe_report::{answers, evidence_shares, ledger_line, nothing_found, Preamble, Reported};

/// Maximum size of a page in bytes.
pub const MOST_BYTES: usize = 3_000_000;
/// Space reserved for everything except figures: markup, style, script.
const RESERVE_BYTES: usize = 40_000;

const PLOTLY: &[u8] = include_bytes!("../assets/plotly-basic.min.js.gz");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// One capture, or the runs of one side of a comparison.
pub struct Side<'a> {
    /// `A` or `B`; empty for a single capture.
    pub name: &'a str,
    pub reported: Reported<'a>,
    pub gathered: &'a Gathered,
    /// The directories of the side's captures, in the order of the captures.
    pub directories: Vec<String>,
}

/// Two sides compared.
pub struct Compared {
    /// The comparison as text.
    pub text: String,
    /// The conclusions, shown first.
    pub verdict: Vec<String>,
    pub figures: Vec<OfKind>,
}

/// Figures of a comparison, for one kind of request.
pub struct OfKind {
    pub kind: Kind,
    /// Differs from `kind` if each side has only one kind.
    pub b_kind: Kind,
    /// `None` if there are too few requests.
    pub shift: Option<Value>,
    pub waterfall: Value,
}

/// Content of a page.
pub struct Page<'a> {
    pub sides: Vec<Side<'a>>,
    pub compared: Option<Compared>,
    /// The command that made the page.
    pub command: String,
}

/// Writes the page.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(out: &mut dyn Write, page: &Page) -> Result<()> {
    let mut tables = String::new();
    for side in &page.sides {
        let heading = match side.name {
            "" => String::new(),
            name => format!("<h2 id=tables-{name}>{name}</h2>\n"),
        };
        tables += &heading;
        tables += &tables::all(side.reported.breakdown, side.gathered);
    }
    let top = top(page);
    let plotly = data::base64(PLOTLY);
    let used = top.len() + tables.len() + plotly.len() + STYLE.len() + SCRIPT.len();
    let budget = Budget::new(MOST_BYTES.saturating_sub(RESERVE_BYTES + used));
    let Packed { index, chunks } = data::packed(page, budget)?;
    let title = match &page.sides[..] {
        [one] => first_command(one),
        sides => sides.iter().map(first_command).collect::<Vec<_>>().join(" | "),
    };
    write!(
        out,
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; script-src 'unsafe-inline' blob:; \
         style-src 'unsafe-inline'; img-src data: blob:\">\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <meta name=color-scheme content=\"light dark\">\n\
         <title>{} · rpcprobe</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        entities(&title)
    )?;
    write!(out, "{top}")?;
    write!(out, "{}", figures(page))?;
    write!(
        out,
        "<details id=tables open>\n<summary><h2>All of it as tables</h2></summary>\n{tables}</details>\n</main>\n\
         <footer>Made by <code>{}</code>, rpcprobe {}.</footer>\n",
        text(&page.command),
        env!("CARGO_PKG_VERSION")
    )?;
    for (name, chunk) in [("plotly", &plotly), ("index", &index)] {
        writeln!(out, "<script type=text/plain id=data-{name}>{chunk}</script>")?;
    }
    for (number, chunk) in chunks.iter().enumerate() {
        writeln!(out, "<script type=text/plain id=data-{number}>{chunk}</script>")?;
    }
    Ok(write!(out, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n")?)
}

fn first_command(side: &Side) -> String {
    side.reported.manifests.first().map_or(String::new(), |of| rpcprobe_report::command(of))
}

/// The answer in words, and what a reader must know before any figure.
fn top(page: &Page) -> String {
    let mut out = String::from("<header>\n");
    for side in &page.sides {
        let preamble = Preamble::of(&side.reported);
        let name = match side.name {
            "" => String::new(),
            name => format!("<b class=side>{name}</b> "),
        };
        let mut captures = preamble.captures.iter();
        if let Some((command, circumstances)) = captures.next() {
            out += &format!("<h1>{name}{}</h1>\n", entities(command));
            let more = match captures.len() {
                0 => String::new(),
                n => format!(" · the first of {} captures", n + 1),
            };
            out += &format!("<p class=facts>{}{more}</p>\n", entities(circumstances));
        }
    }
    out += "<button id=theme hidden>Dark</button>\n</header>\n<main>\n";
    if let Some(compared) = &page.compared {
        out += "<section class=answer aria-label=Comparison>\n";
        for (i, line) in compared.verdict.iter().enumerate() {
            let class = if i == 0 { "whole" } else { "tail" };
            out += &format!("<p class={class}>{}</p>\n", entities(line));
        }
        out += "</section>\n";
    }
    for side in &page.sides {
        out += &answer(side);
    }
    if let Some(compared) = &page.compared {
        out += &format!(
            "<details class=text><summary>The comparison as text</summary><pre>{}</pre></details>\n",
            entities(&compared.text)
        );
    }
    out
}

fn answer(side: &Side) -> String {
    let Reported { breakdown, manifests, accounts, .. } = &side.reported;
    let preamble = Preamble::of(&side.reported);
    let mut out = String::from("<section class=answer>\n");
    if !side.name.is_empty() {
        out += &format!("<h2>{}</h2>\n", side.name);
    }
    for of in answers(breakdown) {
        out += &format!("<p class=whole>{}</p>\n", entities(&of.whole));
        out += &of
            .tail
            .map_or(String::new(), |tail| format!("<p class=tail>{}</p>\n", entities(&tail)));
    }
    if breakdown.kinds.is_empty() && breakdown.in_capture == 0 {
        out += "<p class=whole>No requests were found.</p>\n";
        for line in manifests.iter().flat_map(|manifest| nothing_found(manifest)) {
            out += &format!("<p class=tail>{}</p>\n", entities(&line));
        }
    } else if breakdown.kinds.is_empty() {
        out += "<p class=whole>No request passes the filter.</p>\n";
    }
    out += "<ul class=facts>\n";
    let line = ledger_line(accounts);
    let facts =
        preamble.filter.iter().chain([&preamble.summary, &preamble.probe_cost]).chain(&line);
    for fact in facts {
        out += &format!("<li>{}\n", entities(fact));
    }
    let shares = evidence_shares(breakdown);
    let any = breakdown.kinds.iter().any(|kind| kind.complete() > 0);
    if shares.is_empty() && any {
        out += "<li>all of it measured\n";
    }
    for fact in shares {
        out += &format!("<li>{}\n", entities(&fact));
    }
    for problem in preamble.problems {
        out += &format!("<li class=problem>{}\n", entities(&problem));
    }
    out + "</ul>\n</section>\n"
}

/// Places where the script puts the figures.
fn figures(page: &Page) -> String {
    let any = page.sides.iter().any(|side| !side.gathered.groups.is_empty());
    let mut out = String::from(
        "<noscript><p class=note>Figures need JavaScript. Everything is in the tables below.</p></noscript>\n",
    );
    if !any {
        return out;
    }
    out += "<p id=failed class=problem hidden></p>\n<form id=controls hidden aria-label=Selection></form>\n";
    if page.compared.is_some() {
        out += "<div id=compared hidden>\n";
        out += &card("waterfall", "What the mean changed by, category by category", 1);
        out += &card("shift", "By how much each percentile differs (shift function)", 1);
        out += "</div>\n";
    }
    let sides = page.sides.len();
    out += "<div id=figures hidden>\n";
    for name in Name::of_groups() {
        out += &card(name.name(), name.shows(), sides);
    }
    out += "</div>\n<section id=timeline hidden>\n<h2>Requests, piece by piece</h2>\n\
            <div id=requests></div>\n<h3 id=which></h3>\n<p class=note id=facts></p>\n\
            <div class=plot id=plot-timeline></div>\n<p class=note id=note-timeline></p>\n\
            <details id=pieces><summary>Its segments as a table</summary><div class=scroll></div></details>\n\
            </section>\n";
    out
}

fn card(name: &str, shows: &str, sides: usize) -> String {
    let plots: String =
        (0..sides).map(|i| format!("<div class=plot id=plot-{name}-{i}></div>")).collect();
    format!(
        "<figure class=card id=card-{name}><figcaption><h3>{}</h3><p class=note></p></figcaption>\
         <div class=plots>{plots}</div></figure>\n",
        entities(shows)
    )
}

/// Describes the sides for the script.
fn about(page: &Page) -> Value {
    let about = |side: &Side| {
        json!({
            "name": side.name,
            "directories": side.directories.iter().map(|of| rpcprobe_report::escape(of)).collect::<Vec<_>>(),
        })
    };
    json!(page.sides.iter().map(about).collect::<Vec<_>>())
}
