#!/usr/bin/env python3
"""How fast does rpcprobe attribute, and in how much memory?

Takes a real capture of each workload (or those given with --capture), repeats it into captures of
1e6 and 1e7 events (or as many as --events says), attributes these on one core and on two, and makes
the report. CPU time must grow no faster than the number of events, memory must not grow, and every
repetition must yield as many requests as the original. Needs root unless captures are given. Exit
status: 0 if all of that holds, 1 if not, 2 if it could not be run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FRPC = HERE.parent.parent / "targets" / "frpc"

# Allowed growth from the shortest capture to the longest; the machine may be shared.
LINEAR_FACTOR = 1.3
FLAT_FACTOR, FLAT_BYTES = 1.25, 16 << 20
# The aim; reported, not required.
AIM_EVENTS_PER_SECOND = 5e6

# name, arguments, how often its input is repeated
WORKLOADS = {
    "pipe": (["./frpc", "-m", "3"], 30),
    "exec": (["./measure", "-m", "all", "-e", "expressions.txt"], 1),
}


@dataclass
class Run:
    seconds: float
    # CPU time of all threads, which other programs on the machine change little.
    cpu_seconds: float
    peak_bytes: int


def give_up(message: str):
    print(f"run.py: {message}", file=sys.stderr)
    sys.exit(2)


def tool(argv: list[str | Path], **options) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, **options)
    except OSError as error:
        give_up(str(error))
    if done.returncode != 0:
        give_up(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def capture(rpcprobe: Path, workload: str, directory: Path):
    """Takes a real capture of the workload."""
    command, times = WORKLOADS[workload]
    text = directory.with_suffix(".txt")
    text.write_text((FRPC / "expressions.txt").read_text() * times)
    argv = [rpcprobe, "run", "--quiet", "-o", directory, "--", *command]
    with text.open() as stdin:
        tool(argv, cwd=FRPC, stdin=stdin)


def timed(command: list[str | Path], cores: set[int]) -> Run:
    began = time.monotonic()
    child = subprocess.Popen(
        command,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        give_up(f"{' '.join(map(str, command))} failed")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def counts(directory: Path) -> dict:
    return json.loads((directory / "manifest.json").read_text())["counts"]


def profile(rpcprobe: Path, directory: Path, lines: int):
    """Prints a profile of the time by function."""
    if not shutil.which("perf"):
        print("no profile: perf is not installed")
        return
    data = directory / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-o", data, "--"]
    done = subprocess.run(
        [*record, rpcprobe, "attribute", "--quiet", directory], capture_output=True, text=True
    )
    if done.returncode != 0:
        print(f"no profile: {done.stderr.strip()}")
        return
    # Symbols include parameters and closures; their ends beyond the terminal's width are cut off.
    options = ["--no-children", "--stdio", "--sort", "symbol", "-g", "none"]
    report = ["perf", "report", "-i", data, *options]
    out = subprocess.run(report, capture_output=True, text=True).stdout
    found = [line for line in out.splitlines() if line.strip() and not line.startswith("#")]
    for line in found[:lines]:
        print(f"  {line.strip()[:96]}")
    data.unlink()


def show(name: str, events: int, cores: str, run: Run):
    print(
        f"{name:10}{events:>12,}{cores:>7}{run.seconds:>9.2f}{events / run.seconds / 1e6:>10.2f}"
        f"{run.cpu_seconds / events * 1e9:>10.0f}{run.peak_bytes / 2**20:>10.1f}",
        flush=True,
    )


def measure(options, name: str, source: Path, scratch: Path) -> bool:
    """Prints one workload's table; returns whether all requirements hold."""
    tool([options.rpcprobe, "attribute", "--quiet", source])
    requests = counts(source)["requests"]
    every = sorted(os.sched_getaffinity(0))
    places = [("1", set(every[-1:]))]
    if len(every) > 1:
        places.append((str(len(every[:2])), set(every[-2:])))
    runs: dict[str, list[tuple[float, Run]]] = {cores: [] for cores, _ in places}
    runs["report"] = []
    good = True
    for asked in sorted(options.events):
        long = scratch / f"{name}-{asked:.0e}"
        made = json.loads(tool([options.amplify, source, long, str(int(asked))]))
        for cores, where in places:
            # Take the minimum, because other programs on the machine can only slow it down.
            command = [options.rpcprobe, "attribute", "--quiet", long]
            tries = [timed(command, where) for _ in range(options.repeat)]
            seconds = min(run.seconds for run in tries)
            cpu_seconds = min(run.cpu_seconds for run in tries)
            best = Run(seconds, cpu_seconds, max(run.peak_bytes for run in tries))
            events = made["events"]
            runs[cores].append((cpu_seconds / events, best))
            show(name, events, cores, best)
        best = timed([options.rpcprobe, "report", long], set(every))
        runs["report"].append((best.cpu_seconds / events, best))
        show(name, events, "report", best)
        found = counts(long)["requests"]
        if found != requests * made["rounds"]:
            print(f"  FAIL: {found} requests, not {made['rounds']} x {requests}")
            good = False
        if asked == min(options.events):
            profile(options.rpcprobe, long, options.profile)
        shutil.rmtree(long)
    for cores, tries in runs.items():
        (first_pace, first), (last_pace, last) = tries[0], tries[-1]
        if last_pace > first_pace * LINEAR_FACTOR:
            print(f"  FAIL: not linear ({cores}): x {last_pace / first_pace:.2f} per event")
            good = False
        if last.peak_bytes > first.peak_bytes * FLAT_FACTOR + FLAT_BYTES:
            print(f"  FAIL: memory is not flat: x {last.peak_bytes / first.peak_bytes:.2f}")
            good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, default=Path("rpcprobe"))
    parser.add_argument("--amplify", type=Path, required=True, help="the built amplify.rs")
    parser.add_argument("--events", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--repeat", type=int, default=3, help="runs each; the fastest one counts")
    parser.add_argument("--profile", type=int, default=15, help="lines of each profile")
    parser.add_argument("--capture", type=Path, nargs="+", help="use these captures, take none")
    parser.add_argument("--scratch", type=Path, help="where captures are made (default: TMPDIR)")
    options = parser.parse_args()
    options.rpcprobe, options.amplify = options.rpcprobe.resolve(), options.amplify.resolve()

    good = True
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        scratch = Path(scratch)
        titles = f"{'cores':>7}{'s':>9}{'M ev/s':>10}{'CPU ns/ev':>10}{'MiB':>10}"
        print(f"{'workload':10}{'events':>12}{titles}")
        if options.capture:
            for source in options.capture:
                # Attribution writes into a capture, so the given capture is copied.
                copy = scratch / "source"
                shutil.copytree(source, copy)
                good &= measure(options, source.name, copy, scratch)
                shutil.rmtree(copy)
        else:
            if os.geteuid() != 0:
                give_up("taking captures needs root; or give some with --capture")
            for name in WORKLOADS:
                source = scratch / f"{name}-source"
                capture(options.rpcprobe, name, source)
                good &= measure(options, name, source, scratch)
    aim = AIM_EVENTS_PER_SECOND / 1e6
    print(
        f"{'pass' if good else 'FAIL'}: CPU time linear, memory flat, every repetition's requests found"
    )
    print(f"aimed for, not required: {aim:.0f} M events a second a core")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
