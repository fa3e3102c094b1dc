#!/usr/bin/env python3
"""Do captures hold what programs did, on this machine's kernel and on stock kernels of Debian's?

Runs the workloads of workloads.py under rpcprobe, on the host and in guests (QEMU, software emulation), without and
with functions of the kernel hooked themselves, judges each capture here, and prints a table: kernel, how functions are
hooked, case, passed. Capturing on the host needs root.
Exit status: 0 if all cases passed, 1 if one failed, 2 if a kernel could not be had.
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

import machine
from agree import compare
from cases import CASES, WAYS, Case
from judge import (
    Verdict,
    judge,
    judge_crosscheck,
    judge_doctor,
    judge_hooks,
    judge_refusal,
    judge_stacks,
    load,
    load_kernel,
)

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
CROSSCHECK = TOP / "experiments" / "crosscheck" / "crosscheck.py"
GUEST_TIMEOUT_S = 900
# How functions were hooked, and what came of a case.
Line = tuple[str, Verdict]
# A boot that ends without a status, or by a stray breakpoint, is taken for the emulator's or this machine's doing, not the
# test's; more than two in a row are not.
BOOTS = 3


def command(rpcprobe: Path, folder: Path, plan: dict) -> list[str]:
    (folder / "plan.json").write_text(json.dumps(plan))
    python, plan = "/usr/bin/python3", folder / "plan.json"
    return [python, str(HERE / "observe.py"), str(rpcprobe), str(folder), str(plan)]


def crosscheck(series: str, rpcprobe: Path) -> list[str]:
    """The account of threads beside bcc's, which compiles with the guest's own headers."""
    environment = {"BCC_KERNEL_SOURCE": machine.headers(series), "RPCPROBE": rpcprobe}
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable]
    argv += [str(CROSSCHECK), "--no-perf", "--part", "20", "--slower", "15", "pipe"]
    return argv


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


def judged(options: argparse.Namespace, folder: Path, selection: dict) -> list[Line]:
    """What came of each case, by way of hooking."""
    kernel, lines, by_way = load_kernel(folder), [], {}
    for way, cases in selection.items():
        refused = folder / way / "refused"
        if refused.exists():
            lines.append((way, judge_refusal(kernel, way, refused.read_text())))
            continue
        by_way[way] = observed = load(options.rpcprobe, way, folder / way)
        first = {"none": judge_doctor, "stacks": judge_stacks}.get(way, judge_hooks)
        lines.append((way, first(kernel, observed)))
        lines += [(way, judge(observed, case)) for case in cases]
    if (folder / "crosscheck").exists():
        lines.append(("none", judge_crosscheck(folder)))
    return lines + [("all", verdict) for verdict in compare(by_way)]


def plans(selection: dict, beside_bcc: list[str] | None) -> list[dict]:
    """What observe.py is to do, in parts: each is a boot in guests, so that one that has to be done again is short."""
    parts = [
        {"ways": {way: {"options": list(WAYS[way]), "names": [case.name for case in cases]}}}
        for way, cases in selection.items()
    ]
    if beside_bcc:
        parts.append({"crosscheck": beside_bcc})
    return [{"doctor": part is parts[0], **part} for part in parts]


def observe(kernel: str, options: argparse.Namespace) -> list[Line]:
    """Runs all cases on a kernel; what comes of each."""
    folder = options.to / kernel
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    selection = selected(options)
    whole = not (options.quick or options.case)
    beside_bcc = crosscheck(kernel, options.rpcprobe) if whole and kernel != "host" else None
    for plan in plans(selection, beside_bcc):
        argv = command(options.rpcprobe, folder, plan)
        status = on_host(argv, folder) if kernel == "host" else in_guest(kernel, argv, folder, plan)
        if status != 0:
            return [("", Verdict("capture", False, f"ended with status {status}; see {folder}"))]
    return judged(options, folder, selection)


def tell(kernel: str, lines: list[Line], took_s: float):
    for way, verdict in lines:
        word = "skipped" if verdict.skipped else "passed" if verdict.passed else "FAILED"
        print(f"{kernel:6} {way:6} {verdict.name:29} {word:8} {verdict.note}")
    verdicts = [verdict for _, verdict in lines]
    passed = sum(v.passed and not v.skipped for v in verdicts)
    skipped = sum(v.skipped for v in verdicts)
    more = f", {skipped} skipped" if skipped else ""
    print(
        f"{kernel:6} {passed} of {len(verdicts) - skipped} passed{more}; {took_s:.0f} s\n",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kernels = ["host", *machine.SERIES]
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(kernels)} (default: all)")
    parser.add_argument("--case", action="append", help="only this one; may be given several times")
    ways = f"of {', '.join(WAYS)} (default: all): functions that are hooked themselves, and by what"
    parser.add_argument("--way", action="append", choices=WAYS, help=ways)
    parser.add_argument("--quick", action="store_true", help="fewer cases, for a few minutes")
    parser.add_argument("--rpcprobe", type=Path, default=TOP / "userspace/target/release/rpcprobe")
    parser.add_argument("--to", type=Path, default=machine.CACHE / "results", help="for captures")
    options = parser.parse_args()
    options.kernels = options.kernels or kernels
    options.way = options.way or list(WAYS)
    names = [case.name for case in CASES]
    for unknown in set(options.kernels) - set(kernels):
        parser.error(f"no kernel has the name {unknown}")
    for unknown in set(options.case or ()) - set(names):
        parser.error(f"no case has the name {unknown}; there are {', '.join(names)}")
    options.rpcprobe, options.to = options.rpcprobe.resolve(), options.to.resolve()
    return options


def selected(options: argparse.Namespace) -> dict[str, list[Case]]:
    """The cases, by way of hooking."""

    def wanted(case: Case, way: str) -> bool:
        if way == "stacks" and not case.stacks:
            return False
        if options.case:
            return case.name in options.case
        return way in case.quick or not options.quick

    by_way = {way: [case for case in CASES if wanted(case, way)] for way in options.way}
    return {way: cases for way, cases in by_way.items() if cases}


def main() -> int:
    options = parse()
    status = 0
    guests = [kernel for kernel in options.kernels if kernel != "host"]
    if guests and (missing := machine.missing_tools()):
        print(f"skipped: {', '.join(guests)}, for which {', '.join(missing)} is missing")
        options.kernels = [kernel for kernel in options.kernels if kernel == "host"]
    if "host" in options.kernels and os.geteuid() != 0:
        print("skipped: host, as captures need root")
        options.kernels.remove("host")
    print(f"{'kernel':6} {'hooks':6} {'case':29} {'':8} what was found")
    for kernel in options.kernels:
        begun = time.monotonic()
        try:
            lines = observe(kernel, options)
        except machine.KernelDied as why:
            lines = [("", Verdict("kernel", False, str(why)))]
        except (machine.BootFailed, machine.Unusable) as why:
            print(f"{kernel:6} could not be had: {why}\n", flush=True)
            status = 2
            continue
        tell(kernel, lines, time.monotonic() - begun)
        if not all(verdict.passed for _, verdict in lines):
            status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
