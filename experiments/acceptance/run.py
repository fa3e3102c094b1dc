#!/usr/bin/env python3
"""Does rpcprobe find all requests of programs that know nothing of it, and no others?

Runs servers under their own clients, and compares the number of requests that rpcprobe found with
the number of answers that the client reports. If the client also logs each request's begin and
end, compares these times with rpcprobe's. Needs root. Exit status: 0 if all agree, 1 if not, 2 if
a scene could not be run.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from scene import HERE, LOG, PORT, SCENES, Scene, listening

Span = tuple[int, int]
Found = tuple[int, int, int]  # begin, end, the client's thread
Pair = tuple[Span, Found]

MOST_UNATTRIBUTED = 0.01


def quantile(values: list[int], q: float) -> int:
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)] if ordered else 0


def missing(scene: Scene) -> list[str]:
    return [name for name in scene.needs if not shutil.which(name)]


def capture(options: argparse.Namespace, name: str, clients: int, folder: Path) -> list[dict]:
    directory = folder / "capture"
    scene = [str(a) for a in (sys.executable, HERE / "scene.py", name, clients, folder)]
    if options.attach:
        attach(options.rpcprobe, scene, directory)
    else:
        argv = [options.rpcprobe, "run", "--quiet", "-o", str(directory), "--", *scene]
        subprocess.run(argv, check=True, timeout=300)
    argv = [options.rpcprobe, "requests", directory, "-n", "0", "--sort", "start", "--json"]
    said = subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, text=True)
    requests = json.loads(said.stdout)["requests"]
    return [r for r in requests if f":{PORT}" in (r["channel"] or "")]


def attach(rpcprobe: str, scene: list[str], directory: Path):
    """Attaches to the listening server and to its client's parent process, until both end."""
    pipes = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*scene, "--wait"], stdin=subprocess.PIPE, **pipes) as running:
        if running.stdout.readline() != "ready\n":
            raise SystemExit("run.py: the scene did not begin")
        argv = [rpcprobe, "attach", "--port", PORT, "--pid", running.pid, "-o", directory]
        with subprocess.Popen(
            [str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as probe:
            begun = probe.stderr.readline()
            if "attached" in begun:
                running.stdin.write("go\n")
                running.stdin.flush()
            else:
                running.kill()
            said = begun + probe.stderr.read()
        if running.wait() or probe.returncode:
            raise SystemExit(f"run.py: attach ended with status {probe.returncode}\n{said}")


def enclosed(rows: list[Span], requests: list[Found]) -> list[Pair]:
    """Pairs each row with the request it encloses. Omits rows that do not enclose exactly one."""
    starts = [start_ns for start_ns, *_ in requests]
    pairs = []
    for begin_ns, end_ns in rows:
        inside = requests[bisect_left(starts, begin_ns) : bisect_left(starts, end_ns)]
        if len(inside) == 1 and inside[0][1] <= end_ns:
            pairs.append(((begin_ns, end_ns), inside[0]))
    return pairs


def compare_stamps(path: Path, requests: list[dict]) -> tuple[list[Pair], int]:
    """Pairs of logged times and requests, and the number of log rows without exactly one request.

    Each client of the log is matched with the thread or process whose requests fit it best.
    """
    by_client: dict[str, list[Span]] = {}
    with path.open(newline="") as log:
        for row in csv.DictReader(log):
            span = int(row["begin_ns"]), int(row["end_ns"])
            by_client.setdefault(row["client"], []).append(span)
    found: dict[tuple[str, int], list[Found]] = {}
    for request in sorted(requests, key=lambda r: r["start_ns"]):
        end_ns = request["start_ns"] + request["latency_ns"]
        for kind in ("tid", "pid"):
            client = (kind, request["client"][kind])
            entry = (request["start_ns"], end_ns, request["client"]["tid"])
            found.setdefault(client, []).append(entry)
    pairs, none = [], 0
    for rows in by_client.values():
        best = max((enclosed(rows, spans) for spans in found.values()), key=len, default=[])
        pairs += best
        none += len(rows) - len(best)
    return pairs, none


# Bound, at the median, of the difference of a client's stamps less its time in user mode, nanoseconds.
MOST_BESIDE_USER_NS = 5_000

# What a client's thread does between its stamps and its request, in the order of rest.rs.
BETWEEN = ("user", "system calls", "run queue", "asleep")


def between(rest: Path, directory: Path, pairs: list[Pair]) -> list[tuple[int, ...]]:
    """What the client's thread did between its stamps and its request: nanoseconds of each of BETWEEN, by pair."""
    spans = []
    for (begin_ns, end_ns), (start_ns, done_ns, tid) in pairs:
        spans += [f"{tid} {begin_ns} {start_ns}", f"{tid} {done_ns} {end_ns}"]
    argv = [str(rest), str(directory)]
    told = subprocess.run(
        argv, input="\n".join(spans), check=True, stdout=subprocess.PIPE, text=True
    )
    parts = [[int(word) for word in line.split()] for line in told.stdout.splitlines()]
    both = zip(parts[::2], parts[1::2], strict=True)
    return [tuple(map(sum, zip(*of_pair, strict=True))) for of_pair in both]


def explain(parts: list[tuple[int, ...]]) -> str:
    """The averages of what `between` found."""
    means = [sum(part) / len(parts) / 1e3 for part in zip(*parts, strict=True)]
    return ", ".join(f"{name} {us:.1f}" for name, us in zip(BETWEEN, means, strict=True))


def judge(options: argparse.Namespace, name: str, clients: int, folder: Path) -> tuple[str, bool]:
    requests = capture(options, name, clients, folder)
    issued = int((folder / "issued").read_text())
    complete = [r for r in requests if r["complete"]]
    total_ns = sum(r["latency_ns"] for r in complete)
    unattributed_ns = sum(r["category_ns"].get("unattributed") or 0 for r in complete)
    broken = sum(
        sum(v or 0 for v in r["category_ns"].values()) != r["latency_ns"] for r in complete
    )
    share = unattributed_ns / total_ns if total_ns else 0
    problems = []
    if len(complete) != issued:
        problems.append(f"{len(complete) - issued:+} requests")
    if broken:
        problems.append(f"{broken} do not add up")
    if method := SCENES[name].method:
        others = Counter(r["method"] for r in complete if r["method"] != method)
        problems += [f"{n} called {other}" for other, n in others.items()]
    if share > MOST_UNATTRIBUTED:
        problems.append("too much unattributed")
    stamps = rest = ""
    if (folder / LOG).exists():
        pairs, none = compare_stamps(folder / LOG, complete)
        more = [end - begin - (done - start) for (begin, end), (start, done, _) in pairs]
        p50, p99 = quantile(more, 0.5), quantile(more, 0.99)
        stamps = f"{p50 / 1e3:.1f} / {p99 / 1e3:.1f}"
        if none:
            problems.append(f"{none} stamps with no request of their own")
        parts = between(options.rest, folder / "capture", pairs) if options.rest and pairs else []
        if parts:
            rest = f"; between, us: {explain(parts)}"
            user = BETWEEN.index("user")
            beside = [ns - of_pair[user] for ns, of_pair in zip(more, parts, strict=True)]
            if SCENES[name].bounds_ns and quantile(beside, 0.5) > MOST_BESIDE_USER_NS:
                problems.append("stamps differ by more than the client's work")
        # An interpreter does much between its stamps and its system calls: printed, not judged.
        bounds_ns = SCENES[name].bounds_ns
        if bounds_ns and (p50 > bounds_ns[0] or p99 > bounds_ns[1]):
            problems.append("stamps differ")
    kinds = ", ".join(
        f"{n} {kind}" for kind, n in sorted(Counter(r["kind"] for r in complete).items())
    )
    cut = len(requests) - len(complete)
    verdict = "FAIL: " + "; ".join(problems) if problems else "equal"
    line = f"{name:27} {clients:7} {issued:8,} {kinds:>16} {cut:6} {share:7.2%} {stamps:>12}  {verdict}{rest}"
    return line, not problems


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", help=f"of {', '.join(SCENES)} (default: all)")
    parser.add_argument("--rpcprobe", default="rpcprobe", help="the program to test")
    parser.add_argument(
        "--rest", type=Path, help="the built rest.rs, to explain the time outside of requests"
    )
    parser.add_argument(
        "--attach",
        action="store_true",
        help="attach to the running server, then start the clients",
    )
    parser.add_argument(
        "-c", "--clients", type=int, nargs="+", help="numbers of clients (default: the scene's)"
    )
    parser.add_argument("--tries", type=int, default=3, help="most runs of a scene that fails")
    options = parser.parse_args()
    unknown = set(options.scenes) - set(SCENES)
    if unknown:
        parser.error(f"no scene has the name {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    options = parse()
    if os.geteuid() != 0:
        print("run.py: needs root", file=sys.stderr)
        return 2
    print(
        f"{'program':27} {'clients':>7} {'issued':>8} {'found':>16} {'cut':>6} {'unattr.':>7} "
        f"{'stamps p50/p99 us':>12}  verdict"
    )
    passed, absent = True, False
    for name in options.scenes or SCENES:
        if lacks := missing(SCENES[name]):
            print(f"{name:27} not run: {', '.join(lacks)} is not installed")
            absent = True
            continue
        for clients in options.clients or SCENES[name].clients:
            for left in reversed(range(options.tries)):
                if listening():
                    print(f"run.py: somebody else listens on port {PORT}", file=sys.stderr)
                    return 2
                with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
                    line, equal = judge(options, name, clients, Path(folder))
                if equal or left == 0:
                    break
                print(f"{line} (again)", flush=True)
            print(line, flush=True)
            passed &= equal
    return 2 if absent else 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
