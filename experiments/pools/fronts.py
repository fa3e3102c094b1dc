#!/usr/bin/env python3
"""Waits for a connection of a pool: front ends with few connections to a back end of 8 ms.

`node` is Node's http.Agent (maxSockets), `go` Go's http.Transport (MaxConnsPerHost). The others keep their connections
in a queue: `threads` of CPython, a pool of `java`'s threads, `asyncio`; or behind a semaphore: `tokio`. The tasks of
`-tasks` are followed.

The front end notes how long each request waited for a connection. Beside it: `queue.app` of that request, in which the
time in which the front end served others is, too. `off`: how far apart both are, at the median and the 90th percentile;
`more than 1 ms`: the requests in which they are that far apart.

Ends with status 1 if a request is missing, or if more than a fifth of the requests (asyncio: 70 %) are more than 1 ms
off."""

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from attached import attached, build_go, build_rust, free_port, load, running, wait_for  # noqa: E402

HERE = Path(__file__).resolve().parent
GO = HERE / ".cache/front"
TOKIO = HERE / ".cache/tokio/release/front"
PYTHON = "python3"
JAVA = ["java", "-Dsun.net.httpserver.nodelay=true"]


@dataclass(frozen=True)
class Front:
    command: list
    # Options of `rpcprobe attach`.
    options: tuple = ()
    # Limit of the requests that are more than 1 ms off.
    most_off: float = 0.2


FRONTS = {
    "node": Front(["node", HERE / "front.js"]),
    "threads": Front([PYTHON, HERE / "front.py"]),
    "java": Front([*JAVA, HERE / "Front.java"]),
    "asyncio-tasks": Front([PYTHON, HERE / "front_asyncio.py"], ("--tasks",)),
    "go-tasks": Front([GO], ("--tasks",)),
    "tokio-tasks": Front([TOKIO], ("--tasks",)),
    # With both ends traced, the wait for the back end is often shown as one for another request's turn.
    "asyncio": Front([PYTHON, HERE / "front_asyncio.py"], most_off=0.7),
    "go": Front([GO]),
    "tokio": Front([TOKIO]),
}
# Requests of each client before the capture: virtual machines compile what runs often.
WARM = 10
FAR_NS = 1_000_000


def told(capture, pid):
    """queue.app of each request of the front end, in ns, by path."""
    columns = ["request_id", "method", "server_pid", "queue.app"]
    requests = pq.read_table(capture / "requests.parquet", columns=columns).to_pylist()
    ours = (request for request in requests if request["server_pid"] == pid and request["method"])
    return {request["method"].split()[-1]: request["queue.app"] for request in ours}


def row(options, name, clients, ends, directory):
    front_end = FRONTS[name]
    port, behind, notes = free_port(), free_port(), directory / "notes"
    paths = [[f"/{at}-{turn}" for turn in range(options.requests)] for at in range(clients)]
    with running(["node", HERE / "back.js", str(behind)]) as back:
        wait_for(behind)
        with running([*front_end.command, *map(str, (port, behind, options.pool, notes))]) as front:
            wait_for(port)
            load(port, [[f"/warm-{turn}" for turn in range(WARM)]] * clients)
            with attached(
                [front, back] if ends == "both" else [front], directory, *front_end.options
            ):
                load(port, paths)
    noted = dict(line.split() for line in notes.read_text().splitlines())
    truth = {path: int(noted[path]) for of_client in paths for path in of_client}
    found = told(directory / "capture", front)
    both = [path for path in truth if path in found]
    if not both:
        print(f"{name:9} {ends:7} {clients:7}      0: no request of the front end was found")
        return False
    off = sorted(abs(found[path] - truth[path]) for path in both)
    far = sum(ns > FAR_NS for ns in off)
    asked = clients * options.requests
    right = len(both) == asked and far <= front_end.most_off * asked
    sums = [sum(of[path] for path in both) / 1e6 for of in (truth, found)]
    apart = [off[len(off) // 2] / 1e6, off[len(off) * 9 // 10] / 1e6]
    shown = " ".join(f"{ms:10.1f}" for ms in sums) + "".join(f"{ms:8.2f}" for ms in apart)
    mark = "" if right else " !"
    print(
        f"{name:9} {ends:7} {clients:7} {len(both):6} {asked:6} {shown} {far:7}{mark}", flush=True
    )
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=4, help="connections to the back end (4)")
    parser.add_argument("--clients", default="4,16,64", help="numbers of clients (4,16,64)")
    parser.add_argument("--requests", type=int, default=40, help="of each client (40)")
    parser.add_argument("fronts", nargs="*", metavar="FRONT", help=f"{', '.join(FRONTS)} (all)")
    options = parser.parse_args()
    unknown = set(options.fronts) - set(FRONTS)
    if unknown:
        parser.error(f"no front end {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        sys.exit("needs root")
    if not shutil.which("node"):
        print("skipped: node, which the back end needs, is not installed")
        return
    build_go(HERE / "go", GO)
    build_rust(HERE / "tokio", HERE / ".cache/tokio")
    print("front     traced  clients  found  asked        own  queue.app     off (ms)    more than")
    print("                                              (ms)       (ms)  median     p90    1 ms")
    wrong = 0
    for name in options.fronts or FRONTS:
        program = FRONTS[name].command[0]
        if not shutil.which(program):
            print(f"{name}: skipped: {program} is not there")
            continue
        for ends in ("both", "server"):
            for clients in map(int, options.clients.split(",")):
                with tempfile.TemporaryDirectory() as directory:
                    wrong += not row(options, name, clients, ends, Path(directory))
    if wrong:
        sys.exit(f"{wrong} rows are not as they should be")


if __name__ == "__main__":
    main()
