"""Shared code of the reports' experiments: runs in random order, captures, results as Parquet,
figures, RESULTS.md.

An experiment is a folder with a `run.py` that calls `study.main(measure, tell)`:

- `measure(study)` runs the workload and writes its results with `study.results.write`; only these
  are kept.
- `tell(results)` makes RESULTS.md and the figures from these tables alone, so that the same tables
  give the same text.
"""

from . import breakdown
from .capture import Capture, capture
from .command import Study, main
from .figures import colour, figure
from .results import Results
from .runs import rounds
from .statistics import interval, median, quantile, slope
from .text import Document, more, ms, ns, percent, spread, us

__all__ = [
    "Capture",
    "Document",
    "Results",
    "Study",
    "breakdown",
    "capture",
    "colour",
    "figure",
    "interval",
    "main",
    "median",
    "more",
    "ms",
    "ns",
    "percent",
    "quantile",
    "rounds",
    "slope",
    "spread",
    "us",
]
