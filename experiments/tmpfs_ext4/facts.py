"""The figures that RESULTS.md quotes, from the tables alone."""

from collections import defaultdict

import study
from measure import ALONE, BESIDE, DISKS, PINNED, SCENES
from study.capture import Row
from study.statistics import differ, median, quantile


class Facts:
    def __init__(self, results: study.Results):
        self.results = results
        self.by_run: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for row in results.read("evaluations"):
            key = (row["scene"], row["disk"], row["round"])
            self.by_run[key].append(row["elapsed_ns"])
        self.rounds = len({number for _, _, number in self.by_run})
        self.changes = results.read("changes")
        self.waits = results.read("waits")

    def medians(self, scene: str, disk: str) -> list[float]:
        """The median of each run without the probe."""
        return [median(self.by_run[scene, disk, number]) for number in range(self.rounds)]

    def values(self, scene: str, disk: str) -> list[int]:
        return [ns for number in range(self.rounds) for ns in self.by_run[scene, disk, number]]

    def gains(self, scene: str, p: float = 0.5) -> list[float]:
        """The relative change of a quantile from ext4 to tmpfs, by round."""
        return [
            quantile(self.by_run[scene, "tmpfs", number], p)
            / quantile(self.by_run[scene, "ext4", number], p)
            - 1
            for number in range(self.rounds)
        ]

    def differs(self, scene: str) -> bool | None:
        """Returns whether the medians differ; None if there are too few rounds."""
        return differ(self.gains(scene))

    def total(self, scene: str, statistic: str) -> Row:
        """`ab`'s result for the total."""
        found = [row for row in self.of(scene, statistic) if row["category"] is None]
        return found[0]

    def of(self, scene: str, statistic: str) -> list[Row]:
        return [r for r in self.changes if (r["scene"], r["statistic"]) == (scene, statistic)]

    def statistics(self, scene: str) -> list[str]:
        """The statistics for which there were enough evaluations."""
        return list(dict.fromkeys(r["statistic"] for r in self.changes if r["scene"] == scene))

    def parts(self, scene: str, statistic: str) -> list[Row]:
        """The changes by category and side, the largest first."""
        found = [row for row in self.of(scene, statistic) if row["category"] is not None]
        return sorted(found, key=lambda row: -abs(row["change_ns"]))

    def shown(self, scene: str) -> list[Row]:
        """The parts of the median that changed, according to `ab`."""
        return [row for row in self.parts(scene, "p50") if row["shown"]]

    def change_of(self, scene: str, statistic: str, category: str) -> int:
        parts = self.parts(scene, statistic)
        return sum(row["change_ns"] for row in parts if row["category"] == category)

    def calls(self, scene: str, disk: str) -> dict[str, float]:
        """CPU time in the file system per evaluation, by call."""
        rows = self.results.read("calls", scene=scene, disk=disk)
        requests = sum({row["pair"]: row["requests"] for row in rows}.values())
        sums: dict[str, float] = defaultdict(float)
        for row in rows:
            sums[row["call"]] += row["total_ns"] / requests
        return dict(sums)

    def on_two_cpus(self, scene: str, disk: str) -> float:
        """The share of evaluations that had work on more than one CPU."""
        rows = self.results.read("placement", scene=scene, disk=disk)
        return sum(row["on_two_cpus"] for row in rows) / sum(row["requests"] for row in rows)

    def woke_idle_ns(self, scene: str, disk: str) -> float:
        """Time per evaluation waiting for an idle CPU; 0 if `ab` names it on neither side."""
        column = {"ext4": "a_ns", "tmpfs": "b_ns"}[disk]
        rows = self.results.read("names", scene=scene, category="runqueue.wakeup", name="idle")
        return sum(row[column] for row in rows)

    def waited(self, scene: str, disk: str, category: str = "journal") -> list[Row]:
        """The waits of that category, the longest first."""
        found = [
            row
            for row in self.waits
            if (row["scene"], row["disk"], row["category"]) == (scene, disk, category)
        ]
        return sorted(found, key=lambda row: -row["wait_ns"])

    def evaluations(self, scene: str, disk: str) -> int:
        """The number of captured evaluations."""
        return sum(row["requests"] for row in self.results.read("whatif", scene=scene, disk=disk))

    def whatif(self, scene: str, disk: str, column: str) -> float:
        """The median over captures of one figure per capture."""
        return median([row[column] for row in self.results.read("whatif", scene=scene, disk=disk)])


__all__ = ["ALONE", "BESIDE", "DISKS", "PINNED", "SCENES", "Facts"]
