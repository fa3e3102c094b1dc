"""Breakdowns of the segments in windows of time within requests."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from .capture import Row

# The part of a window in no request: the program's own code before its first call and after its
# last.
OUTSIDE = "no request"


def within(segments: Iterable[Row], from_ns: int, to_ns: int) -> list[Row]:
    """The parts of segments in the window: copies, cut at the window's ends."""
    parts = []
    for segment in segments:
        begin_ns = max(segment["start_ns"], from_ns)
        end_ns = min(segment["start_ns"] + segment["duration_ns"], to_ns)
        if begin_ns < end_ns:
            parts.append({**segment, "start_ns": begin_ns, "duration_ns": end_ns - begin_ns})
    return parts


def spent_ns(segments: Iterable[Row], *categories: str) -> int:
    """The total time of the segments; given prefixes of categories, only of these."""
    chosen = categories or ("",)
    return sum(s["duration_ns"] for s in segments if s["category"].startswith(chosen))


def breakdown(
    windows: Iterable[tuple[int, list[Row]]], colours: Mapping[str, str], **labels: Any
) -> list[Row]:
    """Like `breakdown.of`, for windows: each is (its length, the parts of segments in it).

    Time that no segment covers is `OUTSIDE`, so the sum equals the lengths' sum. Ends the
    experiment if segments overlap."""
    windows = list(windows)
    parts: dict[tuple[str, str], Row] = {}
    for length_ns, segments in windows:
        left_ns = length_ns - spent_ns(segments)
        if left_ns < 0:
            raise SystemExit(f"segments are {-left_ns} ns longer than the window they lie in")
        rest = {"category": OUTSIDE, "side": "", "evidence": "measured", "duration_ns": left_ns}
        for segment in [*segments, rest] if left_ns else segments:
            key = segment["category"], segment["side"]
            part = parts.setdefault(key, defaultdict(int))
            part["total_ns"] += segment["duration_ns"]
            if segment["evidence"] != "measured":
                part["modelled_ns"] += segment["duration_ns"]
    return [
        {
            **labels,
            "category": category,
            "side": side,
            "requests": len(windows),
            "total_ns": part["total_ns"],
            "modelled_ns": part["modelled_ns"],
            "colour": colours[category],
        }
        for (category, side), part in sorted(parts.items(), key=lambda item: -item[1]["total_ns"])
    ]
