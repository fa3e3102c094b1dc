#!/usr/bin/env python3
"""kvlog over 1 Gbit/s: 1 MB on the wire, its copies, and the offset of the server's clock.

Writes ten values of 1 MB from one network namespace to another. Compares wire.qdisc + wire.link
with bytes / rate. Shows the kernel's work and copies at both ends, and the server's own copies, by
the functions in its user time (--stacks). Compares the offset of the server's clock, which
kvpost.py computes from the programs' own stamps, with the shift that was injected.
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
# With the headers of Ethernet, IPv4 and TCP (with time stamps) for each 8948 bytes of payload: the
# link has jumbo frames.
WIRE_BYTES = BYTES * (9014 / 8948)
BY_RATE_NS = (WIRE_BYTES - BURST_BYTES) * 8 / RATE * 1e9


def script(requests: int, keys: int = 10, shift_us: int = SHIFT_US) -> str:
    """The script on the link's client, with `requests` writes. $here runs a command on the client's
    host, $there on the server's."""
    return f"""
{NETLAB} in server $there {FOLDER}/kvserver --clock-shift-us {shift_us} --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 100); do grep -qs ready said && break; sleep 0.1; done
$here {FOLDER}/kvclient --server 10.77.0.2 --pings 20 --requests {requests} --keys {keys} \
    --bytes {BYTES} --log client.csv
"""


def clock(folder: Path) -> tuple[int, int]:
    """Runs kvpost.py on the logs. Returns how far the server's clock is ahead, and the uncertainty;
    parts.csv gets the parts of each RPC."""
    post = [FOLDER / "kvpost.py", "client.csv", "--server-log", "server.csv", "-o", "parts.csv"]
    post += ["--rate-mbit", "1000", "--burst", str(BURST_BYTES)]
    said = subprocess.run(post, cwd=folder, check=True, capture_output=True, text=True).stdout
    offset = re.search(r"offset_ns (-?\d+) uncertainty_ns (\d+)", said)
    return int(offset.group(1)), int(offset.group(2))


def large(found: Capture) -> list[dict]:
    """The requests that carry a value."""
    return [r for r in found.requests if r["kind"] == "tcp" and (r["request_bytes"] or 0) >= BYTES]


def moved(requests: list[dict], side: str) -> dict[str, int]:
    """The kernel's copying at one end for these requests, on or off their critical path."""
    names = ("bytes", "cpu_ns", "copy_ns", "samples", "copy_samples")
    return {name: sum(r[f"{side}_moved_{name}"] or 0 for r in requests) for name in names}


def functions(found: Capture) -> dict[int, list[dict]]:
    """The functions of each stack, innermost first."""
    stacks = defaultdict(list)
    for frame in pyarrow.parquet.read_table(found.table("stacks")).to_pylist():
        stacks[frame["stack_id"]].append(frame)
    return stacks


def lab(rpcprobe: str, scratch: Path) -> bool:
    def run(name: str, requests: int, *options: str) -> Capture:
        (scratch / "inner.sh").write_text(script(requests))
        inner = f"{NETLAB} link -- /bin/sh -e {scratch}/inner.sh"
        return capture(rpcprobe, scratch / name, inner, *options)

    found = run("kvlog", 10)
    writes = large(found)
    good = check("ten requests of 1 MB, complete", [r["complete"] for r in writes] == [True] * 10)
    segments = found.segments(writes)
    wire_ns = p50((r["wire.qdisc"] or 0) + (r["wire.link"] or 0) for r in writes)
    print(f"kvlog, 1 MB over 1 Gbit/s, latency p50 {us(p50(r['latency_ns'] for r in writes))}")
    off = (wire_ns - BY_RATE_NS) / BY_RATE_NS * 100
    print(
        f"  bytes / rate {us(BY_RATE_NS)}; wire.qdisc + wire.link {us(wire_ns)} p50: {off:+.2f} %"
    )
    good &= check(f"within {LIMIT_PERCENT} %", abs(off) <= LIMIT_PERCENT)

    print("  a request on average, by side:")
    spent: Counter = Counter()
    for own in segments.values():
        for s in own:
            spent[s["side"], s["category"]] += s["duration_ns"]
    for (side, category), ns in spent.most_common(10):
        print(f"    {side:8}{category:20}{us(ns / len(writes)):>12}")

    sampled = run("stacks", 200, "--stacks")
    good &= kernel_copies(writes, large(sampled))
    samples = own_copies(sampled)
    print(
        "  the server's user time, samples by function and who called it (of 200 others, --stacks):"
    )
    for function, count in samples.most_common(5):
        print(f"    {count:>5}  {function[:100]}")
    copies = sum(n for f, n in samples.items() if re.search("mem(cpy|move)|split|Store::", f))
    good &= check("its copies have the names of the functions that make them", copies > 0)

    offset_ns, within_ns = clock(found.folder)
    off_ns = offset_ns - SHIFT_US * 1000
    print(
        f"  offset of the server's clock by its own stamps: {off_ns:+,} ns off the {SHIFT_US} us injected"
    )
    return (
        check(f"that is within its uncertainty, {within_ns:,} ns", abs(off_ns) <= within_ns)
        and good
    )


def kernel_copies(writes: list[dict], sampled: list[dict]) -> bool:
    """Prints the kernel's copying at both ends. The server reads the bytes as they arrive, in
    parallel with the time on the wire: only its last read is on the request's critical path."""
    print(
        "  the kernel's copies, a request on average, on its way or not (by samples: of 200 others):"
    )
    print(
        f"    {'':8}{'bytes':>12}{'CPU of the calls':>20}{'copying ~':>12}{'by samples':>12}{'of samples':>12}"
    )
    right = True
    for side in ("client", "server"):
        own, others = moved(writes, side), moved(sampled, side)
        count, samples = len(writes), others["samples"]
        share = others["copy_samples"] / max(samples, 1)
        print(
            f"    {side:8}{own['bytes'] / count:>12,.0f}{us(own['cpu_ns'] / count):>20}"
            f"{us(own['copy_ns'] / count):>12}{us(own['cpu_ns'] / count * share):>12}{samples:>12}"
        )
        right &= samples > 0 and others["copy_samples"] > 0
        right &= all(
            r[f"{side}_moved_bytes"] == r["request_bytes"] + r["response_bytes"]
            and 0 < r[f"{side}_moved_copy_ns"] <= r[f"{side}_moved_cpu_ns"]
            for r in writes
        )
    return check("at both ends every byte of both messages; copying is part of the calls", right)


def own_copies(found: Capture) -> Counter:
    """Samples of the server's user time, by the three innermost functions."""
    stacks = functions(found)
    samples: Counter = Counter()
    for own in found.segments(large(found)).values():
        for s in own:
            if s["side"] == "server" and s["category"] == "user" and s["samples"]:
                names = [frame["function"] for frame in stacks[s["stack_id"]][:3]]
                samples[" < ".join(names)] += s["stack_samples"]
    return samples


if __name__ == "__main__":
    main(__doc__, lab)
