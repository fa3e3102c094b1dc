#!/usr/bin/env python3
"""How often `rpcprobe ab` raises a false alarm, and how often it finds and names an injected change.

Each trial is one `rpcprobe ab` of 12 pairs of short runs. In the scenes without a change, both
commands are the same: at most 2 of 100 trials may report a change. In the scenes with a change, B
does more work in one category, worth --percent of A's mean latency: at least 95 of 100 trials must
report that category as changed. Scenes run on an idle machine, and beside competitors that keep
every CPU busy.

Needs root. Usage: run.py [--trials N] [--pairs N] [--percent P] [SCENE...]; rpcprobe from $RPCPROBE or PATH.
Ctrl-C ends a scene with the trials made so far.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGETS = HERE.parent.parent / "targets"
RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
FALSE_ALARMS_ALLOWED = 0.02
FOUND_WANTED = 0.95
LOOPS = 12_000


def frpc():
    command = [TARGETS / "frpc/frpc", "-m", "3", "-i", TARGETS / "frpc/expressions.txt"]
    return [*command, "-o", "/dev/null"]


def echo():
    return [TARGETS / "echo/echo", "-t", "tcp", "-n", "300"]


def pair(loops=LOOPS, calls=20):
    return [HERE / "pair", "-l", str(loops), "-c", str(calls)]


@contextlib.contextmanager
def competitors(count):
    """Runs `count` processes that never sleep."""
    spin = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def compared(a, b, pairs, seed):
    """The comparison of one `rpcprobe ab`."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "ab"
        command = [RPCPROBE, "ab", "--json", "--keep", "nothing", "-o", out]
        command += ["--pairs", pairs, "--seed", seed, "--", *a, "---", *b]
        done = subprocess.run([str(word) for word in command], capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"rpcprobe ab ended with {done.returncode}: {done.stderr.decode()}")
        return json.loads(done.stdout)


def inner(comparison):
    """The only kind besides the whole process."""
    return comparison["kinds"][0]


def statistic(kind, name):
    return next(of for of in kind["statistics"] if of["statistic"] == name)


def changed(comparison):
    """The reported changes: (statistic, category) pairs; a total has the category None."""
    found = set()
    for of in inner(comparison)["statistics"]:
        if of["total"]["shown"]:
            found.add((of["statistic"], None))
        found |= {(of["statistic"], part["category"]) for part in of["parts"] if part["shown"]}
    return found


def sums_hold(comparison):
    keys = ("a_ns", "b_ns", "change_ns")
    return all(
        sum(part[key] for part in of["parts"]) == of["total"][key]
        for kind in comparison["kinds"]
        for of in kind["statistics"]
        for key in keys
    )


def size_of_change(what, percent, busy):
    """The number of extra loops or calls worth `percent` of the mean latency, from short
    comparisons."""
    more = {"user": 4 * LOOPS, "kernel.other": 400}[what]
    with competitors(os.cpu_count() if busy else 0):
        found = inner(compared(pair(), changed_pair(what, more), 4, 1))
    mean = statistic(found, "mean")["total"]["a_ns"]
    median = statistic(found, "p50")
    gained = sum(part["change_ns"] for part in median["parts"] if part["category"] == what)
    if gained <= 0:
        sys.exit(f"{more} more of {what} took {gained} ns more: cannot calibrate")
    return max(1, round(more * mean * percent / 100 / gained)), mean


def changed_pair(what, more):
    return pair(LOOPS + more) if what == "user" else pair(calls=20 + more)


def trials(options, a, b, busy, counted):
    """The changes found in each trial."""
    made = []
    with competitors(os.cpu_count() if busy else 0), contextlib.suppress(KeyboardInterrupt):
        for trial in range(options.trials):
            comparison = compared(a, b, options.pairs, trial)
            assert sums_hold(comparison), "parts do not sum to their total"
            made.append(comparison)
            told = sum(map(counted, made))
            print(f"trial {len(made)} of {options.trials}: {told}", file=sys.stderr, flush=True)
    return made


def null_scene(command, busy):
    def run(options):
        made = trials(options, command, command, busy, lambda of: bool(changed(of)))
        alarms = [sorted(map(str, changed(of))) for of in made if changed(of)]
        good = len(alarms) <= FALSE_ALARMS_ALLOWED * len(made)
        return len(made), len(alarms), good, "false alarms", alarms

    return run


def change_scene(what, busy):
    def run(options):
        more, mean = size_of_change(what, options.percent, busy)

        def names(comparison):
            return any(category == what for _, category in changed(comparison))

        def change(comparison):
            parts = statistic(inner(comparison), "p50")["parts"]
            return sum(part["change_ns"] for part in parts if part["category"] == what)

        made = trials(options, pair(), changed_pair(what, more), busy, names)
        hits = sum(map(names, made))
        middle = sorted(map(change, made))[len(made) // 2] if made else 0
        note = [f"+{more} of {what}; median change {middle} ns of a mean of {mean} ns"]
        return len(made), hits, hits >= FOUND_WANTED * len(made), "found and named", note

    return run


SCENES = {
    "frpc": null_scene(frpc(), False),
    "frpc-busy": null_scene(frpc(), True),
    "echo": null_scene(echo(), False),
    "echo-busy": null_scene(echo(), True),
    "user": change_scene("user", False),
    "user-busy": change_scene("user", True),
    "kernel": change_scene("kernel.other", False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--percent", type=float, default=5.0)
    options = parser.parse_args()
    unknown = [name for name in options.scenes if name not in SCENES]
    if unknown:
        parser.error(f"no scene {unknown[0]}: {', '.join(SCENES)}")
    if not shutil.which(RPCPROBE):
        sys.exit(f"{RPCPROBE} is not there: make build")
    print(f"{'scene':12}{'trials':>7}{'pairs':>7}{'':>3}{'result':28}{'took':>7}  verdict")
    failed = False
    for name in options.scenes or SCENES:
        begin = time.monotonic()
        made, count, good, what, notes = SCENES[name](options)
        failed |= not good
        result = f"{count} {what}"
        took = f"{time.monotonic() - begin:.0f} s"
        print(f"{name:12}{made:7}{options.pairs:7}   {result:28}{took:>7}", end="  ")
        print("pass" if good else "FAIL", flush=True)
        for note in notes[:5]:
            print(f"{'':12}{note}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
