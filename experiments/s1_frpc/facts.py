"""The figures that RESULTS.md quotes, from the tables alone.

A run is the unit: each run gives one figure; figures are medians and intervals over runs.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import study
from roundtrips import ANY_CPU
from study import breakdown
from study.capture import Row
from study.statistics import differ, median, quantile

MODES = (1, 2, 3)
NAMES = {1: "mode 1, standard streams", 2: "mode 2, files", 3: "mode 3, pipes"}
PHASES = ("fork", "exec", "dynamic linking", "program", "exit", "wait")
# Groups of categories for the time that mode 3 adds; REST is the time in none of them.
GROUPS = {
    "fork, exec, exit, wait, memory, page faults": ("kernel.exec", "kernel.mm", "fault"),
    "pipes: calls, copies, bytes not yet read": ("kernel.pipe", "copy", "queue.pipe"),
    "run queue": ("runqueue.",),
    "files": ("kernel.vfs", "journal", "block_io", "writeback"),
    "user time": ("user",),
}
REST = "the rest"
# Functions of glibc's dynamic linker that read the CPU's features by CPUID: each instruction exits
# to the hypervisor.
ASKS_CPU = (
    "handle_amd",
    "handle_intel",
    "handle_zhaoxin",
    "intel_check_word",
    "update_active",
    "get_common_indices",
    "get_extended_indices",
    "get_common_cache_info",
    "dl_init_cacheinfo",
    "init_cpu_features",
)


def iqr(values: Sequence[float]) -> float:
    return quantile(values, 0.75) - quantile(values, 0.25)


def variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


class Facts:
    def __init__(self, results: study.Results):
        self.results = results
        self.evaluations = results.read("evaluations")
        self.rounds = len({row["round"] for row in self.evaluations})
        self.parts = results.read("breakdown", requests_of="middle half")
        self.by_run: dict[tuple, list[Row]] = defaultdict(list)
        for row in self.evaluations:
            self.by_run[row["mode"], row["linked"], row["probed"], row["round"]].append(row)

    def runs(
        self,
        of: Callable[[list[Row]], float],
        mode: int,
        linked: str = "dynamic",
        probed: bool = False,
    ) -> list[float]:
        """One figure per run, in order of rounds."""
        return [of(self.by_run[mode, linked, probed, number]) for number in range(self.rounds)]

    def medians(self, mode: int, linked: str = "dynamic", probed: bool = False) -> list[float]:
        return self.runs(lambda rows: median(elapsed(rows)), mode, linked, probed)

    def more(self, mode: int) -> list[float]:
        """Relative difference of the medians to mode 1's of the same round."""
        return [a / b - 1 for a, b in zip(self.medians(mode), self.medians(1), strict=True)]

    def differs(self, mode: int) -> bool | None:
        """Returns whether the mode's median differs from mode 1's; None if there are too few
        rounds."""
        return differ(self.more(mode))

    def slopes(self, mode: int) -> list[float]:
        """ns per additional token: the slope through the medians by number of tokens."""
        return self.runs(lambda rows: study.slope(median_by_tokens(rows)), mode)

    def ratios(self, of: Callable[[list[Row]], float], mode: int = 2) -> list[float]:
        """The ratio of a figure of the mode's runs to mode 1's of the same round."""
        return [a / b for a, b in zip(self.runs(of, mode), self.runs(of, 1), strict=True)]

    def by_tokens(self, mode: int) -> dict[int, list[int]]:
        """The times of all runs without the probe, by number of tokens."""
        found = defaultdict(list)
        for row in self.evaluations:
            if (row["mode"], row["linked"], row["probed"]) == (mode, "dynamic", False):
                found[row["tokens"]].append(row["elapsed_ns"])
        return dict(sorted(found.items()))

    def of(self, mode: int, linked: str = "dynamic") -> list[Row]:
        """The breakdown of the middle half of the mode's evaluations."""
        return [row for row in self.parts if (row["mode"], row["linked"]) == (mode, linked)]

    def mean_ns(self, mode: int, *names: str, linked: str = "dynamic", **where: str) -> float:
        rows = self.of(mode, linked)
        return sum(breakdown.mean_ns(rows, name, **where) for name in names or ("",))

    def run_means(self, mode: int, *names: str, linked: str = "dynamic") -> list[float]:
        """The same, one figure per run."""
        return [
            sum(
                breakdown.mean_ns(
                    [row for row in self.of(mode, linked) if row["round"] == number], name
                )
                for name in names or ("",)
            )
            for number in range(self.rounds)
        ]

    def differences(self, mode: int) -> dict[str, tuple[float, tuple[float, float]]]:
        """The mode's excess over mode 1, by group: medians over rounds, with intervals. The first
        is the total."""
        groups = {"in all": ("",), **GROUPS}
        runs = {
            name: [
                b - a
                for a, b in zip(
                    self.run_means(1, *names), self.run_means(mode, *names), strict=True
                )
            ]
            for name, names in groups.items()
        }
        runs[REST] = [
            total - sum(runs[name][place] for name in GROUPS)
            for place, total in enumerate(runs["in all"])
        ]
        return {name: (median(values), study.interval(values)) for name, values in runs.items()}

    def evaluating_ns(self, mode: int = 1, linked: str = "dynamic", category: str = "") -> float:
        """Time from the read of the expression to the write of the answer, in a process for one
        expression."""
        rows = self.results.read("evaluating", mode=mode, linked=linked)
        requests = sum({row["round"]: row["requests"] for row in rows}.values())
        return sum(r["total_ns"] for r in rows if r["category"].startswith(category)) / requests

    def alone_ns(self) -> tuple[float, tuple[float, float]]:
        """Time per expression in a running process: the difference of 30,000 and 300 expressions,
        divided."""
        few, many = {}, {}
        for row in self.results.read("alone"):
            (few if row["expressions"] <= 1000 else many)[row["round"]] = row
        each = [
            (many[n]["elapsed_ns"] - few[n]["elapsed_ns"])
            / (many[n]["expressions"] - few[n]["expressions"])
            for n in sorted(few)
        ]
        return median(each), study.interval(each)

    def faults(self, mode: int = 1, linked: str = "dynamic", phase: str = "") -> float:
        """Page faults per evaluation."""
        rows = self.results.read("faults", mode=mode, linked=linked)
        requests = sum({row["round"]: row["requests"] for row in rows}.values())
        return sum(row["faults"] for row in rows if row["phase"].startswith(phase)) / requests

    def stretch_ns(self) -> float:
        """The longest piece of user time without a call or fault in it."""
        rows = self.results.read("stretch", mode=1, linked="dynamic")
        return median([row["user_ns"] for row in rows])

    def stretch_place(self) -> tuple[str, str, float]:
        """The phase of the longest piece, the call before it, and the share of evaluations with it
        there."""
        rows = self.results.read("stretch", mode=1, linked="dynamic")
        row = max(rows, key=lambda row: row["often"])
        alike = [r for r in rows if (r["phase"], r["after"]) == (row["phase"], row["after"])]
        share = sum(r["often"] for r in alike) / sum(r["requests"] for r in rows)
        return row["phase"], row["after"], share

    def cpuid_ns(self) -> float:
        return median([row["cpuid_ns"] for row in self.results.read("instruction")])

    def linking_samples(self) -> tuple[int, int, int]:
        """Samples of user time in dynamic linking: in functions that use CPUID, in known code, and
        in the kernel."""
        rows = self.results.read("samples", phase="dynamic linking")
        known = [row for row in rows if row["function"] != "kernel"]
        asking = sum(row["samples"] for row in known if row["function"] in ASKS_CPU)
        total = sum(row["samples"] for row in known)
        return asking, total, sum(row["samples"] for row in rows) - total

    def trips(self, mode: int, probed: bool = False, cpus: str = ANY_CPU) -> list[float]:
        """The median time per expression of each run, ns."""
        rows = self.results.read("trips", mode=mode, probed=probed, cpus=cpus)
        return [row["median_ns"] for row in rows]

    def woke_idle_ns(self, mode: int) -> list[float]:
        """Time per round trip waiting for a CPU that was idle, for each captured run."""
        rows = self.results.read("trips", mode=mode, probed=True)
        return [row["woke_idle_ns"] / row["captured"] for row in rows]

    def off_ns(self) -> list[int]:
        """The excess of the times by measure's own stamps over rpcprobe's windows."""
        return [
            row["elapsed_ns"] - row["latency_ns"]
            for row in self.evaluations
            if row["latency_ns"] is not None
        ]


def elapsed(rows: list[Row]) -> list[int]:
    return [row["elapsed_ns"] for row in rows]


def median_by_tokens(rows: list[Row]) -> list[tuple[float, float]]:
    found = defaultdict(list)
    for row in rows:
        found[row["tokens"]].append(row["elapsed_ns"])
    return [(tokens, median(values)) for tokens, values in found.items()]
