#!/usr/bin/env python3
"""Captures larger than the memory that rpcprobe may use.

Takes a capture with rpcprobe in a control group whose memory is limited to a fraction of the
capture's size on disk, and reads the capture in the same group with `attribute`, `report`,
`requests` and `explain`. Each command must succeed, and as many requests must be found as the
workload made by its own count. Needs root. Exit status: 0 if all of that holds, 1 if not, 2 if it
could not be run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cgroups import Group, memory_group
from tools import give_up, own_children, size_of

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
# Bytes of the disk that must stay free.
DISK_LEAVES_BYTES = 8 << 30


@dataclass
class Done:
    status: int
    out: str
    errors: str
    seconds: float
    peak_bytes: int


def limited(group: Group, command: list, out: Path, watch=None) -> Done:
    """Runs the command in the group; calls `watch` periodically with its process id."""
    began = time.monotonic()
    with out.open("w+") as stdout, out.with_suffix(".errors").open("w+") as stderr:
        child = subprocess.Popen(
            [str(word) for word in command], stdout=stdout, stderr=stderr, preexec_fn=group.join
        )
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if watch:
                watch(child.pid)
            time.sleep(0.1)
        child.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0), stderr.seek(0)
        seconds = time.monotonic() - began
        # Peak memory of the process itself, not of its children.
        return Done(child.returncode, stdout.read(), stderr.read(), seconds, usage.ru_maxrss * 1024)


class Watch:
    """Ends the target once the capture has `enough_bytes`; records the probe's own peak memory."""

    def __init__(self, capture: Path, enough_bytes: int):
        self.capture, self.enough_bytes = capture, enough_bytes
        self.ended = False
        self.peak_bytes = 0

    def __call__(self, pid: int):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.peak_bytes = int(line.split()[1]) * 1024
        full = shutil.disk_usage(self.capture.parent).free < DISK_LEAVES_BYTES
        if not self.ended and (size_of(self.capture) >= self.enough_bytes or full):
            self.ended = True
            for shell in own_children(pid):
                for target in own_children(shell):
                    os.kill(target, signal.SIGTERM)


def tell(what: str, done: Done, peak_bytes: int, limit_bytes: int, good: bool, note: str = ""):
    print(
        f"{what:<34}{done.seconds:>9.1f}{peak_bytes / MIB:>10.1f}{limit_bytes / MIB:>10.0f}"
        f"  {'pass' if good else 'FAIL'} {note}".rstrip(),
        flush=True,
    )
    if not good:
        print("    " + (done.errors.strip()[-500:] or f"status {done.status}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--memory-mib", type=int, default=256)
    parser.add_argument("--events-mib", type=int, default=1100, help="size at which the run ends")
    parser.add_argument("--scratch", type=Path, help="where captures are made (default: TMPDIR)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    rpcprobe, limit_bytes = options.rpcprobe.resolve(), options.memory_mib * MIB
    good = True
    with (
        tempfile.TemporaryDirectory(dir=options.scratch) as folder,
        memory_group(f"robustness.{os.getpid()}") as group,
    ):
        folder = Path(folder)
        capture, out = folder / "capture", folder / "out"
        group.limit_memory(limit_bytes)
        # The target runs outside the limited group. Because a shell starts it, its whole life is a
        # request, too, which is open all the time.
        outside = group.path.parent / "cgroup.procs"
        target = f'echo $$ > {outside}; "$0" -c 2 -s 3600'
        command = [rpcprobe, "run", "--quiet", "-o", capture, "--"]
        watch = Watch(capture, options.events_mib * MIB)
        print(f"{'':34}{'s':>9}{'peak, MiB':>10}{'of':>10}")
        done = limited(group, [*command, "/bin/sh", "-c", target, HERE / "steady"], out, watch)
        if done.status != 0 or not watch.ended:
            tell("run", done, watch.peak_bytes, limit_bytes, False)
            return 1
        made = json.loads(done.out)["requests"]

        def found() -> dict:
            return json.loads((capture / "manifest.json").read_text())["counts"]

        def right() -> bool:
            counts = found()
            kinds = counts["requests_by_kind"]
            good = kinds == {"pipe": made, "exec": 1} and counts["records_lost"] == 0
            return good and counts["requests_incomplete"] <= kinds["exec"]

        counts = found()
        note = f"{counts['requests']:,} requests found, {made:,} made, {counts['records_lost']} records lost"
        good &= right()
        tell("run, with attribution", done, watch.peak_bytes, limit_bytes, right(), note)
        sizes = {path.name: path.stat().st_size for path in sorted(capture.iterdir())}
        total_bytes = sum(sizes.values())
        shown = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in sizes.items())
        print(f"  {counts['records']:,} records; MiB: {shown}; in all {total_bytes / MIB:,.0f}")
        if total_bytes < 3 * limit_bytes:
            give_up("the capture is not several times as large as the memory")

        looks = [
            ["attribute", "--quiet", capture],
            ["report", capture],
            ["report", "--json", capture],
            ["requests", capture],
            ["requests", capture, "--slowest", 5, "--json"],
            ["requests", capture, "--sort", "start", "-n", 10000, "--json"],
            ["explain", capture, made // 2],
            ["explain", capture, made],
        ]
        for words in looks:
            done = limited(group, [rpcprobe, *words], out)
            fine = done.status == 0 and right()
            if words[0] == "report" and "--json" in words and fine:
                told = json.loads(done.out)
                fine = told["capture"]["requests"] == made + 1 and told["not_conserved"] == 0
            if words[0] == "requests" and "--json" in words and fine:
                fine = json.loads(done.out)["in_capture"] == made + 1
            good &= fine
            name = " ".join(str(word) for word in words if word != capture)
            tell(name, done, done.peak_bytes, limit_bytes, fine)
        print(f"killed for want of memory: {group.killed()}")
        good &= group.killed() == 0
    print("pass" if good else "FAIL", "all requests found, in less memory than the capture takes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
