"""The slowest requests of captures, and their excess over typical requests, with the task or
activity that caused it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .capture import Capture, Row
from .text import ns

# The needed columns of segments.
COLUMNS = ("duration_ns", "category", "side", "phase", "detail", "cause", "by")
# The number of parts kept for each: those with the largest excess over typical requests.
PARTS = 4
# A table shows those parts that have more than this share of the request's excess.
SMALL = 0.05

Key = tuple[str | None, str, str]


def parts(segments: Iterable[Row], count: int = 1) -> dict[Key, tuple[float, str]]:
    """By phase, category and side: nanoseconds per request of `count` requests, and who or what has
    most of them.

    Who or what: the thread that had the CPU or the lock, else the activity meanwhile, else the
    call."""
    sums: dict[Key, Counter] = defaultdict(Counter)
    for s in segments:
        who = comm(s["by"]) or s["cause"] or s["detail"] or ""
        sums[s["phase"], s["category"], s["side"]][who] += s["duration_ns"]
    return {
        key: (sum(named.values()) / count, named.most_common(1)[0][0])
        for key, named in sums.items()
    }


def comm(by: str | None) -> str:
    """The name in a thread's name and number, `cc/4711`; `idle` has no number."""
    return (by or "").rpartition("/")[0] or by or ""


class Outliers:
    """The `most` slowest requests of several captures, for each combination of the labels in
    `each`."""

    def __init__(self, most: int = 5, each: Sequence[str] = ()):
        self.most, self.each = most, each
        self.found: dict[tuple, list[Row]] = defaultdict(list)

    def add(self, capture: Capture, requests: Sequence[Row], typical: Sequence[Row], **labels: Any):
        """Adds a run's requests, in order of time, and the typical ones among them."""
        slowest = sorted(requests, key=lambda request: -request["latency_ns"])[: self.most]
        segments = capture.segments([*typical, *slowest], COLUMNS)
        usual = parts(
            (s for request in typical for s in segments[request["request_id"]]), len(typical)
        )
        for request in slowest:
            own = parts(segments[request["request_id"]])
            more = {key: (ns - usual.get(key, (0, ""))[0], who) for key, (ns, who) in own.items()}
            self.found[tuple(labels[name] for name in self.each)].append(
                {
                    **labels,
                    "place": requests.index(request),
                    "latency_ns": request["latency_ns"],
                    "typical_ns": round(sum(ns for ns, _ in usual.values())),
                    "more": more,
                }
            )

    def rows(self) -> list[Row]:
        """A row for each kept part: `rank` of the request from 1, excess `more_ns` over typical
        requests, `who`."""
        kept = []
        for of in self.found.values():
            ordered = sorted(of, key=lambda row: -row["latency_ns"])
            for rank, row in enumerate(ordered[: self.most], 1):
                named = {key: value for key, value in row.items() if key != "more"}
                largest = sorted(row["more"].items(), key=lambda item: -item[1][0])[:PARTS]
                kept += [
                    {
                        **named,
                        "rank": rank,
                        "phase": phase,
                        "category": category,
                        "side": side,
                        "who": who,
                        "more_ns": round(ns),
                    }
                    for (phase, category, side), (ns, who) in largest
                ]
        return kept


def table(rows: Sequence[Row], each: Sequence[str]) -> list[tuple[str, ...]]:
    """For `Document.table`, a line for each request: its labels, latency, its run's typical
    latency, and its parts."""
    requests: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        requests[tuple(row[name] for name in (*each, "rank"))].append(row)
    lines = []
    for key, of in requests.items():
        more_ns = of[0]["latency_ns"] - of[0]["typical_ns"]
        parts = [told(row) for row in of if row["more_ns"] > more_ns * SMALL]
        latency, typical = ns(of[0]["latency_ns"]), ns(of[0]["typical_ns"])
        lines.append((*map(str, key[:-1]), latency, typical, "; ".join(parts) or "nothing large"))
    return lines


def told(row: Row) -> str:
    """A part in words: `runqueue.preempted +4.10 ms (server, exec, behind `cc`)`."""
    before = {"runqueue": "behind ", "lock": "had by "}.get(row["category"].partition(".")[0], "")
    places = [row["side"], row["phase"], f"{before}`{row['who']}`" if row["who"] else None]
    return f"{row['category']} +{ns(row['more_ns'])} ({', '.join(p for p in places if p)})"
