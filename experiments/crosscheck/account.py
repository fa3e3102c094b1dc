"""What one observer says of a run: of each thread, transaction and block request."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

ON_CPU, RUN_QUEUE, OFF_CPU = "on-CPU", "run queue", "off-CPU"
STATES = (ON_CPU, RUN_QUEUE, OFF_CPU)


@dataclass
class Thread:
    """One thread's life. `intervals` of a state are (begin, end), in order of time, and do not overlap."""

    tid: int
    born_ns: int
    gone_ns: int = 0
    comm: str = ""
    state: str = OFF_CPU
    since_ns: int = 0
    intervals: dict = field(default_factory=lambda: {state: [] for state in STATES})
    calls: dict = field(default_factory=lambda: defaultdict(list))
    # By whom how often.
    woken: Counter = field(default_factory=Counter)
    # Switches that the observer has not seen, by those that it has.
    missed: int = 0
    # What the scheduler says it ran.
    runtime_ns: int = 0

    def become(self, state, now_ns):
        if state != self.state:
            self.intervals[self.state].append((self.since_ns, now_ns))
            self.state, self.since_ns = state, now_ns

    def leave_cpu(self, state, now_ns):
        self.missed += self.state != ON_CPU
        self.become(state, now_ns)

    def come_on_cpu(self, now_ns):
        self.missed += self.state == ON_CPU
        self.become(ON_CPU, now_ns)

    def total_ns(self, state):
        return sum(end_ns - start_ns for start_ns, end_ns in self.intervals[state])


@dataclass
class Account:
    """`threads` that lived all their life in the run are those with a `gone_ns`."""

    observer: str
    threads: list = field(default_factory=list)
    # By (device, transaction) and (device, sector): (begin, end) of each.
    commits: dict = field(default_factory=lambda: defaultdict(list))
    blocks: dict = field(default_factory=lambda: defaultdict(list))
    # What the hypervisor took: (when it was noticed, how long).
    steals: list = field(default_factory=list)
    # Of the tree's root: when it began and ended.
    window: tuple = (0, 0)
    lost: int = 0

    def born(self, tid, now_ns):
        thread = Thread(tid, now_ns, since_ns=now_ns)
        self.threads.append(thread)
        return thread
