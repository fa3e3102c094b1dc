"""Tables about files from captures: time by system call, and individual waits for storage."""

from collections import Counter

import pyarrow.parquet
import study
from study.capture import Row
from study.outliers import comm

WAITS = ("journal", "block_io", "writeback", "lock")
COLUMNS = ("request_id", "duration_ns", "category", "side", "detail", "cause", "by")
# The number of longest waits kept per capture.
LONGEST = 50


def segments(capture: study.Capture) -> list[Row]:
    """The segments of calls to the file system, and of waits in them."""
    filters = [("category", "in", ["kernel.vfs", *WAITS])]
    table = pyarrow.parquet.read_table(
        capture.table("segments"), columns=list(COLUMNS), filters=filters
    )
    return table.to_pylist()


def call(detail: str | None) -> str:
    """The system call, and the evaluator's file (input or output) it is for, else `others`.

    Waits have it at the end of their detail: `commit of transaction 5 on 7:0, in openat
    /.../output`."""
    name, _, path = (detail or "").rpartition(", in ")[2].partition(" ")
    for file in ("input", "output"):
        if path.endswith(f"/{file}"):
            return f"{name} of the {file}"
    return f"{name} of others" if path else name


def calls(found: list[Row], wanted: set[int], labels: Row) -> list[Row]:
    """CPU time of the evaluator's calls in the file system."""
    sums: Counter[str] = Counter()
    for s in found:
        if s["category"] == "kernel.vfs" and s["request_id"] in wanted:
            sums[call(s["detail"])] += s["duration_ns"]
    return [
        {**labels, "call": name, "requests": len(wanted), "total_ns": ns}
        for name, ns in sums.most_common()
    ]


def on_two_cpus(capture: study.Capture, wanted: set[int]) -> int:
    """The number of evaluations with work on more than one CPU, where the process was started or
    moved."""
    names = ["request_id", "cpu"]
    filters = [("category", "in", ["user", "kernel.exec", "fault"])]
    table = pyarrow.parquet.read_table(capture.table("segments"), columns=names, filters=filters)
    rows = table.group_by("request_id").aggregate([("cpu", "count_distinct")]).to_pylist()
    return sum(row["request_id"] in wanted and row["cpu_count_distinct"] > 1 for row in rows)


def waits(found: list[Row], requests: list[Row], labels: Row) -> list[Row]:
    """The longest waits for storage or a lock."""
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
            "by": comm(s["by"]),
            "wait_ns": s["duration_ns"],
        }
        for s in found
        if s["category"] in WAITS and s["request_id"] in latency
    ]
    return sorted(rows, key=lambda row: -row["wait_ns"])[:LONGEST]
