"""The injected causes, the categories in which they must be found, and the allowed errors."""

from dataclasses import dataclass, replace

# Allowed errors: a share of the injected amount or nanoseconds, whichever is larger.
MEDIAN_SHARE, MEDIAN_NS = 0.02, 5_000
P99_SHARE, P99_NS = 0.10, 50_000
# For cases in which the target measures how much time was taken from it meanwhile.
GAPS_KNOWN_P99 = (0.05, 25_000)
# For all causes at once; see README.md, "mixed".
MIXED_MEDIAN_SHARE, MIXED_MEDIAN_NS = 0.10, 25_000
MIXED_P99_SHARE, MIXED_P99_NS = 0.40, 200_000
UNATTRIBUTED_SHARE = 0.005
MIN_REQUESTS = 200
# The least number of requests that must meet a cause that occurs by chance.
MIN_MET = 30
# The least correlation between a random cause and its category, over all requests.
MIN_CORRELATION = 0.99

ALL = ("pipe", "unix", "tcp")

# Categories of waits. No cause may appear in a wait to which it does not belong.
WAITS = (
    "lock",
    "journal",
    "block_io",
    "writeback",
    "sleep",
    "queue.accept",
    "queue.socket",
    "queue.pipe",
    "queue.app",
    "idle.peer",
    "unattributed",
)
KERNEL_WAITS = ("journal", "block_io", "writeback", "lock")
# A client that lost its CPU reads its answer late, which is common on a busy machine.
NOISE = ("queue.pipe", "queue.socket")


@dataclass(frozen=True)
class Check:
    """A column of the log, and the categories whose sum it must equal.

    "kernel.*" and "queue.*" stand for the transport's categories.
    """

    truth: str
    categories: tuple[str, ...]
    transports: tuple[str, ...] = ALL
    # A column of the log: the part of the truth that interrupts and the hypervisor may have taken.
    # This part need not be found in these categories.
    gaps: str | None = None

    def on(self, transport: str) -> "Check":
        queue = "queue.pipe" if transport == "pipe" else "queue.socket"
        names = {"kernel.*": f"kernel.{transport}", "queue.*": queue}
        return replace(self, categories=tuple(names.get(c, c) for c in self.categories))


@dataclass(frozen=True)
class Case:
    name: str
    checks: tuple[Check, ...]
    transports: tuple[str, ...] = ("pipe",)
    # Waits that are allowed besides those checked, because other causes occur, too.
    beside: tuple[str, ...] = ()
    # Where it creates files: "ext4", a small separate image; "slow", such an image with a limit on
    # dirty pages; "memory", a tmpfs; or "disk", the given directory.
    where: str = "disk"
    # The cause occurs by chance: only requests that met it, or to which it was attributed, are
    # compared.
    by_chance: bool = False
    # All causes at once: over all requests, each must correlate with its category.
    correlate: bool = False
    # The bounds of the error at p50 and p99: a share or ns, whichever is larger.
    median: tuple[float, int] = (MEDIAN_SHARE, MEDIAN_NS)
    p99: tuple[float, int] = (P99_SHARE, P99_NS)
    # `times`: the factor on the command line's number of requests. `requests`: a fixed number.
    times: int = 1
    requests: int | None = None
    # Categories that must not occur at all.
    nothing: tuple[str, ...] = ()
    # A column of the log that is not 0 in most requests if the case did its work.
    proof: str | None = None
    # Whether to examine openat(), side by side with the other file systems.
    spike: bool = False

    def checks_on(self, transport: str) -> list[Check]:
        return [check.on(transport) for check in self.checks if transport in check.transports]


def title(case: Case, transport: str) -> str:
    where = {"ext4": "@ext4", "slow": "@ext4", "memory": "@tmpfs", "disk": ""}[case.where]
    return case.name + where + ("" if transport == "pipe" else f"/{transport}")


def of_cpu(name: str) -> Case:
    return Case(name, (Check("cpu_ns", ("user",)),), ALL)


CASES = [
    Case("user_spin", (Check("cpu_ns", ("user",), gaps="gaps_ns"),), ALL, p99=GAPS_KNOWN_P99),
    Case("kernel_spin", (Check("kernel_ns", ("kernel.vfs",)),), ALL),
    Case("faults", (Check("faults_ns", ("fault",), gaps="gaps_ns"),), ALL, p99=GAPS_KNOWN_P99),
    Case("interrupts", (Check("interrupts_ns", ("interrupt",)),), times=3),
    Case("sleep", (Check("sleep_ns", ("sleep",)),), ALL),
    Case("mutex", (Check("lock_ns", ("lock",)),), ALL),
    of_cpu("hops_eventfd"),
    of_cpu("hops_condvar"),
    of_cpu("hops_semaphore"),
    of_cpu("hops_process"),
    Case(
        "copy",
        (
            Check("calls_ns", ("kernel.*", "copy", "interrupt"), ("pipe", "unix")),
            # Loopback's receiving side runs in the sender's call.
            Check("calls_ns", ("kernel.*", "copy", "wire.stack", "interrupt"), ("tcp",)),
            # The client reads its clocks before it tells the server to begin, and reads its answer
            # late.
            Check("queued_ns", ("queue.*",)),
            Check("copy_ns", ("copy", "interrupt"), ("pipe", "unix")),
        ),
        ALL,
        times=2,
    ),
    Case("fsync", (Check("asleep_ns", KERNEL_WAITS),), where="ext4"),
    Case(
        "throttled",
        (Check("asleep_ns", ("writeback",)),),
        beside=("journal", "block_io", "lock"),
        where="slow",
        by_chance=True,
    ),
    Case(
        "openat_spike",
        (Check("asleep_ns", ("journal",)),),
        beside=("block_io", "lock"),
        where="ext4",
        by_chance=True,
        times=3,
        spike=True,
    ),
    Case(
        "openat_spike",
        (),
        where="memory",
        times=3,
        nothing=("journal", "block_io", "writeback"),
        spike=True,
    ),
    Case("read_dropped", (Check("asleep_ns", ("block_io",)),), where="ext4"),
    Case("read_direct", (Check("asleep_ns", ("block_io",)),)),
    Case("buffer_full", (Check("spun_ns", ("user",)),), ALL, times=4, proof="write_asleep_ns"),
    Case("sink_full", (Check("asleep_ns", ("queue.*",)),), ALL, by_chance=True),
    Case("burst", (Check("queued_ns", ("queue.*",)),), ALL),
    Case(
        "preempted",
        (Check("preempted_ns", ("runqueue.preempted",)), Check("cpu_ns", ("user",))),
        ALL,
    ),
    Case(
        "mixed",
        (
            Check("user_ns", ("user",)),
            Check("kernel_ns", ("kernel.mm",)),
            Check("faults_ns", ("fault",)),
            Check("sleep_ns", ("sleep",)),
            Check("lock_ns", ("lock",)),
            Check("block_ns", ("block_io",)),
            Check("queued_ns", ("queue.*",)),
            Check("runnable_ns", ("runqueue.wakeup", "runqueue.preempted")),
        ),
        ALL,
        by_chance=True,
        correlate=True,
        median=(MIXED_MEDIAN_SHARE, MIXED_MEDIAN_NS),
        p99=(MIXED_P99_SHARE, MIXED_P99_NS),
        requests=1250,
    ),
]
