#!/usr/bin/env python3
"""Do captures hold what programs did, on this machine's kernel and on stock kernels of Debian's?

Runs the workloads of workloads.py under rpcprobe, on the host and in guests (QEMU, software emulation), judges each
capture here, and prints a table: kernel, case, passed. Capturing on the host needs root.
Exit status: 0 if all cases passed, 1 if one failed, 2 if a kernel could not be had.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import machine
from cases import CASES, Case
from judge import Verdict, judge, judge_doctor, load

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
GUEST_TIMEOUT_S = 600
# A boot that ends without a status, or by a stray breakpoint, is taken for the emulator's or this machine's doing, not the
# test's; more than two in a row are not.
BOOTS = 3


def command(rpcprobe: Path, folder: Path, names: list[str]) -> list[str]:
    return ["/usr/bin/python3", str(HERE / "observe.py"), str(rpcprobe), str(folder), *names]


def on_host(argv: list[str], folder: Path) -> int:
    return subprocess.run(argv, cwd=TOP).returncode


def in_guest(series: str, argv: list[str], folder: Path) -> int:
    kernel = machine.prepare(series)
    for left in reversed(range(BOOTS)):
        try:
            return machine.boot(kernel, shlex.join(argv), TOP, folder, GUEST_TIMEOUT_S)
        except machine.BootFailed as why:
            print(f"{series}: {why}" + ("; booted again" if left else ""), flush=True)
            if not left:
                raise
            shutil.rmtree(folder / "capture", ignore_errors=True)
    raise AssertionError("there is at least one boot")


def observe(kernel: str, options: argparse.Namespace, cases: list[Case]) -> list[Verdict]:
    """Runs all cases on a kernel; what comes of each."""
    folder = options.to / kernel
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    argv = command(options.rpcprobe, folder, [case.name for case in cases])
    status = on_host(argv, folder) if kernel == "host" else in_guest(kernel, argv, folder)
    if status != 0:
        return [Verdict("capture", False, f"ended with status {status}; see {folder}")]
    observed = load(options.rpcprobe, folder)
    return [judge_doctor(observed), *(judge(observed, case) for case in cases)]


def tell(kernel: str, verdicts: list[Verdict], took_s: float):
    for verdict in verdicts:
        word = "skipped" if verdict.skipped else "passed" if verdict.passed else "FAILED"
        print(f"{kernel:6} {verdict.name:29} {word:8} {verdict.note}")
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
    parser.add_argument("--quick", action="store_true", help="fewer cases, for a few minutes")
    parser.add_argument("--rpcprobe", type=Path, default=TOP / "userspace/target/release/rpcprobe")
    parser.add_argument("--to", type=Path, default=machine.CACHE / "results", help="for captures")
    options = parser.parse_args()
    options.kernels = options.kernels or kernels
    names = [case.name for case in CASES]
    for unknown in set(options.kernels) - set(kernels):
        parser.error(f"no kernel has the name {unknown}")
    for unknown in set(options.case or ()) - set(names):
        parser.error(f"no case has the name {unknown}; there are {', '.join(names)}")
    options.rpcprobe, options.to = options.rpcprobe.resolve(), options.to.resolve()
    return options


def selected(options: argparse.Namespace) -> list[Case]:
    if options.case:
        return [case for case in CASES if case.name in options.case]
    return [case for case in CASES if case.quick or not options.quick]


def main() -> int:
    options = parse()
    cases = selected(options)
    status = 0
    guests = [kernel for kernel in options.kernels if kernel != "host"]
    if guests and (missing := machine.missing_tools()):
        print(f"skipped: {', '.join(guests)}, for which {', '.join(missing)} is missing")
        options.kernels = [kernel for kernel in options.kernels if kernel == "host"]
    if "host" in options.kernels and os.geteuid() != 0:
        print("skipped: host, as captures need root")
        options.kernels.remove("host")
    print(f"{'kernel':6} {'case':29} {'':8} what was found")
    for kernel in options.kernels:
        begun = time.monotonic()
        try:
            verdicts = observe(kernel, options, cases)
        except machine.KernelDied as why:
            verdicts = [Verdict("kernel", False, str(why))]
        except (machine.BootFailed, machine.Unusable) as why:
            print(f"{kernel:6} could not be had: {why}\n", flush=True)
            status = 2
            continue
        tell(kernel, verdicts, time.monotonic() - begun)
        if not all(verdict.passed for verdict in verdicts):
            status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
