"""Judges whether exactly the requests that waited for TCP retransmissions have segments that say
so, of the right length."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

from cases import SHARE_HIGH, SHARE_LOW, Case
from observed import Observed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ground_truth"))

from truth import Row, read_log  # noqa: E402

# Beginning of the detail of a segment between a lost packet and its retransmission.
LOST = "taken for lost"
# TCP retransmits a single outstanding packet 200 ms or more after it set the timer (TCP_RTO_MIN,
# include/net/tcp.h; tcp_schedule_loss_probe()). The timer may have been set for the packet before
# (151 ms were seen). Other requests take milliseconds.
LATE_NS = 100_000_000
# Fewer late requests are not enough for a verdict: of 302 packets, one in twenty is dropped.
LEAST = 3


def told_ns(observed: Observed, row: Row, complete: list[dict]) -> int:
    """The time for which the request's segments say that a packet was lost."""
    ids = [r["request_id"] for r in complete if row["start_ns"] <= r["start_ns"] < row["end_ns"]]
    return sum(
        s["duration_ns"]
        for i in ids
        for s in observed.segments[i]
        if s["category"] == "wire.stack" and (s["detail"] or "").startswith(LOST)
    )


def judge_losses(observed: Observed, case: Case, complete: list[dict]) -> tuple[list, list]:
    """Notes and problems.

    By the client's clock, a request with a retransmission took at least as long as TCP waits before
    a retransmission. The kernel counts retransmissions. It also retransmits the answer before a
    lost question, because the question would have acknowledged that answer.
    """
    rows = read_log(observed.folder / case.losses)
    dropped = sum(json.loads((observed.folder / "dropped.json").read_text()).values())
    for row in rows:
        row["took_ns"] = row["end_ns"] - row["start_ns"]
        row["told_ns"] = told_ns(observed, row, complete)
    late = [row for row in rows if row["took_ns"] >= LATE_NS]
    with_those_before = late + [a for a, b in pairwise(rows) if b in late and a not in late]
    again = sum(row["sent_again"] for row in rows)
    elsewhere = again - sum(row["sent_again"] for row in with_those_before)
    usual_ns = median(row["took_ns"] for row in rows)
    late_ns = sum(row["took_ns"] - usual_ns for row in late)
    told = [row for row in rows if row["told_ns"]]
    share = sum(row["told_ns"] for row in told) / late_ns if late_ns else float("nan")
    hit = sum(row in late for row in told)
    notes = [
        f"{dropped} packets dropped, {again} sent again: {len(late)} requests late, told of {hit}"
    ]
    notes.append(f"{share:.2f} of {late_ns / 1e6:,.0f} ms")
    problems = []
    if len(late) < LEAST or min(dropped, again) < len(late):
        problems.append("too few were dropped, or sent again, for that to show anything")
    if elsewhere:
        problems.append(f"{elsewhere} sent again for requests that were not late")
    if hit != len(late) or hit != len(told):
        problems.append(f"not told of {len(late) - hit} of these, but of {len(told) - hit} others")
    if not SHARE_LOW <= share <= SHARE_HIGH:
        problems.append(f"not within {SHARE_LOW} to {SHARE_HIGH} of what they took longer")
    return notes, notes + problems if problems else []
