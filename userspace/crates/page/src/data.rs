//! The figures in a page: compressed, in chunks that are unpacked when they are viewed.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use flate2::write::GzEncoder;
use flate2::Compression;
use serde_json::{json, Map, Value};

use super::{about, OfKind, Page, Side};
use rpcprobe_figures::{figure, label, Band, Drawn, Group, Name, Selection};
use rpcprobe_model::Category;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{escape, format_exact, format_ns, format_share, marks};

/// Time lines per chunk.
const REQUESTS: usize = 40;
/// Share of the space for figures, in per cent, that all figures except time lines may take.
const FIGURES: usize = 55;

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn compressed(value: &Value) -> Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(7));
    encoder.write_all(serde_json::to_string(value)?.as_bytes())?;
    Ok(base64(&encoder.finish()?))
}

/// The number of bytes that may still be written.
pub struct Budget(usize);

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget(bytes)
    }

    fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }
}

/// The data that the script reads.
pub struct Packed {
    pub index: String,
    pub chunks: Vec<String>,
}

/// The chunks written so far.
struct Chunks {
    chunks: Vec<String>,
}

impl Chunks {
    /// Adds a chunk and returns its number; `None` if it does not fit.
    fn add(&mut self, value: &Value, budget: &mut Budget) -> Result<Option<usize>> {
        let chunk = compressed(value)?;
        // 64 bytes for the markup around the chunk.
        if !budget.takes(chunk.len() + 64) {
            return Ok(None);
        }
        self.chunks.push(chunk);
        Ok(Some(self.chunks.len() - 1))
    }
}

/// Packs all figures, the most important first, until the space is used up.
pub fn packed(page: &Page, budget: Budget) -> Result<Packed> {
    // Leaves space for the index, which is written last.
    let Budget(whole) = budget;
    let mut figures = Budget(whole * FIGURES / 100);
    let mut chunks = Chunks { chunks: Vec::new() };
    let mut sides: Vec<Value> = Vec::new();
    for side in &page.sides {
        sides.push(groups(side, &mut chunks, &mut figures, page.sides.len())?);
    }
    let compared = match &page.compared {
        Some(compared) => {
            let of = |of: &OfKind| {
                (of.kind.name().to_owned(), json!({"shift": of.shift, "waterfall": of.waterfall}))
            };
            let of: Map<String, Value> = compared.figures.iter().map(of).collect();
            chunks.add(&Value::Object(of), &mut figures)?
        }
        None => None,
    };
    let written: usize = chunks.chunks.iter().map(String::len).sum();
    // The index names each request.
    let index_bytes =
        page.sides.iter().map(|side| side.gathered.drawn.len() * 16).sum::<usize>() / 2;
    let mut lines = Budget(whole.saturating_sub(written + index_bytes + 16_000));
    let mut requests = Vec::new();
    for side in &page.sides {
        let share = lines.0 / (page.sides.len() - requests.len());
        requests.push(time_lines(side, &mut chunks, &mut Budget(share))?);
        let written: usize = chunks.chunks.iter().map(String::len).sum();
        lines.0 = whole.saturating_sub(written + index_bytes + 16_000);
    }
    let pairs: Map<String, Value> = (page.compared.iter().flat_map(|compared| &compared.figures))
        .map(|of| (of.kind.name().to_owned(), json!(of.b_kind.name())))
        .collect();
    let index = json!({
        "pairs": pairs,
        "sides": about(page),
        "groups": sides,
        "bands": Band::WITH_ALL.map(|band| json!({"name": band.name(), "shown": band.shown()})),
        "requests": requests,
        "compared": compared,
    });
    Ok(Packed { index: compressed(&index)?, chunks: chunks.chunks })
}

fn key(band: Band, category: Option<Category>) -> String {
    match category {
        Some(category) => format!("{}|{category}", band.name()),
        None => band.name().to_owned(),
    }
}

/// Packs the figures of each group for each band and, if there is room, also for each category.
fn groups(side: &Side, chunks: &mut Chunks, budget: &mut Budget, sides: usize) -> Result<Value> {
    let mut share = Budget(budget.0 / sides);
    let before = share.0;
    let gathered = side.gathered;
    let mut told: Vec<Value> = Vec::new();
    let is_kind = |group: &&Group| group.key.method.is_none();
    let mut places: BTreeMap<*const Group, (Option<usize>, Option<usize>)> = BTreeMap::new();
    let kinds = gathered.groups.iter().filter(is_kind);
    let methods = gathered.groups.iter().filter(|group| !is_kind(group));
    // Kinds come first: the figures of methods that do not fit are available on the command line.
    for group in kinds.clone().chain(methods.clone()) {
        let chunk = chunks.add(&of_group(side, group), &mut share)?;
        places.insert(group, (chunk, None));
    }
    for group in kinds.chain(methods) {
        let chunk = chunks.add(&of_categories(side, group), &mut share)?;
        places.entry(group).or_default().1 = chunk;
    }
    for group in &gathered.groups {
        let (chunk, categories) = places[&std::ptr::from_ref(group)];
        let id = |place: &usize| json!([gathered.drawn[*place].id.0, gathered.drawn[*place].id.1]);
        told.push(json!({
            "kind": group.key.kind.name(),
            "method": group.key.method.as_deref().map(escape),
            "label": group.key.method.as_deref().map(label),
            "requests": group.requests,
            "chunk": chunk,
            "categoriesChunk": categories,
            "bands": group.bands().iter().map(|band| {
                let sums = group.band(*band);
                json!({
                    "name": band.name(),
                    "note": format!(
                        "{} requests, {} to {}",
                        format_exact(sums.requests), format_ns(sums.min_ns), format_ns(sums.max_ns)
                    ),
                })
            }).collect::<Vec<_>>(),
            "categories": categories_of(group),
            "slowest": group.slowest.iter().map(id).collect::<Vec<_>>(),
            "typical": group.typical.iter().map(id).collect::<Vec<_>>(),
        }));
    }
    budget.0 -= before - share.0;
    Ok(json!(told))
}

fn categories_of(group: &Group) -> Vec<Value> {
    let all = group.band(Band::All);
    all.parts
        .iter()
        .filter(|(_, part)| part.sum.ns > 0)
        .map(|(category, part)| {
            let marks = marks(part.sum.modelled_ns > 0, part.sum.sampled_ns > 0);
            json!({
                "name": category.name(), "shown": format!("{category}{marks}"),
                "share": format_share(part.sum.ns, all.latency_ns), "color": hex(*category),
            })
        })
        .collect()
}

fn of_group(side: &Side, group: &Group) -> Value {
    let mut of: Map<String, Value> = Map::new();
    for name in Name::of_groups() {
        let mut figures = Map::new();
        for band in group.bands() {
            let selection = Selection { band: *band, category: None };
            // The tree shows all requests, whatever band is selected.
            if name == Name::Tree && *band != Band::All {
                continue;
            }
            if let Some(figure) = figure(name, side.gathered, group, selection) {
                figures.insert(key(*band, None), figure);
            }
        }
        if !figures.is_empty() {
            of.insert(name.name().to_owned(), Value::Object(figures));
        }
    }
    Value::Object(of)
}

/// Packs the figures of a single quantity, with each category in place of the latency.
fn of_categories(side: &Side, group: &Group) -> Value {
    let mut figures = Map::new();
    for band in group.bands() {
        for category in group.band(*band).parts.keys() {
            let selection = Selection { band: *band, category: Some(*category) };
            if let Some(figure) = figure(Name::Latency, side.gathered, group, selection) {
                figures.insert(key(*band, Some(*category)), figure);
            }
        }
    }
    json!({Name::Latency.name(): figures})
}

/// Packs time lines: first of the listed requests, then of the other requests, slowest first. Returns what the script
/// needs to find a time line: the request's number and the chunk.
fn time_lines(side: &Side, chunks: &mut Chunks, budget: &mut Budget) -> Result<Value> {
    let gathered = side.gathered;
    let mut order: Vec<usize> = Vec::new();
    for group in &gathered.groups {
        order.extend(group.slowest.iter().chain(&group.typical));
    }
    let mut rest: Vec<usize> = (0..gathered.drawn.len()).collect();
    rest.sort_by_key(|place| std::cmp::Reverse(gathered.drawn[*place].request.latency_ns));
    order.extend(rest);
    let mut taken = vec![false; gathered.drawn.len()];
    let mut index: Map<String, Value> = Map::new();
    let wanted: Vec<&Drawn> = order
        .into_iter()
        .filter(|place| !std::mem::replace(&mut taken[*place], true))
        .map(|place| &gathered.drawn[place])
        .filter(|drawn| drawn.kept.is_some())
        .collect();
    for some in wanted.chunks(REQUESTS) {
        let mut figures = Map::new();
        for drawn in some {
            if let Some(figure) = drawn.figure() {
                let told = json!({"heading": escape(&drawn.heading()), "facts": drawn.facts(), "figure": figure});
                figures.insert(name_of(drawn), told);
            }
        }
        let names: Vec<String> = figures.keys().cloned().collect();
        let Some(chunk) = chunks.add(&Value::Object(figures), budget)? else { break };
        index.extend(names.into_iter().map(|name| (name, json!(chunk))));
    }
    let mut short: Map<String, Value> = Map::new();
    for drawn in gathered.groups.iter().flat_map(|of| of.slowest.iter().chain(&of.typical)) {
        let drawn = &gathered.drawn[*drawn];
        let color = drawn.largest().map(hex);
        let method = drawn.request.method.as_deref().map(escape);
        let told = json!([format_ns(drawn.request.latency_ns), method, color]);
        short.insert(name_of(drawn), told);
    }
    Ok(json!({"chunks": index, "short": short}))
}

fn name_of(drawn: &Drawn) -> String {
    format!("{}:{}", drawn.id.0, drawn.id.1)
}
