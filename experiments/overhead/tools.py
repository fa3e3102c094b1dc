"""The measured tools: each runs beside a workload, or starts it."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workloads import Sample, Workload

# Events of the scheduler and of system calls, which every tool here can record.
EVENTS = (
    "sched:sched_switch",
    "sched:sched_waking",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
)


TRACING = Path("/sys/kernel/tracing")


class Failed(Exception):
    """A tool is missing or failed; the text says what."""


@dataclass(frozen=True)
class Places:
    """The CPUs of the workload and of the tool. Both empty: any CPU."""

    workload: str = ""
    tool: str = ""


@dataclass
class Measured:
    """The results of one run. None: the tool does not report the value, or it is meaningless."""

    sample: Sample
    cpu: float | None = None
    bytes: int | None = None
    records: int | None = None
    lost: int | None = None
    # The tool's own estimate of its total cost.
    estimate_ns: int | None = None

    def each_ns(self, pinned: bool) -> float:
        """A request's time on the workload's CPU. On several CPUs, which may be idle, its CPU
        time."""
        sample = self.sample
        if pinned or sample.cpu_ns is None:
            return 1e9 / sample.per_second
        return sample.cpu_ns / sample.requests


def pinned(cpus: str, command: list) -> list[str]:
    return [*(["taskset", "-c", cpus] if cpus else []), *map(str, command)]


class Cpu:
    """CPU time of all threads of the processes that run program `name`, sampled while they run."""

    def __init__(self, name: str):
        self.name = name
        self.points: list[tuple[int, int]] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.done.wait(0.02):
            self.points.append((time.monotonic_ns(), self.used_ns()))

    def used_ns(self) -> int:
        used = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if Path(os.readlink(process / "exe")).name != self.name:
                    continue
                for thread in (process / "task").iterdir():
                    used += int((thread / "schedstat").read_text().split()[0])
            except OSError:
                continue  # has ended
        return used

    def part(self, begin_ns: int, end_ns: int) -> float | None:
        """The CPU time as a share of one CPU, between two points in time."""
        inside = [point for point in self.points if begin_ns <= point[0] <= end_ns]
        if len(inside) < 3:
            return None
        (first_ns, first), (last_ns, last) = inside[0], inside[-1]
        return (last - first) / (last_ns - first_ns)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


class Tool:
    """`name`: as shown. `program`: must be installed. `same_events`: the tool records EVENTS."""

    def __init__(self, name: str, program: str, same_events: bool = False):
        self.name, self.program, self.same_events = name, program, same_events

    def missing(self) -> str | None:
        return None if shutil.which(self.program) else f"{self.program} is not installed"

    def measure(self, workload: Workload, places: Places, folder: Path) -> Measured:
        raise NotImplementedError


def run(prefix: list, workload: Workload, places: Places, folder: Path, tool: str = "") -> Measured:
    """Runs the workload, started by `prefix`, and measures the CPU time of the tool of that
    name."""
    command = pinned(places.tool if prefix else places.workload, prefix)
    command = command if prefix else []
    command += pinned(places.workload, workload.command(folder))
    with (folder / "errors").open("w+") as errors:
        with Cpu(tool or "none") as cpu:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        errors.seek(0)
        if done.returncode != 0:
            raise Failed(f"{command[0]}: {errors.read().strip()[-300:]}")
    sample = workload.read(folder, done.stdout)
    return Measured(sample, cpu.part(sample.begin_ns, sample.end_ns) if tool else None)


class Nothing(Tool):
    def __init__(self):
        super().__init__("baseline", "true")

    def measure(self, workload, places, folder):
        return run([], workload, places, folder)


class Beside(Tool):
    """Runs beside the workload. `command` gets the folder; the tool is ready when it prints
    `ready`."""

    def __init__(self, name: str, command: list, ready: str, ends_by=signal.SIGINT, **more):
        super().__init__(name, str(command[0]), **more)
        self.command, self.ready, self.ends_by = command, ready, ends_by

    @contextmanager
    def beside(self, places: Places, folder: Path) -> Iterator[subprocess.Popen]:
        with (folder / "tool").open("w+") as said:
            child = subprocess.Popen(
                pinned(places.tool, [str(part).format(folder=folder) for part in self.command]),
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            try:
                for _ in range(600):
                    if self.ready in (folder / "tool").read_text():
                        break
                    if child.poll() is not None:
                        break
                    time.sleep(0.05)
                else:
                    raise Failed(f"{self.program} was not ready within 30 s")
                if child.poll() is not None:
                    raise Failed(f"{self.program}: {(folder / 'tool').read_text()[-300:]}")
                time.sleep(0.3)
                yield child
            finally:
                if self.ends_by:
                    child.send_signal(self.ends_by)
                child.stdin.close()
                try:
                    child.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    def measure(self, workload, places, folder):
        with self.beside(places, folder):
            return run([], workload, places, folder, Path(self.program).name)


class Rpcprobe(Tool):
    def __init__(self, program: Path, *options: str):
        super().__init__(" ".join(["rpcprobe", *options]), str(program))
        self.options, self.same_events = options, False

    def measure(self, workload, places, folder):
        capture = folder / "capture"
        prefix = [self.program, "run", "--quiet", "-o", capture, *self.options, "--"]
        measured = run(prefix, workload, places, folder, Path(self.program).name)
        counts = json.loads((capture / "manifest.json").read_text())["counts"]
        measured.bytes = (capture / "events.bin").stat().st_size
        measured.records, measured.lost = counts["records"], counts["records_lost"]
        report = subprocess.run(
            [self.program, "report", "--json", capture], check=True, capture_output=True
        )
        measured.estimate_ns = json.loads(report.stdout)["capture"]["probe_cost_estimated_ns"]
        return measured


class Elsewhere(Beside):
    """rpcprobe tracing another program than the workload."""

    def __init__(self, program: Path, *options: str):
        command = [program, "run", "--quiet", "-o", "{folder}/capture", *options, "--"]
        idle = ["/bin/sh", "-c", "echo ready; exec sleep 3600"]
        super().__init__(" ".join(["rpcprobe, tracing another", *options]), command + idle, "ready")


class Ftrace(Tool):
    """The kernel's ring buffer in overwrite mode, without a reader."""

    def __init__(self):
        super().__init__("ftrace ring, no consumer", "true", same_events=True)

    def missing(self):
        return None if (TRACING / "set_event").exists() else f"no tracefs at {TRACING}"

    def measure(self, workload, places, folder):
        size, set_event = TRACING / "buffer_size_kb", TRACING / "set_event"
        before = size.read_text().split()[0]
        try:
            size.write_text("16384")
            (TRACING / "trace").write_text("")
            for event in EVENTS:
                (TRACING / "events" / event.replace(":", "/") / "enable").write_text("1")
            measured = run([], workload, places, folder)
            measured.records, measured.bytes = self.counted()
            return measured
        finally:
            set_event.write_text("")
            size.write_text(before)

    def counted(self) -> tuple[int, int]:
        """The number of events written on all CPUs, and their bytes, by the mean of the remaining
        events."""
        events = held = size = 0
        for stats in (TRACING / "per_cpu").glob("cpu*/stats"):
            told = dict(line.split(": ") for line in stats.read_text().splitlines() if ": " in line)
            held += int(told["entries"])
            events += int(told["entries"]) + int(told["overrun"])
            size += int(told["bytes"])
        return events, int(size / held * events) if held else 0


class PerfRecord(Tool):
    def __init__(self):
        super().__init__("perf record -a", "perf", same_events=True)

    def measure(self, workload, places, folder):
        data = folder / "perf.data"
        events = [part for event in EVENTS for part in ("-e", event)]
        prefix = ["perf", "record", "-a", "-o", data, *events, "--"]
        measured = run(prefix, workload, places, folder, "perf")
        measured.bytes = data.stat().st_size
        said = (folder / "errors").read_text()
        if lost := re.search(r"[Ll]ost (\d+)", said):
            measured.lost = int(lost[1])
        data.unlink()
        return measured


class Prefix(Tool):
    def __init__(self, name: str, *prefix: str):
        super().__init__(name, prefix[0])
        self.prefix = prefix

    def measure(self, workload, places, folder):
        prefix = [part.format(folder=folder) for part in self.prefix]
        return run(prefix, workload, places, folder, self.program)


BPFTRACE = """
BEGIN { printf("ready\\n"); }
tracepoint:raw_syscalls:sys_enter { @entered[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@entered[tid]/ {
    @calls_ns[tid, args->id] = sum(nsecs - @entered[tid]); delete(@entered[tid]);
}
tracepoint:sched:sched_waking { @woken[args->pid] = nsecs; }
tracepoint:sched:sched_switch {
    @off[args->prev_pid] = nsecs;
    if (@off[args->next_pid]) { @off_ns[args->next_pid] = sum(nsecs - @off[args->next_pid]); }
    if (@woken[args->next_pid]) {
        @queue_ns[args->next_pid] = sum(nsecs - @woken[args->next_pid]);
        delete(@woken[args->next_pid]);
    }
}
"""


def tools(rpcprobe: Path, floor: Path) -> dict[str, Tool]:
    """The tools, by the names that select them."""
    return {
        "floor": Beside("empty programs (floor)", [floor], "ready", None),
        "clock": Beside("programs that read the clock", [floor, "--clock"], "ready", None),
        "rpcprobe": Rpcprobe(rpcprobe),
        "target": Rpcprobe(rpcprobe, "--scope=target"),
        "quiet": Rpcprobe(rpcprobe, "--no-paths", "--no-methods"),
        "stacks": Rpcprobe(rpcprobe, "--stacks"),
        "elsewhere": Elsewhere(rpcprobe),
        "elsewhere-target": Elsewhere(rpcprobe, "--scope=target"),
        "ftrace": Ftrace(),
        "perf": PerfRecord(),
        "bpftrace": Beside(
            "bpftrace, sums",
            ["bpftrace", "-e", BPFTRACE.replace("{", "{{").replace("}", "}}")],
            "ready",
        ),
        "bcc": Beside("bcc syscount -L", ["syscount-bpfcc", "-L"], "Tracing"),
        "perf-trace": Prefix("perf trace -s", "perf", "trace", "-s", "-o", "{folder}/trace", "--"),
        "strace": Prefix("strace -f -c", "strace", "-f", "-c", "-o", "{folder}/trace", "--"),
    }


@contextmanager
def scratch(where: Path | None) -> Iterator[Path]:
    """A folder for one run, removed afterwards with its contents."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)
