#!/usr/bin/env python3
"""Is the report right about servers inside runtimes, with several requests at once?

Servers in Go, Node, Python (threads, asyncio) and Java do what their requests say (sleep, burn CPU time, sleep with a lock)
and note, by CLOCK_MONOTONIC, when each step began and ended. A capture of the server alone (attach) says of each of
those nanoseconds what the request did. A row is one kind of step:

  sleep      the time that was asked for: `sleep`
  late       from then until the server went on: a queue, the run queue, `lock` (the interpreter's), or `sleep` (timers
             are due late, too)
  burn       CPU time, with interrupts and preemptions: on a CPU, the run queue
  lockwait   the wait for the lock, which another request has: `lock`
  lock       the sleep with it: `sleep`

with the mean, how much of it is shown as that, and how much as something else: measured (which claims to be certain) or
modelled (which says that it is inferred), the longest such category named. Last, requests found of those sent.

Needs root and what the servers are written in; what is missing is skipped. Usage: run.py [--connections 1,8,50]
[--requests N] [--steps "sleep=8 ..."] [SERVER ...]; rpcprobe from $RPCPROBE or PATH. Exit status: 0 if all requests were
found and at most 5 % of any row's time, but for `late`, is wrong and measured, else 1.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from attached import SECONDS, attached, build_go, free_port, load, wait_for  # noqa: E402

SERVERS = {
    "threads": [sys.executable, str(HERE / "servers/server.py"), "threads"],
    "asyncio": [sys.executable, str(HERE / "servers/server.py"), "asyncio"],
    "node": ["node", str(HERE / "servers/server.js")],
    "go": [str(HERE / ".cache/server")],
    "java": ["java", str(HERE / "servers/Server.java")],
}
STEPS = ["sleep=8", "burn=1", "sleep=8,burn=1", "lock=2"]
RUN_QUEUE = ("runqueue.", "queue.", "steal", "interrupt")
EXPECTED = {
    "sleep": ("sleep",),
    "late": ("sleep", "lock", *RUN_QUEUE),
    "burn": ("user", "kernel.", "fault", "copy", *RUN_QUEUE[:1], *RUN_QUEUE[2:]),
    "lockwait": ("lock",),
    "lock": ("sleep",),
}
# Shorter ones are the server's own doing.
LEAST_NS = 200_000
# A row of which more is wrong, and yet measured, fails.
MOST_SURE_AND_WRONG = 0.05


def capture(command, connections, requests, steps, directory):
    """The notes of a server that was asked, as (request, step, ms, begin, end), and how many requests were made."""
    port, notes = free_port(), directory / "notes"
    server = subprocess.Popen([*command, str(port), str(notes)], stdout=subprocess.DEVNULL)
    try:
        wait_for(port)
        each = max(1, requests // connections)
        paths = [
            [f"/w/{connection}_{number}/{steps}" for number in range(each)]
            for connection in range(connections)
        ]
        with attached([server.pid], directory):
            load(port, paths)
    finally:
        server.terminate()
        server.wait(SECONDS)
    lines = (line.split(",") for line in notes.read_text().splitlines())
    return [(line[0], line[1], *map(int, line[2:])) for line in lines], each * connections


def steps_of(notes):
    """(request, row, begin, end): a sleep is over after the time that was asked for."""
    for number, what, ms, begin_ns, end_ns in notes:
        if what in ("sleep", "lock"):
            over_ns = min(end_ns, begin_ns + ms * 1_000_000)
            yield number, what, begin_ns, over_ns
            yield number, "late", over_ns, end_ns
        else:
            yield number, what, begin_ns, end_ns


def judged(directory, notes):
    """By row: how many steps, their time, and what it is shown as: {(category, evidence): ns}; requests found."""
    files = {
        "requests": str(directory / "requests.parquet"),
        "segments": str(directory / "segments.parquet"),
    }
    found = duckdb.execute(
        """select split_part(method, '/', 3), s.start_ns, s.start_ns + s.duration_ns, category, evidence
           from read_parquet($segments) s join read_parquet($requests) r using (request_id)
           where r.complete and method like '%/w/%'""",
        files,
    ).fetchall()
    segments = defaultdict(list)
    for number, *segment in found:
        segments[number].append(segment)
    rows = defaultdict(lambda: [0, 0, Counter()])
    for number, what, begin_ns, end_ns in steps_of(notes):
        if number not in segments or end_ns - begin_ns < LEAST_NS:
            continue
        row = rows[what]
        row[0] += 1
        row[1] += end_ns - begin_ns
        for start_ns, stop_ns, category, evidence in segments[number]:
            overlap_ns = min(end_ns, stop_ns) - max(begin_ns, start_ns)
            if overlap_ns > 0:
                row[2][category, evidence] += overlap_ns
    return rows, len(segments)


def told(label, rows, found, made):
    good = found == made
    for what in EXPECTED:
        if what not in rows:
            continue
        count, all_ns, shown = rows[what]
        wrong = {key: ns for key, ns in shown.items() if not key[0].startswith(EXPECTED[what])}
        sure = sum(ns for key, ns in wrong.items() if key[1] == "measured")
        inferred = sum(wrong.values()) - sure
        right = sum(shown.values()) - sure - inferred
        most = max(wrong, key=wrong.get, default=("", ""))
        named = most[0] if wrong and wrong[most] >= all_ns / 100 else ""
        shares = "".join(f"{100 * part / all_ns:9.1f} %" for part in (right, sure, inferred))
        print(
            f"{label:34}{what:10}{count:6}{all_ns / count / 1e6:9.2f} ms{shares}  {named:18}{found}/{made}"
        )
        # The server's own way back to its note is in there, too.
        good &= what == "late" or sure <= MOST_SURE_AND_WRONG * all_ns
    sys.stdout.flush()
    return good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", default="1,8,50")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--steps", default=" ".join(STEPS))
    parser.add_argument("server", nargs="*", choices=[[], *SERVERS], default=[])
    options = parser.parse_args()
    build_go(HERE / "servers/go", HERE / ".cache/server")
    head = (
        "server, connections, steps",
        "time of",
        "steps",
        "mean",
        "right",
        "measured",
        "modelled",
    )
    print("{:34}{:10}{:>6}{:>12}{:>11}{:>11}{:>11}  {:18}{}".format(*head, "most of that", "found"))
    print(" " * 62 + f"{'':11}{'and wrong':>11}{'and wrong':>11}")
    good = True
    for name in options.server or SERVERS:
        if not shutil.which(SERVERS[name][0]):
            print(f"{name}: skipped, there is no {SERVERS[name][0]}")
            continue
        for steps in options.steps.split():
            for connections in map(int, options.connections.split(",")):
                with tempfile.TemporaryDirectory() as directory:
                    directory = Path(directory)
                    notes, made = capture(
                        SERVERS[name], connections, options.requests, steps, directory
                    )
                    rows, found = judged(directory / "capture", notes)
                    good &= told(f"{name}, {connections}, {steps}", rows, found, made)
    sys.exit(not good)


main()
