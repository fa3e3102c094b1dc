"""The target's log, and what follows from its stamps.

Nothing here knows what rpcprobe says.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

# In a log: the target itself cannot tell.
UNKNOWN = 2**64 - 1
# Who comes back from a short call later than this may have lost its CPU on the way: when the bytes
# were there is then not known.
LONG_CALL_NS = 20_000

Row = dict[str, int]


def read_log(path: Path) -> list[Row]:
    """What is in a log."""
    with path.open(newline="") as file:
        return [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]


def load_log(path: Path) -> list[Row]:
    """And what follows from it."""
    rows = read_log(path)
    add_queued(rows)
    nothing_ns = median(row.get("nothing_ns", 0) for row in rows)
    for row in rows:
        if "read_awake_ns" in row:
            row["calls_ns"] = calls(row, int(nothing_ns))
            row["copy_ns"] = copied(row)
        if "helpers_runnable_ns" in row:
            row["runnable_ns"] = runnable(row)
        if "spun_ns" in row and not blocked(row):
            row["spun_ns"] = UNKNOWN
    return rows


def add_queued(rows: list[Row]):
    """For how long the message of each was there and nobody asked for it.

    A server that waited in poll() was woken by the first message, and not by those that came before
    it had a CPU: those queued. While it did anything else, all did; also the one that woke it, if
    it then took another's first.
    """
    by_poll: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_poll[row["thread"], row["poll_from_ns"]].append(row)
    for (_, poll_from_ns), together in by_poll.items():
        together.sort(key=lambda row: row["start_ns"])
        came = [row for row in together if poll_from_ns <= row["start_ns"] < row["poll_to_ns"]]
        for row in together:
            row["woke"] = UNKNOWN if row["start_ns"] < poll_from_ns <= row["written_ns"] else 0
            queued_ns = max(row["taken_ns"] - row["written_ns"], 0)
            if away(row) > LONG_CALL_NS or row["woke"] == UNKNOWN:
                queued_ns = UNKNOWN
            row["queued_ns"] = queued_ns
        if came:
            first = came[0]
            before = any(row["taken_ns"] < first["taken_ns"] for row in together)
            first["woke"] = 1
            first["queued_ns"] = first["taken_ns"] - first["poll_to_ns"] if before else 0
            for other in came[1:]:
                if other["start_ns"] < first["written_ns"]:
                    for row in (first, other):
                        row["woke"] = row["queued_ns"] = UNKNOWN
    for row in rows:
        add_late(row)


def away(row: Row) -> int:
    """How long, at most, the client may have been off its CPU after its bytes were there."""
    return row["written_ns"] - row["start_ns"] - row.get("write_awake_ns", 0)


def blocked(row: Row) -> bool:
    """Whether the full buffer is all that kept the client in its write.

    One without a CPU when there is room again lets the server wait for it; so does one whose CPU
    stands still, as a virtual one may: its clock then runs on.
    """
    return away(row) <= LONG_CALL_NS and 2 * row["write_asleep_ns"] >= row["write_awake_ns"]


def interrupted(row: Row) -> bool:
    """Whether one of the two long calls lost its CPU: for how long is then not known.

    A wake-up that wants a CPU sets its clock, and the switch, when the call is over, takes the time
    from there (rq_clock_skip_update() in wakeup_preempt(), kernel/sched/core.c).
    """
    return max(away(row), row["taking_runnable_ns"]) > LONG_CALL_NS


def calls(row: Row, nothing_ns: int) -> int:
    """All four calls of a request whose client asks late: nobody is woken by them.

    Less what surrounds each: what a call takes that does nothing.
    """
    short = (row["answered_ns"] - row["answering_ns"], row["end_ns"] - row["asked_ns"])
    if max(short) > LONG_CALL_NS or interrupted(row):
        return UNKNOWN
    around = row["write_awake_ns"] + row["read_awake_ns"] + sum(short)
    return max(around - 4 * nothing_ns, 0)


def copied(row: Row) -> int:
    """What the client's write and the server's read took more than those of a few bytes."""
    if interrupted(row):
        return UNKNOWN
    return max(row["write_awake_ns"] + row["read_awake_ns"] - row["few_ns"], 0)


def add_late(row: Row):
    """What the client did not ask for its answer, which was there."""
    if row["queued_ns"] == UNKNOWN or row["asked_ns"] <= row["answering_ns"]:
        return
    if row["answered_ns"] - row["answering_ns"] > LONG_CALL_NS:
        row["queued_ns"] = UNKNOWN
    else:
        row["queued_ns"] += max(row["asked_ns"] - row["answered_ns"], 0)


def runnable(row: Row) -> int:
    """Waiting for a CPU: the server in its service and its wake-up, the client for its answer."""
    if UNKNOWN in (row["helpers_runnable_ns"], row["woke"]):
        return UNKNOWN
    # Of a wait in which a thread was also woken in vain, no more than lies after the message.
    woken = min(row["poll_runnable_ns"], row["poll_to_ns"] - row["start_ns"]) if row["woke"] else 0
    answered = min(row["read_runnable_ns"], max(row["end_ns"] - row["answering_ns"], 0))
    served = row["served_runnable_ns"] - row["asking_runnable_ns"] + row["helpers_runnable_ns"]
    in_all = max(served, 0) + woken + answered
    # Nobody waits for longer than all of it took.
    return in_all if in_all <= row["end_ns"] - row["start_ns"] else UNKNOWN
