"""One run under all three observers at once."""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import bcc_records
import compare
import perf_sched
import rpcprobe_records
import rpcprobe_tables
from account import Account

HERE = Path(__file__).resolve().parent
RPCPROBE = os.environ.get("RPCPROBE") or str(HERE.parents[1] / "userspace/target/release/rpcprobe")
# The system's Python, for which Debian packages bcc.
SYSTEM_PYTHON = "/usr/bin/python3"
# The name of the tree's first program, by which bcc recognizes it: at most 15 characters.
MARKER = "crosscheckroot"
SECONDS = 120
HEADERS = HERE / ".cache/headers"
TRACING = Path("/sys/kernel/tracing")


class CannotObserve(Exception):
    """An observer does not work on this machine; the text says why."""


class Failed(Exception):
    """A run that should have worked did not."""


@dataclass
class Observed:
    """`lost`: the number of lost records, for each observer that lost any."""

    threads: list
    missing: int
    ours: object
    bcc: object
    lost: dict


def reason(said):
    """The most informative line of bcc's output: the compiler's first error, else the last line."""
    errors = [line for line in said if "error:" in line or "Unable to find" in line]
    return (errors or said or ["collect.py ended"])[0 if errors else -1]


@contextlib.contextmanager
def tracefs():
    """Keeps tracefs mounted; bcc and perf look there for the tracepoints' arguments."""
    if (TRACING / "events").exists():
        yield
        return
    command = ["mount", "-t", "tracefs", "tracefs", TRACING]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotObserve(f"no tracefs: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", TRACING], check=False)


class Collector:
    """Keeps the bcc programs attached."""

    def __init__(self, out):
        self.out = out
        self.lost = 0

    def __enter__(self):
        environment = dict(os.environ)
        if HEADERS.exists():
            environment.setdefault("BCC_KERNEL_SOURCE", str(HEADERS))
        self.child = subprocess.Popen(
            [SYSTEM_PYTHON, HERE / "collect.py", self.out, MARKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.child.stdout.readline()
        if first != "ready\n":
            # bcc prints to both outputs.
            rest, errors = self.child.communicate()
            raise CannotObserve(reason((first + rest + errors).strip().splitlines()))
        return self

    def __exit__(self, *_):
        said, errors = self.child.communicate(timeout=SECONDS)
        if self.child.returncode == 0:
            self.lost = int(said.split()[1])
        else:
            raise Failed(f"collect.py: {errors.strip()[-300:]}")


def run(script, folder, with_perf):
    """Runs the script under the observers; returns their accounts of its threads."""
    shell, capture, recording = folder / MARKER, folder / "capture", folder / "perf.data"
    shell.symlink_to("/bin/sh")
    command = [RPCPROBE, "run", "-q", "-o", capture, "--", shell, "-c", script]
    if with_perf:
        command = perf_sched.record_command(recording) + command
    with Collector(folder / "bcc") as collector:
        done = subprocess.run(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
        )
    if done.returncode != 0:
        raise Failed(f"the run ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    # Attribute again with every piece: merged pieces do not say when they occurred.
    again = [RPCPROBE, "attribute", "-q", "--every-piece", str(capture)]
    subprocess.run(again, check=True, capture_output=True, timeout=SECONDS)
    bcc = bcc_records.read(folder / "bcc", collector.lost)
    if not bcc.threads:
        raise Failed("bcc saw no thread of the run")
    ours = rpcprobe_records.read(capture / "events.bin")
    perf = Account("perf")
    if with_perf:
        perf = perf_sched.read(recording, {thread.tid for thread in bcc.threads})
    manifest = json.loads((capture / "manifest.json").read_text())
    lost = {
        "rpcprobe": manifest["counts"]["records_lost"],
        "bcc": bcc.lost,
        "perf": perf.lost,
    }
    ledgers = rpcprobe_tables.ledgers(capture)
    for one in ledgers:
        if one.cpu_ns != one.own_ns + one.shared_ns + one.none_ns:
            raise Failed(f"the ledger of {one.comm}/{one.tid} does not add up")
    threads, missing = compare.matched(ledgers, ours, bcc, perf, rpcprobe_tables.windows(capture))
    return Observed(threads, missing, ours, bcc, {who: n for who, n in lost.items() if n})
