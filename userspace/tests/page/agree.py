"""Compares the figures of a capture, and its page, with SQL over its files: agree.py RPCPROBE DIR PAGE."""

import base64
import gzip
import html
import json
import re
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal

import duckdb

# So many values are kept as they are; of more, percentiles are within 0.1 %.
EXACT = 32_768
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
BANDS = ("all", "p0-50", "p50-90", "p90-99", "top1")


def same(what, ours, theirs):
    if ours != theirs:
        raise SystemExit(f"{what}: {ours}, by SQL {theirs}")


def close(what, ours, theirs, by):
    if abs(ours - theirs) > by:
        raise SystemExit(f"{what}: {ours}, by SQL {theirs}")


class Capture:
    def __init__(self, rpcprobe, directory):
        self.rpcprobe, self.directory = rpcprobe, directory
        self.db = duckdb.connect()
        for table in ("requests", "segments"):
            self.db.execute(f"create view {table} as select * from '{directory}/{table}.parquet'")
        with open(f"{directory}/manifest.json") as file:
            self.start_ns = json.load(file)["start_ns"]

    def rows(self, query):
        return self.db.execute(query).fetchall()

    def figure(self, name, *options):
        done = subprocess.run(
            [self.rpcprobe, "figure", name, self.directory, *options],
            check=True,
            capture_output=True,
            text=True,
        )
        return json.loads(done.stdout)


def format_ns(ns):
    """As the program does: three significant digits."""
    if ns < 1000:
        return f"{ns} ns"
    for unit, size in (("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        for decimals in (2, 1, 0):
            scaled = (Decimal(ns) / size).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
            if scaled * 10**decimals < 1000:
                return f"{scaled:.{decimals}f} {unit}"
    return f"{(ns + 500_000_000) // 10**9} s"


def percentiles(capture, where):
    """By nearest rank, as the report tells them."""
    query = f"""select percentile_disc(0.5) within group (order by latency_ns),
                       percentile_disc(0.9) within group (order by latency_ns),
                       percentile_disc(0.99) within group (order by latency_ns),
                       max(latency_ns), count(*) from requests where {where}"""
    return capture.rows(query)[0]


def conditions(capture, kind, where):
    """What each band is in SQL; too few requests have none but all."""
    *exact, _, count = percentiles(capture, where)
    if count < 100:
        return {"all": where}
    told = capture.figure("latency", "--kind", kind)["data"][2]["x"]
    for ours, theirs in zip(told, exact, strict=True):
        close(f"{kind}: percentile", ours, theirs, 0 if count <= EXACT else theirs / 1000)
    p50, p90, p99 = told
    return {
        "all": where,
        "p0-50": f"{where} and latency_ns < {p50}",
        "p50-90": f"{where} and latency_ns >= {p50} and latency_ns < {p90}",
        "p90-99": f"{where} and latency_ns >= {p90} and latency_ns < {p99}",
        "top1": f"{where} and latency_ns >= {p99}",
    }


def check_breakdown(capture, kind, bands):
    """Each bar of each band: nanoseconds by category."""
    figure = capture.figure("breakdown", "--kind", kind)
    names = [name.split("<br>")[0] for name in (figure["data"][0]["x"] if figure["data"] else [])]
    shown = {
        "all": "all",
        "p0–50": "p0-50",
        "p50–90": "p50-90",
        "p90–99": "p90-99",
        "top 1 %": "top1",
    }
    for at, name in enumerate(names):
        band = shown[name]
        found = dict(
            capture.rows(
                f"""select category, sum(duration_ns)::bigint from segments join requests using (request_id)
                    where {bands[band]} group by category"""
            )
        )
        told = {
            t["meta"]["category"]: t["customdata"][at]
            for t in figure["data"]
            if t["customdata"][at] > 0
        }
        same(f"{kind}, {band}: by category", told, found)
        latency = capture.rows(
            f"select coalesce(sum(latency_ns), 0)::bigint from requests where {bands[band]}"
        )[0][0]
        same(f"{kind}, {band}: sum", sum(told.values()), latency)
        if latency:
            close(f"{kind}, {band}: 100 %", sum(t["y"][at] for t in figure["data"]), 100, 0.01)


def check_latency(capture, kind, band, condition):
    figure = capture.figure("latency", "--kind", kind, "--band", band)
    below, counts = figure["data"][0], figure["data"][1]
    (whole,) = capture.rows(f"select count(*) from requests where {condition}")[0]
    for edge, share in zip(below["x"], below["y"], strict=True):
        (found,) = capture.rows(
            f"select count(*) from requests where {condition} and latency_ns < {edge}"
        )[0]
        close(f"{kind}, {band}: below {edge}", share, found * 100 / whole, 0.001)
    (zeros,) = capture.rows(f"select count(*) from requests where {condition} and latency_ns = 0")[
        0
    ]
    same(f"{kind}, {band}: counted", sum(counts["y"]) + zeros, whole)
    for band_of in figure["data"][2:]:
        same(
            f"{kind}: percentiles",
            [name.split()[0] for name in band_of["text"]],
            ["p50", "p90", "p99"],
        )
    for category in [row[0] for row in capture.rows("select distinct category from segments")]:
        figure = capture.figure("latency", "--kind", kind, "--band", band, "--category", category)
        (without,) = capture.rows(
            f"""select count(*) from requests where {condition} and request_id not in
                (select request_id from segments where category = '{category}')"""
        )[0]
        same(f"{kind}, {band}, {category}: counted", sum(figure["data"][1]["y"]) + without, whole)


def check_cpu(capture, kind, band, condition):
    figure = capture.figure("cpu", "--kind", kind, "--band", band)
    told = {}
    for trace in figure["data"]:
        for name, ns in zip(trace["y"], trace["customdata"], strict=True):
            told[name] = told.get(name, 0) + ns
    found = dict(
        capture.rows(
            f"""select coalesce(regexp_replace("by", '/[0-9]+$', ''), '(not known)'), sum(duration_ns)::bigint
                from segments join requests using (request_id)
                where category like 'runqueue.%' and {condition} group by 1 order by 2 desc limit 10"""
        )
    )
    if len(told) <= 10:
        same(f"{kind}, {band}: who had the CPU", told, found)


def check_methods(capture, kind, condition):
    figure = capture.figure("methods", "--kind", kind)
    count = len(figure["data"][0]["y"]) if figure["data"] else 0
    found = capture.rows(
        f"select method, sum(latency_ns)::bigint, count(*) from requests where {condition} and method is not null group by 1"
    )
    if len(found) > 1:
        most = sorted((row[1] for row in found), reverse=True)[:count]
        told = [sum(t["customdata"][at] for t in figure["data"]) for at in range(count)]
        same(f"{kind}: methods", sorted(told, reverse=True), most)


def check_requests(capture, kind, condition):
    figure = capture.figure("requests", "--kind", kind)
    unit = UNITS[figure["layout"]["xaxis"]["title"]["text"].split()[1]]
    found = {
        row[0]: row[1:]
        for row in capture.rows(
            f"select request_id, start_ns, latency_ns from requests where {condition}"
        )
    }
    largest = {}
    for request, category, _ in capture.rows(
        "select request_id, category, sum(duration_ns) as ns from segments group by 1, 2 order by ns"
    ):
        largest[request] = category
    drawn = 0
    for trace in figure["data"]:
        for x, y, (_, request) in zip(trace["x"], trace["y"], trace["customdata"], strict=True):
            start_ns, latency_ns = found[request]
            same(f"request {request}: begin", round(x * unit), start_ns - capture.start_ns)
            same(f"request {request}: latency", y, max(latency_ns, 1))
            drawn += 1
    same(f"{kind}: drawn", drawn, min(drawn, len(found)))
    (slowest,) = capture.rows(f"select max(latency_ns) from requests where {condition}")[0]
    same(f"{kind}: the slowest is drawn", max(max(t["y"]) for t in figure["data"]), max(slowest, 1))


def check_over_time(capture, kind, band, where, condition):
    """The mean latency of requests that begin in each hundredth of the time of all requests of the kind."""
    figure = capture.figure("overtime", "--kind", kind, "--band", band)
    (first, last) = capture.rows(
        f"select min(start_ns), max(start_ns) from requests where {where}"
    )[0]
    unit = UNITS[figure["layout"]["yaxis"]["title"]["text"].split()[-1]]
    steps = f"((start_ns - {first})::hugeint * 100) // {last - first + 1}"
    found = {
        (step, category): int(ns) // count
        for step, category, ns, count in capture.rows(
            f"""with chosen as (select request_id, {steps} as step from requests where {condition}),
                     counted as (select step, count(*) as requests from chosen group by step)
                select step, category, sum(duration_ns)::hugeint, any_value(requests)
                from chosen join segments using (request_id) join counted using (step) group by 1, 2"""
        )
    }
    places = [
        step
        for (step,) in capture.rows(
            f"select distinct {steps} from requests where {condition} order by 1"
        )
    ]
    for trace in figure["data"]:
        category = trace["meta"]["category"]
        same(f"{kind}, {band}, {category}: steps", len(trace["y"]), len(places))
        for step, y in zip(places, trace["y"], strict=True):
            what = f"{kind}, {band}, {category}, step {step}"
            # Figures have four decimals.
            close(what, y * unit, found.pop((step, category), 0), unit * 0.00005001 + 1e-6)
    same(f"{kind}, {band}: over time", [of for of, ns in found.items() if ns > 0], [])


def check_tree(capture):
    """Each row of the figure, by the way from the outermost request; parents that are there are complete ones."""
    figure = capture.figure("tree")
    line, points = figure["data"]
    found = capture.rows(
        """with recursive
             complete_ones as (select request_id, kind || coalesce(' ' || method, '') as label, latency_ns,
                                      parent_request_id from requests where complete),
             ways as (
               select request_id, [label] as way, latency_ns from complete_ones c
               where parent_request_id is null
                  or not exists (select 1 from complete_ones p where p.request_id = c.parent_request_id)
               union all
               select c.request_id, list_append(w.way, c.label), c.latency_ns
               from complete_ones c join ways w on c.parent_request_id = w.request_id where len(w.way) < 8)
           select count(*), greatest(percentile_disc(0.1) within group (order by latency_ns), 1),
                  greatest(percentile_disc(0.5) within group (order by latency_ns), 1),
                  greatest(percentile_disc(0.99) within group (order by latency_ns), 1)
           from ways group by way"""
    )
    told = list(
        zip(points["customdata"], line["x"][0::3], points["x"], line["x"][1::3], strict=True)
    )
    if max(count for count, *_ in found) > EXACT:
        return
    if len(told) == len(found):
        same("tree", sorted(told), sorted(found))
    else:
        same("tree: ways that are shown", [way for way in told if way not in found], [])


def check_timeline(capture, kind, condition):
    ((request, latency_ns),) = capture.rows(
        f"select request_id, latency_ns from requests where {condition} order by latency_ns desc, request_id limit 1"
    )
    (segments,) = capture.rows(f"select count(*) from segments where request_id = {request}")[0]
    if segments == 0 or segments > 250:
        return
    figure = capture.figure("timeline", "--kind", kind)
    bars = [t for t in figure["data"] if t["type"] == "bar"]
    unit = UNITS[figure["layout"]["xaxis"]["title"]["text"].split()[0]]
    told = sorted(
        (round(b * unit), round(x * unit), t["meta"]["category"])
        for t in bars
        for b, x in zip(t["base"], t["x"], strict=True)
    )
    found = capture.rows(
        f"""select (s.start_ns - r.start_ns)::bigint, duration_ns, category from segments s join requests r using (request_id)
            where request_id = {request} order by 1"""
    )
    same(f"request {request}: segments", told, found)
    same(f"request {request}: sum", sum(row[1] for row in told), latency_ns)


def unpack(page, name):
    (packed,) = re.findall(f"<script type=text/plain id=data-{name}>([^<]*)</script>", page)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def check_page(capture, page, kinds):
    """The page holds the figures that the command gives, and its tables the figures of the report."""
    index = unpack(page, "index")
    groups = {group["kind"]: group for group in index["groups"][0] if group["method"] is None}
    same("page: kinds", sorted(groups), sorted(kinds))
    cells = [html.unescape(cell) for cell in re.findall("<t[dh][^>]*>([^<]*)", page)]
    for kind, bands in kinds.items():
        figures = unpack(page, groups[kind]["chunk"])
        for name in ("latency", "breakdown", "methods", "requests", "overtime", "cpu"):
            for band in bands:
                same(
                    f"page: {name} of {kind}, {band}",
                    figures[name][band],
                    capture.figure(name, "--kind", kind, "--band", band),
                )
        *found, count = percentiles(capture, bands["all"])
        for ns in found if count <= EXACT else []:
            if format_ns(ns) not in cells:
                raise SystemExit(f"page: {kind}: {format_ns(ns)} is in no table")
        slowest = groups[kind]["slowest"][0]
        lines = unpack(page, index["requests"][0]["chunks"][f"{slowest[0]}:{slowest[1]}"])
        same(
            f"page: time line of {slowest}",
            lines[f"{slowest[0]}:{slowest[1]}"]["figure"],
            capture.figure("timeline", "--id", str(slowest[1])),
        )
    report = subprocess.run(
        [capture.rpcprobe, "report", capture.directory], check=True, capture_output=True, text=True
    ).stdout
    told = json.loads(
        subprocess.run(
            [capture.rpcprobe, "report", "--json", capture.directory],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    for kind in told["kinds"]:
        if kind["kind"] not in kinds:
            continue
        found = percentiles(capture, kinds[kind["kind"]]["all"])
        if found[4] > EXACT:
            continue
        latency = kind["latency"]
        same(
            f"{kind['kind']}: JSON",
            (latency["p50_ns"], latency["p90_ns"], latency["p99_ns"], latency["max_ns"]),
            found[:4],
        )
        line = "latency  p50 {}   p90 {}   p99 {}   max {}".format(*map(format_ns, found[:4]))
        if line not in report:
            raise SystemExit(f"{kind['kind']}: the report as text lacks: {line}")


def main():
    rpcprobe, directory, page = sys.argv[1:]
    capture = Capture(rpcprobe, directory)
    kinds = {}
    for (kind,) in capture.rows("select distinct kind from requests where complete"):
        where = f"complete and kind = '{kind}'"
        bands = {
            band: what for band, what in conditions(capture, kind, where).items() if band in BANDS
        }
        kinds[kind] = bands
        check_breakdown(capture, kind, bands)
        for band, condition in bands.items():
            check_latency(capture, kind, band, condition)
            check_cpu(capture, kind, band, condition)
            check_over_time(capture, kind, band, where, condition)
        check_methods(capture, kind, where)
        check_requests(capture, kind, where)
        check_timeline(capture, kind, where)
    check_tree(capture)
    with open(page, encoding="utf8") as file:
        check_page(capture, file.read(), kinds)
    print(f"figures and page agree with SQL: {len(kinds)} kinds")


if __name__ == "__main__":
    main()
