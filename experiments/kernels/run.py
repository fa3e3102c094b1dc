#!/usr/bin/env python3
"""Do captures hold what programs did, on this machine's kernel and on Debian's stock kernels?

Runs the workloads of workloads.py under rpcprobe, on the host and in guests (QEMU, software
emulation), without and with direct hooks on kernel functions. Judges each capture here, and prints
a table: kernel, way of hooking, case, passed. Capturing on the host needs root.
Exit status: 0 if all cases passed, 1 if one failed, 2 if a kernel was not available.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import arm64
import machine
from agree import compare
from cases import ATTACHED_AS, ATTACHING, CASES, WAYS, Case
from judge import (
    Verdict,
    judge,
    judge_crosscheck,
    judge_doctor,
    judge_hooks,
    judge_refusal,
    judge_stacks,
)
from observed import load, load_kernel
from packages import CACHE, Unusable
from truths import WORKLOAD, failed_names, judge_truths, replaced

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
CROSSCHECK = TOP / "experiments" / "crosscheck" / "crosscheck.py"
GUEST_TIMEOUT_S = 900
# Ways on another processor's kernels, which check that all programs load there and that requests
# are found. With direct hooks, only the cases that show them run.
FOREIGN_WAYS = ("none", "fentry", "kprobe", *ATTACHING)
# The way of hooking, and the verdict on a case.
Line = tuple[str, Verdict]
# A boot that ends without a status, or by a stray breakpoint, is blamed on the emulator or this
# machine, not on the test, unless it happens more than twice in a row.
BOOTS = 3
# A failed ground truth case is run again, as in ../ground_truth: other programs may have disturbed
# it.
TRIES = 3


def command(rpcprobe: Path, folder: Path, plan: dict) -> list[str]:
    (folder / "plan.json").write_text(json.dumps(plan))
    python, plan = "/usr/bin/python3", folder / "plan.json"
    return [python, str(HERE / "observe.py"), str(rpcprobe), str(folder), str(plan)]


def crosscheck(kernel: str, rpcprobe: Path) -> list[str]:
    """The command that compares the account of threads with bcc's. bcc compiles with the kernel's
    own headers; on the host, whose headers may be missing, with a stock kernel's
    (../crosscheck/README.md)."""
    is_guest = kernel in machine.SERIES
    headers = machine.headers(kernel if is_guest else machine.OLDEST)
    environment = {"BCC_KERNEL_SOURCE": headers, "RPCPROBE": rpcprobe}
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable]
    argv += [str(CROSSCHECK), "--no-perf"]
    return argv + (["--part", "20", "--slower", "15"] if is_guest else ["--part", "5"]) + ["pipe"]


def build_go_server():
    """Builds the Go server for both processors if Go is installed. servers.py chooses the
    program."""
    if not shutil.which("go"):
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    for machine_name, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        program = CACHE / f"go-server-{machine_name}"
        environment = {**os.environ, "CGO_ENABLED": "0", "GOARCH": architecture}
        argv = ["go", "build", "-o", program, "."]
        folder = TOP / "experiments" / "tasks" / "go"
        subprocess.run(argv, cwd=folder, env=environment, check=True)


def on_host(argv: list[str], folder: Path) -> int:
    return subprocess.run(argv, cwd=TOP).returncode


def in_guest(series: str, argv: list[str], folder: Path, plan: dict) -> int:
    kernel = machine.prepare(series)
    for left in reversed(range(BOOTS)):
        try:
            return machine.boot(kernel, shlex.join(argv), TOP, folder, GUEST_TIMEOUT_S)
        except machine.BootFailed as why:
            print(f"{series}: {why}" + ("; booted again" if left else ""), flush=True)
            if not left:
                raise
            for way in plan.get("ways", ()):
                shutil.rmtree(folder / way, ignore_errors=True)
    raise AssertionError("there is at least one boot")


def judged(options: argparse.Namespace, folder: Path, selection: dict, foreign: bool) -> list[Line]:
    """The verdict on each case, by way of hooking."""
    kernel, lines, by_way = load_kernel(folder), [], {}
    for way, cases in selection.items():
        refused = folder / way / "refused"
        if refused.exists():
            lines.append((way, judge_refusal(kernel, way, refused.read_text())))
            continue
        by_way[way] = observed = load(options.rpcprobe, way, folder / way)
        first = judge_hooks if way in ATTACHED_AS else judge_doctor
        first = judge_stacks if way == "stacks" else first
        lines.append((way, first(kernel, observed)))
        for case in cases:
            if case.ground_truth:
                verdicts = judge_truths(observed, options.rpcprobe, [])
            else:
                verdicts = [judge(kernel, observed, case)]
            lines += [(way, verdict) for verdict in verdicts]
    if (folder / "crosscheck").exists():
        lines.append(("none", judge_crosscheck(folder)))
    return lines + [("all", verdict) for verdict in compare(by_way, foreign)]


def way_plan(way: str, names: list[str], truths: list[str] = ()) -> dict:
    return {
        "attach": way in ATTACHING,
        "options": list(WAYS[way]),
        "names": names,
        "truths": list(truths),
    }


def plans(selection: dict, beside_bcc: list[str] | None) -> list[dict]:
    """The plan for observe.py, in parts. Each part is one boot of a guest, so that repeating a boot
    takes little time."""
    parts = [
        {"ways": {way: way_plan(way, [case.name for case in cases])}}
        for way, cases in selection.items()
    ]
    if beside_bcc:
        parts.append({"crosscheck": beside_bcc})
    return [{"doctor": part is parts[0], **part} for part in parts]


def observe(kernel: str, options: argparse.Namespace) -> list[Line]:
    """Runs all cases on a kernel; returns the verdicts."""
    folder = options.to / kernel
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    foreign = machine.is_foreign(kernel)
    selection = selected(options, foreign)
    if not selection:
        return []
    whole = not (options.quick or options.case)
    # bcc runs and compiles in the guest, under this machine's Python.
    beside = whole and not foreign
    rpcprobe = arm64.RPCPROBE if foreign else options.rpcprobe

    def run(plan: dict) -> int:
        argv = command(rpcprobe, folder, plan)
        return on_host(argv, folder) if kernel == "host" else in_guest(kernel, argv, folder, plan)

    for plan in plans(selection, crosscheck(kernel, rpcprobe) if beside else None):
        if status := run(plan):
            return [
                (
                    " ".join(plan.get("ways", ())),
                    Verdict("capture", False, last_said(status, folder)),
                )
            ]
    lines = judged(options, folder, selection, foreign)
    for way in selection:
        for again in range(1, TRIES):
            names, name = failed_names(lines, way), f"{way}-{again}"
            if not names or run(
                {"doctor": False, "ways": {name: way_plan(way, [WORKLOAD.name], names)}}
            ):
                break
            observed = load(options.rpcprobe, way, folder / name)
            lines = replaced(lines, way, judge_truths(observed, options.rpcprobe, names))
    return lines


def last_said(status: int, folder: Path) -> str:
    """The last output of rpcprobe or the guest, for a part that did not finish."""
    said = sorted(folder.glob("*/said"), key=lambda file: file.stat().st_mtime)[-1:]
    said += folder.glob("console")
    last = [line for file in said for line in file.read_text(errors="replace").splitlines()[-12:]]
    return f"ended with status {status}; {folder} has this:\n" + indent("\n".join(last), " " * 8)


def told(kernel: str, way: str, verdict: Verdict) -> str:
    word = "skipped" if verdict.skipped else "passed" if verdict.passed else "FAILED"
    return f"{kernel:10} {way:10} {verdict.name:29} {word:8} {verdict.note}"


def tell(kernel: str, lines: list[Line], took_s: float):
    for way, verdict in lines:
        print(told(kernel, way, verdict))
    verdicts = [verdict for _, verdict in lines]
    passed = sum(v.passed and not v.skipped for v in verdicts)
    skipped = sum(v.skipped for v in verdicts)
    more = f", {skipped} skipped" if skipped else ""
    print(
        f"{kernel:10} {passed} of {len(verdicts) - skipped} passed{more}; {took_s:.0f} s\n",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kernels = ["host", *machine.SERIES]
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(kernels)} (default: all)")
    parser.add_argument(
        "--case", action="append", help="only this case; may be given several times"
    )
    ways = f"of {', '.join(WAYS)} (default: all): with which options captures are taken"
    parser.add_argument("--way", action="append", choices=WAYS, help=ways)
    parser.add_argument("--quick", action="store_true", help="fewer cases, for a few minutes")
    parser.add_argument("--rpcprobe", type=Path, default=TOP / "userspace/target/release/rpcprobe")
    parser.add_argument("--to", type=Path, default=CACHE / "results", help="directory for captures")
    options = parser.parse_args()
    # The build for another processor takes a while.
    short = [kernel for kernel in kernels if not machine.is_foreign(kernel)]
    options.kernels = options.kernels or (short if options.quick else kernels)
    options.way = options.way or list(WAYS)
    names = [case.name for case in CASES]
    for unknown in set(options.kernels) - set(kernels):
        parser.error(f"no kernel has the name {unknown}")
    for unknown in set(options.case or ()) - set(names):
        parser.error(f"no case has the name {unknown}; there are {', '.join(names)}")
    options.rpcprobe, options.to = options.rpcprobe.resolve(), options.to.resolve()
    return options


def selected(options: argparse.Namespace, foreign: bool) -> dict[str, list[Case]]:
    """The cases, by way of hooking; fewer for a foreign processor."""

    def wanted(case: Case, way: str) -> bool:
        if foreign and (case.ground_truth or way not in FOREIGN_WAYS):
            return False
        if foreign and way in ATTACHED_AS and not (case.function or case.copies_seen):
            return False
        if (way == "stacks" and not case.stacks) or (way in ATTACHING) != case.attach:
            return False
        if (way == "tasks") != case.tasks:
            return False
        if options.case:
            return case.name in options.case
        return way in case.quick or not options.quick

    by_way = {way: [case for case in CASES if wanted(case, way)] for way in options.way}
    return {way: cases for way, cases in by_way.items() if cases}


def main() -> int:
    options = parse()
    status, failed = 0, []
    for guest in [kernel for kernel in options.kernels if kernel != "host"]:
        if missing := machine.missing_tools(guest):
            print(f"skipped: {guest}, for which {', '.join(missing)} is missing")
            options.kernels.remove(guest)
    if "host" in options.kernels and os.geteuid() != 0:
        print("skipped: host, as captures need root")
        options.kernels.remove("host")
    build_go_server()
    print(f"{'kernel':10} {'hooks':10} {'case':29} {'':8} what was found")
    for kernel in options.kernels:
        begun = time.monotonic()
        try:
            lines = observe(kernel, options)
        except machine.KernelDied as why:
            lines = [("", Verdict("kernel", False, str(why)))]
        except (machine.BootFailed, Unusable) as why:
            print(f"{kernel:10} could not be had: {why}\n", flush=True)
            status = 2
            continue
        tell(kernel, lines, time.monotonic() - begun)
        failed += [told(kernel, way, verdict) for way, verdict in lines if not verdict.passed]
    if failed:
        print("failed:", *failed, sep="\n", flush=True)
        status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
