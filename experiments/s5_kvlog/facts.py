"""Numbers from the tables: figures of runs, and parts of writes."""

from collections.abc import Sequence
from typing import Any

import study
from study import breakdown

Row = dict[str, Any]
# The report's estimates and measurements.
SEND_NS, SEND_ESTIMATE_NS = 9_972_000, 10_000_000
PROCESS_NS, PROCESS_ESTIMATE_NS = 1_118_000, 100_000
ANSWER_NS, ANSWER_ESTIMATE_NS = 10_000, 2_000
RESPONSE_NS = 350_000
# Time at the link's rate: of the value in frames, less the burst that passes at once
# (experiments/labs/kvlog.py).
BY_RATE_NS = (1_000_000 * 9014 / 8948 - 16_000) * 8
PAGE_BYTES = 4096
# The ten writes that the report shows; here they store under new keys.
TEN, NEW, OVER = ("first", "new key"), ("new key",), ("overwrites",)
ALL_WRITES = (*TEN, *OVER)


class Facts:
    def __init__(self, results: study.Results):
        self.runs = results.read("runs")
        self.rpcs = results.read("rpcs")
        self.writes = [row for row in self.rpcs if row["method"] == "write"]
        self.parts = results.read("parts")
        self.moved = results.read("moved")
        self.timeline = results.read("timeline")
        self.samples = results.read("samples")
        self.machine = results.read("machine")[0]
        self.rounds = len({row["round"] for row in self.runs})

    def of_runs(self, column: str, stages: Sequence[str], arm: str = "bare") -> list[float]:
        """Each run's median over its writes of these stages, in order of the rounds."""
        found: dict[int, list[int]] = {}
        for row in self.writes:
            if row["arm"] == arm and row["stage"] in stages:
                found.setdefault(row["round"], []).append(row[column])
        return [study.median(found[number]) for number in sorted(found)]

    def median(self, column: str, stages: Sequence[str], arm: str = "bare") -> float:
        """The median of the runs' medians."""
        return study.median(self.of_runs(column, stages, arm))

    def part(self, step: str, stages: Sequence[str]) -> list[Row]:
        return [row for row in self.parts if row["step"] == step and row["stage"] in stages]

    def mean(self, step: str, stages: Sequence[str], category: str = "", side: str = "") -> float:
        """The mean over all probed writes of these stages."""
        return breakdown.mean_ns(self.part(step, stages), category, side)

    def more_of_first(self, step: str, category: str = "") -> list[float]:
        """For each probed run, the mean excess of the first writes over later writes under new
        keys."""
        more = []
        for number in sorted({row["round"] for row in self.parts}):
            means = [
                breakdown.mean_ns(
                    [row for row in self.part(step, (stage,)) if row["round"] == number], category
                )
                for stage in ("first", "new key")
            ]
            more.append(means[0] - means[1])
        return more

    def moved_sums(self, side: str, sampled: bool) -> Row:
        """The kernel's copying at one end: sums over all writes."""
        rows = [
            row
            for row in self.moved
            if row["side"] == side and (row["arm"] == "sampled") == sampled
        ]
        names = ("requests", "bytes", "cpu_ns", "copy_ns", "samples", "copy_samples")
        return {name: sum(row[name] for row in rows) for name in names}

    def sampled(self, step: str, stages: Sequence[str], **equal: str) -> int:
        """The number of samples in this step of writes of these stages, in these categories or
        functions."""
        return sum(
            row["samples"]
            for row in self.samples
            if row["step"] == step
            and row["stage"] in stages
            and all(row[name].startswith(value) for name, value in equal.items())
        )

    def clock_errors(self, arm: str = "bare") -> list[tuple[int, int]]:
        """For each run, the estimated offset less the injected shift, and its uncertainty."""
        return [
            (row["offset_ns"] - row["shift_ns"], row["uncertainty_ns"])
            for row in self.runs
            if row["arm"] == arm
        ]
