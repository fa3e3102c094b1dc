#!/usr/bin/env python3
"""Compares latencies measured from outside with a program's own stamps of its round trips.

Runs ./stamped under rpcprobe for a few sizes and amounts of work, takes request i for round trip i
and prints what both say. A stamp includes the request, and what the client does between its clock
and the system calls: the difference is never negative, and small.

Needs root. Takes rpcprobe from $RPCPROBE, else from PATH. Exit status: 0 if all agree, 1 if not,
2 if it could not be found out.
"""

import csv
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROUND_TRIPS = 2000
# Bytes each way, and nanoseconds of work the server does.
CASES = [(32, 0), (32, 20_000), (1024, 0), (4096, 5_000), (32_768, 0)]
MEDIAN_LIMIT_NS = 2000


def main():
    rpcprobe = os.environ.get("RPCPROBE", "rpcprobe")
    try:
        call(["make", "-s", "-C", HERE])
        good = [compare(rpcprobe, *case) for case in CASES]
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 2
    print()
    verdict(all(good), f"median difference <= {MEDIAN_LIMIT_NS / 1000:g} us and none negative")
    return 0 if all(good) else 1


def compare(rpcprobe, payload_bytes, work_ns):
    """One case: its table, and whether it is as it should be."""
    print(f"\n{payload_bytes} bytes each way, {work_ns / 1000:g} us of work")
    with tempfile.TemporaryDirectory() as scratch:
        log, capture = f"{scratch}/log", f"{scratch}/capture"
        stamped = [HERE / "stamped", "-n", ROUND_TRIPS, "-s", payload_bytes, "-w", work_ns]
        call([rpcprobe, "run", "-q", "-o", capture, "--", *stamped, "-l", log])
        stamps = read_stamps(log)
        requests = read_requests(rpcprobe, capture)

    incomplete = sum(not request["complete"] for request in requests)
    if len(requests) != len(stamps) or incomplete:
        return verdict(
            False, f"{len(stamps)} round trips, {len(requests)} requests, {incomplete} incomplete"
        )
    own = [end - start for start, end in stamps]
    measured = [request["latency_ns"] for request in requests]
    differences = [o - m for o, m in zip(own, measured)]
    # Each request must lie inside its own round trip, not just be as long.
    outside = sum(
        not (start <= request["start_ns"] and request["start_ns"] + request["latency_ns"] <= end)
        for (start, end), request in zip(stamps, requests)
    )
    print(f"{'ns':12}{'n':>6}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>12}")
    for name, values in [
        ("own stamps", own),
        ("latency_ns", measured),
        ("difference", differences),
    ]:
        figures = [percentile(values, share) for share in (50, 90, 99, 100)]
        cells = "".join(f"{v:>{w}}" for v, w in zip(figures, (10, 10, 10, 12)))
        print(f"{name:12}{len(values):>6}{cells}")
    negative = sum(difference < 0 for difference in differences)
    median = percentile(differences, 50)
    return verdict(
        median <= MEDIAN_LIMIT_NS and not negative and not outside,
        f"median difference {median} ns, {negative} negative, {outside} outside of their stamps",
    )


def read_stamps(log):
    with open(log, newline="") as file:
        return [(int(row["start_ns"]), int(row["end_ns"])) for row in csv.DictReader(file)]


def read_requests(rpcprobe, capture):
    """The pipe requests by their start; round trips follow each other, so the order is theirs."""
    listed = call([rpcprobe, "requests", capture, "--sort", "start", "-n", "0", "--json"])
    return [row for row in json.loads(listed)["requests"] if row["kind"] == "pipe"]


def percentile(values, share):
    """The smallest value that at least this share (in percent) does not exceed."""
    rank = -(-share * len(values) // 100)
    return sorted(values)[max(rank, 1) - 1]


def call(command):
    """Standard output of a command that has to succeed."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise OSError(f"{shlex.join(command)}: exit status {done.returncode}")
    return done.stdout


def verdict(good, what):
    print(f"{'pass' if good else 'FAIL'}: {what}")
    return good


if __name__ == "__main__":
    sys.exit(main())
