#!/usr/bin/env python3
"""What does rpcprobe cost the program that it traces, compared with other tools?

Each run of a workload with a tool is between two runs without. The tool's cost is the difference
from the mean of these two. The workload and the tool have a CPU each, if there are two. Needs root.
Exit status: 0 if the aims hold, 1 if not, 2 if it could not be run.
"""

import argparse
import json
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tools import TRACING, Failed, Measured, Nothing, Places, Tool, scratch, tools
from workloads import WORKLOADS, Workload

# The aims for null RPC over pipes: see README.md.
P50_FACTOR, P99_FACTOR, PUBLIC_FACTOR = 1.5, 1.7, 0.5
# Allowed relative error of the cost that reports print.
ESTIMATE_WITHIN = 0.25

# Set in the process that runs in its own mount namespace.
OWN_NAMESPACE = "RPCPROBE_OVERHEAD_NAMESPACE"


@dataclass
class Cost:
    """The cost of one tool, over the rounds."""

    tool: Tool
    pinned: bool
    p50_ns: list[float] = field(default_factory=list)
    p99_ns: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    # Mean cost per request: Measured.each_ns().
    mean_ns: list[float] = field(default_factory=list)
    runs: list[Measured] = field(default_factory=list)
    why_not: str | None = None

    def add(self, run: Measured, before: Measured, after: Measured):
        def base(of: str) -> float:
            return (getattr(before.sample, of) + getattr(after.sample, of)) / 2

        self.p50_ns.append(run.sample.p50_ns - base("p50_ns"))
        self.p99_ns.append(run.sample.p99_ns - base("p99_ns"))
        self.throughput.append(run.sample.per_second / base("per_second") - 1)
        with_tool, *without = (each.each_ns(self.pinned) for each in (run, before, after))
        self.mean_ns.append(with_tool - sum(without) / 2)
        self.runs.append(run)

    def each(self, of: str) -> float | None:
        """Median over the runs, per request."""
        values = [getattr(run, of) for run in self.runs]
        if not values or None in values:
            return None
        return median(
            value / run.sample.requests for value, run in zip(values, self.runs, strict=True)
        )

    def estimate(self) -> float | None:
        """The tool's own estimate as a share of the measured cost."""
        each_ns = self.each("estimate_ns")
        return None if each_ns is None else each_ns / median(self.mean_ns)

    def cpu(self) -> float | None:
        values = [run.cpu for run in self.runs if run.cpu is not None]
        return median(values) if values else None

    def lost(self) -> int | None:
        values = [run.lost for run in self.runs]
        return None if not values or None in values else sum(values)


def spread(values: list[float], unit: str = "{:,.0f}") -> str:
    """Median and range; for six rounds, the range contains the true median 97 times of 100."""
    return " ".join(
        [unit.format(median(values)), f"[{unit.format(min(values))}, {unit.format(max(values))}]"]
    )


COLUMNS = "{:<36} {:>24} {:>28} {:>22} {:>7} {:>7} {:>8} {:>6} {:>9}"


def tell(workload: Workload, base: list[Measured], costs: list[Cost]):
    p50, p99 = ([getattr(run.sample, of) for run in base] for of in ("p50_ns", "p99_ns"))
    rate = median(run.sample.per_second for run in base)
    print(
        f"\n{workload.name}: baseline p50 {spread(p50)} ns, p99 {spread(p99)} ns, {rate:,.0f} a second"
    )
    print(
        COLUMNS.format(
            *("", "added to p50, ns", "added to p99, ns", "throughput, %"),
            *("CPU, %", "bytes", "records", "lost", "estimate"),
        )
    )
    for cost in costs:
        if not cost.runs:
            print(f"{cost.tool.name:<36} not measured: {cost.why_not}")
            continue

        def shown(value: float | None, format: str) -> str:
            return "-" if value is None else format.format(value)

        cpu = cost.cpu()
        print(
            COLUMNS.format(
                cost.tool.name,
                spread(cost.p50_ns),
                spread(cost.p99_ns),
                spread([100 * part for part in cost.throughput], "{:.1f}"),
                shown(None if cpu is None else 100 * cpu, "{:.0f}"),
                shown(cost.each("bytes"), "{:.0f}"),
                shown(cost.each("records"), "{:.1f}"),
                shown(cost.lost(), "{}"),
                shown(cost.estimate(), "x {:.2f}"),
            )
        )
    sys.stdout.flush()


def measure(workload: Workload, chosen: list[Tool], options) -> tuple[list[Measured], list[Cost]]:
    costs = [Cost(tool, workload.pinned, why_not=tool.missing()) for tool in chosen]
    nothing, base = Nothing(), []

    def run(tool: Tool) -> Measured:
        with scratch(options.scratch) as folder:
            return tool.measure(workload, options.places if workload.pinned else Places(), folder)

    for _ in range(options.rounds):
        order = [cost for cost in costs if not cost.why_not]
        random.shuffle(order)
        before = run(nothing)
        base.append(before)
        for cost in order:
            try:
                with_tool = run(cost.tool)
            except Failed as error:
                cost.why_not = str(error)
                continue
            after = run(nothing)
            cost.add(with_tool, before, after)
            before = after
            base.append(after)
    return base, costs


def judge_estimate(costs: dict[str, Cost]) -> bool:
    estimate = costs["rpcprobe"].estimate() if "rpcprobe" in costs else None
    if estimate is None:
        return True
    held = abs(estimate - 1) <= ESTIMATE_WITHIN
    print(
        f"{'pass' if held else 'FAIL'}: the cost that rpcprobe's report prints is {estimate:.2f} of that"
        f" measured; aim: within {ESTIMATE_WITHIN:.0%}"
    )
    return held


def judge(costs: dict[str, Cost]) -> bool:
    """Returns whether the aims for null RPC over pipes hold."""
    if not all(name in costs and costs[name].runs for name in ("rpcprobe", "floor")):
        print("no verdict: rpcprobe and the floor were not both measured")
        return False
    ours, floor = costs["rpcprobe"], costs["floor"]
    others = [cost for cost in costs.values() if cost.tool.same_events and cost.runs]
    aims = [
        ("p50", median(ours.p50_ns), median(floor.p50_ns), P50_FACTOR, "the floor"),
        ("p99", median(ours.p99_ns), median(floor.p99_ns), P99_FACTOR, "the floor"),
    ]
    if others:
        best = min(others, key=lambda cost: median(cost.p50_ns))
        aims.append(
            ("p50", median(ours.p50_ns), median(best.p50_ns), PUBLIC_FACTOR, best.tool.name)
        )
    good = True
    for what, value, other, factor, whose in aims:
        held = value <= factor * other
        good &= held
        verdict = "pass" if held else "FAIL"
        print(f"{verdict}: added to {what}: {value / other:.2f} of {whose}; aim: at most {factor}")
    if "clock" in costs and costs["clock"].runs:
        clock = costs["clock"]
        for what in ("p50", "p99"):
            value, least, empty = (
                median(getattr(cost, f"{what}_ns")) for cost in (ours, clock, floor)
            )
            print(
                f"      added to {what}: {value / least:.2f} of {clock.tool.name}, which are"
                f" {least / empty:.2f} of the floor"
            )
    lost = ours.lost()
    print(f"{'pass' if not lost else 'FAIL'}: {lost} records lost")
    return good and not lost


def places() -> Places:
    """The last CPU for the workload, the second to last for the tool."""
    cpus = sorted(os.sched_getaffinity(0))
    return Places(str(cpus[-1]), str(cpus[-2])) if len(cpus) > 1 else Places()


def see_tracefs():
    """Makes tracefs visible, which most tools need, in a separate mount namespace that leaves no
    traces."""
    if (TRACING / "set_event").exists():
        return
    if os.environ.get(OWN_NAMESPACE):
        print("run.py: tracefs cannot be mounted; tools that need it will fail", file=sys.stderr)
        return
    os.environ[OWN_NAMESPACE] = "1"
    mount = f'mount -t tracefs none {TRACING}; exec "$@"'
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--floor", type=Path, required=True, help="the built floor.rs")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--tools", nargs="+", help="(default: all)")
    parser.add_argument("--scratch", type=Path, help="where captures are made (default: TMPDIR)")
    parser.add_argument("--json", type=Path, help="also write every run here")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    see_tracefs()
    options.places = places()
    known = tools(options.rpcprobe.resolve(), options.floor.resolve())
    chosen = options.tools or list(known)
    if unknown := set(chosen) - set(known):
        parser.error(f"no such tool: {', '.join(unknown)}; there are {', '.join(known)}")
    good, everything = True, {}
    for name in options.workloads:
        try:
            base, costs = measure(WORKLOADS[name], [known[tool] for tool in chosen], options)
        except Failed as error:
            print(f"run.py: {name}: {error}", file=sys.stderr)
            return 2
        tell(WORKLOADS[name], base, costs)
        everything[name] = {
            "baseline": [vars(run.sample) for run in base],
            **{
                tool: [{**vars(run), "sample": vars(run.sample)} for run in cost.runs]
                for tool, cost in zip(chosen, costs, strict=True)
            },
        }
        by_name = dict(zip(chosen, costs, strict=True))
        good &= judge_estimate(by_name)
        if name == "pipe":
            good &= judge(by_name)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
