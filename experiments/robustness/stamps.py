"""Reads the log of ./rounds, and judges a capture of it.

All bounds except those of the work are exact: a window begins in the call that sent the first byte,
which lies between two stamps of the client, and ends in the call that received the last byte.
"""

import bisect
import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools import run

# Bounds of the work, as the ground truth has for 99 of 100 requests: a hypervisor takes time
# unseen, and a client that lost its CPU did not wait for the work.
WORK_SHARE, WORK_NS, WORK_OFF_SHARE = 0.10, 50_000, 0.01

Row = dict[str, int]


@dataclass
class Found:
    """rpcprobe's findings."""

    requests: list[dict]
    # Begin and end of each loss, in order.
    losses: list[tuple[int, int]]
    counts: dict
    kind: str


@dataclass
class Verdict:
    made: int = 0
    found: int = 0
    marked: int = 0
    absent: int = 0
    unmarked: int = 0
    lost: int = 0
    lost_share: float = 0
    # The stamps' latency less rpcprobe's, of unmarked requests.
    errors_ns: list[int] = field(default_factory=list)
    unattributed_ns: int = 0
    latency_ns: int = 0
    # Number of unmarked requests with work, and of those in which the work is not found.
    worked: int = 0
    work_off: int = 0
    reasons: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def error_ns(self, q: float) -> float:
        ordered = sorted(self.errors_ns)
        return ordered[min(int(len(ordered) * q), len(ordered) - 1)] if ordered else 0

    @property
    def unattributed_share(self) -> float:
        return self.unattributed_ns / max(self.latency_ns, 1)

    def blame(self, why: str, what: str):
        self.reasons[why] += 1
        self.wrong.append(f"{why}: {what}")

    def good(self) -> bool:
        return not self.wrong and self.work_off <= max(1, WORK_OFF_SHARE * self.worked)


def load_log(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]


def load_capture(rpcprobe: Path, capture: Path, kind: str) -> Found:
    listing = [rpcprobe, "requests", capture, "--sort", "start", "-n", 0, "--kind", kind, "--json"]
    manifest = json.loads((capture / "manifest.json").read_text())
    losses = sorted((loss["first_ns"], loss["last_ns"]) for loss in manifest["losses"])
    return Found(json.loads(run(listing))["requests"], losses, manifest["counts"], kind)


class Windows:
    """A set of time windows, merged where they overlap."""

    def __init__(self, windows: Iterable[tuple[int, int]] = ()):
        self.merged: list[list[int]] = []
        for first_ns, last_ns in sorted(windows):
            if self.merged and first_ns <= self.merged[-1][1]:
                self.merged[-1][1] = max(self.merged[-1][1], last_ns)
            else:
                self.merged.append([first_ns, last_ns])

    def touch(self, start_ns: int, end_ns: int) -> bool:
        at = bisect.bisect_right(self.merged, end_ns, key=lambda window: window[0])
        return at > 0 and self.merged[at - 1][1] >= start_ns


def wrong_of(row: Row, request: dict) -> str | None:
    """The first property of an unmarked request that contradicts its client's or server's log, or
    None."""
    start_ns, latency_ns = request["start_ns"], request["latency_ns"]
    end_ns = start_ns + latency_ns
    categories = request["category_ns"]
    if sum(categories.values()) != latency_ns:
        return "law 1"
    if not row["start_ns"] <= start_ns <= row["written_ns"]:
        return "begin"
    if not max(row["asked_ns"], row["answering_ns"]) <= end_ns <= row["end_ns"]:
        return "end"
    if not request["client"] or request["client"]["pid"] != row["client_pid"]:
        return "client"
    if not request["server"] or request["server"]["pid"] != row["server_pid"]:
        return "server"
    if request["method"] and request["method"].startswith("GET /"):
        if int(request["method"].removeprefix("GET /")) != row["seq"]:
            return "method"
    return None


def work_is_off(row: Row, categories: dict[str, int]) -> bool:
    def within(*names: str) -> int:
        return sum(categories.get(name, 0) for name in names)

    bound_ns = max(WORK_SHARE * max(row["spun_ns"], row["slept_ns"]), WORK_NS)
    # A thread's CPU clock includes interrupts and stolen time. Unattributed time may be either.
    spun_ns = within("user", "interrupt", "steal", "unattributed")
    # A thread that begins its sleep late may find that its time is already over.
    slept_ns = within("sleep", "kernel.sched", "steal", "unattributed")
    too_little = spun_ns < row["spun_ns"] - bound_ns or slept_ns < row["slept_ns"] - bound_ns
    return too_little or within("user") > row["spun_ns"] + row["gaps_ns"] + bound_ns


def judge(log: list[Row], found: Found) -> Verdict:
    verdict = Verdict(made=len(log), found=len(found.requests))
    verdict.lost = found.counts["records_lost"]
    verdict.lost_share = verdict.lost / max(verdict.lost + found.counts["records"], 1)
    verdict.marked = sum(not request["complete"] for request in found.requests)
    losses = Windows(found.losses)
    by_client: dict[int, list[Row]] = defaultdict(list)
    for row in log:
        by_client[row["client_pid"]].append(row)
    seen: set[tuple[int, int]] = set()
    for request in found.requests:
        start_ns = request["start_ns"]
        rows = by_client[request["client"]["pid"]] if request["client"] else []
        at = bisect.bisect_right(rows, start_ns, key=lambda row: row["start_ns"]) - 1
        row = rows[at] if at >= 0 and start_ns <= rows[at]["end_ns"] else None
        if row:
            seen.add((row["client_pid"], row["seq"]))
        if not request["complete"]:
            continue
        verdict.unmarked += 1
        verdict.latency_ns += request["latency_ns"]
        verdict.unattributed_ns += request["category_ns"].get("unattributed", 0)
        what = f"request {request['request_id']}"
        if not row:
            verdict.blame("nobody made it", what)
            continue
        verdict.errors_ns.append(row["end_ns"] - row["start_ns"] - request["latency_ns"])
        if row["spun_ns"] or row["slept_ns"]:
            verdict.worked += 1
            verdict.work_off += work_is_off(row, request["category_ns"])
        if why := wrong_of(row, request):
            verdict.blame(why, f"{what}, number {row['seq']} of {row['client_pid']}")
    run_together = windows_of_marked(found.requests)
    for row in log:
        pid, window = row["client_pid"], (row["start_ns"], row["end_ns"])
        if (pid, row["seq"]) in seen:
            continue
        verdict.absent += 1
        marked = any(run_together[end].touch(*window) for end in (pid, row["server_pid"]))
        if not marked and not losses.touch(*window):
            verdict.blame("not found, and no loss is told", f"number {row['seq']} of {pid}")
    return verdict


def windows_of_marked(requests: list[dict]) -> dict[int, Windows]:
    """The windows of marked requests, by client. If the records between two requests are lost, the
    two are one marked request. If the real client is unknown, this may be the server."""
    windows = defaultdict(list)
    for request in requests:
        if not request["complete"] and request["client"]:
            end_ns = request["start_ns"] + request["latency_ns"]
            windows[request["client"]["pid"]].append((request["start_ns"], end_ns))
    return defaultdict(Windows, {pid: Windows(of) for pid, of in windows.items()})
