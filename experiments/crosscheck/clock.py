#!/usr/bin/env python3
"""Why is a thread's CPU time by the scheduler not the ledger's, where it has a CPU for microseconds at a time?

While a server answers, three count its stints on a CPU: rpcprobe (the ledger), the hooks of clock.bpf.c, which share no code
with it, and the scheduler (sum_exec_runtime, read at the same switches). The scheduler charges by the run queue's clock, and
does not read that again at a switch that a wake-up has asked for (rq_clock_skip_update() in kernel/sched/core.c). Then who comes
is charged since its wake-up, and who leaves only until then, though it had the CPU up to the switch. So stints are told
apart by whether the clock was read at the switch to the thread, and at the switch from it.

Columns: stints; the CPU time that was charged; what the hooks saw of it; and of what is charged less what the thread did not have
before its stint and more what it had at its end; then these two, in a stint. Last, what the ledger has of what the hooks saw.

Usage: clock.py [--requests N] [--connections N,...] [LOAD ...], a load of ../load; rpcprobe from $RPCPROBE or PATH. Needs root, and what ../load needs. Exit status: 1 if
the ledger and these hooks are more than 1 % apart, else 0.
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
from run import LOADS  # noqa: E402

CLOCK = HERE / ".cache" / "clock"
DEFAULT_LOADS = ("redis", "http", "pool", "grpc")
DEFAULT_CONNECTIONS = "1,50"
# As clock.h numbers them.
KINDS = ("read at both", "not before", "not at its end", "at neither")
MOST_APART = 0.01


@dataclass
class Stints:
    """As clock.h has them."""

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


def counted(said: str, pids: set[int]) -> list[Stints]:
    """Of these processes' threads, in the order of KINDS."""
    kinds = [Stints() for _ in KINDS]
    for line in said.splitlines():
        _, pid, *sums = map(int, line.split())
        if pid in pids:
            of_thread = [Stints(*sums[at : at + 5]) for at in range(0, len(sums), 5)]
            kinds = [a + b for a, b in zip(kinds, of_thread, strict=True)]
    return kinds


def processes(pid: int) -> set[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid, *map(int, children)}


def observe(name: str, connections: int, requests: int, folder: Path) -> tuple[list[Stints], int]:
    """Each kind of stints, and the CPU time in the ledger, ns."""
    load = LOADS[name](folder)
    server = subprocess.Popen(list(map(str, load.server)), stdout=subprocess.DEVNULL)
    try:
        wait_for(load.port)
        pids = processes(server.pid)
        with attached(pids, folder):
            clock = subprocess.Popen(
                [CLOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            if clock.stdout.readline() != "ready\n":
                sys.exit("clock.py: clock did not start")
            client = list(map(str, load.client(connections, requests)))
            subprocess.run(client, check=True, stdout=subprocess.DEVNULL)
            said, _ = clock.communicate()
    finally:
        server.terminate()
        server.wait()
    ledger = pyarrow.parquet.read_table(folder / "capture" / "threads.parquet", columns=["cpu_ns"])
    return counted(said, pids), sum(ledger["cpu_ns"].to_pylist())


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
        f"{'before':>12}{'at its end':>12}{'ledger':>9}"
    )
    for name in options.loads or DEFAULT_LOADS:
        for connections in map(int, options.connections.split(",")):
            with tempfile.TemporaryDirectory(prefix="clock.") as folder:
                kinds, ledger_ns = observe(name, connections, options.requests, Path(folder))
            for kind, stints in zip(KINDS, kinds, strict=True):
                print(f"{'':21}{kind:16}{stints.row()}")
            all_stints = sum(kinds, Stints())
            of_hooks = ledger_ns / all_stints.hook_ns
            print(f"{f'{name}, {connections}':21}{'all':16}{all_stints.row()}{of_hooks:>9.1%}")
            if abs(of_hooks - 1) > MOST_APART:
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
