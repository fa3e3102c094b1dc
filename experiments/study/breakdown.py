"""Breakdowns of requests: categories by side, and stacked bars of them.

Sums are whole nanoseconds, so they add up exactly to the sum of the latencies; means are the sums
divided by `requests`.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from . import figures
from .capture import RPCPROBE, Capture, Row
from .text import ns, percent

# Parts smaller than this share of the longest bar are drawn as one part.
SMALL = 0.01
REST, REST_COLOUR = "smaller parts", "#d9d9d9"
# A breakdown's columns other than its labels.
OWN = ("phase", "category", "side", "requests", "total_ns", "modelled_ns", "colour")
# Patterns on the category's colour that distinguish sides.
PATTERNS = {"client": "", "server": "/", "middle": "x", "kernel": "."}


def of(
    capture: Capture,
    requests: Iterable[Row],
    phases: bool = False,
    rpcprobe: str = RPCPROBE,
    **labels: Any,
) -> list[Row]:
    """The breakdown of complete requests of a capture: a row for each category and side, with these
    labels in front.

    With `phases`, also for each phase of a process's life (`exec` requests).

    `requests` is the number of requests, `total_ns` their total time in it, `modelled_ns` the part
    of that which is not measured, `colour` the category's colour in all of rpcprobe's figures. Ends
    the experiment if the sum does not equal the latencies' sum.
    """
    requests = list(requests)
    total_ns = sum(request["latency_ns"] for request in requests)
    wanted = pyarrow.array([request["request_id"] for request in requests], pyarrow.int64())
    keys = [*(["phase"] if phases else []), "category", "side"]
    names = ["request_id", *keys, "duration_ns", "evidence"]
    segments = pyarrow.parquet.read_table(capture.table("segments"), columns=names)
    segments = segments.filter(pyarrow.compute.is_in(segments["request_id"], wanted))
    parts: dict[tuple[str, ...], Row] = {}
    grouped = segments.group_by([*keys, "evidence"])
    for sums in grouped.aggregate([("duration_ns", "sum")]).to_pylist():
        part = parts.setdefault(tuple(sums[key] for key in keys), defaultdict(int))
        part["total_ns"] += sums["duration_ns_sum"]
        if sums["evidence"] != "measured":
            part["modelled_ns"] += sums["duration_ns_sum"]
    found_ns = sum(part["total_ns"] for part in parts.values())
    if found_ns != total_ns:
        raise SystemExit(f"segments sum to {found_ns} ns, latencies to {total_ns} ns")
    colour = colours(capture, {request["kind"] for request in requests}, rpcprobe)
    return [
        {
            **labels,
            **(values := dict(zip(keys, key, strict=True))),
            "requests": len(requests),
            "total_ns": part["total_ns"],
            "modelled_ns": part["modelled_ns"],
            "colour": colour[values["category"]],
        }
        for key, part in sorted(parts.items(), key=lambda item: -item[1]["total_ns"])
    ]


def colours(capture: Capture, kinds: Iterable[str], rpcprobe: str = RPCPROBE) -> dict[str, str]:
    """The program's colours of the categories that complete requests of these kinds have."""
    found = {}
    for kind in sorted(kinds):
        command = [rpcprobe, "figure", "breakdown", str(capture.path), "--kind", kind]
        drawn = subprocess.run(command, check=True, capture_output=True).stdout
        for trace in json.loads(drawn)["data"]:
            found[trace["meta"]["category"]] = trace["marker"]["color"]
    return defaultdict(lambda: REST_COLOUR, found)


def count(rows: Iterable[Row]) -> int:
    """The number of requests of the breakdowns, which differ in their labels."""
    labels = {tuple(v for k, v in row.items() if k not in OWN): row["requests"] for row in rows}
    return sum(labels.values())


def mean_ns(rows: Sequence[Row], category: str = "", side: str = "", phase: str = "") -> float:
    """The mean time per request in parts that begin with these values, over the requests of all
    breakdowns."""
    found = sum(
        row["total_ns"]
        for row in rows
        if row["category"].startswith(category)
        and row["side"].startswith(side)
        and (row.get("phase") or "").startswith(phase)
    )
    return found / count(rows) if rows else 0.0


def largest(rows: Sequence[Row], least: float = 0.05, requests: int = 0) -> str:
    """The parts with at least the share `least` of the total, as text: `fault (server) ~ 620 us
    (70.1 %), ...`; `~`: partly modelled.

    Times are means per request. `requests` is the number of requests if several breakdowns are of
    the same requests."""
    requests = requests or count(rows)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        part = sums[row["category"], row["side"]]
        part[0] += row["total_ns"]
        part[1] += row["modelled_ns"]
    total_ns = sum(found for found, _ in sums.values())
    said = []
    for (category, side), (found, modelled) in sorted(sums.items(), key=lambda item: -item[1][0]):
        if found >= least * total_ns:
            name = f"{category} ({side})" if side else category
            mark = " ~" if modelled >= 0.01 * found else ""
            said.append(f"{name}{mark} {ns(found / requests)} ({percent(found / total_ns)})")
    return ", ".join(said)


def bars(rows: Sequence[Row], label: str, title: str = "", **layout) -> go.Figure:
    """A bar for each value of the column `label`, in order of appearance: mean microseconds,
    largest part first.

    Breakdowns with the same label are added up, including their numbers of requests.
    """
    names = list(dict.fromkeys(row[label] for row in rows))
    sums: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    colour = {REST: REST_COLOUR}
    for row in rows:
        sums[row["category"], row["side"]][row[label]] += row["total_ns"]
        colour[row["category"]] = row["colour"]
    requests = {name: count([row for row in rows if row[label] == name]) for name in names}
    longest = max(sum(part[name] for part in sums.values()) / requests[name] for name in names)
    shown: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, part in sums.items():
        means = {name: part[name] / requests[name] for name in names}
        key = key if max(means.values()) >= SMALL * longest else (REST, "")
        for name in names:
            shown[key][name] += means[name]
    drawn = figures.figure("mean, us", "", title, barmode="stack", **layout)
    ordered = sorted(shown.items(), key=lambda item: (item[0][0] == REST, -max(item[1].values())))
    for (category, side), means in ordered:
        drawn.add_bar(
            orientation="h",
            name=f"{category} · {side}" if side else category,
            y=[str(name) for name in names],
            x=[means[name] / 1e3 for name in names],
            marker={
                "color": colour[category],
                "line": {"width": 0.5, "color": "white"},
                "pattern": {"shape": PATTERNS.get(side, ""), "size": 5, "solidity": 0.25},
            },
        )
    drawn.update_yaxes(autorange="reversed", type="category", automargin=True)
    drawn.update_layout(legend={"traceorder": "normal", "font": {"size": 10}})
    return drawn
