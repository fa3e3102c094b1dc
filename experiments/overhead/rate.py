#!/usr/bin/env python3
"""How many events a second can be recorded, and what happens when there are more?

Processes make system calls that do nothing, at increasing rates, and count them. Each call is one
record. The records that were kept and those that are reported as lost must add up to the calls that
were made. A full ring must never hold up the program: with a ring that is always full, the program
may not be slower than with a large ring. Needs root. Exit status: 0 if all of that holds, 1 if not,
2 if it could not be run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAUSES_NS = (10_000, 3_000, 1_000, 300, 0)
# Allowed share of the calls: records of other processes are lost, too, and a process makes some
# calls before its loop.
COUNTED_WITHIN = 0.01
# Least relative speed of a program whose records are all lost, compared with one whose records are
# kept.
NO_SLOWER_THAN = 0.8


@dataclass
class Run:
    made: int
    kept: int
    lost: int
    per_second: float
    longest_ns: int

    def adds_up(self) -> bool:
        return abs(self.kept + self.lost - self.made) <= COUNTED_WITHIN * self.made


def run(rpcprobe: Path, processes: int, pause_ns: int, milliseconds: int, *options: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture"
        calls = [HERE / "calls", "-c", processes, "-p", pause_ns, "-m", milliseconds]
        command = [rpcprobe, "run", "--quiet", "-o", capture, *options, "--", *calls]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"rate.py: {done.stderr.strip()}", file=sys.stderr)
            sys.exit(2)
        told = json.loads(done.stdout)
        counts = json.loads((capture / "manifest.json").read_text())["counts"]
    return Run(
        told["calls"],
        counts["syscalls"],
        counts["records_lost"],
        told["calls"] / told["seconds"],
        told["longest_ns"],
    )


def tell(name: str, run: Run) -> bool:
    good = run.adds_up()
    print(
        f"{name:34}{run.per_second / 1e6:>10.2f}{run.made:>12,}{run.kept:>12,}{run.lost:>12,}"
        f"{run.lost / run.made:>9.2%}{run.longest_ns / 1e6:>12.1f}  {'pass' if good else 'FAIL'}",
        flush=True,
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--milliseconds", type=int, default=2000, help="length of each run")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    cpus = len(os.sched_getaffinity(0))
    titles = (
        f"{'M calls/s':>10}{'made':>12}{'kept':>12}{'lost':>12}{'lost, %':>9}{'longest, ms':>12}"
    )
    print(f"{'':34}{titles}  kept + lost = made")
    good, largest, fastest = True, 0.0, {}
    for processes in sorted({1, cpus, 4 * cpus}):
        for pause_ns in PAUSES_NS:
            found = run(options.rpcprobe, processes, pause_ns, options.milliseconds)
            good &= tell(f"{processes} processes, {pause_ns:,} ns apart", found)
            fastest[processes] = found.per_second
            if not found.lost:
                largest = max(largest, found.per_second)
    print(f"the largest rate without a loss: {largest / 1e6:.2f} M calls a second, {cpus} CPUs")
    for processes in sorted({1, cpus}):
        found = run(options.rpcprobe, processes, 0, options.milliseconds, "--ring-kib", "4")
        good &= tell(f"{processes} processes, ring of 4 KiB", found)
        pace = found.per_second / fastest[processes]
        held_up = pace < NO_SLOWER_THAN
        good &= not held_up
        print(f"  {'FAIL' if held_up else 'pass'}: {pace:.2f} times as fast as with a large ring")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
