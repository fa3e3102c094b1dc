"""What captures tell of files: time by system call, and waits for storage one by one."""

from collections import Counter

import pyarrow.parquet
import study
from study.capture import Row

WAITS = ("journal", "block_io", "writeback", "lock")
COLUMNS = ("request_id", "duration_ns", "category", "side", "detail", "cause", "by")
# The longest waits of a capture that are kept.
LONGEST = 50


def segments(capture: study.Capture) -> list[Row]:
    """Of calls to the file system, and of waits in them."""
    filters = [("category", "in", ["kernel.vfs", *WAITS])]
    table = pyarrow.parquet.read_table(
        capture.table("segments"), columns=list(COLUMNS), filters=filters
    )
    return table.to_pylist()


def call(detail: str | None) -> str:
    """The system call, and which of the evaluator's two files it is for; else `others`.

    Waits say it at their end: `commit of transaction 5 on 7:0, in openat /.../output`."""
    name, _, path = (detail or "").rpartition(", in ")[2].partition(" ")
    for file in ("input", "output"):
        if path.endswith(f"/{file}"):
            return f"{name} of the {file}"
    return f"{name} of others" if path else name


def calls(found: list[Row], wanted: set[int], labels: Row) -> list[Row]:
    """CPU time of calls of the evaluator, in the file system."""
    sums: Counter[str] = Counter()
    for s in found:
        if s["category"] == "kernel.vfs" and s["request_id"] in wanted:
            sums[call(s["detail"])] += s["duration_ns"]
    return [
        {**labels, "call": name, "requests": len(wanted), "total_ns": ns}
        for name, ns in sums.most_common()
    ]


def waits(found: list[Row], requests: list[Row], labels: Row) -> list[Row]:
    """Each wait for storage or a lock: the longest ones."""
    latency = {request["request_id"]: request["latency_ns"] for request in requests}
    rows = [
        {
            **labels,
            "request_id": s["request_id"],
            "latency_ns": latency[s["request_id"]],
            "category": s["category"],
            "call": call(s["detail"]),
            "detail": s["detail"],
            "cause": s["cause"],
            "by": (s["by"] or "").rpartition("/")[0],
            "wait_ns": s["duration_ns"],
        }
        for s in found
        if s["category"] in WAITS and s["request_id"] in latency
    ]
    return sorted(rows, key=lambda row: -row["wait_ns"])[:LONGEST]
