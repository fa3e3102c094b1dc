"""Every number that the notebooks show equals the result of DuckDB over the captures' files.

The captures are made up. The test takes all outputs of a notebook in order and compares each completely. It fails if
a notebook has an output that is not compared."""

import html
import importlib
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import made_up
import pytest
from conftest import ROOT
from pairs_statistics import WHOLE, Part, average, interval, of_run, probabilities, statistic

from rpcprobe import _program

pytest.importorskip("marimo")
sys.path[:0] = [
    str(ROOT / of) for of in ("notebooks", "userspace/tests/page", "userspace/tests/sql")
]
agree = importlib.import_module("agree")
statistics_sql = importlib.import_module("statistics_sql")

Row = list[str]


def ns(value: float | None) -> str:
    """Formats a duration as the program does, with halves rounded up."""
    whole = math.floor(abs(value) + 0.5)
    return ("-" if value < 0 and whole else "") + agree.format_ns(whole)


def share(part: int, whole: int) -> str:
    return html.unescape(agree.format_share(part, whole))


class Files(agree.Capture):
    """A capture's files, and the figures of the capture that a notebook shows."""

    def __init__(self, directory: Path) -> None:
        super().__init__(_program.path(), str(directory))
        self.shown: dict[tuple[str, ...], dict[str, Any]] = {}

    def figure(self, name: str, *options: str) -> dict[str, Any]:
        """The figure that the notebook shows, or else the program's."""
        plain = tuple(of for of in options if of not in ("--band", "all"))
        return self.shown.get((name, *plain)) or super().figure(name, *options)

    def one(self, query: str) -> tuple[Any, ...]:
        (row,) = self.rows(query)
        return row


class Outputs:
    """A notebook's outputs in order; each is taken once."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.page = (folder / f"{stem}.html").read_text()
        cells = json.loads((folder / f"{stem}.ipynb").read_text())["cells"]
        # The .ipynb stores text as a list of lines.
        self.left = [
            {
                kind: "".join(of) if kind.startswith("text/") else of
                for kind, of in out["data"].items()
            }
            for cell in cells
            for out in cell.get("outputs", [])
        ]
        self.choices = re.findall(r"<select disabled>(.*?)</select>", self.page)

    def _html(self) -> str:
        shown = self.left.pop(0)["text/html"]
        # Both exports show the same.
        assert shown in self.page
        return shown

    def table(self) -> list[Row]:
        rows = re.findall(r"<tr>(.*?)</tr>", self._html())
        assert rows
        return [
            [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)]
            for row in rows
        ]

    def words(self) -> str:
        return html.unescape(re.sub(r"<[^>]*>", "", self._html()))

    def figure(self) -> dict[str, Any]:
        return self.left.pop(0)["application/vnd.plotly.v1+json"]

    def choice(self) -> list[str]:
        chosen = self.left.pop(0)["text/plain"]
        found = re.findall(r"<option( selected)?>(.*?)</option>", self.choices.pop(0))
        names = [html.unescape(name) for _, name in found]
        assert [chosen.split(": ", 1)[1]] == [html.unescape(name) for mark, name in found if mark]
        return names

    def value(self) -> str:
        return self.left.pop(0)["text/plain"]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outputs]:
    export = importlib.import_module("export")

    def shown(number: str, captures: Iterable[Path]) -> Outputs:
        monkeypatch.setenv("RPCPROBE_CAPTURE", os.pathsep.join(map(str, captures)))
        (notebook,) = (ROOT / "notebooks").glob(f"{number}_*.py")
        export.export(notebook, tmp_path)
        return Outputs(tmp_path, notebook.stem)

    return shown


def of_kind(kind: str) -> str:
    return f"complete and kind = '{kind}'"


def of_report(study: str) -> list[Row]:
    """The first table of an experiment's RESULTS.md, whose numbers its own tests check."""
    text = (ROOT / "experiments" / study / "RESULTS.md").read_text()
    found = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert found
    lines = found.group().replace("`", "").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert rows[0] == ["", "reported", "ours", "attributed to"] and len(rows) > 3
    return [rows[0], *rows[2:]]


def latencies(files: Files, where: str) -> tuple[int, ...]:
    """p50, p90, p99, the slowest, and the count."""
    return agree.percentiles(files, where)


def mean(files: Files, where: str) -> float:
    (found,) = files.one(f"select avg(latency_ns) from requests where {where}")
    return found


def sums(files: Files, where: str) -> list[tuple[Any, ...]]:
    """Category, side, nanoseconds, and measured nanoseconds; the largest first."""
    return files.rows(
        f"""select category, side, sum(duration_ns)::bigint,
                   coalesce(sum(duration_ns) filter (evidence = 'measured'), 0)::bigint
            from segments join requests using (request_id) where {where} group by 1, 2 order by 3 desc"""
    )


def check_subtitle(figure: dict[str, Any]) -> None:
    """The subtitle has no number that is not in the figure's note."""
    note = str((figure["layout"].get("meta") or {}).get("note") or "")
    said = figure["layout"]["title"].get("subtitle", {}).get("text") or ""
    said = html.unescape(re.sub(r"<span[^>]*>.</span> [^ <]*|<br>", " ", said))
    assert set(re.findall(r"[\d,.]*\d", said)) <= set(re.findall(r"[\d,.]*\d", note)), said


def check_breakdown(files: Files, figure: dict[str, Any], kind: str) -> None:
    files.shown["breakdown", "--kind", kind] = figure
    check_subtitle(figure)
    agree.check_breakdown(files, kind, agree.conditions(files, kind, of_kind(kind)))


def check_timeline(files: Files, figure: dict[str, Any], request: int) -> None:
    check_subtitle(figure)
    files.shown["timeline", "--kind", "shown"] = figure
    agree.check_timeline(files, "shown", f"request_id = {request}")
    (latency_ns,) = files.one(f"select latency_ns from requests where request_id = {request}")
    for trace in figure["data"]:
        for length, text in zip(trace["x"], trace.get("hovertext", []), strict=False):
            if trace["type"] != "bar":
                continue
            unit = agree.UNITS[figure["layout"]["xaxis"]["title"]["text"].split()[0]]
            duration_ns = round(length * unit)
            told = f"{ns(duration_ns)} ({agree.format_share(duration_ns, latency_ns)})"
            assert told in text


def test_01_first_breakdown(directory: Path, show: Callable[..., Outputs]) -> None:
    files, seen = Files(directory), show("01", [directory])
    where = of_kind("http1")
    *found, count = latencies(files, where)
    (every,) = files.one("select count(*) from requests where kind = 'http1'")
    assert seen.choice() == ["1: capture"]
    head, row = seen.table()
    assert head == ["kind", "requests", "mean", "p50", "p90", "p99", "slowest"]
    assert row == ["http1", f"{every:,}", ns(mean(files, where)), *map(ns, found)]
    assert len(seen.choice()) == 5 and count >= 100
    latency = seen.figure()
    check_subtitle(latency)
    agree.check_distribution(files, "01", latency, where)
    agree.same("01: percentiles", latency["data"][2]["x"], found[:3])
    check_breakdown(files, seen.figure(), "http1")
    (category, *others) = seen.choice()
    parts = sums(files, where)
    assert {category, *others} == {part[0] for part in parts}
    files.shown["latency", "--kind", "http1", "--category", category] = seen.figure()
    agree.check_latency(files, "http1", "all", where)
    # The segments of every request add up.
    assert seen.value() == "0"
    head, *rows = seen.table()
    assert head == ["category", "side", "per request", "share of the time", "of it measured"]
    (whole,) = files.one(f"select sum(latency_ns)::bigint from requests where {where}")
    assert rows == [
        [category, side, ns(part / count), share(part, whole), share(measured, part)]
        for category, side, part, measured in parts[:8]
    ]
    assert not seen.left and not seen.choices


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eight pairs of runs, A and B alternating; B has more of `kernel.vfs` and a wait for the journal."""
    folder = tmp_path_factory.mktemp("pairs")

    def run(number: int) -> Path:
        on_disk = number % 2 == 1

        def change(request: dict[str, Any], segments: list[dict[str, Any]]) -> None:
            request.update(kind="exec", status=0)
            request["method"] = "/bin/mount" if request["request_id"] % 9 == 4 else "/x/bin/frpc"
            if not segments:
                return
            request.update(dict.fromkeys(made_up.USED))
            at_ns = request["start_ns"]
            for segment in segments:
                renamed = {"kernel.tcp": "kernel.vfs"}
                renamed["queue.socket"] = "journal" if on_disk else "kernel.mm"
                category = renamed.get(segment["category"], segment["category"])
                if category == "kernel.vfs":
                    segment["duration_ns"] += 1_500 * on_disk
                segment.update(category=category, start_ns=at_ns)
                at_ns += segment["duration_ns"]
                request[category] = (request.get(category) or 0) + segment["duration_ns"]
            request["latency_ns"] = at_ns - request["start_ns"]

        made = made_up.make(folder / f"run{number:02}", 90, seed=number, change=change)
        manifest = json.loads((made / "manifest.json").read_text())
        manifest["start_ns"] -= 1_000_000 * (20 - number)
        manifest["start_utc"] = f"2026-01-01T00:{number:02}:00Z"
        (made / "manifest.json").write_text(json.dumps(manifest))
        return made

    return [run(number) for number in range(16)]


def in_ns(shown: str) -> tuple[float, float]:
    """The value of a printed duration, and its tolerance: half a unit of the last digit."""
    number, unit = shown.split()
    decimals = len(number.partition(".")[2])
    return float(number) * agree.UNITS[unit], 0.5 * 10**-decimals * agree.UNITS[unit]


def says(what: str, shown: str, expected: float) -> None:
    """Compares a printed duration. Rounded sums differ by up to a nanosecond (largest remainders)."""
    value, within = in_ns(shown)
    agree.close(what, value, expected, within + 1.01)


def test_02_tmpfs_vs_ext4(pairs: list[Path], show: Callable[..., Outputs]) -> None:
    runs, seen = [Files(of) for of in pairs], show("02", pairs)
    sides = {"A": runs[::2], "B": runs[1::2]}
    where = "complete and kind = 'exec' and method like '%frpc'"
    assert seen.choice() == [f"pair {number}" for number in range(1, 9)]
    head, *rows = seen.table()
    assert head == ["side", "runs of it", "mean", "p50", "p90", "slowest"]
    expected = []
    for name, files in zip(("A: tmpfs", "B: ext4"), runs[:2], strict=True):
        p50, p90, _, most, _ = latencies(files, where)
        (every,) = files.one(
            "select count(*) from requests where kind = 'exec' and method like '%frpc'"
        )
        figures = [mean(files, where), p50, p90, most]
        expected.append([name, f"{every:,}", *map(ns, figures)])
    assert rows == expected
    check_waterfall(seen.figure(), runs[0], runs[1], where)
    check_comparison(seen.words(), sides, where)
    decided = "With 8 pairs there are 256 ways to swap A and B, and p is at least 2/256 = 0.0078"
    assert decided in seen.words()
    head, *rows = seen.table()
    assert head == ["category", "A: tmpfs", "B: ext4", "difference"]
    means = {name: statistic(of, where, None) for name, of in sides.items()}
    names = ["kernel.vfs", "journal", "block_io", "writeback", "the whole latency"]
    assert [row[0] for row in rows] == names
    for name, a, b, change in rows:
        of_a, of_b = (
            sum(
                value
                for key, value in of.items()
                if key[0] == (name if "whole" not in name else "")
            )
            for of in means.values()
        )
        for shown, value in ((a, of_a), (b, of_b), (change, of_b - of_a)):
            says(f"02: {name}", shown, value)
    assert int(in_ns(rows[1][2])[0]) > 0 == int(in_ns(rows[1][1])[0])
    assert seen.table() == of_report("tmpfs_ext4")
    assert not seen.left and not seen.choices


def check_waterfall(figure: dict[str, Any], a: Files, b: Files, where: str) -> None:
    """The waterfall leads from A's mean to B's; its steps are the changes by category and side."""
    assert figure["data"]
    of_a, of_b = statistic([a], where, None), statistic([b], where, None)
    steps, whole_ns = {}, []
    for trace in figure["data"]:
        title, *lines = trace["hovertext"][0].split("<br>")
        (customdata,) = trace["customdata"]
        if "meta" not in trace:
            whole_ns.append(customdata)
            if title in ("<b>A</b>", "<b>B</b>"):
                assert lines == [f"mean {ns(customdata)}"]
            continue
        category, side = trace["meta"]["category"], title.split()[-1]
        steps[category, side] = customdata
        sign = "+" if customdata > 0 else ""
        assert lines[0] == f"{sign}{ns(customdata)}"
    agree.close("02: A", whole_ns[0], of_a["", ""], 0.51)
    agree.close("02: B", whole_ns[-1], of_b["", ""], 0.51)
    for key in steps:
        agree.close(f"02: {key}", steps[key], of_b.get(key, 0) - of_a.get(key, 0), 2)
    # Changes without a step are smaller than every one of the twelve steps, or zero.
    left = {*of_a, *of_b} - {*steps} - {("", "")}
    least = min(abs(change) for change in steps.values())
    assert len(steps) >= 8
    for key in left:
        assert abs(of_b.get(key, 0) - of_a.get(key, 0)) <= least + 2


def check_comparison(text: str, sides: dict[str, list[Files]], where: str) -> None:
    """Recomputes every line with a number in the text of `rpcprobe diff`."""
    these = where.removeprefix("complete and ")
    lines = text.splitlines()

    def taken(pattern: str) -> list[tuple[str, ...]]:
        found = [(line, re.fullmatch(pattern, line.strip())) for line in lines]
        for line, match in found:
            if match:
                lines.remove(line)
        return [match.groups() for _, match in found if match]

    length, change, percent = r" +(\S+ [num]?s)", r" +([+-]?\S+ [num]?s)", r" +([+-]?[\d.]+) %"
    a, b = sides.values()
    counts = [
        sum(files.one(f"select count(*) from requests where {where}")[0] for files in of)
        for of in (a, b)
    ]
    missing = [
        sum(
            files.one(f"select count(*) from requests where not ({where}) and {these}")[0]
            for files in of
        )
        for of in (a, b)
    ]
    assert taken(r"([AB])  server <b>x</b> · (\d+) runs") == [("A", "8"), ("B", "8")]
    assert taken(r"(\d+) pairs of runs next to each other in time; .*") == [("8",)]
    shares = [
        f"{gone / (gone + there) * 100:.1f}" for gone, there in zip(missing, counts, strict=True)
    ]
    said = taken(r"! exec: ([\d.]+) % of A's and ([\d.]+) % of B's requests are incomplete .*")
    assert said == [tuple(shares)]
    cost = r"; probe cost about 0 ns and 0 ns per request"
    said = taken(rf"exec: ([\d,]+) requests of A, ([\d,]+) of B{cost}")
    assert said == [tuple(f"{count:,}" for count in counts)]
    # Every tested quantity for each pair of runs, in units of A's mean latency.
    quantiles = {"mean": None, "p50": 0.5, "p90": 0.9}
    values = {
        name: [[of_run(files, where, p) for files in of] for of in (a, b)]
        for name, p in quantiles.items()
    }
    (mean_ns,) = {average(values["mean"][0])[WHOLE]}
    differences = {}
    for name, (of_a, of_b) in values.items():
        for key in {key for run in of_a + of_b for key in run}:
            pairs = zip(of_a, of_b, strict=True)
            differences[name, key] = [(y.get(key, 0) - x.get(key, 0)) / mean_ns for x, y in pairs]
    p_of = probabilities(differences, 0.001)

    def of(name: str, key: Part = WHOLE) -> tuple[float, float, float]:
        x, y = (average(runs).get(key, 0.0) for runs in values[name])
        return x, y, y - x

    def compare(what: str, shown: Iterable[str], expected: Iterable[float]) -> None:
        for one, other in zip(shown, expected, strict=True):
            says(f"02: {what}", one, other)

    def same_p(shown: str, p: float) -> None:
        digits = len(shown.partition(".")[2])
        agree.close("02: p", float(shown), p, 0.5 * 10**-digits + 1e-9)

    rows = taken(rf"(mean|p50|p90){length}{length}{change}{percent}{change} to{change} +([\d.]+)")
    assert [row[0] for row in rows] == [*quantiles]
    for name, x, y, more, of_a, low, high, p in rows:
        compare(name, (x, y, more), of(name))
        agree.close(f"02: {name}, of A", float(of_a), of(name)[2] / of(name)[0] * 100, 0.051)
        bounds = interval(differences[name, WHOLE])
        compare(name, (low, high), (bound * mean_ns for bound in bounds))
        same_p(p, p_of[name, WHOLE])
    rows = taken(
        rf"([a-z_.]+) (client|server)(?: [~*]+)?{length}{length}{change}{percent} +([\d.]+)( changed)?"
    )
    assert {(row[0], row[1]) for row in rows} == {key for name, key in p_of if name == "p50"} - {
        WHOLE
    }
    changed = []
    for category, side, *shown, of_change, p, mark in rows:
        key = (category, side)
        compare(f"median's {category} {side}", shown, of("p50", key))
        theirs = of("p50", key)[2] / of("p50")[2] * 100
        agree.close(f"02: {key}, of change", float(of_change), theirs, 0.3)
        same_p(p, p_of["p50", key])
        least_ns = 0.01 * mean_ns
        is_changed = p_of["p50", key] <= 0.01 and abs(of("p50", key)[2]) >= least_ns
        assert bool(mark) == is_changed
        if is_changed:
            changed.append((category, side, shown[2]))
    ((*shown, of_change, p),) = taken(rf"total{length}{length}{change}{percent} +([\d.]+)")
    compare("total", shown, of("p50"))
    assert of_change == "100.0"
    same_p(p, p_of["p50", WHOLE])
    # The sentences: what has changed, and by how much the median is higher.
    assert len(changed) >= 1
    ((named, more, of_a, low, high),) = taken(
        r"exec: changed: (.*)\. B's median is (\S+ \S+) higher \(\+([\d.]+) %, 95 % interval ([+-][\d.]+) to"
        r" ([+-][\d.]+) %\), as a whole not beyond chance"
    )
    told = re.findall(r"([a-z_.]+) \((client|server)\)(?: [~*]+)? ([+-]\S+ [num]?s)", named)
    assert sorted(told) == sorted(changed) and p_of["p50", WHOLE] > 0.01
    compare("median", [more], [of("p50")[2]])
    agree.close("02: of A", float(of_a), of("p50")[2] / of("p50")[0] * 100, 0.051)
    for shown_bound, bound in zip((low, high), interval(differences["p50", WHOLE]), strict=True):
        agree.close("02: interval", float(shown_bound), bound * mean_ns / of("p50")[0] * 100, 0.051)
    # Time during which other tasks had the CPU.
    rows = taken(rf"([a-z_.]+) (client|server) +by other{length}{length}{change}")
    assert rows
    for category, side, *shown in rows:
        query = f"""select coalesce(sum(duration_ns) filter (category = '{category}' and side = '{side}'
                           and "by" = 'other/7'), 0)::double / count(distinct request_id)
                    from requests left join segments using (request_id) where {where}"""
        x, y = (statistics.fmean(files.one(query)[0] for files in of_side) for of_side in (a, b))
        compare(f"{category} by other", shown, (x, y, y - x))
    assert taken(r"p: the probability of a difference .* by chance \((\d+) sign flips\)\. .*") == [
        ("256",)
    ]
    # Names of percentiles do not count as numbers.
    assert not [
        line for line in lines if re.search(r"\d", re.sub(r"p\d\d|95 % interval", "", line))
    ]


@pytest.fixture(scope="module")
def transports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same requests by two transports: `tcp`, and `http2`, which has more threads and methods."""
    folder = tmp_path_factory.mktemp("transports")

    def change(request: dict[str, Any], segments: list[dict[str, Any]]) -> None:
        is_grpc = request["kind"] == "http2"
        request["method"] = "/prices.Prices/Lookup" if is_grpc else None
        for segment in segments:
            segment["tid"] = 200 + segment["seq"] % (3 if is_grpc else 2)

    def made(kind: str, seed: int) -> Path:
        def of(request: dict[str, Any], segments: list[dict[str, Any]]) -> None:
            request["kind"] = kind
            change(request, segments)

        return made_up.make(folder / kind, 180, seed=seed, change=of)

    return [made("tcp", 3), made("http2", 4)]


def test_03_sockets_vs_grpc(transports: list[Path], show: Callable[..., Outputs]) -> None:
    runs = {
        (name, kind): Files(of)
        for (name, kind), of in zip(
            (("sockets", "tcp"), ("gRPC", "http2")), transports, strict=True
        )
    }
    seen = show("03", transports)
    head, *rows = seen.table()
    assert head == ["run", "kind", "requests", "p50", "p90", "mean"]
    expected = []
    for (name, kind), files in runs.items():
        p50, p90, *_ = latencies(files, of_kind(kind))
        (every,) = files.one("select count(*) from requests")
        expected.append(
            [name, kind, f"{every:,}", ns(p50), ns(p90), ns(mean(files, of_kind(kind)))]
        )
    assert rows == expected
    assert seen.choice() == ["sockets", "gRPC"]
    grpc = runs["gRPC", "http2"]
    check_breakdown(grpc, seen.figure(), "http2")
    slowest = grpc.rows(
        f"""select request_id from requests where {of_kind("http2")}
            order by latency_ns desc, request_id limit 10"""
    )
    assert seen.choice() == [f"request {request}" for (request,) in slowest]
    check_timeline(grpc, seen.figure(), slowest[0][0])
    head, *rows = seen.table()
    assert head == ["run", "changes of thread a request", "segments a request"]
    for (name, kind), files, row in zip(runs, runs.values(), rows, strict=True):
        threads: dict[int, list[int]] = {}
        for request, tid in files.rows(
            f"""select request_id, tid from segments join requests using (request_id)
                where {of_kind(kind)} order by request_id, seq"""
        ):
            threads.setdefault(request, []).append(tid)
        hops = sum(x != y for of in threads.values() for x, y in zip(of, of[1:], strict=False))
        segments = sum(map(len, threads.values()))
        assert row == [name, f"{hops / len(threads):.1f}", f"{segments / len(threads):.1f}"]
    head, *rows = seen.table()
    assert head == ["category", "sockets", "gRPC", "difference"]
    of_each = []
    for (_, kind), files in runs.items():
        by_category: dict[str, float] = {}
        *_, count = latencies(files, of_kind(kind))
        for category, _, whole, _ in sums(files, of_kind(kind)):
            by_category[category] = by_category.get(category, 0) + whole / count
        of_each.append(by_category)
    a, b = of_each
    changes = {name: b.get(name, 0) - a.get(name, 0) for name in {**a, **b}}
    order = sorted(changes, key=lambda name: -abs(changes[name]))
    assert rows == [
        [name, ns(a.get(name, 0)), ns(b.get(name, 0)), ns(changes[name])] for name in order[:10]
    ]
    assert seen.table() == of_report("s2_stockbazaar")
    assert not seen.left and not seen.choices


def test_04_one_slow_request(directory: Path, show: Callable[..., Outputs]) -> None:
    files, seen = Files(directory), show("04", [directory])
    where = of_kind("http1")
    points = seen.figure()
    check_subtitle(points)
    files.shown["requests", "--kind", "http1"] = points
    agree.check_requests(files, "http1", where)
    columns = [row[0] for row in files.rows("describe requests")]
    files.db.execute(f"create view chosen as select * from requests where {where}")
    tail = files.rows(
        f"""with of_bands as ({statistics_sql.TAIL.format(categories=columns[columns.index("user") :])})
            select category, side, coalesce(sum(ns) filter (band = 'typical'), 0)::bigint as typical,
                   coalesce(sum(ns) filter (band = 'tail'), 0)::bigint as tail
            from of_bands group by 1, 2 order by tail - typical desc, 1, 2"""
    )
    difference_ns = sum(row[3] - row[2] for row in tail)
    assert f"The slowest 1 % take {ns(difference_ns)} more than typical ones" in seen.words()
    head, *rows = seen.table()
    assert head == ["category", "side", "typical", "slowest", "more", "mostly behind, or because"]
    expected = [
        [category, side, ns(typical), ns(slow), ns(slow - typical)]
        for category, side, typical, slow in tail[:6]
    ]
    assert [row[:5] for row in rows] == expected
    assert {row[5] for row in rows if not row[0].startswith("runqueue")} == {""}
    slowest = files.rows(
        f"""select request_id, latency_ns from requests where {where}
            order by latency_ns desc, request_id limit 12"""
    )
    names = seen.choice()
    assert names == [f"request {request}, {ns(latency_ns)}" for request, latency_ns in slowest]
    request = slowest[0][0]
    check_timeline(files, seen.figure(), request)
    categories = files.rows(
        f"select category from segments where request_id = {request} group by 1 order by sum(duration_ns) desc"
    )
    assert seen.choice() == ["all", *(category for (category,) in categories)]
    head, *rows = seen.table()
    assert head == ["at", "lasts", "category", "side", "thread", "who had the CPU", "evidence"]
    segments = files.rows(
        f"""select s.start_ns - r.start_ns, s.duration_ns, category, side, comm, "by", evidence
            from segments s join requests r using (request_id) where request_id = {request}
            order by s.duration_ns desc limit 12"""
    )
    assert rows == [[ns(at), ns(lasts), *(of or "" for of in row)] for at, lasts, *row in segments]
    cpu = seen.figure()
    check_subtitle(cpu)
    files.shown["cpu", "--kind", "http1"] = cpu
    agree.check_cpu(files, "http1", "all", where)
    assert not seen.left and not seen.choices


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ONC RPC calls; every third call of one procedure was made for the call before."""

    def change(request: dict[str, Any], segments: list[dict[str, Any]]) -> None:
        number = request["request_id"]
        request.update(kind="oncrpc", status=0)
        request["method"] = ["536900353:1:0", "536900353:1:1", "536900354:1:4"][number % 3]
        request["server_comm"] = "cacher" if number % 3 == 2 else "objserver"
        request["client_comm"] = "cacher" if number % 4 == 0 else "flexclient"
        if number % 3 == 0 and (number - 1) % 17:
            request["parent_request_id"] = number - 1

    return made_up.make(tmp_path_factory.mktemp("calls") / "calls", 300, seed=5, change=change)


def test_05_null_rpc_and_caching(
    calls: Path, show: Callable[..., Outputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = importlib.import_module("captures")
    rpcprobe = importlib.import_module("rpcprobe")
    # The client's own log, as a fresh capture provides it. The notebook is given no capture.
    log = {"null": [900, 1_200, 999_500, 40], "invoke": [5, 4, 3, 2, 1], "read": [7], "cache": []}
    monkeypatch.setattr(captures, "given", lambda _arguments: [])
    monkeypatch.setattr(captures, "flexcache", lambda: (rpcprobe.open(calls), log))
    files, seen = Files(calls), show("05", [])
    where = of_kind("oncrpc")
    head, *rows = seen.table()
    assert head == ["operation", "times", "p50", "slowest"]
    expected = []
    for name, values in log.items():
        if values:
            middle, most = duckdb.execute(
                "select percentile_disc(0.5) within group (order by v), max(v) from (select unnest($1) as v)",
                [values],
            ).fetchone()
            expected.append([name, f"{len(values):,}", ns(middle), ns(most)])
    assert rows == expected
    head, *rows = seen.table()
    assert head == ["procedure", "who asks", "whom", "requests", "p50", "made for another"]
    methods = files.rows(
        f"""select method, string_agg(distinct client_comm, ', ' order by client_comm),
                   string_agg(distinct server_comm, ', ' order by server_comm), count(*),
                   percentile_disc(0.5) within group (order by latency_ns), count(parent_request_id)
            from requests where {where} group by method order by 4 desc, 1"""
    )
    assert len(methods) == 3 and sum(row[5] for row in methods) > 50
    assert rows == [
        [method, client, server, f"{count:,}", ns(p50), f"{made_for:,}"]
        for method, client, server, count, p50, made_for in methods
    ]
    breakdown = seen.figure()
    check_subtitle(breakdown)
    files.shown["methods", "--kind", "oncrpc"] = breakdown
    agree.check_methods(files, "oncrpc", where)
    tree = seen.figure()
    check_subtitle(tree)
    files.shown["tree",] = tree
    agree.check_tree(files)
    assert seen.choice() == [row[0] for row in methods]
    chosen = f"{where} and method = '{methods[0][0]}'"
    latency = seen.figure()
    check_subtitle(latency)
    agree.check_distribution(files, "05", latency, chosen)
    *found, count = latencies(files, chosen)
    marked = latency["data"][2]["x"] if count >= 100 else found[:3]
    agree.same("05: percentiles", marked, found[:3])
    assert seen.choice() == ["the fastest", "a typical one", "the slowest"]
    (typical,) = files.one(
        f"""select request_id from requests where {chosen} and latency_ns = {found[0]}
            order by request_id limit 1"""
    )
    check_timeline(files, seen.figure(), typical)
    assert seen.table() == of_report("s3_flexcache")
    assert not seen.left and not seen.choices


def test_durations_in_notebooks_are_written_as_in_reports() -> None:
    shown = importlib.import_module("shown")
    values = [0, 1, 999, 1_000, 1_005, 9_994, 9_995, 99_949, 99_950, 999_499, 999_500, 999_999]
    values += [value * 1_000 for value in values] + [999_500_000, 10**12, 1234 * 10**9 + 5 * 10**8]
    for value in values:
        assert shown.duration(value) == agree.format_ns(value)
        assert shown.duration(-value) == ("-" if value else "") + agree.format_ns(value)
    assert shown.duration(1.5) == "2 ns"
    for part, whole in ((0, 7), (1, 3), (1, 2_001), (1, 2_000), (7, 7), (1, 0)):
        assert shown.share(part, whole) == share(part, whole)
