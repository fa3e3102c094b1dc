#!/usr/bin/env python3
"""Has flexcache's clients do random operations on each other's objects, and checks causality.

Two nodes with two clients each, in several runs with different seeds. Then the same runs without
invalidation, in which check_causality.py must find violations. The history that it checks has only
reads and writes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from load import free_port, read, server

FLEXCACHE = Path(__file__).resolve().parent / "flexcache"
EACH = 4000  # of which about 70 % are reads and writes
LEAST = 10_000


def workload(folder: Path, seed: int, invalidates: bool) -> tuple[list[Path], int, list[str]]:
    """Runs a workload; returns the histories, the number of operations, and the errors."""
    errors: list[str] = []
    ports = free_port(), free_port()
    nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
    cachers, clients = [], []
    for node, port in enumerate(ports):
        (folder / str(node)).mkdir()
        own = ["--dir", folder / str(node)]
        cachers.append([FLEXCACHE / "consistency_cacher", *own, "--port", port])
        ask = [FLEXCACHE / "flexclient", *own, "--method", "workload", "--seed", seed]
        ask += ["--node", node, "--nodes", nodes, "--clients", 2, "--processes", 4, "--hold"]
        ask += ["--requests", EACH, "--history", folder / f"history{node}"]
        ask += ["--log", folder / f"log{node}"]
        clients.append(ask if invalidates else [*ask, "--no-invalidation"])
    with server(cachers[0], errors), server(cachers[1], errors):
        # A client stays after it is done, so that others can work with its objects.
        running = [
            subprocess.Popen(
                list(map(str, c)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for c in clients
        ]
        for client in running:
            if "is done" not in client.stdout.readline() + client.stdout.readline():
                errors.append("a client was not done")
        for client in running:
            client.terminate()
        for client in running:
            _, said = client.communicate(timeout=30)
            if client.returncode != 0 or said:
                errors.append(f"flexclient: status {client.returncode} {said[:200]}")
    rows = [row for node in (0, 1) for row in read(folder / f"log{node}")]
    if any(row["status"] != "ok" for row in rows):
        errors.append("some operations failed")
    return [folder / f"history{node}" for node in (0, 1)], len(rows), errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="(default: 3)")
    seeds = parser.parse_args().seeds
    print(f"{'':22} {'seed':>5} {'operations':>11} {'checked':>9} {'of others':>10} {'wrong':>7}")
    good = True
    for invalidates in (True, False):
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory(prefix="causality") as folder:
                histories, operations, errors = workload(Path(folder), seed, invalidates)
                check = [sys.executable, "-B", FLEXCACHE / "check_causality.py", *histories]
                done = subprocess.run(check, capture_output=True, text=True)
                # Reads of values that another client wrote: without them, no read could be wrong.
                others = sum(
                    row["operation"] == "read" and row["process"] != row["writer"]
                    for path in histories
                    for row in read(path)
                )
            said = re.search(r"(\d+) operations, (\d+) violations", done.stdout)
            checked, wrong = (int(said[1]), int(said[2])) if said else (0, 0)
            holds = not errors and checked >= LEAST and others > 0
            holds &= done.returncode == (0 if invalidates else 1)
            holds &= (wrong == 0) == invalidates
            good &= holds
            print(
                f"{'with invalidation' if invalidates else 'without invalidation':22} {seed:>5} "
                f"{operations:>11,} {checked:>9,} {others:>10,} {wrong:>7,}  "
                f"{'pass' if holds else 'FAIL'}",
                flush=True,
            )
            for error in [*errors, done.stderr.strip()]:
                if error:
                    print(f"  {error}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
