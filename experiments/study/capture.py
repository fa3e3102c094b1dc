"""Takes captures of scripts, and reads their tables."""

import csv
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ROOT / "targets"
NETLAB = TARGETS / "netlab" / "netlab"
RPCPROBE = os.environ.get("RPCPROBE") or str(ROOT / "userspace/target/release/rpcprobe")

Row = dict[str, Any]


class Capture:
    """`requests` are dicts by column, with None for null; `folder` has the script's files.

    The capture itself is in `folder`/capture, or in `path`."""

    def __init__(self, folder: Path, path: Path | None = None):
        self.folder = folder
        self.path = path or folder / "capture"
        self.requests: list[Row] = pyarrow.parquet.read_table(self.table("requests")).to_pylist()
        for request in self.requests:
            request["end_ns"] = request["start_ns"] + request["latency_ns"]

    def table(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def segments(
        self, of: Iterable[Row], columns: Sequence[str] | None = None
    ) -> dict[int, list[Row]]:
        """Segments by request, in order of time. Given names of columns, reads only these, which is
        faster."""
        wanted = [request["request_id"] for request in of]
        filters = [("request_id", "in", wanted)]
        by_request = defaultdict(list)
        names = None if columns is None else ["request_id", *columns]
        found = pyarrow.parquet.read_table(self.table("segments"), columns=names, filters=filters)
        for row in found.to_pylist():
            by_request[row["request_id"]].append(row)
        return by_request

    def log(self, name: str) -> list[Row]:
        """A program's log (targets/README.md), with numbers converted."""
        return read_log(self.folder / name)


def read_log(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [
            {key: int(v) if v.lstrip("-").isdigit() else v for key, v in row.items()}
            for row in csv.DictReader(file)
        ]


def shell(folder: Path, script: str, *before: str | Path) -> str:
    """Runs a /bin/sh script, whose $0 is the folder it runs in, with these words in front; returns
    its output.

    If the script fails, ends the experiment with the script's output."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*before, "/bin/sh", "-ec", script, folder],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: status {done.returncode}: {done.stdout}")
    return done.stdout


def capture(folder: Path, script: str, *options: str, rpcprobe: str = RPCPROBE) -> Capture:
    """The same under rpcprobe, with options of `run`; the capture is in `folder`/capture."""
    shell(folder, script, rpcprobe, "run", "--quiet", "-o", folder / "capture", *options, "--")
    return Capture(folder)
