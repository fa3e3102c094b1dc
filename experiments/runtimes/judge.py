"""Compares a capture with the times that servers and clients noted."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import duckdb
from laws import twice

WORK = ("user", "kernel.", "fault", "copy")
RUN_QUEUE = ("runqueue.", "steal", "interrupt")
# The expected categories of each cause, by prefix.
EXPECTED = {
    "sleep": ("sleep",),
    # From the sleep's due end until the server continues: a late timer, the wait for its turn, or
    # for the interpreter's lock.
    "late": ("sleep", "queue.", *RUN_QUEUE, *WORK),
    "burn": (*WORK, *RUN_QUEUE),
    # The collector's helpers may do the work while the thread waits for them.
    "collect": (*WORK, *RUN_QUEUE, "lock"),
    # And, once the lock is free, the wait for a CPU.
    "lockwait": ("lock", *RUN_QUEUE),
    "lock": ("sleep",),
    "handwait": ("queue.", *RUN_QUEUE),
    "hand": (*WORK, *RUN_QUEUE),
    "call": ("idle.peer",),
    # The call waits for a connection, which another request has; or makes one.
    "connwait": ("lock", "queue.", *RUN_QUEUE, *WORK),
    "connect": ("idle.peer", "queue.", "wire.", *RUN_QUEUE, *WORK),
    # The rest of the call: the question is made, sent and queued, and so is the answer. Has no row.
    "around": ("idle.peer", "queue.", *RUN_QUEUE, *WORK),
    # From the client's sending until the server's first step: other requests' turns, and the work
    # of reading.
    "queue": ("queue.", "wire.", *RUN_QUEUE, *WORK),
}
# Categories that these servers have only in noted steps: time in them without a note is invented.
CAUSES = ("sleep", "lock", "idle.peer", "journal", "block_io", "writeback", "unattributed")
# Shorter causes are ignored, as the server's own.
LEAST_NS = 200_000
MEDIAN_WITHIN = (0.05, 20_000)
P99_WITHIN = (0.15, 200_000)


@dataclass
class Row:
    """One cause: per request its true and its attributed time, and the categories shown in its
    time."""

    true_ns: list[int] = field(default_factory=list)
    told_ns: list[int] = field(default_factory=list)
    shown: Counter = field(default_factory=Counter)

    def quantile_off(self, share):
        """The error of a quantile, and its true value."""
        true_ns, told_ns = (nearest_rank(values, share) for values in (self.true_ns, self.told_ns))
        return told_ns - true_ns, true_ns

    def is_good(self):
        return is_within(self.quantile_off(0.5), MEDIAN_WITHIN) and is_within(
            self.quantile_off(0.99), P99_WITHIN
        )

    def shares(self, expected):
        """The shares that are right, measured and wrong, modelled and wrong; and the longest wrong
        part."""
        all_ns = max(1, sum(self.shown.values()))
        wrong = {key: ns for key, ns in self.shown.items() if not key[0].startswith(expected)}
        sure = sum(ns for key, ns in wrong.items() if key[1] == "measured")
        inferred = sum(wrong.values()) - sure
        most = max(wrong, key=wrong.get, default=None)
        named = f"{most[0]}, {most[2]}" if most and wrong[most] >= all_ns / 100 else ""
        right = all_ns - sure - inferred
        return right / all_ns, sure / all_ns, inferred / all_ns, named


def nearest_rank(values, share):
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def is_within(off_of, bounds):
    off_ns, of_ns = off_of
    return abs(off_ns) <= max(bounds[0] * of_ns, bounds[1])


@dataclass
class Verdict:
    rows: dict
    expected: dict
    # The capture's requests that the clients made.
    found: list
    # Invented time by evidence, and the requests' total time.
    invented: dict
    # By (category, evidence): the right time of `CAUSES`, and their total time.
    precision: dict
    # Share of the requests' work that two of them have.
    twice: float


def expected_of(server, ends):
    """The expected categories; `idle.peer` for all if the server itself is not captured."""
    if ends == "client" or server.only_asks:
        return {cause: ("idle.peer",) for cause in EXPECTED if cause != "queue"}
    # A worker's queue is not a lock of the interpreter.
    besides = {"handwait": ()}
    return {
        cause: categories + besides.get(cause, server.besides)
        for cause, categories in EXPECTED.items()
    }


def windows(notes, asked, timers_in_ms):
    """By request: (cause, begin, end). A sleep ends after the requested time, counted from the last
    whole millisecond if the server's timers count whole milliseconds."""
    of = defaultdict(list)
    for number, what, amount, begin_ns, end_ns in notes:
        if what in ("sleep", "lock"):
            from_ns = begin_ns - begin_ns % 1_000_000 if timers_in_ms else begin_ns
            over_ns = min(end_ns, from_ns + amount * 1_000_000)
            of[number] += [(what, begin_ns, over_ns), ("late", over_ns, end_ns)]
        else:
            of[number].append((what, begin_ns, end_ns))
    for number, spans in of.items():
        of[number] = spans = around(spans)
        sent_ns = asked.get(number, (0, 0, 0))[1]
        if sent_ns:
            of[number] = [("queue", sent_ns, min(span[1] for span in spans)), *spans]
    return of


def around(spans):
    """Adds `around`: the parts of calls (`called`) that no other note tells of."""
    inner = ("call", "connwait", "connect")
    calls = sorted(span[1:] for span in spans if span[0] in inner)
    told = [span for span in spans if span[0] != "called"]
    for _, begin_ns, end_ns in (span for span in spans if span[0] == "called"):
        for from_ns, to_ns in calls:
            if begin_ns <= from_ns and to_ns <= end_ns:
                told.append(("around", begin_ns, from_ns))
                begin_ns = to_ns
        told.append(("around", begin_ns, end_ns))
    return told


OUTERMOST = """
with told as (
    select request_id, start_ns, latency_ns, client_tid, server_pid,
           split_part(regexp_extract(coalesce(method, ''), '/w/.*'), '/', 3) as number
    from read_parquet($requests) where complete
)
select * from told
qualify number = '' or row_number() over (partition by number order by start_ns, latency_ns desc) = 1
"""
SEGMENTS = """
select request_id, start_ns, start_ns + duration_ns, category, evidence, rule
from read_parquet($segments)
"""


def matched(files, server, ends, of, asked, processes):
    """The capture's request of each number, matched by path; for SQL, by the thread or process and
    the time."""
    found = duckdb.execute(OUTERMOST, {"requests": files["requests"]}).fetchall()
    if not server.is_sql:
        return {row[5]: row for row in found if row[5] in of}
    by_end = defaultdict(list)
    for row in found:
        by_end[row[3] if ends == "client" else row[4]].append(row)
    told = {}
    for number, spans in of.items():
        tid, _, _ = asked[number]
        begin_ns, end_ns = spans[0][2], spans[-1][2]
        for row in by_end[tid if ends == "client" else processes[number]]:
            # SQL's clock has a resolution of microseconds.
            if row[1] <= begin_ns + 2_000 and end_ns - 2_000 <= row[1] + row[2]:
                told[number] = row
    return told


def judged(directory, server, ends, notes, asked, processes):
    files = {name: str(directory / f"{name}.parquet") for name in ("requests", "segments")}
    of, expected = windows(notes, asked, server.timers_in_ms), expected_of(server, ends)
    requests = matched(files, server, ends, of, asked, processes)
    numbers = {row[0]: number for number, row in requests.items()}
    segments = defaultdict(list)
    for request_id, *segment in duckdb.execute(
        SEGMENTS, {"segments": files["segments"]}
    ).fetchall():
        if request_id in numbers:
            segments[numbers[request_id]].append(segment)
    rows, invented, precision = defaultdict(Row), Counter(), defaultdict(lambda: [0, 0])
    for number, pieces in segments.items():
        spans = [span for span in of[number] if span[0] in expected]
        add(rows, expected, spans, pieces, ends == "client" or server.only_asks)
        span_ns = sum(end_ns - begin_ns for begin_ns, end_ns, *_ in pieces)
        invented["all"] += span_ns
        for begin_ns, end_ns, category, evidence, _ in pieces:
            if not category.startswith(CAUSES) or category.startswith(server.besides or "-"):
                continue
            # A client waits for its peer, whatever the peer does.
            peers = category == "idle.peer" and (ends == "client" or server.only_asks)
            right_ns = end_ns - begin_ns if peers else 0
            for cause, from_ns, to_ns in () if peers else spans:
                if category.startswith(expected[cause]):
                    right_ns += max(0, min(end_ns, to_ns) - max(begin_ns, from_ns))
            invented[evidence] += end_ns - begin_ns - right_ns
            precision[category, evidence][0] += right_ns
            precision[category, evidence][1] += end_ns - begin_ns
    return Verdict(rows, expected, list(numbers), invented, precision, twice(directory, numbers))


def add(rows, expected, spans, pieces, all_is_peers):
    """Adds one request to the rows of its causes."""
    true_ns, told_ns = Counter(), Counter()
    for cause, from_ns, to_ns in spans:
        if to_ns - from_ns < LEAST_NS:
            continue
        true_ns[cause] += to_ns - from_ns
        for begin_ns, end_ns, category, evidence, rule in pieces:
            overlap_ns = min(end_ns, to_ns) - max(begin_ns, from_ns)
            if overlap_ns > 0:
                rows[cause].shown[category, evidence, rule] += overlap_ns
                told_ns[cause] += overlap_ns if category.startswith(expected[cause]) else 0
    # Time in a cause's category outside of the times of all causes with that category is an excess.
    for begin_ns, end_ns, category, *_ in () if all_is_peers else pieces:
        rest_ns = end_ns - begin_ns
        for cause, from_ns, to_ns in spans:
            if category.startswith(expected[cause]):
                rest_ns -= max(0, min(end_ns, to_ns) - max(begin_ns, from_ns))
        own = [c for c in true_ns if category.startswith(CAUSES) and category in expected[c]]
        if own and rest_ns > 0:
            told_ns[own[0]] += rest_ns
    for cause, ns in true_ns.items():
        rows[cause].true_ns.append(ns)
        rows[cause].told_ns.append(told_ns[cause])
