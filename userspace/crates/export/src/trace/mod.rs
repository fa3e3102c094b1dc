//! A capture as a Perfetto trace: requests with their segments, threads, and the path of each request through the
//! threads.

mod lanes;
mod packets;
mod proto;
mod threads;
mod under_way;
mod utc;

use std::collections::BTreeMap;
use std::io::Write;
use std::iter::Peekable;
use std::rc::Rc;

use anyhow::{bail, ensure, Result};

use crate::choice::{Chosen, Link};
use crate::GoOn;
use lanes::Lanes;
use packets::{Flows, Notes, Packets, Track};
use proto::{Clock, ClockSnapshot, MONOTONIC, REALTIME};
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::{Category, Evidence, Kind, Request, Segment};
use rpcprobe_report::{command, end, escape, evidence_mark};
use rpcprobe_tables::RequestRow;
use threads::{For, Threads};
use under_way::UnderWay;

pub use threads::LeftOut;

/// Marks the arrows from a request to a request made for it. Arrows between threads do not have this bit.
const LINK: u64 = 1 << 63;

/// Input of a trace.
pub struct Source<'a, R, S>
where
    R: Iterator<Item = Result<RequestRow>>,
    S: Iterator<Item = Result<(u64, Segment)>>,
{
    pub manifest: &'a Manifest,
    pub chosen: &'a Chosen,
    /// The filter in words; empty without a filter.
    pub filter: String,
    pub rows: R,
    /// In the same order of requests as `rows`.
    pub segments: S,
}

/// Writes the trace. Returns the work of threads that could not be shown.
///
/// # Errors
/// A table cannot be read or does not fit the other; segments do not tile their request; `out` cannot be written;
/// `go_on` fails.
pub fn write<R, S>(out: &mut dyn Write, source: Source<R, S>, go_on: GoOn) -> Result<LeftOut>
where
    R: Iterator<Item = Result<RequestRow>>,
    S: Iterator<Item = Result<(u64, Segment)>>,
{
    let Source { manifest, chosen, filter, rows, segments } = source;
    let mut packets = Packets::new(out);
    packets.clocks(clocks(manifest))?;
    let mut trace = Trace {
        capture: packets.named("capture", None)?,
        requests: packets.named("requests", None)?,
        packets,
        chosen,
        lanes: BTreeMap::new(),
        threads: Threads::default(),
        under_way: UnderWay::new(manifest.start_ns, manifest.duration_ns),
        incomplete: 0,
    };
    let mut segments = segments.peekable();
    for row in rows {
        go_on()?;
        trace.request(&row?.request, &mut segments)?;
    }
    match segments.next() {
        Some(Ok((id, _))) => bail!("segments of request {id} are not where it is in the requests"),
        Some(Err(error)) => Err(error),
        None => trace.finish(manifest, &filter),
    }
}

/// The start of the capture on two clocks: the clock of all times in the trace, and UTC.
fn clocks(manifest: &Manifest) -> ClockSnapshot {
    let clock = |id, ns| Clock { clock_id: Some(id), timestamp: Some(ns) };
    let utc_ns = utc::parse_ns(&manifest.start_utc);
    let clocks = [Some(clock(MONOTONIC, manifest.start_ns)), utc_ns.map(|ns| clock(REALTIME, ns))];
    ClockSnapshot {
        clocks: clocks.into_iter().flatten().collect(),
        primary_trace_clock: Some(MONOTONIC),
    }
}

struct Trace<'w, 'c> {
    packets: Packets<'w>,
    chosen: &'c Chosen,
    capture: Track,
    requests: Track,
    lanes: BTreeMap<Kind, Lanes>,
    threads: Threads,
    under_way: UnderWay,
    incomplete: u64,
}

impl Trace<'_, '_> {
    fn request(
        &mut self,
        request: &Request,
        segments: &mut Peekable<impl Iterator<Item = Result<(u64, Segment)>>>,
    ) -> Result<()> {
        let id = request.request_id;
        let is_of = |next: &Result<(u64, Segment)>| next.as_ref().map_or(true, |(of, _)| *of == id);
        if !self.chosen.ids.contains(id) {
            while let Some(next) = segments.next_if(is_of) {
                next?;
            }
            return Ok(());
        }
        let end_ns = request.start_ns.saturating_add(request.latency_ns);
        let mut links = self.chosen.links.of(id);
        let mut flows = Flows::default();
        if !segments.peek().is_some_and(is_of) {
            ensure!(!request.complete || request.latency_ns == 0, "request {id} has no segments");
            flows.out.extend(std::mem::take(&mut links).iter().map(arrow));
        }
        flows.into.extend(self.chosen.links.has(id).then_some(LINK | id));
        let of = Rc::new(For { request_id: id, start_ns: request.start_ns, name: name(request) });
        let lanes = self.lanes.entry(request.kind).or_default();
        let tracks = format!("{} requests", request.kind);
        let track =
            lanes.take(&mut self.packets, (request.start_ns, end_ns), &tracks, self.requests)?;
        let texts = Texts::of(request);
        let (kind, notes) = (request.kind.name(), texts.notes(request));
        self.packets.begin(request.start_ns, track, &of.name, kind, notes, flows)?;
        let mut at_ns = request.start_ns;
        let mut has_any = false;
        while let Some(next) = segments.next_if(is_of) {
            let (_, segment) = next?;
            let tiles = segment.start_ns == at_ns && segment.duration_ns > 0;
            ensure!(tiles, "the segments of request {id} do not tile it");
            at_ns = segment.start_ns.saturating_add(segment.duration_ns);
            ensure!(at_ns <= end_ns, "the segments of request {id} go on after its end");
            let begun = links.partition_point(|link| link.start_ns <= at_ns);
            let mut flows = Flows { out: links[..begun].iter().map(arrow).collect(), into: vec![] };
            links = &links[begun..];
            flows.out.extend(self.threads.segment(&mut self.packets, &of, &segment)?);
            self.segment(track, &segment, flows)?;
            has_any = true;
        }
        ensure!(!has_any || at_ns == end_ns, "the segments of request {id} do not reach its end");
        self.packets.end(end_ns, track)?;
        self.threads.end_of_request(&mut self.packets)?;
        self.under_way.add(request);
        self.incomplete += u64::from(!request.complete);
        Ok(())
    }

    fn segment(&mut self, track: Track, segment: &Segment, flows: Flows) -> Result<()> {
        let thread = (segment.tid != 0).then(|| format!("{}/{}", segment.comm, segment.tid));
        let by = segment.by.as_ref().map(ToString::to_string);
        let mut notes = Notes::default();
        notes.text("side", segment.side.name());
        notes.text("thread", thread.as_deref());
        notes.number("cpu", segment.cpu.map(u64::from));
        notes.text("phase", segment.phase);
        notes.text("detail", segment.detail.as_deref());
        notes.text("cause", segment.cause.as_deref());
        notes.text("by", by.as_deref());
        notes.text("evidence", segment.evidence.name());
        notes.text("rule", segment.rule.map(|rule| rule.name()));
        notes.number("shared", (segment.shared > 1).then_some(u64::from(segment.shared)));
        notes.number("stack_id", segment.stack.map(|stack| stack.stack_id));
        let name = marked(segment.category, segment.evidence);
        let category = segment.category.name();
        self.packets.begin(segment.start_ns, track, &name, category, notes, flows)?;
        self.packets.end(segment.start_ns.saturating_add(segment.duration_ns), track)
    }

    /// Writes what is still waiting, and a slice that describes the trace.
    fn finish(mut self, manifest: &Manifest, filter: &str) -> Result<LeftOut> {
        let left_out = self.threads.finish(&mut self.packets)?;
        self.under_way.write(&mut self.packets, self.requests)?;
        let command = command(manifest);
        let mut notes = Notes::default();
        notes.text("command", command.as_str());
        notes.text("host", manifest.host.name.as_str());
        notes.text("kernel", manifest.host.kernel.as_str());
        notes.text("start_utc", manifest.start_utc.as_str());
        notes.text("taken_by", manifest.rpcprobe_version.as_str());
        notes.text("filter", Some(filter).filter(|text| !text.is_empty()));
        notes.number("requests", self.chosen.requests);
        notes.number("requests_in_capture", self.chosen.in_capture);
        notes.number("requests_incomplete", self.incomplete);
        notes.number("requests_that_may_belong", self.chosen.may_belong);
        notes.number("records_lost", manifest.counts.records_lost);
        notes.number("arrows_to_children_left_out", self.chosen.links.left_out);
        notes.number("thread_work_left_out_ns", left_out.ns);
        let end_ns = manifest.start_ns.saturating_add(manifest.duration_ns);
        let (track, none) = (self.capture, Flows::default());
        self.packets.begin(manifest.start_ns, track, "capture", "capture", notes, none)?;
        self.packets.end(end_ns, track)?;
        Ok(left_out)
    }
}

fn arrow(link: &Link) -> u64 {
    LINK | link.child
}

/// The request's method, or else its kind, marked if the request is incomplete.
fn name(request: &Request) -> String {
    let name = request.method.as_deref().map_or(request.kind.name().to_owned(), escape);
    match request.complete {
        true => name,
        false => format!("{name} (incomplete)"),
    }
}

fn marked(category: Category, evidence: Evidence) -> String {
    format!("{category}{}", evidence_mark(evidence))
}

/// The fields of a request that have to be formatted as text.
struct Texts {
    client: Option<String>,
    server: Option<String>,
    reason: Option<String>,
}

impl Texts {
    fn of(request: &Request) -> Texts {
        Texts {
            client: request.client.as_ref().map(|of| end(Some(of))),
            server: request.server.as_ref().map(|of| end(Some(of))),
            reason: request.reason.as_ref().map(ToString::to_string),
        }
    }

    fn notes<'a>(&'a self, request: &'a Request) -> Notes<'a> {
        let mut notes = Notes::default();
        notes.number("request_id", request.request_id);
        notes.number("latency_ns", request.latency_ns);
        notes.flag("complete", request.complete);
        notes.text("reason", self.reason.as_deref());
        notes.text("certainty", request.certainty.name());
        notes.text("method", request.method.as_deref());
        notes.signed("status", request.status);
        notes.text("client", self.client.as_deref());
        notes.text("server", self.server.as_deref());
        notes.text("channel", request.channel.as_deref());
        notes.number("stream_id", request.stream_id);
        notes.number("xid", request.xid.map(u64::from));
        notes.number("request_bytes", request.request_bytes);
        notes.number("response_bytes", request.response_bytes);
        notes.number("records_lost", (request.records_lost > 0).then_some(request.records_lost));
        notes.number("held_back_ns", request.held_back_ns);
        notes.text("held_back_by", request.held_back_by.map(|by| by.name()));
        notes.number("parent_request_id", request.parent_request_id);
        notes.text("parent_certainty", request.parent_certainty.map(|of| of.name()));
        if request.detached {
            notes.flag("detached", true);
        }
        notes
    }
}
