"""The numbers of the text, computed from the tables."""

from collections import defaultdict
from collections.abc import Callable

from study import Results
from study.capture import Row
from study.wording import Spread

from workload import SYSTEMS, System

# Groups of similar categories, for the questions about growth.
GROUPS = {
    "user code": ("user", "fault"),
    "kernel and loopback": ("kernel.", "copy", "interrupt", "steal", "wire."),
    "waits for a CPU": ("runqueue.",),
    "waits to be accepted, read or served": ("queue.",),
    "locks": ("lock",),
    "other waits": ("sleep", "idle.", "block_io", "journal", "writeback", "unattributed"),
}
OUTSIDE = "client, outside of the request"
OUTSIDE_COLOUR = "#bdbdbd"


def group_of(category: str) -> str:
    return next(name for name, starts in GROUPS.items() if category.startswith(starts))


class Ours:
    """The tables. Means are over all requests of all runs, except a Spread, which is over runs."""

    def __init__(self, results: Results):
        self.results = results
        self.runs: dict[tuple, list[Row]] = defaultdict(list)
        for run in results.read("runs"):
            key = run["system"], run["clients"], run["probe"], run["short_backlog"]
            self.runs[key].append(run)
        for runs in self.runs.values():
            runs.sort(key=lambda run: run["round"])
        self.parts: dict[tuple, list[Row]] = defaultdict(list)
        for row in results.read("parts"):
            self.parts[row["system"], row["clients"]].append(row)
        self.clients = sorted({clients for _, clients in self.parts})

    def changes(self, a: System) -> list[Row]:
        """`ab`'s comparison of system `a` with its counterpart."""
        return self.results.read("changes", a=a.name)

    def spread(
        self, system: System, clients: int, of: Callable[[Row], float], probe=False, short=False
    ) -> Spread:
        return Spread([of(run) for run in self.runs[system.name, clients, probe, short]])

    def mean_ns(self, system: System, clients: int, short=False) -> Spread:
        """Response time by the clients' logs, without the probe."""
        return self.spread(system, clients, lambda r: r["total_ns"] / r["requests"], short=short)

    def sum(self, system: System, clients: int, column: str, probe=False) -> int:
        return sum(run[column] for run in self.runs[system.name, clients, probe, False])

    def each(self, system: System, clients: int, column: str, by="served", probe=False) -> float:
        """The mean of a column per request, over all runs."""
        return self.sum(system, clients, column, probe) / self.sum(system, clients, by, probe)

    def outside_ns(self, system: System, clients: int) -> int:
        """With the probe: the time between the client's stamps but outside of the requests."""
        return sum(self.sum(system, clients, f"{w}_ns", True) for w in ("before", "after"))

    def means(self, system: System, clients: int) -> dict[tuple[str, str], float]:
        """Means of captured requests by category and side, with the time outside of them: they add
        up to the mean by the clients' stamps."""
        count = self.sum(system, clients, "later_requests", True)
        found: dict[tuple[str, str], float] = defaultdict(float)
        for row in self.parts[system.name, clients]:
            found[row["category"], row["side"]] += row["total_ns"] / count
        for where, name in (("before", "before its first byte"), ("after", "after its end")):
            total_ns = self.sum(system, clients, f"{where}_ns", True)
            found[f"client, {name}", "client"] = total_ns / count
        return found

    def groups(self, system: System, clients: int) -> dict[str, float]:
        """The same by group."""
        found = dict.fromkeys([*GROUPS, OUTSIDE], 0.0)
        for (category, _), mean_ns in self.means(system, clients).items():
            own = OUTSIDE if category.startswith("client, ") else group_of(category)
            found[own] += mean_ns
        return found

    def threads(self, system: System, clients: int) -> dict[str, float]:
        count = self.sum(system, clients, "later_requests", True)
        found: dict[str, float] = defaultdict(float)
        for row in self.parts[system.name, clients]:
            found[row["thread"]] += row["total_ns"] / count
        return found

    def modelled(self, system: System, clients: int) -> float:
        """The modelled share of the captured requests' time."""
        rows = self.parts[system.name, clients]
        return sum(row["modelled_ns"] for row in rows) / sum(row["total_ns"] for row in rows)

    def bars(self, system: System, clients: int, name: str) -> list[Row]:
        """Rows for `study.breakdown.bars`, including the time outside of the requests."""
        rows: dict[tuple, Row] = {}
        for row in self.parts[system.name, clients]:
            key = row["category"], row["side"], row["round"]
            own = {k: v for k, v in row.items() if k != "thread"} | {"who": name}
            if key in rows:
                rows[key]["total_ns"] += row["total_ns"]
            else:
                rows[key] = own
        made = list(rows.values())
        for run in self.runs[system.name, clients, True, False]:
            like = next(row for row in made if row["round"] == run["round"])
            total_ns = run["before_ns"] + run["after_ns"]
            more = {"category": OUTSIDE, "side": "", "colour": OUTSIDE_COLOUR}
            made.append({**like, **more, "total_ns": total_ns})
        return made

    def paired(self, one: System, other: System, clients: int) -> list[float]:
        """The difference `other` minus `one` of mean response times without the probe, in each
        round."""
        runs = (self.mean_ns(system, clients).runs for system in (one, other))
        return [b - a for a, b in zip(*runs)]

    def interval_pooled(self, system: System, clients: int) -> dict[str, float]:
        """Time per request from the server's arrival stamp to its begin stamp, by category, with
        the probe."""
        rows = self.results.read("pool", system=system.name, clients=clients)
        counts = {row["round"]: row["requests"] for row in rows}
        found: dict[str, float] = defaultdict(float)
        for row in rows:
            found[row["category"]] += row["total_ns"] / sum(counts.values())
        return found

    def locks(self, system: System, clients: int) -> Row:
        """Means with the probe, in ns."""
        rows = self.results.read("locks", system=system.name, clients=clients)
        count = sum(row["requests"] for row in rows)
        names = ("lock_ns", "lock_in_handler_ns", "handler_ns", "lock_wait_ns")
        return {name: sum(row[name] for row in rows) / count for name in names}


SOCKETS_2, SOCKETS_6, LOOKUP, TRADE = SYSTEMS
