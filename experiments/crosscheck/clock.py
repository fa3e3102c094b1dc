#!/usr/bin/env python3
"""Why does a thread's CPU time by the scheduler differ from the ledger's, for stints of microseconds?

While a server answers, three observers measure its stints on a CPU: rpcprobe (the ledger), the
hooks of clock.bpf.c, which share no code with rpcprobe, and the scheduler (sum_exec_runtime, read
at the same switches). The scheduler charges by the run queue's clock, and does not read that clock
again at a switch that a wake-up has requested (rq_clock_skip_update() in kernel/sched/core.c). The
incoming thread is then charged since its wake-up, and the outgoing thread only until then, although
it had the CPU until the switch. So stints are classified by whether the clock was read at the
switch to the thread, and at the switch away from it.

Columns: the number of stints; the CPU time charged; the hooks' time as a share of the charged time;
the hooks' time as a share of the corrected charged time (less the time before the stint, plus the
time at its end); these two times, per stint. Last, as shares of the charged time: the time charged
between switches that the hooks did not see (on some kernels some switches have no event), and the
time charged before and after the hooks were attached, when rpcprobe may have been; and the ledger
as a share of the hooks' time. The ledger counts as the same if it is within 1 % of the hooks' time
plus the unseen time, and may exceed that by up to the time charged around the hooks.

Usage: clock.py [--requests N] [--connections N,...] [LOAD ...], a load of ../load; rpcprobe from
$RPCPROBE or PATH. Needs root, and the programs that ../load needs. Exit status: 1 if a ledger
differs, else 0.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "load")]
from attached import attached, wait_for  # noqa: E402
from run import LOADS, ran, ran_until_quiet  # noqa: E402

CLOCK = HERE / ".cache" / "clock"
DEFAULT_LOADS = ("redis", "http", "pool", "grpc")
DEFAULT_CONNECTIONS = "1,50"
# In the order of clock.h's numbers.
KINDS = ("read at both", "not before", "not at its end", "at neither")
MOST_APART = 0.01


@dataclass
class Stints:
    """`struct stints` of clock.h."""

    count: int = 0
    charged_ns: int = 0
    hook_ns: int = 0
    unread_before_ns: int = 0
    unread_at_end_ns: int = 0

    def __add__(self, other: "Stints") -> "Stints":
        return Stints(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    def row(self) -> str:
        if not self.count:
            return f"{0:>8}"
        explained_ns = self.charged_ns - self.unread_before_ns + self.unread_at_end_ns
        before_us, at_end_us = (
            ns / self.count / 1e3 for ns in (self.unread_before_ns, self.unread_at_end_ns)
        )
        return (
            f"{self.count:>8,}{self.charged_ns / 1e6:>9.2f} ms{self.hook_ns / self.charged_ns:>11.1%}"
            f"{self.hook_ns / explained_ns:>9.1%}{before_us:>9.2f} us{at_end_us:>9.2f} us"
        )


def counted(said: str, pids: set[int]) -> tuple[list[Stints], int]:
    """The stints of these processes' threads, in the order of KINDS, and the CPU time charged
    between unseen switches, ns."""
    kinds, unseen_ns = [Stints() for _ in KINDS], 0
    for line in said.splitlines():
        _, pid, of_thread_unseen_ns, *sums = map(int, line.split())
        if pid in pids:
            unseen_ns += of_thread_unseen_ns
            of_thread = [Stints(*sums[at : at + 5]) for at in range(0, len(sums), 5)]
            kinds = [a + b for a, b in zip(kinds, of_thread, strict=True)]
    return kinds, unseen_ns


def processes(pid: int) -> set[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid, *map(int, children)}


@dataclass
class Observed:
    """CPU time of a server's threads."""

    kinds: list[Stints]
    """The hooks' stints, in the order of KINDS."""
    unseen_ns: int
    """Charged between switches that the hooks did not see."""
    ledger_ns: int
    around_ns: int
    """Charged just before and after the hooks were attached, when rpcprobe may have been."""

    def verdict(self) -> str:
        seen_ns = sum(self.kinds, Stints()).hook_ns + self.unseen_ns
        more_ns, most_ns = self.ledger_ns - seen_ns, MOST_APART * seen_ns
        return "same" if -most_ns <= more_ns <= most_ns + self.around_ns else "APART"


def observe(name: str, connections: int, requests: int, folder: Path) -> Observed:
    load = LOADS[name](folder)
    server = subprocess.Popen(list(map(str, load.server)), stdout=subprocess.DEVNULL)
    try:
        wait_for(load.port)
        pids = processes(server.pid)
        before_ns = ran(server.pid)
        with attached(pids, folder):
            clock = subprocess.Popen(
                [CLOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            if clock.stdout.readline() != "ready\n":
                sys.exit("clock.py: clock did not start")
            around_ns = since(before_ns, server.pid)
            client = list(map(str, load.client(connections, requests)))
            subprocess.run(client, check=True, stdout=subprocess.DEVNULL)
            # The server's work after its clients have ended is in the ledger, too.
            ran_until_quiet(server.pid)
            counted_ns = ran(server.pid)
            said, _ = clock.communicate()
        around_ns += since(counted_ns, server.pid)
    finally:
        server.terminate()
        server.wait()
    ledger = pyarrow.parquet.read_table(folder / "capture" / "threads.parquet", columns=["cpu_ns"])
    return Observed(*counted(said, pids), sum(ledger["cpu_ns"].to_pylist()), around_ns)


def since(before_ns: dict[int, int], pid: int) -> int:
    """CPU time of a process and its children since `ran` returned `before_ns`, ns."""
    return sum(ns - before_ns.get(tid, 0) for tid, ns in ran(pid).items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", default=DEFAULT_CONNECTIONS, help="(default: %(default)s)")
    chosen = f"of {', '.join(LOADS)} (default: {', '.join(DEFAULT_LOADS)})"
    parser.add_argument("loads", nargs="*", metavar="LOAD", choices=[[], *LOADS], help=chosen)
    options = parser.parse_args()
    status = 0
    print(
        f"{'server, connections':21}{'clock':16}{'stints':>8}{'charged':>12}{'hooks saw':>11}{'of that':>9}"
        f"{'before':>12}{'at its end':>12}{'unseen':>8}{'around':>8}{'ledger':>9}"
    )
    for name in options.loads or DEFAULT_LOADS:
        for connections in map(int, options.connections.split(",")):
            with tempfile.TemporaryDirectory(prefix="clock.") as folder:
                observed = observe(name, connections, options.requests, Path(folder))
            for kind, stints in zip(KINDS, observed.kinds, strict=True):
                print(f"{'':21}{kind:16}{stints.row()}")
            every = sum(observed.kinds, Stints())
            unseen, around = (
                ns / every.charged_ns for ns in (observed.unseen_ns, observed.around_ns)
            )
            ledger, verdict = observed.ledger_ns / every.hook_ns, observed.verdict()
            print(
                f"{f'{name}, {connections}':21}{'all':16}{every.row()}{unseen:>8.1%}{around:>8.1%}{ledger:>9.1%}  {verdict}"
            )
            if verdict != "same":
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
