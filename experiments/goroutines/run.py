#!/usr/bin/env python3
"""What does it cost to follow goroutines (--goroutines)?

A server of net/http is under load, by turns not captured, captured by `attach`, and captured with --goroutines: requests a
second, both ends sharing all CPUs, with breakpoints and the probe's cost per request as the capture tells them. The least that a
request of net/http does is what this server does: others lose less.

Usage: run.py [--rounds N] [--connections 1,8,64] [--requests N]. Needs root and Go. rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from attached import RPCPROBE, SECONDS, attached, build_go, free_port, wait_for  # noqa: E402

PROGRAM = HERE / ".cache/server"


def output(*words):
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True
    ).stdout


def captured(port, pid, how, load):
    """Requests a second, and of the capture breakpoints and what the probe cost, per request."""
    if how is None:
        return int(output(*load)), 0, 0
    with tempfile.TemporaryDirectory() as directory:
        with attached([pid], Path(directory), *how):
            rate = int(output(*load))
        capture = Path(directory) / "capture"
        told = json.loads((capture / "manifest.json").read_text())
        cost_ns = json.loads(output(RPCPROBE, "report", "--json", capture))[
            "probe_cost_estimated_ns"
        ]
    requests = told["counts"]["requests"]
    return rate, told["programs"]["breakpoints"] / requests, cost_ns / requests


def servers(options):
    port = free_port()
    server = subprocess.Popen([PROGRAM, "serve", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_for(port)
        print(
            f"{'connections':>11}  {'':18}{'requests/s':>11}{'of plain':>10}{'breakpoints':>13}{'told cost':>12}"
        )
        for connections in map(int, options.connections.split(",")):
            load = [PROGRAM, "load", port, connections, options.requests]
            output(*load)  # it is warm
            found = {"not captured": [], "captured": [], "with --goroutines": []}
            for _ in range(options.rounds):
                for (name, of), how in zip(found.items(), (None, [], ["--goroutines"])):
                    of.append(captured(port, server.pid, how, load))
            plain = statistics.median(rate for rate, *_ in found["not captured"])
            for name, of in found.items():
                rate, each, cost = (statistics.median(column) for column in zip(*of))
                rest = f"{each:>13.1f}{cost / 1000:>9.1f} us" if name != "not captured" else ""
                print(
                    f"{connections:>11}  {name:18}{rate:>11,.0f}{rate / plain:>10.0%}{rest}",
                    flush=True,
                )
    finally:
        server.terminate()
        server.wait(SECONDS)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,8,64")
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    build_go(HERE / "server", PROGRAM)
    if not PROGRAM.exists():
        sys.exit("there is no go")
    servers(options)


if __name__ == "__main__":
    main()
