#!/usr/bin/env python3
"""Compare the time that rpcprobe says a transfer spent on the wire with the rate of the link.

A client in one network namespace sends 1 MB to a server in another, several times on one
connection, over a veth pair that `tbf` shapes. The first transfer does not count, because TCP is
still finding out how much it may send. The expected time of each later transfer is bytes / rate:
the bytes that the queue passed (by its own count, with headers), less the burst that passes at
once. The median of wire.qdisc + wire.link must agree with that within 3 %. The least and the most
are only printed: they also show how long other work on the machine kept the link waiting. Frames at
1 Gbit/s are jumbo frames, because a CPU may not keep up with small ones (--mtu). Needs root.
Usage: run.py [--rates RATE...] [--transfers N]; rpcprobe from $RPCPROBE or PATH.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_PERCENT = 3
BURST_BYTES = 16_000
BYTES = 1_000_000

SETUP = """
trap 'ip netns del $a; ip netns del $b' EXIT
ip netns add $a && ip netns add $b
ip -n $a link add v0 type veth peer name v1 netns $b
ip -n $a addr add 10.77.0.1/24 dev v0 && ip -n $b addr add 10.77.0.2/24 dev v1
ip -n $a link set v0 mtu {mtu} up && ip -n $b link set v1 mtu {mtu} up
tc -n $a qdisc add dev v0 root tbf rate {rate} burst {burst} limit 20mb
chrt -f 10 ip netns exec $b python3 -c '
import socket
s = socket.create_server(("10.77.0.2", 7777))
c, _ = s.accept()
for i in range({transfers} + 1):
    left = {bytes}
    while left: left -= len(c.recv(left))
    c.sendall(b"done")
c.recv(1)
' &
sleep 0.5
chrt -f 10 ip netns exec $a python3 -c '
import socket, subprocess, time
data = b"x" * {bytes}
c = socket.socket()
c.setsockopt(socket.SOL_SOCKET, 32, 4 * {bytes}) # SO_SNDBUFFORCE: all of it at once
c.connect(("10.77.0.2", 7777))
def passed():
    shown = subprocess.check_output(["tc", "-s", "qdisc", "show", "dev", "v0"], text=True)
    return int(shown.split("Sent ")[1].split()[0])
c.sendall(data); c.recv(4)
for i in range({transfers}):
    before = passed()
    time.sleep(0.1)
    c.sendall(data); c.recv(4)
    print("passed", passed() - before)
'
wait
"""


def bits(rate):
    """Bits per second of `10mbit`, `1gbit`."""
    number, unit = re.fullmatch(r"(\d+)([kmg])bit", rate).groups()
    return int(number) * {"k": 10**3, "m": 10**6, "g": 10**9}[unit]


def measure(rpcprobe, rate, mtu, transfers, directory):
    """For each transfer, milliseconds by bytes and rate, of wire.qdisc and of wire.link."""
    capture = directory / f"capture-{rate}"
    script = f"a=rpwa{os.getpid()} b=rpwb{os.getpid()}" + SETUP.format(
        rate=rate, mtu=mtu, burst=BURST_BYTES, bytes=BYTES, transfers=transfers
    )
    command = [rpcprobe, "run", "--quiet", "-o", capture, "--", "sh", "-c", script]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listing = [rpcprobe, "requests", capture, "--kind", "tcp", "--limit", "0", "--json"]
    out = subprocess.run(listing, check=True, capture_output=True).stdout
    requests = [r for r in json.loads(out)["requests"] if r["request_bytes"] == BYTES]
    if len(requests) != transfers + 1:
        sys.exit(f"{rate}: {len(requests)} requests of {BYTES} bytes instead of {transfers + 1}")
    requests.sort(key=lambda request: request["start_ns"])
    figures = []
    for request, passed in zip(requests[1:], re.findall(r"passed (\d+)", said), strict=True):
        spent = request["category_ns"]
        by_rate_ms = (int(passed) - BURST_BYTES) * 8 / bits(rate) * 1e3
        figures.append(
            (by_rate_ms, spent.get("wire.qdisc", 0) / 1e6, spent.get("wire.link", 0) / 1e6)
        )
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", nargs="+", default=["10mbit", "100mbit", "1gbit"])
    parser.add_argument("--transfers", type=int, default=9)
    parser.add_argument("--mtu", type=int, help="of the link (default: 9000 at 1gbit, else 1500)")
    arguments = parser.parse_args()
    rpcprobe = os.environ.get("RPCPROBE", "rpcprobe")
    print(f"{'rate':8}{'mtu':>6}{'bytes/rate':>12}{'wire.qdisc':>12}{'wire.link':>12}", end="")
    print(f"{'off, p50':>11}{'least':>10}{'most':>10}")
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for rate in arguments.rates:
            mtu = arguments.mtu or (9000 if rate == "1gbit" else 1500)
            figures = measure(rpcprobe, rate, mtu, arguments.transfers, Path(directory))
            expected, qdisc, link = (
                statistics.median(column) for column in zip(*figures, strict=True)
            )
            offs = [(queued + sent - by) / by * 100 for by, queued, sent in figures]
            off = statistics.median(offs)
            failed |= abs(off) > LIMIT_PERCENT
            print(f"{rate:8}{mtu:>6}{expected:>9.2f} ms{qdisc:>9.2f} ms{link:>9.2f} ms", end="")
            print(f"{off:>+9.2f} %{min(offs):>+8.2f} %{max(offs):>+8.2f} %")
    sys.exit(failed)


if __name__ == "__main__":
    main()
