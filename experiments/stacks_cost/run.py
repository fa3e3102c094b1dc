#!/usr/bin/env python3
"""What --stacks costs: latencies of frpc -m 3 under the probe, with stacks and without.

All settings take turns in every round, so that a machine that slows down slows all of them. The
latencies are rpcprobe's own (roundtrip_accuracy checks those). Needs root.
Usage: run.py [--rounds N] [--requests N]; rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FRPC = Path(__file__).resolve().parents[2] / "targets" / "frpc"
# name, options of rpcprobe run
SETTINGS = [
    ("without", []),
    ("--stacks", ["--stacks"]),
    ("sleeps only", ["--stacks=0"]),
    ("samples only", ["--stacks", "--sleep-stacks", "none"]),
    ("samples, uninterruptible sleeps", ["--stacks", "--sleep-stacks", "uninterruptible"]),
]


def measure(rpcprobe, options, expressions, directory):
    """Takes a capture; returns the requests' latencies in ns, and the manifest."""
    capture = directory / "capture"
    command = [rpcprobe, "run", "--quiet", "--force", "-o", capture, *options]
    command += ["--", FRPC / "frpc", "-m", "3"]
    with expressions.open() as file:
        subprocess.run(command, check=True, stdin=file, stdout=subprocess.DEVNULL)
    listing = [rpcprobe, "requests", capture, "--kind", "pipe", "--limit", "0", "--json"]
    out = subprocess.run(listing, check=True, capture_output=True).stdout
    latencies = [r["latency_ns"] for r in json.loads(out)["requests"] if r["complete"]]
    return latencies, json.loads((capture / "manifest.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each setting")
    parser.add_argument("--requests", type=int, default=6000, help="requests a run")
    arguments = parser.parse_args()
    rpcprobe = os.environ.get("RPCPROBE", "rpcprobe")
    subprocess.run(["make", "-s", "-C", FRPC], check=True)
    lines = (FRPC / "expressions.txt").read_text().splitlines()
    lines = (lines * (arguments.requests // len(lines) + 1))[: arguments.requests]

    means = {name: [] for name, _ in SETTINGS}
    everything = {name: [] for name, _ in SETTINGS}
    manifests = {}
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        expressions = directory / "expressions"
        expressions.write_text("\n".join(lines) + "\n")
        for _ in range(arguments.rounds):
            for name, options in SETTINGS:
                latencies, manifest = measure(rpcprobe, options, expressions, directory)
                if len(latencies) != len(lines):
                    print(
                        f"{name}: {len(latencies)} whole requests of {len(lines)}", file=sys.stderr
                    )
                    return 1
                means[name].append(statistics.fmean(latencies))
                everything[name] += latencies
                manifests[name] = manifest

    print(f"{arguments.rounds} runs of {len(lines)} requests each; medians over the runs")
    print(f"{'':32}{'mean [us]':>10}{'ratio':>8}{'p50 [us]':>10}{'p99 [us]':>10}", end="")
    print(f"{'switch [ns]':>13}{'sample [us]':>13}")
    for name, _ in SETTINGS:
        # Each mean divided by the mean of the same round's run without stacks.
        ratios = [mean / base for mean, base in zip(means[name], means["without"])]
        latencies = sorted(everything[name])
        counts = manifests[name]["counts"]
        each_ns = counts["sampling_ns"] / counts["samples"] if counts["samples"] else None
        cells = [
            f"{name:32}{statistics.median(means[name]) / 1000:10.2f}",
            f"{statistics.median(ratios):8.2f}",
            f"{latencies[len(latencies) // 2] / 1000:10.2f}",
            f"{latencies[len(latencies) * 99 // 100] / 1000:10.2f}",
            f"{manifests[name]['calibration']['switch_ns']:13.0f}",
            f"{each_ns / 1000:13.1f}" if each_ns else f"{'-':>13}",
        ]
        print("".join(cells))
    print("ratio: mean latency against `without`; switch: calibrated cost of a sleep and wake-up;")
    print("sample: mean length of the interrupts that took samples (both of the last run)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
