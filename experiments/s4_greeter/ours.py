"""The numbers of the text, computed from the tables."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

from study import Results, median
from study.capture import Row
from study.wording import Spread


@dataclass
class Numbers:
    """Dicts are by number of clients, and by whether the run was probed if the key has it."""

    runs: dict[tuple[int, bool], list[Row]] = field(default_factory=lambda: defaultdict(list))
    first_ns: dict[tuple[int, bool], Spread] = field(default_factory=dict)
    # Calls per millisecond by the sum of latencies truncated to a unit, one figure per run:
    # (clients, unit).
    truncated: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    # CPU time per call, of the calls after the first.
    cpu_ns: dict[int, float] = field(default_factory=dict)
    server_cpu_ns: dict[int, float] = field(default_factory=dict)

    def spread(self, clients: int, probe: bool, of) -> Spread:
        return Spread([of(run) for run in self.runs[clients, probe]])

    def wall(self, clients: int, probe: bool = False) -> Spread:
        """Calls per millisecond of wall-clock time."""
        return self.spread(clients, probe, lambda run: run["calls"] / run["whole_ns"] * 1e6)

    def mean_ns(self, clients: int, probe: bool = False) -> Spread:
        return self.spread(clients, probe, lambda run: run["total_ns"] / run["calls"])

    def busy_cpus(self, clients: int) -> float:
        """The number of CPUs that the programs keep busy during the calls."""
        return self.cpu_ns[clients] * self.wall(clients).middle / 1e6


def numbers(results: Results) -> Numbers:
    found = Numbers()
    for run in results.read("runs"):
        found.runs[run["clients"], run["probe"]].append(run)
    clients = results.read("clients")
    sums: dict[tuple, float] = defaultdict(float)
    firsts = defaultdict(list)
    for row in clients:
        key = row["clients"], row["probe"]
        if row["unit_ns"] == 1:
            firsts[key].append(row["first_ns"])
        if not row["probe"]:
            of = row["truncated_ns"]
            sums[row["clients"], row["unit_ns"], row["round"]] += (
                row["calls"] / of * 1e6 if of else math.inf
            )
    found.first_ns = {key: Spread(values) for key, values in firsts.items()}
    for (count, unit_ns, _), per_ms in sorted(sums.items()):
        found.truncated[count, unit_ns].append(per_ms)
    for count in (1, 2):
        starts = results.read("starts", clients=count)
        for name, into in (("server", found.server_cpu_ns), ("client", found.cpu_ns)):
            started_ns = median([row[f"{name}_cpu_ns"] for row in starts])
            calls = starts[0]["calls"]
            into[count] = median(
                [
                    (run[f"{name}_cpu_ns"] - started_ns) / (run["calls"] + count - calls)
                    for run in found.runs[count, False]
                ]
            )
        found.cpu_ns[count] += found.server_cpu_ns[count]
    return found
