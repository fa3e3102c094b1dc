#!/usr/bin/env python3
"""Compare rpcprobe's latencies with a program's own stamps, request by request.

`stamped` makes round trips over two pipes and stamps CLOCK_MONOTONIC just before each write and
just after the last read. Its stamps lie outside the system calls that bound a request, so the time
between them must exceed `latency_ns`, but only by little. Needs root. Usage: run.py [--trips N];
rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_NS = 2_000
# name, arguments of stamped
WORKLOADS = [
    ("empty server", ["-w", "0"]),
    ("10 us of work", ["-w", "10000"]),
    ("1 KiB payload", ["-s", "1024"]),
    ("64 KiB payload", ["-s", "65536"]),
]


def percentile(values, percent):
    """The nearest-rank percentile of a sorted list."""
    rank = -(-len(values) * percent // 100)
    return values[max(rank, 1) - 1]


def measure(rpcprobe, arguments, trips, directory):
    """Latencies by the program's stamps and by rpcprobe, in ns, in order."""
    log = directory / "stamps.csv"
    capture = directory / "capture"
    command = [rpcprobe, "run", "--quiet", "--force", "-o", capture, "--"]
    command += [HERE / "stamped", "-n", str(trips), *arguments, "-l", log]
    subprocess.run(command, check=True)
    listing = [rpcprobe, "requests", capture, "--kind", "pipe", "--sort", "start"]
    listing += ["--limit", "0", "--json"]
    out = subprocess.run(listing, check=True, capture_output=True).stdout
    probed = [r["latency_ns"] for r in json.loads(out)["requests"] if r["complete"]]
    with log.open() as file:
        stamped = [int(row["end_ns"]) - int(row["start_ns"]) for row in csv.DictReader(file)]
    return stamped, probed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=2000, help="round trips per workload")
    trips = parser.parse_args().trips
    rpcprobe = os.environ.get("RPCPROBE", "rpcprobe")
    subprocess.run(["make", "-s", "-C", HERE], check=True)

    print(f"{'':16}{'':>6}   own stamps [us]   rpcprobe [us]     difference [ns]")
    print(f"{'workload':16}{'n':>6}{'p50':>10}{'p99':>10}{'p50':>10}{'p99':>10}", end="")
    print(f"{'min':>8}{'p50':>8}{'p99':>8}{'max':>10}  verdict")
    failed = False
    for name, arguments in WORKLOADS:
        with tempfile.TemporaryDirectory() as directory:
            stamped, probed = measure(rpcprobe, arguments, trips, Path(directory))
        if len(stamped) != len(probed):
            print(f"{name:16}{len(probed)} requests for {len(stamped)} round trips  FAIL")
            failed = True
            continue
        differences = sorted(own - found for own, found in zip(stamped, probed))
        stamped.sort()
        probed.sort()
        good = differences[0] >= 0 and percentile(differences, 50) <= LIMIT_NS
        failed |= not good
        cells = [
            f"{name:16}{len(stamped):6}",
            *(
                f"{percentile(values, p) / 1000:10.2f}"
                for values in (stamped, probed)
                for p in (50, 99)
            ),
            f"{differences[0]:8}{percentile(differences, 50):8}{percentile(differences, 99):8}",
            f"{differences[-1]:10}",
        ]
        print("".join(cells), " pass" if good else " FAIL")
    print(
        f"pass: as many requests as round trips, none longer than its stamps, median <= {LIMIT_NS} ns"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
