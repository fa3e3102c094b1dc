"""The statistics that the texts quote: medians, quantiles, intervals over runs, slopes.

The unit is the run, not the request (docs/comparing.md): intervals are of one figure per run.
"""

import math
import random
from collections.abc import Callable, Sequence
from statistics import median

__all__ = ["differ", "interval", "median", "quantile", "slope"]
DRAWS, SEED = 2000, 1
# Least number of pairs: 5 pairs agree by chance in one of 16 cases.
RUNS_NEEDED = 6


def quantile(values: Sequence[float], p: float) -> float:
    """Interpolates linearly between the two nearest ranks (type 7 of Hyndman and Fan, 1996), like
    DuckDB's `quantile_cont`."""
    ordered = sorted(values)
    place = p * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def interval(
    runs: Sequence, of: Callable[[Sequence], float] = median, level: float = 0.95
) -> tuple[float, float]:
    """A percentile bootstrap over runs: `of` gets the same number of runs, drawn with replacement.
    The result is reproducible."""
    drawn = random.Random(SEED)
    found = [of(drawn.choices(runs, k=len(runs))) for _ in range(DRAWS)]
    return quantile(found, (1 - level) / 2), quantile(found, (1 + level) / 2)


def differ(changes: Sequence[float]) -> bool | None:
    """Returns whether paired runs differ: the median's 95 % interval is on one side of 0, and p <=
    0.05 by an exact sign test.

    None if there are fewer than 6 pairs, which cannot show a difference."""
    count = len(changes)
    if count < RUNS_NEEDED:
        return None
    low, high = interval(changes)
    fewer = min(sum(change > 0 for change in changes), sum(change < 0 for change in changes))
    p = 2 * sum(math.comb(count, of) for of in range(fewer + 1)) / 2**count
    return (low > 0 or high < 0) and p <= 0.05


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line through (x, y)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / square
