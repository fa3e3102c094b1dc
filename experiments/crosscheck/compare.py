"""Compares the observers' accounts of the same threads, calls, commits and block requests."""

from dataclasses import dataclass

from account import OFF_CPU, ON_CPU, RUN_QUEUE, STATES, Thread

LEAST_RELATIVE = 0.01
LEAST_NS = 1000
# Time between two observers' clock readings at the same event: on average, and once after idleness.
HOOKS_NS = 500
COLD_HOOKS_NS = 2000
# How many times slower than real hardware an emulated machine is (`--slower`). A clock reading, and
# everything that the figures here allow for, takes that many times as long.
slower = 1
# At the same event, two observers read their clocks within this time.
SAME_EVENT_NS = 1_000_000


@dataclass
class Item:
    """A quantity measured by both observers, the sum of `times` events (0: a count, not a time).

    Each event may differ by 1 us; a `whole` may differ by 1 us once. `explained_ns`: the largest
    difference that the row's note explains.
    """

    name: str
    ours: int
    theirs: int
    times: int = 1
    whole: bool = False
    explained_ns: int = 0

    @property
    def relative(self):
        return abs(self.ours - self.theirs) / max(self.theirs, 1)

    @property
    def each_ns(self):
        return abs(self.ours - self.theirs) / max(self.times, 1)

    @property
    def score(self):
        """At most 1 if the values agree within 1 % or 1 us."""
        relative = self.relative / LEAST_RELATIVE
        if not self.times:
            return relative
        least_ns = slower * LEAST_NS * (1 if self.whole else self.times)
        return min(relative, abs(self.ours - self.theirs) / least_ns)


@dataclass
class Row:
    quantity: str
    beside: str
    items: list
    # The README's note that explains its differences.
    note: str = ""
    # Intervals that only one of the two observers has.
    only_ours: int = 0
    only_theirs: int = 0
    # Threads for which one of the two observers missed switches.
    left_out: int = 0

    @property
    def ranked(self):
        return sorted(self.items, key=lambda item: item.score)

    @property
    def median(self):
        return self.ranked[len(self.items) // 2]

    @property
    def worst(self):
        return self.ranked[-1]

    @property
    def is_count(self):
        return not self.items[0].times


@dataclass
class Threads:
    """One thread in rpcprobe's ledger, its records, bcc and perf (None: perf did not see it)."""

    ledger: object
    records: object
    bcc: object
    perf: object | None
    windows: dict
    # Time stolen during the thread's life, from any thread.
    stolen_ns: int = 0

    @property
    def name(self):
        return f"{self.ledger.comm}/{self.ledger.tid}"


def matched(ledgers, ours, bcc, perf, windows):
    """Threads that lived their whole life in the run, and the number that only bcc has."""

    def near(among, thread):
        same = (one for one in among if one.tid == thread.tid)
        return next(
            (one for one in same if abs(one.born_ns - thread.born_ns) < slower * SAME_EVENT_NS),
            None,
        )

    found, missing = [], 0
    for thread in bcc.threads:
        if not thread.gone_ns:
            continue
        records = near([one for one in ours.threads if one.gone_ns], thread)
        ledger = records and next(
            (
                one
                for one in ledgers
                if one.tid == thread.tid
                and abs(one.start_ns - records.born_ns) < slower * SAME_EVENT_NS
            ),
            None,
        )
        if ledger:
            of_perf = near([one for one in perf.threads if one.gone_ns], thread)
            if perf.threads and not of_perf:
                of_perf = Thread(thread.tid, thread.born_ns, missed=1)
            found.append(Threads(ledger, records, thread, of_perf, windows[thread.tid]))
            found[-1].stolen_ns = sum(
                ns
                for at_ns, ns in ours.steals
                if thread.born_ns <= at_ns <= thread.gone_ns + slower * SAME_EVENT_NS
            )
        else:
            missing += 1
    return found, missing


def overlap_ns(some, others):
    """The total overlap of two lists, each ordered by time and without overlaps of its own."""
    total_ns, at = 0, 0
    for start_ns, end_ns in some:
        while at < len(others) and others[at][1] <= start_ns:
            at += 1
        next_one = at
        while next_one < len(others) and others[next_one][0] < end_ns:
            other_start_ns, other_end_ns = others[next_one]
            total_ns += min(end_ns, other_end_ns) - max(start_ns, other_start_ns)
            next_one += 1
    return total_ns


def length_ns(intervals):
    return sum(end_ns - start_ns for start_ns, end_ns in intervals)


def times(one, state):
    return max(1, len(one.bcc.intervals[state]))


def hooks_ns(stints):
    return slower * (HOOKS_NS * stints + 2 * COLD_HOOKS_NS)


def row_beside(quantity, beside, threads, item_of, note=""):
    """A row of at most one item per thread, for threads of which neither observer missed a switch.

    Beside the kernel no thread is left out: the kernel's own account misses no switch, and the
    ledger corrects for the switches that the probe missed.
    """
    whole, left_out = [], 0
    for one in threads:
        other = one.perf if beside == "perf" else one.bcc
        missed = beside != "kernel" and other and (one.records.missed or other.missed)
        if other and not missed:
            whole.append(one)
        else:
            left_out += other is not None
    items = [item_of(one, one.perf if beside == "perf" else one.bcc) for one in whole]
    return Row(quantity, beside, [item for item in items if item], note, left_out=left_out)


def ledger_rows(threads):
    """Rows of threads.parquet; bcc reads the kernel's account."""

    def all_of_it(one, other):
        theirs_ns, stints = other.total_ns(ON_CPU), times(one, ON_CPU)
        explained_ns = hooks_ns(stints) + one.stolen_ns
        return Item(one.name, one.ledger.cpu_ns, theirs_ns, stints, True, explained_ns)

    def by_kernel(one, other):
        ran_ns, stints = other.runtime_ns, times(one, ON_CPU)
        explained_ns = other.total_ns(RUN_QUEUE) + slower * LEAST_NS * stints + one.stolen_ns
        return Item(one.name, one.ledger.cpu_ns, ran_ns, stints, True, explained_ns)

    def of_requests(one, other):
        ours = one.ledger.own_ns + one.ledger.shared_ns
        return ours and in_windows(one, other, ON_CPU, ours)

    yield row_beside("ledger: CPU time", "bcc", threads, all_of_it, "H, S")
    yield row_beside("ledger: CPU time", "perf", threads, all_of_it, "H, S")
    yield row_beside("ledger: CPU time", "kernel", threads, by_kernel, "K, S")
    yield row_beside("ledger: requests' CPU", "bcc", threads, of_requests, "H")


def in_windows(one, other, state, ours_ns):
    """Compares `ours_ns` with the other observer's time in that state in the segments' windows."""
    windows = one.windows[state]
    if not windows:
        return None
    theirs_ns = overlap_ns(windows, other.intervals[state])
    # A window has two edges.
    explained_ns = slower * 2 * COLD_HOOKS_NS * len(windows)
    return Item(one.name, ours_ns, theirs_ns, len(windows), explained_ns=explained_ns)


def state_rows(threads):
    """States over threads' whole lives, from the records."""
    for state in STATES:

        def item(one, other, state=state):
            ours, theirs = one.records.total_ns(state), other.total_ns(state)
            stints = times(one, state)
            return Item(one.name, ours, theirs, stints, state != RUN_QUEUE, hooks_ns(stints))

        for beside in ("bcc", "perf"):
            yield row_beside(f"records: {state}", beside, threads, item, "H")


def segment_rows(threads):
    """The states that segments give a thread, against bcc's states at the same time."""
    for state in (RUN_QUEUE, OFF_CPU):

        def item(one, other, state=state):
            return in_windows(one, other, state, length_ns(one.windows[state]))

        yield row_beside(f"segments: {state}", "bcc", threads, item, "H")


def call_rows(threads):
    counts, times = [], []
    for one in threads:
        for number in sorted(set(one.records.calls) | set(one.bcc.calls)):
            ours, theirs = one.records.calls[number], one.bcc.calls[number]
            name = f"{one.name} call {number}"
            counts.append(Item(name, len(ours), len(theirs), 0))
            times.append(Item(name, length_ns(ours), length_ns(theirs), len(theirs)))
    yield Row("calls: count", "bcc", counts)
    yield Row("calls: time", "bcc", times)


def wake_rows(threads):
    for beside in ("bcc", "perf"):
        items = []
        for one in threads:
            if other := getattr(one, beside):
                ours, theirs = one.records.woken, other.woken
                items += [
                    Item(f"{one.name} by {waker}", ours[waker], theirs[waker], 0)
                    for waker in sorted(set(ours) | set(theirs))
                ]
        yield Row("wake-ups", beside, items, "N")


def apart_ns(one, other):
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def interval_row(quantity, ours, theirs, window):
    """The machine's commits or block requests that lie inside the window."""

    def inside(intervals):
        return [one for one in intervals if window[0] <= one[0] and one[1] <= window[1]]

    items, only_ours, only_theirs = [], 0, 0
    for key in sorted(set(ours) | set(theirs)):
        rest = inside(theirs.get(key, []))
        for start_ns, end_ns in inside(ours.get(key, [])):
            same = min(rest, key=lambda one: apart_ns(one, (start_ns, end_ns)), default=None)
            if not same or apart_ns(same, (start_ns, end_ns)) > slower * SAME_EVENT_NS:
                only_ours += 1
                continue
            rest.remove(same)
            major_minor = f"{key[0] >> 20}:{key[0] & 0xFFFFF}"
            items.append(Item(f"{major_minor} {key[1]}", end_ns - start_ns, same[1] - same[0]))
        only_theirs += len(rest)
    return Row(quantity, "bcc", items, "N", only_ours, only_theirs)


def rows(threads, ours, bcc):
    yield from ledger_rows(threads)
    yield from state_rows(threads)
    yield from segment_rows(threads)
    yield from call_rows(threads)
    yield from wake_rows(threads)
    yield interval_row("jbd2: commits", ours.commits, bcc.commits, bcc.window)
    yield interval_row("block: service", ours.blocks, bcc.blocks, bcc.window)
