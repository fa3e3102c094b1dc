"""What all labs share: a script under rpcprobe, and the tables of its capture."""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow.parquet

HERE = Path(__file__).resolve().parent
TARGETS = HERE.parents[1] / "targets"
NETLAB = TARGETS / "netlab" / "netlab"


class Capture:
    """`requests` are dicts by column, nulls as None; `folder` has what the script left."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.requests = pyarrow.parquet.read_table(self.table("requests")).to_pylist()
        for request in self.requests:
            request["end_ns"] = request["start_ns"] + request["latency_ns"]

    def table(self, name: str) -> Path:
        return self.folder / "capture" / f"{name}.parquet"

    def segments(self, of: list[dict]) -> dict[int, list[dict]]:
        """By request."""
        wanted = [request["request_id"] for request in of]
        filters = [("request_id", "in", wanted)]
        by_request = defaultdict(list)
        for row in pyarrow.parquet.read_table(self.table("segments"), filters=filters).to_pylist():
            by_request[row["request_id"]].append(row)
        return by_request

    def log(self, name: str) -> list[dict]:
        """Of a program: numbers where they are."""
        with (self.folder / name).open(newline="") as file:
            return [
                {key: int(v) if v.lstrip("-").isdigit() else v for key, v in row.items()}
                for row in csv.DictReader(file)
            ]


def capture(rpcprobe: str, folder: Path, script: str, *options: str) -> Capture:
    """Runs a script of /bin/sh, whose $0 is the folder it runs in, under rpcprobe."""
    folder.mkdir(parents=True)
    command = [rpcprobe, "run", "--quiet", "-o", folder / "capture", *options, "--"]
    done = subprocess.run(
        [*command, "/bin/sh", "-ec", script, folder],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: status {done.returncode}: {done.stdout}")
    return Capture(folder)


def total(requests: list[dict], prefix: str) -> int:
    """Of the categories that begin so."""
    columns = [name for name in requests[0] if name.startswith(prefix)]
    return sum(request[name] or 0 for request in requests for name in columns)


def us(ns: float) -> str:
    return f"{ns / 1e3:,.1f} us"


def p50(values) -> float:
    values = list(values)
    return median(values) if values else 0


def check(what: str, holds: bool) -> bool:
    print(f"  {'pass' if holds else 'FAIL'}: {what}")
    return holds


def main(about: str, lab: Callable[[str, Path], bool]):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rpcprobe", default="rpcprobe", help="the program to test")
    rpcprobe = parser.parse_args().rpcprobe
    if os.geteuid() != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: needs root")
    if "/" in rpcprobe:
        rpcprobe = str(Path(rpcprobe).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(0 if lab(rpcprobe, Path(scratch)) else 1)
