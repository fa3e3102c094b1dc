"""Formats figures of several runs, and largest parts, for texts."""

from collections.abc import Iterable
from dataclasses import dataclass

from .capture import Row
from .statistics import median
from .text import percent


@dataclass
class Spread:
    """One figure per run: the median, the minimum and the maximum of the runs."""

    runs: list[float]

    @property
    def middle(self) -> float:
        return median(self.runs)

    def told(self, unit: float, decimals: int, name: str = "") -> str:
        """`0.45 ms (0.43 to 0.51)`"""
        low, high = min(self.runs) / unit, max(self.runs) / unit
        name = f" {name}" if name else ""
        middle = f"{self.middle / unit:,.{decimals}f}{name}"
        return f"{middle} ({low:,.{decimals}f} to {high:,.{decimals}f})"


def largest(parts: Iterable[Row], most: int = 3, beside_ns: int = 0) -> str:
    """The largest parts of breakdowns, by category and side: `40 % user (server), ...`; shares of
    the total including `beside_ns`."""
    sums: dict[tuple[str, str], int] = {}
    for row in parts:
        key = row["category"], row["side"]
        sums[key] = sums.get(key, 0) + row["total_ns"]
    whole = sum(sums.values()) + beside_ns
    first = sorted(sums.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{percent(ns / whole, 0)} {name} ({side})" for (name, side), ns in first)
