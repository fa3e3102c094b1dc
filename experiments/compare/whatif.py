#!/usr/bin/env python3
"""Compares what `rpcprobe whatif` predicts with what happens when the cause is really removed.

`pair` is captured with a server that sleeps 200 us per request, and with a server that does not.
From the first capture `whatif` estimates the median without `sleep`, and the median without `sleep`
and the wake-up after it. The real median without the sleep is lower still: code that runs after a
sleep finds colder caches and a slower CPU, and this cost disappears with the sleep. So an estimate
must lie between the real median without the sleep and the median with it.

Needs root. Usage: whatif.py; rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
ESTIMATES = [
    ("sleep", ["sleep"]),
    ("sleep and its wake-up", ["sleep", "runqueue.wakeup/server"]),
]


def capture(parent, name, sleep_us):
    """The least disturbed of three captures of 1000 round trips: that with the smallest median."""
    captures = [parent / f"{name}.{number}" for number in range(3)]
    for directory in captures:
        command = [RPCPROBE, "run", "-q", "-o", directory, "--"]
        command += [HERE / "pair", "-n", "1000", "-s", str(sleep_us)]
        subprocess.run(command, check=True)
    return min(captures, key=lambda of: estimate(of, ["sleep"])["as_it_was"]["p50_ns"])


def estimate(directory, without):
    command = [RPCPROBE, "whatif", directory, "--json", "--without", ",".join(without)]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    return next(of for of in json.loads(printed)["kinds"] if of["kind"] == "pipe")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        sleeping = capture(Path(parent), "sleeping", 200)
        awake = capture(Path(parent), "awake", 0)
        really = estimate(awake, ["sleep"])["as_it_was"]["p50_ns"]
        print(f"{'without':24}{'median with':>14}{'foretold':>12}{'really':>12}{'off':>10}")
        good = True
        for name, without in ESTIMATES:
            found = estimate(sleeping, without)
            foretold = found["without"]["p50_ns"]
            off = (foretold / really - 1) * 100
            figures = (found["as_it_was"]["p50_ns"], foretold, really)
            good &= 0.9 * really <= foretold < figures[0]
            cells = "".join(f"{ns / 1000:{width}.1f} us" for ns, width in zip(figures, (11, 9, 9)))
            print(f"{name:24}{cells}{off:+8.1f} %")
    print("pass" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
