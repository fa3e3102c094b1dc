#!/usr/bin/env python3
"""How many pairs of runs find an injected change: subsets of the pairs of one long `rpcprobe ab`.

With n pairs there are 2^n sign flips, and p <= 0.01 allows 2^n / 100 of them to be more extreme
than the observation. Each quantity has two flips under which all its differences have the same
sign. So while 2^n / 100 is less than twice the number of quantities, another quantity sometimes
hides a change. Needs root. Usage: pairs.py [--pairs N] [--subsets N] [--percent P]; rpcprobe from
$RPCPROBE or PATH.
"""

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

from run import RPCPROBE, changed, changed_pair, pair, size_of_change

SIZES = (8, 9, 10, 11, 12, 14)


def spoken(command):
    command = [str(word) for word in command]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=48)
    parser.add_argument("--subsets", type=int, default=100)
    parser.add_argument("--percent", type=float, default=5.0)
    options = parser.parse_args()
    draw = random.Random(1)
    more, mean = size_of_change("user", options.percent, False)
    print(
        f"+{more} loops, {options.percent} % of a mean of {mean} ns; subsets of {options.pairs} pairs"
    )
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "ab"
        command = [
            RPCPROBE,
            "ab",
            "--json",
            "--keep",
            "tables",
            "--pairs",
            options.pairs,
            "-o",
            out,
        ]
        spoken([*command, "--", *pair(), "---", *changed_pair("user", more)])
        print(f"{'pairs':>5}  {'found and named':>16}")
        for size in SIZES:
            found = 0
            for _ in range(options.subsets):
                chosen = sorted(draw.sample(range(1, options.pairs + 1), size))
                sides = [[out / f"{side}.{number}" for number in chosen] for side in "ab"]
                comparison = spoken([RPCPROBE, "diff", "--json", "--", *sides[0], "---", *sides[1]])
                found += any(category == "user" for _, category in changed(comparison))
            print(f"{size:>5}  {found:>6} of {options.subsets}", flush=True)


if __name__ == "__main__":
    main()
