"""Reads the files of a kernel's captures, and the requests in them."""

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
from cases import Case


# The purpose of hooks in the traced programs, which doctor does not know (userspace/src/probe/runtimes).
OF_TASKS = "tasks of runtimes (--tasks)"


@dataclass(frozen=True)
class Kernel:
    """The files that observe.py left about a kernel."""

    doctor: dict
    facts: dict


@dataclass(frozen=True)
class Observed:
    """The files that observe.py left about a way of hooking."""

    way: str
    folder: Path
    windows: dict[str, dict]
    requests: list[dict]
    # By request number, in order.
    segments: dict[int, list[dict]]
    hooks: dict[str, str | None]
    # Numbers of stacks taken at sleeps, and by the sampling clock.
    sleep_stacks: int
    samples: int


def read_segments(capture: Path) -> dict[int, list[dict]]:
    columns = ["request_id", "seq", "start_ns", "duration_ns"]
    columns += ["category", "detail", "evidence", "rule"]
    table = pyarrow.parquet.read_table(capture / "segments.parquet", columns=columns)
    of: dict[int, list[dict]] = defaultdict(list)
    for segment in table.to_pylist():
        of[segment["request_id"]].append(segment)
    for segments in of.values():
        segments.sort(key=lambda segment: segment["seq"])
    return of


def tiles(request: dict, segments: list[dict]) -> bool:
    """Returns whether the segments cover the request from begin to end without gaps or overlaps."""
    reached_ns = request["start_ns"]
    for segment in segments:
        if segment["start_ns"] != reached_ns or segment["duration_ns"] <= 0:
            return False
        reached_ns += segment["duration_ns"]
    return reached_ns == request["start_ns"] + request["latency_ns"]


def load_kernel(folder: Path) -> Kernel:
    read = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("doctor", "facts")}
    return Kernel(**read)


def load(rpcprobe: Path, way: str, folder: Path) -> Observed:
    capture = folder / "capture"
    argv = [str(rpcprobe), "requests", str(capture), "-n", "0", "--sort", "start", "--json"]
    said = subprocess.run(argv, check=True, capture_output=True).stdout
    manifest = json.loads((capture / "manifest.json").read_text())
    return Observed(
        way=way,
        folder=folder,
        windows={w["name"]: w for w in json.loads((folder / "windows.json").read_text())},
        requests=json.loads(said)["requests"],
        segments=read_segments(capture),
        hooks={h["name"]: h["attached_as"] for h in manifest["hooks"] if h["purpose"] != OF_TASKS},
        sleep_stacks=manifest["counts"]["sleep_stacks"],
        samples=manifest["counts"]["samples"],
    )


def requests_of(observed: Observed, case: Case) -> list[dict]:
    """The requests of the case's kind that began while the case ran."""
    window = observed.windows[case.name]
    begin_ns, end_ns = window["begin_ns"], window["end_ns"]
    of_kind = (r for r in observed.requests if r["kind"] == case.kind)
    return [r for r in of_kind if begin_ns <= r["start_ns"] < end_ns]


def complete_requests(observed: Observed, case: Case) -> list[dict]:
    return [r for r in requests_of(observed, case) if r["complete"]]
