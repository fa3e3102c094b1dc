"""The expected findings of each workload."""

from dataclasses import dataclass

KERNEL_WAITS = ("journal", "block_io", "writeback", "lock")
# Allowed share found, of the sum over all requests. An injected cause takes some time to begin and
# to end, which in a guest in software emulation is 8 to 15 times as long.
SHARE_LOW, SHARE_HIGH = 0.9, 1.25


@dataclass(frozen=True)
class Cause:
    """A cause that the workload injects: its amount must be in these categories.

    Either the workload logs the amount (`column` of its file `log`, in ns), or the amount is the
    same for every request (`each_ns`).
    """

    categories: tuple[str, ...]
    log: str | None = None
    column: str | None = None
    each_ns: int | None = None


# Ways of capturing: with the default hooks only; with additional direct hooks on kernel functions,
# or with stacks; and attached to running programs, without and with following of runtimes' tasks.
WAYS = {
    "none": (),
    "fentry": ("--direct-hooks", "--direct-by=fentry"),
    "kprobe": ("--direct-hooks", "--direct-by=kprobe"),
    "stacks": ("--stacks",),
    "attach": ("--share",),
    "tasks": ("--share", "--tasks"),
}
# Ways that attach to running servers.
ATTACHING = ("attach", "tasks")
# The names of direct hooks' ways in `doctor` and in a capture.
ATTACHED_AS = {"fentry": "fentry+fexit", "kprobe": "kprobe+kretprobe"}


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    method: str | None = None
    cause: Cause | None = None
    # A category and the beginning of a segment's detail. At least half of the requests must have
    # such a segment.
    told: tuple[str, str] | None = None
    # With direct hooks: a category, and the function that the detail of one of its segments must
    # name in at least half of the requests.
    function: tuple[str, str] | None = None
    # Direct hooks measure all copying. `long`: copying is most of a request.
    copies_seen: bool = False
    long: bool = False
    # Packets are lost: the log of the requests for which TCP sent segments again.
    losses: str | None = None
    # The workload consists of the cases of ../ground_truth in reduced form, which are judged
    # separately.
    ground_truth: bool = False
    # A running server whose clients are not traced; such servers have a separate capture.
    attach: bool = False
    # The server's tasks are followed.
    tasks: bool = False
    # Also run with stacks.
    stacks: bool = False
    # The ways in which the short form runs it, too.
    quick: tuple[str, ...] = ()

    @property
    def over_sockets(self) -> bool:
        return self.kind not in ("pipe", "shm")


CASES = (
    Case(
        "frpc, pipes", "pipe", function=("kernel.pipe", "pipe_write"), stacks=True, quick=("none",)
    ),
    Case("frpc, futex", "shm", quick=("none",)),
    Case("frpc, Unix socket", "unix"),
    Case("echo, TCP", "tcp", function=("kernel.tcp", "tcp_sendmsg"), quick=("none",)),
    Case("echo, TCP, epoll", "tcp"),
    Case("echo, TCP, a connection each", "tcp"),
    Case("echo, IPv6", "tcp"),
    Case("echo, TCP, 1 MB", "tcp"),
    Case("echo, Unix", "unix", copies_seen=True, quick=("none",)),
    Case("echo, Unix, 1 MB", "unix", copies_seen=True, long=True, quick=("none", "fentry")),
    Case("echo, socket pair", "unix"),
    Case("echo, UDP", "udp", quick=("none",)),
    Case("echo, UDP, IPv6", "udp"),
    Case("echo, Unix datagrams", "unix"),
    Case("echo, Unix, SEQPACKET", "unix"),
    Case("HTTP/1", "http1", method="GET /asked", quick=("none",)),
    Case("HTTP/1, sendfile", "http1", method="GET /asked"),
    Case("gRPC", "http2", method="/greeter.Greeter/SayHello"),
    Case("ONC RPC, UDP", "oncrpc"),
    Case("ONC RPC, TCP", "oncrpc"),
    Case("Redis", "resp"),
    Case("computing", "unix", cause=Cause(("user",), "user_spin.csv", "cpu_ns"), stacks=True),
    Case("a sleep, 20 ms", "tcp", cause=Cause(("sleep",), each_ns=20_000_000), quick=("none",)),
    Case("a mutex", "pipe", cause=Cause(("lock",), "mutex.csv", "lock_ns")),
    Case(
        "fsync, ext4",
        "pipe",
        cause=Cause(KERNEL_WAITS, "fsync.csv", "asleep_ns"),
        # Only jbd2's tracepoints tell which commit.
        told=("journal", "commit of transaction "),
        function=("journal", "jbd2_log_wait_commit"),
        stacks=True,
        quick=("none", "fentry"),
    ),
    Case(
        "more descriptors",
        "tcp",
        cause=Cause(("lock",), "growing.csv", "asleep_ns"),
        told=("lock", "an RCU grace period, as to enlarge the table of descriptors"),
        quick=("none",),
    ),
    Case("netem, 5 ms", "tcp", cause=Cause(("wire.qdisc", "wire.link"), each_ns=10_000_000)),
    Case("netem, loss", "tcp", losses="loss.csv"),
    Case("ground truth", "", ground_truth=True),
    Case("attach, TCP", "tcp", attach=True),
    Case("attach, HTTP/1", "http1", method="GET /asked", attach=True, quick=("attach",)),
    Case(
        "attach, goroutines",
        "http1",
        method="GET /asked",
        cause=Cause(("sleep",), each_ns=20_000_000),
        told=("sleep", "asleep in sleep"),
        attach=True,
        tasks=True,
    ),
    Case(
        "attach, asyncio",
        "http1",
        method="GET /asked",
        cause=Cause(("sleep",), each_ns=20_000_000),
        told=("sleep", "asleep in await (a timer)"),
        attach=True,
        tasks=True,
    ),
    Case("attach, Redis", "resp", attach=True),
    Case("attach, gRPC", "http2", method="/greeter.Greeter/SayHello", attach=True),
)
