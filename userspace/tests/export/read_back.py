"""Exports a capture and reads it back, the trace with Perfetto's own classes: read_back.py RPCPROBE DIR WHERE [OPTION...]

WHERE is the SQL condition on requests that the options stand for."""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import duckdb
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    Trace,
    TracePacket,
    TrackEvent,
)

# Categories of which a thread has a CPU meanwhile.
ON_CPU = {"user", "copy", "fault", "interrupt"}
# Flow ids with this bit lead from a request to one that was made for it.
LINK = 1 << 63
MARKS = {"measured": "", "modelled": " ~", "sampled": " *"}
NONE = (None, None)


def same(what, ours, theirs):
    if ours != theirs:
        raise SystemExit(f"{what}: {str(ours)[:1500]}, expected {str(theirs)[:1500]}")


def must(holds, what):
    if not holds:
        raise SystemExit(what)


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start_ns: int
    notes: dict
    out: list
    into: list
    depth: int
    # Place in the order in which a reader takes events in.
    place: int
    end_ns: int = -1
    inner: list = field(default_factory=list)


class Reader:
    """A trace as a reader understands it: events in order of time, those of one time in that of the file."""

    def __init__(self, data):
        trace = Trace()
        trace.ParseFromString(data)
        trace.DiscardUnknownFields()
        same("bytes that Perfetto's classes know", len(trace.SerializeToString()), len(data))
        self.tracks, self.counts, self.clocks = {}, defaultdict(list), {}
        self.texts = defaultdict(dict)
        events = []
        clock = None
        for packet in trace.packet:
            same("sequence", packet.trusted_packet_sequence_id, 1)
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                self.texts.clear()
                clock = None
            must(packet.sequence_flags & TracePacket.SEQ_NEEDS_INCREMENTAL_STATE, "no flags")
            if packet.HasField("trace_packet_defaults"):
                clock = packet.trace_packet_defaults.timestamp_clock_id
            self.intern(packet.interned_data)
            if packet.HasField("clock_snapshot"):
                snapshot = packet.clock_snapshot
                same(
                    "primary clock",
                    snapshot.primary_trace_clock,
                    BuiltinClock.Value("BUILTIN_CLOCK_MONOTONIC"),
                )
                self.clocks = {c.clock_id: c.timestamp for c in snapshot.clocks}
            elif packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                must(descriptor.uuid not in self.tracks and descriptor.uuid, "a track twice")
                must(descriptor.parent_uuid in {0, *self.tracks}, "a track before its parent")
                self.tracks[descriptor.uuid] = descriptor
            elif packet.HasField("track_event"):
                same("clock of times", clock, BuiltinClock.Value("BUILTIN_CLOCK_MONOTONIC"))
                event = packet.track_event
                must(event.track_uuid in self.tracks, "an event without its track")
                events.append((packet.timestamp, len(events), self.told(event)))
            else:
                raise SystemExit(f"a packet of no use: {packet}")
        events.sort(key=lambda event: event[:2])
        self.slices = self.nested(events)

    def intern(self, data):
        for of in ("event_categories", "event_names", "debug_annotation_names"):
            for entry in getattr(data, of):
                must(entry.iid not in self.texts[of], "a number twice")
                self.texts[of][entry.iid] = entry.name
        for entry in data.debug_annotation_string_values:
            self.texts["values"][entry.iid] = entry.str.decode()

    def told(self, event):
        """What an event says, with its texts as they are now."""
        if event.type == TrackEvent.TYPE_COUNTER:
            return event.type, event.track_uuid, event.counter_value
        if event.type == TrackEvent.TYPE_SLICE_END:
            return event.type, event.track_uuid
        same("type", event.type, TrackEvent.TYPE_SLICE_BEGIN)
        notes = {}
        for note in event.debug_annotations:
            value = getattr(note, note.WhichOneof("value"))
            if note.WhichOneof("value") == "string_value_iid":
                value = self.texts["values"][value]
            notes[self.texts["debug_annotation_names"][note.name_iid]] = value
        (category,) = (self.texts["event_categories"][iid] for iid in event.category_iids)
        name = self.texts["event_names"][event.name_iid]
        flows = list(event.flow_ids), list(event.terminating_flow_ids)
        return event.type, event.track_uuid, name, category, notes, *flows

    def nested(self, events):
        open_slices, slices = defaultdict(list), []
        for place, (at_ns, _, told) in enumerate(events):
            of, track, *rest = told
            if of == TrackEvent.TYPE_COUNTER:
                must(self.tracks[track].HasField("counter"), "a number on a track of slices")
                self.counts[track].append((at_ns, *rest))
                continue
            stack = open_slices[track]
            if of == TrackEvent.TYPE_SLICE_END:
                must(stack, "an end without a begin")
                stack.pop().end_ns = at_ns
                continue
            name, category, notes, out, into = rest
            one = Slice(track, name, category, at_ns, notes, out, into, len(stack), place)
            if stack:
                stack[-1].inner.append(one)
            stack.append(one)
            slices.append(one)
        must(not any(open_slices.values()), "slices without an end")
        for one in slices:
            must(all(i.end_ns <= one.end_ns for i in one.inner), "slices do not nest")
            for a, b in zip(one.inner, one.inner[1:]):
                must(a.end_ns <= b.start_ns, "slices overlap")
        return slices


class Capture:
    def __init__(self, directory, where):
        self.db = duckdb.connect()
        for table in ("requests", "segments"):
            self.db.execute(
                f"create view all_{table} as select * from '{directory}/{table}.parquet'"
            )
        self.manifest = json.loads((directory / "manifest.json").read_text())
        start_ns = self.manifest["start_ns"]
        self.db.execute(
            f"create view requests as select * from all_requests where {where.format(start=start_ns)}"
        )
        self.db.execute(
            "create view segments as select * from all_segments semi join requests using (request_id)"
        )

    def rows(self, query):
        cursor = self.db.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def sums(self):
        query = "select category, sum(duration_ns)::bigint as ns from segments group by 1"
        return {row["category"]: row["ns"] for row in self.rows(query)}

    def segments(self):
        segments = defaultdict(list)
        for row in self.rows("select * from segments order by request_id, seq"):
            segments[row["request_id"]].append(row)
        return segments


def is_work(segment):
    category = segment["category"]
    is_on_cpu = category in ON_CPU or category.startswith("kernel.")
    return is_on_cpu and segment["tid"] and segment["side"] not in ("device", "network")


def pieces(segments):
    """A request's work: what one thread does without a pause is one piece."""
    found = []
    for segment in filter(is_work, segments):
        added_up = "pieces added up" in (segment["cause"] or "")
        of = (segment["pid"], segment["tid"], segment["shared"], added_up)
        start_ns, end_ns = segment["start_ns"], segment["start_ns"] + segment["duration_ns"]
        if found and found[-1][0] == of and found[-1][2] == start_ns:
            found[-1] = (of, found[-1][1], end_ns)
        else:
            found.append((of, start_ns, end_ns))
    return found


def union(spans):
    merged = []
    for start_ns, end_ns in sorted(spans):
        if merged and start_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_ns))
        else:
            merged.append((start_ns, end_ns))
    return merged


def check_requests(trace, capture, rows, segments):
    shown = {s.notes["request_id"]: s for s in trace.slices if is_request(trace, s) and not s.depth}
    same("requests", sorted(shown), sorted(row["request_id"] for row in rows))
    for row in rows:
        one = shown[row["request_id"]]
        window = (row["start_ns"], row["start_ns"] + row["latency_ns"])
        same("window", (one.start_ns, one.end_ns), window)
        same("latency", one.notes["latency_ns"], row["latency_ns"])
        same("complete", one.notes["complete"], row["complete"])
        must(row["complete"] or one.name.endswith(" (incomplete)"), "a mark is missing")
        for name in (
            "reason",
            "method",
            "status",
            "channel",
            "parent_request_id",
            "parent_certainty",
            "held_back_ns",
        ):
            # Captures of before have fewer columns.
            if name in row:
                same(name, one.notes.get(name), row[name])
        same(
            "kind",
            (one.category, trace.tracks[one.track].name),
            (row["kind"], f"{row['kind']} requests"),
        )
        told = segments[row["request_id"]]
        same("segments", len(one.inner), len(told))
        for inner, segment in zip(one.inner, told):
            start_ns, end_ns = segment["start_ns"], segment["start_ns"] + segment["duration_ns"]
            same("segment", (inner.start_ns, inner.end_ns), (start_ns, end_ns))
            same("category", inner.category, segment["category"])
            same("mark", inner.name, segment["category"] + MARKS[segment["evidence"]])
            thread = f"{segment['comm']}/{segment['tid']}" if segment["tid"] else None
            same("thread", inner.notes.get("thread"), thread)
            for name in ("side", "evidence", "detail", "cause", "by", "rule", "cpu", "phase"):
                same(name, inner.notes.get(name), segment[name])
            must(not inner.inner, "a slice in a segment")
    sums = Counter()
    for one in shown.values():
        for inner in one.inner:
            sums[inner.category] += inner.end_ns - inner.start_ns
    same("sums by category", dict(sums), capture.sums())
    return shown


def is_request(trace, one):
    return trace.tracks[one.track].name.endswith(" requests")


def check_threads(trace, segments):
    """Each instant of a thread's work is shown, once, and for a request that has it."""
    work, shown, of_request = defaultdict(list), defaultdict(list), defaultdict(list)
    for request_id, told in segments.items():
        for (pid, tid, *_), start_ns, end_ns in pieces(told):
            work[pid, tid].append((start_ns, end_ns))
            of_request[request_id, pid, tid].append((start_ns, end_ns))
    for one in trace.slices:
        descriptor = trace.tracks[one.track]
        if descriptor.HasField("thread"):
            must(not one.depth and one.end_ns > one.start_ns, "slices of a thread overlap")
            key = (descriptor.thread.pid, descriptor.thread.tid)
            shown[key].append((one.start_ns, one.end_ns))
            spans = of_request[one.notes["request_id"], *key]
            must(
                any(a <= one.start_ns and one.end_ns <= b for a, b in union(spans)),
                f"work that is not request {one.notes['request_id']}'s",
            )
            for segment in segments[one.notes["request_id"]]:
                begins, ends = segment["start_ns"], segment["start_ns"] + segment["duration_ns"]
                is_part = begins < one.end_ns and one.start_ns < ends
                if is_part and key == (segment["pid"], segment["tid"]) and is_work(segment):
                    mark = MARKS[segment["evidence"]].strip()
                    must(mark in one.name.split()[-1], f"{one.name} has no mark of {segment}")
    for key in work.keys() | shown.keys():
        same(f"work of thread {key}", union(shown[key]), union(work[key]))
        same("once", sum(b - a for a, b in shown[key]), sum(b - a for a, b in union(work[key])))


def check_flows(trace, capture, rows, segments, shown):
    begins, ends = {}, {}
    for one in trace.slices:
        for ids, found in ((one.out, begins), (one.into, ends)):
            for flow in ids:
                must(flow not in found, f"flow {flow} forks")
                found[flow] = one
    same("flows that begin, and that end", begins.keys(), ends.keys())
    for flow, one in begins.items():
        must(
            one.place < ends[flow].place and one is not ends[flow], f"flow {flow} goes back in time"
        )

    def thread(one):
        descriptor = trace.tracks[one.track].thread
        return (
            (descriptor.pid, descriptor.tid) if trace.tracks[one.track].HasField("thread") else NONE
        )

    # The path of each request: into the first thread, and from thread to thread.
    expected = Counter()
    for told in segments.values():
        before = NONE
        for (pid, tid, *_), start_ns, _ in pieces(told):
            if (pid, tid) != before:
                expected[before, (pid, tid), start_ns] += 1
            before = (pid, tid)
    hops = [flow for flow in begins if not flow & LINK]
    found = Counter(
        (thread(begins[flow]), thread(ends[flow]), ends[flow].start_ns) for flow in hops
    )
    same("hops", found, expected)
    by_id = {row["request_id"]: row for row in rows}
    linked = set()
    for row in rows:
        parent = by_id.get(row["parent_request_id"])
        if parent:
            inside = (
                parent["start_ns"] < row["start_ns"] <= parent["start_ns"] + parent["latency_ns"]
            )
            if inside:
                linked.add((parent["request_id"], row["request_id"]))
    requests = {}
    for request_id, one in shown.items():
        requests |= {id(inner): request_id for inner in (one, *one.inner)}
    links = [flow for flow in begins if flow & LINK]
    found = {(requests[id(begins[flow])], requests[id(ends[flow])]) for flow in links}
    same("requests and those made for them", found, linked)
    for flow in links:
        same("number of the child", flow, LINK | requests[id(ends[flow])])
    return len(hops), len(links)


def check_trace(data, capture):
    trace = Reader(data)
    start_ns = capture.manifest["start_ns"]
    same("CLOCK_MONOTONIC", trace.clocks[BuiltinClock.Value("BUILTIN_CLOCK_MONOTONIC")], start_ns)
    if capture.manifest["start_utc"]:
        seconds = trace.clocks[BuiltinClock.Value("BUILTIN_CLOCK_REALTIME")] / 1e9
        query = f"select epoch(timestamptz '{capture.manifest['start_utc']}') as s"
        must(abs(seconds - capture.rows(query)[0]["s"]) < 0.001, "the calendar's clock")
    rows, segments = capture.rows("select * from requests"), capture.segments()
    shown = check_requests(trace, capture, rows, segments)
    check_threads(trace, segments)
    flows = check_flows(trace, capture, rows, segments, shown)
    for track, counts in trace.counts.items():
        kind = trace.tracks[track].name.split()[0]
        for at_ns, count in counts:
            inside = [
                r
                for r in rows
                if r["kind"] == kind and r["start_ns"] <= at_ns < r["start_ns"] + r["latency_ns"]
            ]
            same(f"{kind} under way at {at_ns}", count, len(inside))
    (about,) = (s for s in trace.slices if trace.tracks[s.track].name == "capture")
    same("requests told", about.notes["requests"], len(rows))
    same("left out", about.notes["thread_work_left_out_ns"], 0)
    for track in trace.tracks.values():
        names = (track.name, track.thread.thread_name, track.process.process_name)
        must(not any(c < " " for name in names for c in name), f"a control character in {names}")
    for one in trace.slices:
        must(not any(c < " " for c in one.name), f"a control character in {one.name!r}")
    return len(rows), len(trace.slices), *flows


def check_tables(base, capture):
    for table in ("requests", "segments"):
        order = "request_id" if table == "requests" else "request_id, seq"
        expected = capture.rows(f"select * from {table} order by {order}")
        with open(f"{base}.{table}.csv", newline="") as file:
            reader = csv.DictReader(file)
            found = list(reader)
            names = [row["column_name"] for row in capture.rows(f"describe all_{table}")]
            same("columns", reader.fieldnames, names)
        texts = {True: "true", False: "false", None: ""}

        def text(value):
            return texts[value] if value is None or isinstance(value, bool) else str(value)

        same(f"{table} as CSV", found, [{n: text(v) for n, v in row.items()} for row in expected])
        with open(f"{base}.{table}.jsonl") as file:
            found = [json.loads(line) for line in file.read().split("\n") if line]
        same(
            f"{table} as JSON",
            found,
            [{n: v for n, v in row.items() if v is not None} for row in expected],
        )
        if table == "segments":
            sums = Counter()
            for row in found:
                sums[row["category"]] += row["duration_ns"]
            same("sums of JSON", dict(sums), capture.sums())


def main():
    rpcprobe, directory, where, *options = sys.argv[1:]
    capture = Capture(pathlib.Path(directory), where)
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "export"
        trace = base.with_suffix(".pftrace")
        formats = ["--perfetto", trace, "--csv", base, "--json", base]
        done = subprocess.run(
            [rpcprobe, "export", directory, *formats, *options], capture_output=True, text=True
        )
        must(done.returncode == 0, done.stderr)
        requests, slices, hops, links = check_trace(trace.read_bytes(), capture)
        check_tables(base, capture)
    print(f"{requests} requests, {slices} slices, {hops} hops and {links} links agree with SQL")


if __name__ == "__main__":
    main()
