#!/usr/bin/env python3
"""What does it cost to follow tasks (--tasks)?

A server under load is in turn not captured, captured by `attach`, and captured with --tasks. The
table has the requests per second, with both ends sharing all CPUs, and the capture's own figures
per request: the breakpoints (with watchpoints), and the probe's cost. The servers use Go's
net/http, asyncio's streams, Node's http with a timer of a millisecond, and tokio. Each does as
little per request as it can, so other servers lose less.

Usage: run.py [--rounds N] [--connections 1,8,64] [--requests N] [SERVER ...]. Needs root, Go (the
load generator is in Go) and the languages of the servers; servers whose language is missing are
skipped. rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from attached import RPCPROBE, SECONDS, attached, build_go, free_port, wait_for  # noqa: E402

LOAD = HERE / ".cache/server"
TOKIO = HERE / ".cache/tokio"
# For each server, its command without the port, and the required program.
SERVERS = {
    "go": ([LOAD, "serve"], "go"),
    "asyncio": ([sys.executable, HERE / "aio.py"], sys.executable),
    "node": (["node", HERE / "timers.js"], "node"),
    "tokio": ([TOKIO / "release/server"], "cargo"),
}
WAYS = {"not captured": None, "captured": [], "with --tasks": ["--tasks"]}


def output(*words):
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True
    ).stdout


def captured(port, pid, how, load):
    """Requests per second; and from the capture, breakpoints and the probe's cost per request."""
    if how is None:
        return int(output(*load)), 0, 0
    with tempfile.TemporaryDirectory() as directory:
        with attached([pid], Path(directory), *how):
            rate = int(output(*load))
        capture = Path(directory) / "capture"
        told = json.loads((capture / "manifest.json").read_text())
        report = json.loads(output(RPCPROBE, "report", "--json", capture))
        cost_ns = report["capture"]["probe_cost_estimated_ns"]
    requests = told["counts"]["requests"]
    programs = told["programs"]
    return rate, (programs["breakpoints"] + programs["watchpoints"]) / requests, cost_ns / requests


def under_load(name, options):
    port = free_port()
    server = subprocess.Popen(
        [str(word) for word in (*SERVERS[name][0], port)], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        for connections in map(int, options.connections.split(",")):
            load = [LOAD, "load", port, connections, options.requests]
            output(*load)  # warm-up
            found = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way, of in found.items():
                    of.append(captured(port, server.pid, WAYS[way], load))
            plain = statistics.median(rate for rate, *_ in found["not captured"])
            for way, of in found.items():
                rate, each, cost = (statistics.median(column) for column in zip(*of))
                rest = f"{each:>13.1f}{cost / 1000:>9.1f} us" if way != "not captured" else ""
                print(
                    f"{name:9}{connections:>11}  {way:14}{rate:>11,.0f}{rate / plain:>10.0%}{rest}",
                    flush=True,
                )
    finally:
        server.terminate()
        server.wait(SECONDS)


def build():
    build_go(HERE / "go", LOAD)
    if shutil.which("cargo"):
        words = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", TOKIO]
        subprocess.run(words, cwd=HERE / "tokio", check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,8,64")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("server", nargs="*", choices=[[], *SERVERS], default=[])
    options = parser.parse_args()
    build()
    if not LOAD.exists():
        sys.exit("there is no go")
    head = f"{'server':9}{'connections':>11}  {'':14}{'requests/s':>11}{'of plain':>10}"
    print(head + f"{'breakpoints':>13}{'told cost':>12}")
    for name in options.server or SERVERS:
        if not shutil.which(SERVERS[name][1]):
            print(f"{name}: skipped, there is no {SERVERS[name][1]}")
            continue
        under_load(name, options)


if __name__ == "__main__":
    main()
