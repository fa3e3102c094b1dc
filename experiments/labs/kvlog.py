#!/usr/bin/env python3
"""kvlog over 1 Gbit/s: how long is 1 MB on the wire, who copies it how often, and what time is it there?

Ten values of 1 MB from one network namespace to another: wire.qdisc + wire.link beside bytes / rate, the kernel's
work and copies at both ends, the server's own copies by the functions of its user time (--stacks), and the offset of the server's
clock as kvpost.py takes it from the program's own stamps against the shift that was injected.
"""

import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet
from lab import NETLAB, TARGETS, Capture, capture, check, main, p50, us

FOLDER = TARGETS / "kvlog"
BYTES, RATE, SHIFT_US, BURST_BYTES = 1_000_000, 1e9, 250_000, 16_000
LIMIT_PERCENT = 3
# Ethernet, IPv4 and TCP with its time stamp, for each 8948 bytes of payload (the link has jumbo frames).
WIRE_BYTES = BYTES * (9014 / 8948)
INNER = f"""
{NETLAB} in server {FOLDER}/kvserver --clock-shift-us {SHIFT_US} --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 100); do grep -qs ready said && break; sleep 0.1; done
{FOLDER}/kvclient --server 10.77.0.2 --pings 20 --requests $REQUESTS --bytes {BYTES} --log client.csv
"""


def lab(rpcprobe: str, scratch: Path) -> bool:
    folder = scratch / "kvlog"
    (scratch / "inner.sh").write_text(INNER)
    script = f"{NETLAB} link -- /bin/sh -e {scratch}/inner.sh"
    found = capture(rpcprobe, folder, f"REQUESTS=10 {script}")
    writes = large(found)
    good = check("ten requests of 1 MB, complete", [r["complete"] for r in writes] == [True] * 10)
    segments = found.segments(writes)
    by_rate_ns = (WIRE_BYTES - BURST_BYTES) * 8 / RATE * 1e9
    wire_ns = p50((r["wire.qdisc"] or 0) + (r["wire.link"] or 0) for r in writes)
    print(f"kvlog, 1 MB over 1 Gbit/s, latency p50 {us(p50(r['latency_ns'] for r in writes))}")
    off = (wire_ns - by_rate_ns) / by_rate_ns * 100
    print(
        f"  bytes / rate {us(by_rate_ns)}; wire.qdisc + wire.link {us(wire_ns)} p50: {off:+.2f} %"
    )
    good &= check(f"within {LIMIT_PERCENT} %", abs(off) <= LIMIT_PERCENT)

    print("  a request on average, by side:")
    spent: Counter = Counter()
    for own in segments.values():
        for s in own:
            spent[s["side"], s["category"]] += s["duration_ns"]
    for (side, category), ns in spent.most_common(10):
        print(f"    {side:8}{category:20}{us(ns / len(writes)):>12}")

    sampled = capture(rpcprobe, scratch / "stacks", f"REQUESTS=200 {script}", "--stacks")
    good &= kernel_copies(writes, large(sampled))
    functions = own_copies(sampled)
    print(
        "  the server's user time, samples by function and who called it (of 200 others, --stacks):"
    )
    for function, samples in functions.most_common(5):
        print(f"    {samples:>5}  {function[:100]}")
    copies = sum(n for f, n in functions.items() if re.search("mem(cpy|move)|split|Store::", f))
    good &= check("its copies have the names of the functions that make them", copies > 0)

    post = [FOLDER / "kvpost.py", "client.csv", "--server-log", "server.csv"]
    post += ["--rate-mbit", "1000", "--burst", str(BURST_BYTES)]
    said = subprocess.run(post, cwd=folder, check=True, capture_output=True, text=True).stdout
    offset = re.search(r"offset_ns (-?\d+) uncertainty_ns (\d+)", said)
    off_ns, within_ns = int(offset.group(1)) - SHIFT_US * 1000, int(offset.group(2))
    print(
        f"  offset of the server's clock by its own stamps: {off_ns:+,} ns off the {SHIFT_US} us injected"
    )
    return (
        check(f"that is within its uncertainty, {within_ns:,} ns", abs(off_ns) <= within_ns)
        and good
    )


def large(found: Capture) -> list[dict]:
    """The requests that carry a value."""
    return [r for r in found.requests if r["kind"] == "tcp" and (r["request_bytes"] or 0) >= BYTES]


def kernel_copies(writes: list[dict], sampled: list[dict]) -> bool:
    """What the kernel copied at both ends. The server reads as the bytes come in, beside the time on the wire: only
    what it reads last is on the request's way."""
    print(
        "  the kernel's copies, a request on average, on its way or not (by samples: of 200 others):"
    )
    print(
        f"    {'':8}{'bytes':>12}{'CPU of the calls':>20}{'copying ~':>12}{'by samples':>12}{'of samples':>12}"
    )
    right = True
    for side in ("client", "server"):

        def sums(of: list[dict], side=side) -> dict[str, int]:
            names = ("bytes", "cpu_ns", "copy_ns", "samples", "copy_samples")
            return {name: sum(r[f"{side}_moved_{name}"] for r in of) for name in names}

        moved, others = sums(writes), sums(sampled)
        count, samples = len(writes), others["samples"]
        share = others["copy_samples"] / max(samples, 1)
        print(
            f"    {side:8}{moved['bytes'] / count:>12,.0f}{us(moved['cpu_ns'] / count):>20}"
            f"{us(moved['copy_ns'] / count):>12}{us(moved['cpu_ns'] / count * share):>12}{samples:>12}"
        )
        right &= samples > 0 and others["copy_samples"] > 0
        right &= all(
            r[f"{side}_moved_bytes"] == r["request_bytes"] + r["response_bytes"]
            and 0 < r[f"{side}_moved_copy_ns"] <= r[f"{side}_moved_cpu_ns"]
            for r in writes
        )
    return check("at both ends every byte of both messages; copying is part of the calls", right)


def own_copies(found: Capture) -> Counter:
    """Samples of the server's user time, by the innermost functions."""
    writes = large(found)
    callers = defaultdict(list)
    for frame in pyarrow.parquet.read_table(found.table("stacks")).to_pylist():
        callers[frame["stack_id"]].append(frame["function"])
    functions: Counter = Counter()
    for own in found.segments(writes).values():
        for s in own:
            if s["side"] == "server" and s["category"] == "user" and s["samples"]:
                functions[" < ".join(callers[s["stack_id"]][:3])] += s["stack_samples"]
    return functions


if __name__ == "__main__":
    main(__doc__, lab)
