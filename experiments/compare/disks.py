#!/usr/bin/env python3
"""tmpfs against ext4: `rpcprobe ab` of the evaluator on files, alone and beside a writer that fsyncs.

`measure -m 2` starts the evaluator for each expression, which reads its input and writes its answer in
files of a directory: A's is on tmpfs, B's on an ext4 of its own (a loop device). Beside the writer, every
new file on ext4 may have to wait for the journal. Prints what `ab` prints, and fails if its parts do not
sum to their totals.

Needs root. Usage: disks.py [--pairs N] [--expressions N]; rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from run import sums_hold, statistic

HERE = Path(__file__).resolve().parent
FRPC = HERE.parent.parent / "targets/frpc"
RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
WRITER = """
import os
out = os.open("written", os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(out, b"x" * 65536, 0)
    os.fsync(out)
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY))
    os.unlink("made")
"""


@contextlib.contextmanager
def mounted(kind, directory):
    """A file system of that kind, empty."""
    directory.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "tmpfs", directory]
    else:
        image = directory.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        command = ["mount", "-o", "loop", image, directory]
    subprocess.run(command, check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@contextlib.contextmanager
def writer(directory, wanted):
    running = subprocess.Popen([sys.executable, "-c", WRITER], cwd=directory) if wanted else None
    try:
        yield
    finally:
        if running:
            running.kill()
            running.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--expressions", type=int, default=100)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as parent, contextlib.ExitStack() as mounts:
        parent = Path(parent)
        lines = (FRPC / "expressions.txt").read_text().splitlines()[: options.expressions]
        (parent / "expressions").write_text("\n".join(lines) + "\n")
        disks = [mounts.enter_context(mounted(kind, parent / kind)) for kind in ("tmpfs", "ext4")]
        measure = [FRPC / "measure", "-m", "2", "-e", parent / "expressions"]
        measure += ["--results", "/dev/null", "--errors", "/dev/null", "--dir"]
        for beside in (False, True):
            out = parent / ("beside" if beside else "alone")
            command = [RPCPROBE, "ab", "--pairs", str(options.pairs), "-o", out, "--"]
            command += [*measure, disks[0], "---", *measure, disks[1]]
            print("\n==", "beside a writer that fsyncs" if beside else "alone", flush=True)
            with writer(disks[1], beside):
                subprocess.run(command, check=True)
            comparison = json.loads((out / "comparison.json").read_text())
            kind = next(of for of in comparison["kinds"] if of["kind"] == "exec")
            journal = [
                part["b_ns"]
                for part in statistic(kind, "mean")["parts"]
                if part["category"] == "journal"
            ]
            print(f"\nsums: {'exact' if sums_hold(comparison) else 'WRONG'};", end=" ")
            print(f"journal in B's mean: {sum(journal)} ns", flush=True)
            good &= sums_hold(comparison)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
