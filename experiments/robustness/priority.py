#!/usr/bin/env python3
"""Are the rings emptied in time while the captured programs, in a session of their own, keep all
CPUs busy? Takes two captures at once, with and without permission for rpcprobe to raise its
priority (CAP_SYS_NICE), and prints what is lost and the latency that the clients see. Needs root.

Prints one line per setting: the numbers of records and of lost records, and the requests per second
and their p99 without and with a capture, by the clients' own clocks.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import give_up

ECHO = Path(__file__).parent / "../../targets/echo/echo"
WITHOUT = ["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]


def main():
    args = arguments()
    if os.geteuid() != 0:
        give_up("needs root")
    if not ECHO.exists():
        give_up(f"{ECHO} is missing: make -C targets/echo")
    print(f"{'':<22} {'records':>11} {'lost':>9} {'requests/s':>18} {'p99, us':>16}")
    print(f"{'':<22} {'':>11} {'':>9} {'alone':>9}{'captured':>9} {'alone':>7}{'captured':>9}")
    for name, prefix in [("priority raised", []), ("not allowed to", WITHOUT)]:
        for _ in range(args.rounds):
            print(f"{name:<22} {measured(args, prefix)}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=2, help="length of each capture")
    parser.add_argument("--rounds", type=int, default=4)
    return parser.parse_args()


def measured(args, prefix: list) -> str:
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        log = folder / "log"
        clients = max(os.cpu_count(), 2)
        words = ["-t", "unix", "-c", str(clients), "-n", "100000000", "--log", str(log)]
        load = subprocess.Popen([ECHO, *words], stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            time.sleep(2)
            alone_ns = time.monotonic_ns()
            manifests = captured(args, prefix, load.pid, folder)
        finally:
            os.killpg(load.pid, signal.SIGKILL)
            load.wait()
        records = sum(manifest["counts"]["records"] for manifest in manifests)
        lost = sum(manifest["counts"]["records_lost"] for manifest in manifests)
        begin, end = (
            manifests[0]["start_ns"],
            manifests[0]["start_ns"] + manifests[0]["duration_ns"],
        )
        latencies = by_window(log, [(alone_ns - 10**9, alone_ns), (begin, end)])
        (alone, alone_us), (rate, us) = latencies
        share = f"{lost / (records + lost):.2%}"
        return f"{records:>11,} {share:>9} {alone:>9,.0f}{rate:>9,.0f} {alone_us:>7.0f}{us:>9.0f}"


def captured(args, prefix: list, pid: int, folder: Path) -> list[dict]:
    """Takes two captures at once of the program and all its descendants; returns their
    manifests."""
    pids = [pid]
    for parent in pids:
        pids += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    selection = [word for pid in pids for word in ("--pid", str(pid))]
    attach = [*prefix, args.rpcprobe, "attach", "-q", "--duration", f"{args.seconds}s"]
    captures = [folder / name for name in ("a", "b")]
    running = [
        subprocess.Popen([*attach, "-o", path, *selection], stderr=subprocess.PIPE, text=True)
        for path in captures
    ]
    for process in running:
        said = process.communicate()[1]
        if process.returncode != 0:
            give_up(said)
    return [json.loads((path / "manifest.json").read_text()) for path in captures]


def by_window(log: Path, windows: list) -> list[tuple[float, float]]:
    """For the requests that ended in each window: their rate per second, and their p99 in us."""
    found = [[] for _ in windows]
    with log.open() as lines:
        for row in csv.DictReader(lines):
            if row["end_ns"] is None:
                continue  # cut off when the clients were killed
            begin, end = int(row["begin_ns"]), int(row["end_ns"])
            for latencies, (first, last) in zip(found, windows, strict=True):
                if first <= end < last:
                    latencies.append(end - begin)
    result = []
    for latencies, (first, last) in zip(found, windows, strict=True):
        if len(latencies) < 100:
            give_up(f"{len(latencies)} requests in a window of {(last - first) / 1e9:.1f} s")
        latencies.sort()
        p99_us = latencies[len(latencies) * 99 // 100] / 1e3
        result.append((len(latencies) / ((last - first) / 1e9), p99_us))
    return result


if __name__ == "__main__":
    sys.exit(main())
