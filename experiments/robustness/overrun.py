#!/usr/bin/env python3
"""What becomes of requests when records are lost?

Runs ./rounds under rpcprobe with rings so small that they overrun, and compares each request with
the logs of its client and server. Requests that a loss affects may be missing or marked as
incomplete; all others must be found and right. Needs root. Exit status: 0 if all of that holds, 1
if not, 2 if it could not be run.
"""

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

from stamps import Verdict, judge, load_capture, load_log
from tools import run

HERE = Path(__file__).resolve().parent

# The last size loses nothing: it shows the error without losses.
RINGS_KIB = (4, 16, 64, 256, 16384)
# The arguments of rounds, and the kind of its requests.
WORKLOADS = {
    "pipe": ("-b -n 60000", "pipe"),
    "unix": ("-b -t unix -n 40000", "unix"),
    "tcp": ("-b -t tcp -n 30000", "tcp"),
    "pipe, 3 pairs": ("-b -c 3 -n 20000", "pipe"),
    "pipe, work": ("-b -w 100000 -n 20000", "pipe"),
    "unix, 3 pairs, work": ("-b -t unix -c 3 -w 100000 -n 10000", "unix"),
    "tcp, 3 pairs, work": ("-b -t tcp -c 3 -w 100000 -n 10000", "tcp"),
    "pipe, new ones": ("-c 2 -r 200 -n 60 -w 50000", "pipe"),
    "unix, new ones": ("-t unix -c 2 -r 200 -n 60 -w 50000", "unix"),
    "tcp, new ones": ("-t tcp -c 2 -r 200 -n 60 -w 50000", "tcp"),
    "http1, 8 at once": ("-b -p http1 -t tcp -d 8 -c 2 -n 12000 -w 50000", "http1"),
    "http1, new ones": ("-p http1 -t tcp -d 4 -c 2 -r 200 -n 60 -w 50000", "http1"),
    "resp, 8 at once": ("-b -p resp -t unix -d 8 -c 2 -n 12000 -w 50000", "resp"),
    "exec": ("-p exec -c 2 -n 500", "exec"),
}
COLUMNS = "{:<20} {:>6} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>10} {:>24} {:>6}  {}"
TITLES = (
    *("workload", "ring", "lost", "lost, %", "made", "found", "marked", "absent", "unmarked"),
    *("wrong", "work off", "error p50/p99/max, us", "unatt", ""),
)


def capture(rpcprobe: Path, ring_kib: int, words: str, folder: Path, extra: list[str]):
    command = [rpcprobe, "run", "--quiet", "--ring-kib", ring_kib, *extra, "-o", folder / "capture"]
    run([*command, "--", HERE / "rounds", *shlex.split(words), "-l", folder / "log.csv"])


def tell(name: str, ring_kib: int, verdict: Verdict):
    errors = "/".join(f"{verdict.error_ns(q) / 1e3:,.1f}" for q in (0.5, 0.99, 1))
    print(
        COLUMNS.format(
            *(name, ring_kib, verdict.lost, f"{verdict.lost_share:.1%}", verdict.made),
            *(verdict.found, verdict.marked, verdict.absent, verdict.unmarked, len(verdict.wrong)),
            f"{verdict.work_off}/{verdict.worked}",
            *(errors if verdict.unmarked else "-", f"{verdict.unattributed_share:.2%}"),
            "pass" if verdict.good() else "FAIL",
        ),
        flush=True,
    )
    for why, count in verdict.reasons.most_common():
        print(f"    {count} x {why}")
    for example in verdict.wrong[:3]:
        print(f"    {example}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--rings-kib", type=int, nargs="+", default=RINGS_KIB)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--keep", type=Path, help="keep logs and captures of what fails there")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    rpcprobe = options.rpcprobe.resolve()
    print(COLUMNS.format(*TITLES))
    good = True
    for name in options.workloads:
        words, kind = WORKLOADS[name]
        for ring_kib in options.rings_kib:
            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                capture(rpcprobe, ring_kib, words, folder, [])
                log = load_log(folder / "log.csv")
                verdict = judge(log, load_capture(rpcprobe, folder / "capture", kind))
                if options.keep and not verdict.good():
                    (folder / "capture").chmod(0o755)
                    kept = options.keep / f"{name}-{ring_kib}".replace(", ", "-").replace(" ", "_")
                    run(["cp", "-r", folder, kept])
            tell(name, ring_kib, verdict)
            good &= verdict.good()
    print("pass" if good else "FAIL", "all touched requests marked, all others right")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
