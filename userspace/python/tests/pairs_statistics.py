"""The statistics of comparing runs, implemented plainly from their definitions. Tests compare the program with them."""

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any, Protocol


class Files(Protocol):
    """A capture's files."""

    def rows(self, query: str) -> list[tuple[Any, ...]]: ...


@functools.cache
def beta_masses(count: int, p: float) -> list[float]:
    """The Harrell-Davis weight of each rank, trimmed (Akinshin) if there are few values on one side."""
    a, b = (count + 1) * p, (count + 1) * (1 - p)
    low, high = 0.0, 1.0

    def density(x: float) -> float:
        return x ** (a - 1) * (1 - x) ** (b - 1) if 0 < x < 1 else 0.0

    if count * min(p, 1 - p) < 30:
        width = 1 / math.sqrt(count)
        # The densest interval of this width: its density is equal at both ends.
        low, high = max((a - 1) / (a + b - 2) - width, 0.0), min((a - 1) / (a + b - 2), 1 - width)
        for _ in range(100):
            middle = (low + high) / 2
            if density(middle) < density(middle + width):
                low = middle
            else:
                high = middle
        high = low + width
    steps = 400

    def mass(begin: float, end: float) -> float:
        """Integrates the density by Simpson's rule."""
        if end <= begin:
            return 0.0
        step = (end - begin) / steps
        odd = sum(density(begin + step * i) for i in range(1, steps, 2))
        even = sum(density(begin + step * i) for i in range(2, steps, 2))
        return step / 3 * (density(begin) + 4 * odd + 2 * even + density(end))

    masses = [mass(max(i / count, low), min((i + 1) / count, high)) for i in range(count)]
    whole = sum(masses)
    return [of / whole for of in masses]


Part = tuple[str, str]
# The latency itself, and not one of its parts.
WHOLE: Part = ("", "")


def of_run(files: Files, where: str, p: float | None) -> dict[Part, float]:
    """The mean (without p) or Harrell-Davis quantile of the latency, and of each category and side."""
    order = files.rows(
        f"select request_id, latency_ns from requests where {where} order by latency_ns, request_id"
    )
    count = len(order)
    weights = [1 / count] * count if p is None else beta_masses(count, p)
    # Equal latencies share their weights.
    by_latency: dict[int, list[float]] = {}
    for (_, latency_ns), weight in zip(order, weights, strict=True):
        by_latency.setdefault(latency_ns, []).append(weight)
    weight_of = {
        request: sum(by_latency[latency_ns]) / len(by_latency[latency_ns])
        for request, latency_ns in order
    }
    pieces = [("", "", request, latency_ns) for request, latency_ns in order]
    pieces += files.rows(
        f"""select category, side, request_id, sum(duration_ns)::bigint
            from segments join requests using (request_id) where {where} group by 1, 2, 3"""
    )
    found: dict[Part, float] = {}
    for category, side, request, duration_ns in pieces:
        key = (category, side)
        found[key] = found.get(key, 0.0) + weight_of[request] * duration_ns
    return found


def average(runs: list[dict[Part, float]]) -> dict[Part, float]:
    keys = {key for run in runs for key in run}
    return {key: sum(run.get(key, 0.0) for run in runs) / len(runs) for key in keys}


def statistic(runs: Sequence[Files], where: str, p: float | None) -> dict[Part, float]:
    return average([of_run(files, where, p) for files in runs])


def interval(differences: list[float]) -> tuple[float, float]:
    """The 95 % interval: means of subsets are typical values (Hartigan)."""
    count = len(differences)
    means = []
    for chosen in range(1, 1 << count):
        members = [of for i, of in enumerate(differences) if chosen >> i & 1]
        means.append(sum(members) / len(members))
    means.sort()
    edge = math.floor(0.025 * (len(means) + 1))
    return means[edge - 1], means[-edge]


def probabilities(differences: dict[Any, list[float]], floor: float) -> dict[Any, float]:
    """For each quantity, the share of all sign flips of the pairs in which any quantity is at least as extreme."""

    def clipped(of: list[float]) -> list[float]:
        most = 1.5 * statistics.median(map(abs, of))
        return [max(-most, min(most, value)) for value in of] if most else of

    def studentized(of: list[float]) -> float:
        error = statistics.stdev(of) / math.sqrt(len(of)) if len(of) > 1 else abs(of[0])
        return abs(statistics.fmean(of)) / (error + floor)

    plain = {key: clipped(of) for key, of in differences.items()}
    pairs = len(next(iter(plain.values())))
    largest = [
        max(
            studentized([-v if flip >> i & 1 else v for i, v in enumerate(of)])
            for of in plain.values()
        )
        for flip in range(1 << pairs)
    ]
    return {
        key: sum(other >= studentized(of) * (1 - 1e-9) for other in largest) / len(largest)
        for key, of in plain.items()
    }
