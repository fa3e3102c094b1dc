"""The target's log, and the values derived from its stamps.

This module does not use rpcprobe's results.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

# In a log: the target itself does not know the value.
UNKNOWN = 2**64 - 1
# A thread that returns later than this from a short call may have lost its CPU during the call. The
# time at which the bytes arrived is then unknown.
LONG_CALL_NS = 20_000

Row = dict[str, int]


def read_log(path: Path) -> list[Row]:
    """Reads a log."""
    with path.open(newline="") as file:
        return [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]


def load_log(path: Path) -> list[Row]:
    """Reads a log and adds the derived values."""
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
    """Adds the time for which each request's message waited to be read.

    The first message wakes a server that waits in poll(). Messages that arrive before the server
    has a CPU queue. Messages that arrive while the server does anything else all queue. The message
    that woke the server queues, too, if the server then takes another message first.
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
    """The longest time that the client may have been off its CPU after its bytes had arrived."""
    return row["written_ns"] - row["start_ns"] - row.get("write_awake_ns", 0)


def blocked(row: Row) -> bool:
    """Returns whether only the full buffer kept the client in its write.

    If the client has no CPU when there is room again, the server waits for it. The same holds if
    the client's CPU stands still, as a virtual CPU may: its clock then runs on.
    """
    return away(row) <= LONG_CALL_NS and 2 * row["write_asleep_ns"] >= row["write_awake_ns"]


def interrupted(row: Row) -> bool:
    """Returns whether a thread lost its CPU in one of the two long calls, for an unknown time.

    A wake-up that preempts sets the run queue's clock. The switch at the end of the call uses that
    time (rq_clock_skip_update() in wakeup_preempt(), kernel/sched/core.c).
    """
    return max(away(row), row["taking_runnable_ns"]) > LONG_CALL_NS


def calls(row: Row, nothing_ns: int) -> int:
    """The time of all four calls of a request whose client reads late: no call wakes a thread.

    The time of an empty call is subtracted from each.
    """
    short = (row["answered_ns"] - row["answering_ns"], row["end_ns"] - row["asked_ns"])
    if max(short) > LONG_CALL_NS or interrupted(row):
        return UNKNOWN
    around = row["write_awake_ns"] + row["read_awake_ns"] + sum(short)
    return max(around - 4 * nothing_ns, 0)


def copied(row: Row) -> int:
    """The extra time of the client's write and server's read over that of calls of a few bytes."""
    if interrupted(row):
        return UNKNOWN
    return max(row["write_awake_ns"] + row["read_awake_ns"] - row["few_ns"], 0)


def add_late(row: Row):
    """Adds the time for which the answer was there before the client asked for it."""
    if row["queued_ns"] == UNKNOWN or row["asked_ns"] <= row["answering_ns"]:
        return
    if row["answered_ns"] - row["answering_ns"] > LONG_CALL_NS:
        row["queued_ns"] = UNKNOWN
    else:
        row["queued_ns"] += max(row["asked_ns"] - row["answered_ns"], 0)


def runnable(row: Row) -> int:
    """Time waiting for a CPU: the server's in service and wake-up, the client's for its answer."""
    if UNKNOWN in (row["helpers_runnable_ns"], row["woke"]):
        return UNKNOWN
    # In a wait with additional spurious wake-ups, count at most the time after the message.
    woken = min(row["poll_runnable_ns"], row["poll_to_ns"] - row["start_ns"]) if row["woke"] else 0
    answered = min(row["read_runnable_ns"], max(row["end_ns"] - row["answering_ns"], 0))
    served = row["served_runnable_ns"] - row["asking_runnable_ns"] + row["helpers_runnable_ns"]
    in_all = max(served, 0) + woken + answered
    # The waits cannot exceed the whole request.
    return in_all if in_all <= row["end_ns"] - row["start_ns"] else UNKNOWN
