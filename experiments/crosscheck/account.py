"""One observer's account of a run: of each thread, transaction and block request."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

ON_CPU, RUN_QUEUE, OFF_CPU = "on-CPU", "run queue", "off-CPU"
STATES = (ON_CPU, RUN_QUEUE, OFF_CPU)


@dataclass
class Thread:
    """One thread's life. `intervals` of a state are (begin, end), ordered, without overlaps."""

    tid: int
    born_ns: int
    gone_ns: int = 0
    comm: str = ""
    state: str = OFF_CPU
    since_ns: int = 0
    intervals: dict = field(default_factory=lambda: {state: [] for state in STATES})
    calls: dict = field(default_factory=lambda: defaultdict(list))
    # Number of wake-ups by each waker.
    woken: Counter = field(default_factory=Counter)
    # Switches that the observer missed, inferred from the switches that it saw.
    missed: int = 0
    # Run time according to the scheduler.
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
    """`threads` with a `gone_ns` lived their whole life within the run."""

    observer: str
    threads: list = field(default_factory=list)
    # By (device, transaction) and (device, sector): (begin, end) of each.
    commits: dict = field(default_factory=lambda: defaultdict(list))
    blocks: dict = field(default_factory=lambda: defaultdict(list))
    # Time stolen by the hypervisor: (when it was noticed, how long).
    steals: list = field(default_factory=list)
    # Begin and end of the tree's root process.
    window: tuple = (0, 0)
    lost: int = 0

    def born(self, tid, now_ns):
        thread = Thread(tid, now_ns, since_ns=now_ns)
        self.threads.append(thread)
        return thread
