#!/usr/bin/env python3
"""Does rpcprobe report the same of threads as Python bcc and `perf sched` do, on the same run?

All three observe the same run of each workload. A row compares one quantity of all threads (calls,
commits, block requests) with one other observer; README.md describes the comparisons. Needs root.
If bcc cannot work, the script says why and skips.

Usage: crosscheck.py [--no-perf] [--part N] [--slower N] [work|pipe|redis|disk ...]; rpcprobe from
$RPCPROBE, the headers for bcc from $BCC_KERNEL_SOURCE. Exit status: 0 if everything agrees, is
explained or is skipped, else 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
import explained
from observe import RPCPROBE, CannotObserve, Failed, run, tracefs
from workloads import WORKLOADS, prepared

TRIES = 3
HEADER = (
    f"{'load':6} {'quantity':22} {'beside':7}{'compared':>9}{'rpcprobe':>13}{'the other':>13}"
    f"{'median':>9}{'each':>9}{'worst':>9}{'each':>9}  verdict"
)


def sum_text(row, values):
    return f"{sum(values):,}" if row.is_count else f"{sum(values) / 1e6:,.3f} ms"


def each_text(row, item):
    return "" if row.is_count else f"{item.each_ns / 1000:.2f} us"


def shown(load, row, verdict):
    ours = sum_text(row, (item.ours for item in row.items))
    theirs = sum_text(row, (item.theirs for item in row.items))
    return (
        f"{load:6} {row.quantity:22} {row.beside:7}{len(row.items):>9,}{ours:>13}{theirs:>13}"
        f"{row.median.relative:>9.2%}{each_text(row, row.median):>9}"
        f"{row.worst.relative:>9.2%}{each_text(row, row.worst):>9}  {verdict}"
    )


def observed(workload, with_perf, part):
    """A run in which no observer lost records, if a few tries give one."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="crosscheck.") as folder:
            folder = Path(folder)
            with prepared(workload, folder, part) as script:
                seen = run(script, folder, with_perf)
        if not seen.lost:
            break
    return seen


def check(workload, with_perf, options):
    """Prints the rows of one workload; returns whether all are good."""
    seen = observed(workload, with_perf, options.part)
    good = not seen.missing
    if seen.missing:
        print(f"{workload.name:6} {seen.missing} threads of bcc are not in rpcprobe's ledger: NO")
    for who, count in seen.lost.items():
        print(f"{workload.name:6} {who} lost {count:,} records in each of {TRIES} runs")
        good &= who == "perf"
    for row in compare.rows(seen.threads, seen.ours, seen.bcc):
        if row.beside == "perf" and "perf" in seen.lost:
            continue
        if not row.items:
            if row.left_out:
                print(f"{workload.name:6} {row.quantity:22} {row.beside:7} all left out: M")
            continue
        verdict, row_good = explained.verdict(row)
        good &= row_good
        print(shown(workload.name, row, verdict), flush=True)
        if options.verbose:
            for item in row.ranked[-5:]:
                print(
                    f"       {item.name}: {item.ours:,} beside {item.theirs:,}, {item.times:,} times"
                )
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--no-perf", action="store_true", help="without perf sched")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="an Nth of each workload")
    parser.add_argument(
        "--slower", type=int, default=1, metavar="N", help="allow for a machine N times slower"
    )
    parser.add_argument("--verbose", action="store_true", help="print what differs most")
    options = parser.parse_args()
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"no workload {name}: {', '.join(WORKLOADS)}")
    if os.geteuid() != 0:
        sys.exit("crosscheck.py needs root")
    if not shutil.which(RPCPROBE):
        sys.exit(f"{RPCPROBE} is not there: make build")
    compare.slower = options.slower
    with_perf = not options.no_perf
    if with_perf and not shutil.which("perf"):
        print("SKIPPED: perf sched (perf is not installed: Debian's linux-perf)")
        with_perf = False
    try:
        with tracefs():
            good = check_all(options.workloads or WORKLOADS, with_perf, options)
            return 0 if good else 1
    except CannotObserve as reason:
        print(f"SKIPPED, nothing is compared: {reason}")
        return 0


def check_all(names, with_perf, options):
    print(HEADER, flush=True)
    good = True
    for name in names:
        if reason := WORKLOADS[name].missing():
            print(f"{name:6} SKIPPED: {reason}")
            continue
        try:
            good &= check(WORKLOADS[name], with_perf, options)
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as reason:
            print(f"{name:6} failed: {reason}")
            good = False
    return good


if __name__ == "__main__":
    sys.exit(main())
