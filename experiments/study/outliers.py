"""The slowest requests of captures, and what they have more of than typical ones: by whom, or by what."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .capture import Capture, Row

# Columns of segments that are needed.
COLUMNS = ("duration_ns", "category", "side", "phase", "detail", "cause", "by")
# What is kept of each: so many of its parts, those that are more than in typical requests by most.
PARTS = 4

Key = tuple[str | None, str, str]


def parts(segments: Iterable[Row], count: int = 1) -> dict[Key, tuple[float, str]]:
    """By phase, category and side: nanoseconds of each of `count` requests, and who or what has most of them.

    Who: the thread that had the CPU or the lock, else what was done meanwhile, else the call."""
    sums: dict[Key, Counter] = defaultdict(Counter)
    for s in segments:
        who = (s["by"] or "").rpartition("/")[0] or s["cause"] or s["detail"] or ""
        sums[s["phase"], s["category"], s["side"]][who] += s["duration_ns"]
    return {
        key: (sum(named.values()) / count, named.most_common(1)[0][0])
        for key, named in sums.items()
    }


class Outliers:
    """Of several captures, the `most` slowest requests for each of the labels in `each`."""

    def __init__(self, most: int = 5, each: Sequence[str] = ()):
        self.most, self.each = most, each
        self.found: dict[tuple, list[Row]] = defaultdict(list)

    def add(self, capture: Capture, requests: Sequence[Row], typical: Sequence[Row], **labels: Any):
        """Requests of a run, in order of time, and those of them that are typical."""
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
        """A row for each part kept: `rank` of the request from 1, `more_ns` than typical, `who`."""
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
