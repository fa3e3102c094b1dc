"""Compares the figures of a capture, and its page, with SQL over its files: agree.py RPCPROBE DIR PAGE."""

import base64
import gzip
import html
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import duckdb

sys.path.append(str(Path(__file__).resolve().parents[1] / "sql"))
from compare import shown_ns as format_ns  # noqa: E402 - as reports do
from compare import shown_share  # noqa: E402

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

    def report(self):
        done = subprocess.run(
            [self.rpcprobe, "report", self.directory, "--json"],
            check=True,
            capture_output=True,
            text=True,
        )
        return json.loads(done.stdout)


def format_share(part, whole):
    """In per cent, as plotly shows it as it is."""
    return html.escape(shown_share(part, whole))


def count_of(number, what="request"):
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def rounded_mean(whole, count):
    return (whole + count // 2) // max(count, 1)


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


def check_bar(capture, what, data, at, named, condition):
    """What is told of one bar of a breakdown: below its axis, and where somebody points at."""
    count, whole = capture.rows(
        f"select count(*), coalesce(sum(latency_ns), 0)::bigint from requests where {condition}"
    )[0]
    mean = format_ns(rounded_mean(whole, count))
    sums = {
        row[0]: row[1:]
        for row in capture.rows(
            f"""select category, sum(duration_ns)::bigint,
                       coalesce(sum(duration_ns) filter (evidence = 'modelled'), 0)::bigint,
                       coalesce(sum(duration_ns) filter (evidence = 'sampled'), 0)::bigint
                from segments join requests using (request_id) where {condition} group by category"""
        )
    }
    for trace in data:
        category = trace["meta"]["category"]
        ns, modelled, sampled = sums.get(category, (0, 0, 0))
        marks = {(0, 0): "", (1, 0): " ~", (0, 1): " *", (1, 1): " ~*"}
        mark = marks[int(modelled > 0), int(sampled > 0)]
        evidence = [
            f"{format_share(part, ns)} {name}"
            for part, name in ((modelled, "modelled"), (sampled, "sampled"))
            if part > 0
        ]
        theirs = (
            f"<b>{category}</b>{mark}<br>{named}: {count_of(count)}, mean {mean}<br>"
            f"{format_share(ns, whole)} of the time, {format_ns(ns // max(count, 1))} per request<br>"
            f"{', '.join(evidence) or 'measured'}"
        )
        same(f"{what}, {category}: what is told", trace["hovertext"][at], theirs)
    return count, mean


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
        _, mean = check_bar(capture, f"{kind}, {band}", figure["data"], at, name, bands[band])
        same(f"{kind}, {band}: below the bar", figure["data"][0]["x"][at], f"{name}<br>{mean}")
        if latency:
            close(f"{kind}, {band}: 100 %", sum(t["y"][at] for t in figure["data"]), 100, 0.01)


def check_distribution(capture, what, figure, condition):
    """The share of requests below each latency, the counts at each, and what is told of them."""
    below, counts = figure["data"][0], figure["data"][1]
    (whole,) = capture.rows(f"select count(*) from requests where {condition}")[0]
    for edge, share, told in zip(below["x"], below["y"], below["text"], strict=True):
        (found,) = capture.rows(
            f"select count(*) from requests where {condition} and latency_ns < {edge}"
        )[0]
        close(f"{what}: below {edge}", share, found * 100 / whole, 0.001)
        same(
            f"{what}: told of {edge}",
            told,
            f"{format_share(found, whole)} below {format_ns(edge)}",
        )
    (zeros,) = capture.rows(f"select count(*) from requests where {condition} and latency_ns = 0")[
        0
    ]
    same(f"{what}: counted", sum(counts["y"]) + zeros, whole)
    ends = list(zip(counts["x"], counts["x"][1:], counts["y"], counts["text"], strict=False))
    for from_ns, to_ns, count, told in ends:
        (found,) = capture.rows(
            f"""select count(*) from requests where {condition} and latency_ns > 0
                and latency_ns >= {from_ns} and latency_ns < {to_ns}"""
        )[0]
        same(f"{what}: from {from_ns} to {to_ns}", count, found)
        between = f"{format_ns(from_ns)} to {format_ns(to_ns)}"
        theirs = f"{count_of(found)} of {between} ({format_share(found, whole)})"
        same(f"{what}: told from {from_ns} on", told, theirs)
    for marked in figure["data"][2:]:
        *found, count = percentiles(capture, condition)
        if count <= EXACT:
            theirs = [
                f"{name} {format_ns(ns)}"
                for name, ns in zip(("p50", "p90", "p99"), found, strict=False)
            ]
            same(f"{what}: names of percentiles", marked["text"], theirs)


def check_latency(capture, kind, band, condition):
    figure = capture.figure("latency", "--kind", kind, "--band", band)
    check_distribution(capture, f"{kind}, {band}", figure, condition)
    (whole,) = capture.rows(f"select count(*) from requests where {condition}")[0]
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
        told = [note["text"] for note in figure["layout"].get("annotations", [])]
        theirs = [f"{without:,} of {count_of(whole)} have none"] if without else []
        same(f"{kind}, {band}, {category}: have none", told, theirs)


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
        (count,) = capture.rows(f"select count(*) from requests where {condition}")[0]
        unit = UNITS[figure["layout"]["xaxis"]["title"]["text"].split()[-1]]
        for trace in figure["data"]:
            category = trace["meta"]["category"]
            points = zip(
                trace["y"], trace["x"], trace["customdata"], trace["hovertext"], strict=True
            )
            for name, x, ns, text in points:
                close(
                    f"{kind}, {band}, {name}: bar", x * unit, ns / count, unit * 0.00005001 + 1e-6
                )
                theirs = (
                    f"<b>{name}</b><br>{category}: {format_ns(ns // count)} per request<br>"
                    f"{format_share(ns, sum(found.values()))} of all waiting for a CPU"
                )
                if "…" not in name:
                    same(f"{kind}, {band}, {name}: what is told", text, theirs)


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
        names = {
            row[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"): row[0]
            for row in found
        }
        for at, shown in enumerate(figure["data"][0]["y"]):
            name = shown.split("<br>")[0]
            if name not in names:  # it is cut, or has characters that are escaped
                continue
            of = "{} and method = '{}'".format(condition, names[name].replace("'", "''"))
            requests, mean = check_bar(capture, f"{kind}, {name}", figure["data"], at, name, of)
            same(f"{kind}, {name}: beside the bar", shown, f"{name}<br>{requests:,} × {mean}")


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
        points = zip(trace["x"], trace["y"], trace["customdata"], trace["hovertext"], strict=True)
        for x, y, (_, request), told in points:
            start_ns, latency_ns = found[request]
            after_ns = start_ns - capture.start_ns
            theirs = f"{format_ns(latency_ns)}, begins at {after_ns // 10**6 / 1000:.3f} "
            if after_ns < 10**9 and not told.split("<br>")[1].startswith(theirs):
                raise SystemExit(f"request {request}: told {told}, by SQL {theirs}")
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


def listens_at(channel, server):
    """Whom a request asked: where that listens, or its name."""
    if channel and channel.startswith("unix "):
        path = channel.removeprefix("unix ")
        return server if path.startswith("unix:[") else path
    if channel and " > " in channel:
        return channel.split(" > ")[1]
    return server


def ways(capture):
    """Complete requests by the way from the outermost one, as figures and reports have it: at each step the back end, and
    below it the method. What they are, and of each way what it took of the requests one step above."""
    rows = capture.rows(
        """select request_id, parent_request_id, kind, method, start_ns, latency_ns, channel, server_comm
           from requests where complete order by request_id"""
    )
    methods = {}
    for _, _, kind, method, _, latency_ns, *_ in rows:
        if method is not None:
            of = methods.setdefault(kind, {})
            of[method] = of.get(method, 0) + latency_ns

    def asked_for(kind, method):
        of = methods.get(kind, {})
        if method is None or len(of) <= 12 or of[method] * 50 >= sum(of.values()):
            return ("method", method)
        return ("others",)

    requests = {row[0]: row for row in rows}
    known = {}

    def way(number):
        if number not in known:
            _, parent, kind, method, _, _, channel, server = requests[number]
            program = kind in ("exec", "process", "stdio")
            back_end = None if program else listens_at(channel, server)
            above = way(parent) if parent in requests else ()
            known[number] = (*above, (kind, back_end), asked_for(kind, method))
        return known[number]

    latencies, windows = {}, {}
    for number, parent, *_, start_ns, latency_ns, _, _ in rows:
        whole = way(number)
        for to in (whole, whole[:-1]):
            latencies.setdefault(to, []).append(latency_ns)
            if parent in requests:
                _, _, _, _, from_ns, whole_ns, *_ = requests[parent]
                end_ns = min(start_ns + latency_ns, from_ns + whole_ns)
                windows.setdefault(to, {}).setdefault(parent, []).append(
                    (max(start_ns, from_ns), end_ns)
                )
    took = {}
    for to, of_parents in windows.items():
        for spans in of_parents.values():
            until = 0
            for begin, end in sorted(spans):
                took[to] = took.get(to, 0) + max(0, end - max(begin, until))
                until = max(until, end)
    below = {}
    for to in latencies:
        below.setdefault(to[:-1], []).append(to)
    # A back end with one method is one row.
    rows = [to for to in latencies if len(to) % 2 == 1 or len(below[to[:-1]]) > 1]
    rows = [below[to][0] if len(to) % 2 and len(below[to]) == 1 else to for to in rows]
    found = []
    for to in rows:
        values = sorted(latencies[to])
        ranks = [values[max(math.ceil(len(values) * p / 100), 1) - 1] for p in (10, 50, 99)]
        above = to[: len(to) - 2 + len(to) % 2]
        share = shown_share(took[to], sum(latencies[above])) if above else None
        found.append((len(values), *(max(ns, 1) for ns in ranks), share))
    return found


def check_tree(capture):
    """Each row of the figure and of the report, by the way from the outermost request; parents that are there are complete
    ones."""
    figure = capture.figure("tree")
    line, points = figure["data"]
    found = ways(capture)
    told = []
    drawn = zip(points["customdata"], line["x"][0::3], points["x"], line["x"][1::3], strict=True)
    beside = figure["layout"]["yaxis"]["ticktext"]
    for (count, p10, p50, p99), text, name in zip(drawn, points["hovertext"], beside, strict=True):
        if min(p10, p50) > 1:  # 0 is drawn as 1
            latencies = f"p10 {format_ns(p10)}, median {format_ns(p50)}, p99 {format_ns(p99)}"
            if latencies not in text:
                raise SystemExit(f"tree: told {text}, drawn {latencies}")
        if f"{count_of(count)}<br>" not in text or f" × {count:,}" not in name:
            raise SystemExit(f"tree: told {text} and {name}, drawn {count}")
        share = re.search("under way in (.*) of its time", text)
        share = html.unescape(share[1]) if share else None
        if share is not None and f" × {count:,}: {html.escape(share)}" not in name:
            raise SystemExit(f"tree: told {text}, and beside it {name}")
        told.append((count, p10, p50, p99, share))
    if max((count for count, *_ in found), default=0) > EXACT:
        return
    key = str
    if len(told) == len(found):
        same("tree", sorted(told, key=key), sorted(found, key=key))
    else:
        same("tree: ways that are shown", [way for way in told if way not in found], [])
    report = capture.report()
    rows = [
        (
            row["requests"],
            *(max(row[f"p{p}_ns"], 1) for p in (10, 50, 99)),
            row["above"] and shown_share(row["above"]["took_ns"], row["above"]["total_ns"]),
        )
        for row in report["tree"]["rows"]
    ]
    if report["tree"]["left_out"] == 0:
        same("tree of the report", sorted(rows, key=key), sorted(found, key=key))
    same("tree: rows of the figure that no report has", [r for r in told if r not in rows], [])


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
