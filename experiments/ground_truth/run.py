#!/usr/bin/env python3
"""Does rpcprobe put a known cause into the right category, in the right amount?

Runs every case of ./inject (or those named) under rpcprobe, and compares, request by request, what
the target knows of itself with what rpcprobe says. Needs root. Exit status: 0 if every case
passed, 1 if one failed, 2 if one could not be run.
"""

import argparse
import bisect
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What must hold; relative to the injected amount, whichever is larger.
MEDIAN_SHARE, MEDIAN_NS = 0.02, 5_000
P99_SHARE, P99_NS = 0.10, 50_000
UNATTRIBUTED_SHARE = 0.005
MIN_REQUESTS = 200
MIN_MET = 30
# In a log: the target itself cannot tell.
UNKNOWN = 2**64 - 1

# Waits: no cause must turn up in one where it does not belong.
WAITS = (
    "lock",
    "journal",
    "block_io",
    "writeback",
    "sleep",
    "queue.accept",
    "queue.socket",
    "queue.pipe",
    "queue.app",
    "idle.peer",
    "unattributed",
)


# A client that lost its CPU is late to read its answer; on a busy machine that is not rare.
NOISE = ("queue.pipe",)


@dataclass
class Check:
    """A column of the log, and the categories whose sum it must be."""

    truth: str
    categories: tuple[str, ...]


@dataclass
class Case:
    name: str
    checks: list[Check]
    # Waits that are allowed besides those checked, as other causes are at work, too.
    beside: tuple[str, ...] = ()
    # Where it creates files: a small ext4 image of its own, memory, or the directory given.
    where: str = "disk"
    # The cause comes by chance: compared are the requests that met it, or are said to have.
    by_chance: bool = False
    # Requests for every one that is asked for on the command line.
    times: int = 1
    nothing: tuple[str, ...] = field(default=())


KERNEL_WAITS = ("journal", "block_io", "writeback", "lock")

CASES = [
    Case("user_spin", [Check("cpu_ns", ("user",))]),
    Case("kernel_spin", [Check("kernel_ns", ("kernel.vfs",))]),
    Case("faults", [Check("faults_ns", ("fault",))]),
    Case("interrupts", [Check("interrupts_ns", ("interrupt",))], times=2),
    Case("sleep", [Check("sleep_ns", ("sleep",))]),
    Case("mutex", [Check("lock_ns", ("lock",))]),
    Case("hops_eventfd", [Check("cpu_ns", ("user",))]),
    Case("hops_condvar", [Check("cpu_ns", ("user",))]),
    Case("hops_semaphore", [Check("cpu_ns", ("user",))]),
    Case("hops_process", [Check("cpu_ns", ("user",))]),
    Case("fsync", [Check("asleep_ns", KERNEL_WAITS)], where="ext4"),
    Case(
        "create_beside_fsync",
        [Check("asleep_ns", ("journal",))],
        beside=("block_io", "lock"),
        where="ext4",
        by_chance=True,
        times=3,
    ),
    Case("create_beside_fsync", [], where="memory", nothing=("journal", "block_io", "writeback")),
    Case("read_dropped", [Check("asleep_ns", ("block_io",))], where="ext4"),
    Case("read_direct", [Check("asleep_ns", ("block_io",))]),
    Case("pipe_full", [Check("cpu_ns", ("user",))]),
    Case("sink_full", [Check("asleep_ns", ("queue.pipe",))]),
    Case("burst", [Check("queued_ns", ("queue.pipe",))]),
    Case(
        "preempted",
        [Check("preempted_ns", ("runqueue.preempted",)), Check("cpu_ns", ("user",))],
    ),
]


def title(case: Case) -> str:
    return case.name + {"ext4": "@ext4", "memory": "@tmpfs", "disk": ""}[case.where]


def give_up(message: str):
    print(f"run.py: {message}", file=sys.stderr)
    sys.exit(2)


# ---- where the target runs ----


def tool(*argv: str | Path) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode != 0:
        give_up(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def mounted(scratch: Path, kind: str):
    """A file system of the kind, unmounted and forgotten at the end, however that comes."""
    if kind == "disk":
        yield scratch
        return
    place = scratch / "mnt"
    place.mkdir()
    image = scratch / "image"
    try:
        if kind == "ext4":
            with image.open("wb") as file:
                file.truncate(96 << 20)
            # The smaller the journal, the sooner who changes metadata must wait for a commit.
            tool("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", image)
            tool("mount", "-o", "loop,commit=1", image, place)
            # Past the page cache below, so that a commit takes as long as a device does.
            loops = tool("losetup", "--noheadings", "--output", "NAME", "--associated", image)
            tool("losetup", "--direct-io=on", loops.strip())
        else:
            tool("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place)
        yield place
    finally:
        # Where nothing is mounted any more there is nothing to do; who is still there is told.
        if os.path.ismount(place):
            done = subprocess.run(["umount", str(place)], capture_output=True)
            if done.returncode != 0:
                subprocess.run(["umount", "--lazy", str(place)])
        image.unlink(missing_ok=True)
        place.rmdir()


# ---- what was logged, what was attributed ----


@dataclass
class Sample:
    """One request as both know it."""

    log: dict[str, int]
    request: dict


def load_log(path: Path) -> list[dict[str, int]]:
    with path.open(newline="") as file:
        return [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]


def load_requests(rpcprobe: str, capture: Path) -> list[dict]:
    argv = [rpcprobe, "requests", str(capture), "--sort", "start", "-n", "0", "--json"]
    done = subprocess.run([*argv, "--kind", "pipe"], capture_output=True, text=True)
    if done.returncode != 0:
        give_up(f"{' '.join(argv)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["requests"]


def join(log: list[dict[str, int]], requests: list[dict]) -> tuple[list[Sample], list[str]]:
    """Each logged request with the one attributed request inside its stamps."""
    by_client: dict[int, list[dict]] = {}
    for request in requests:
        if request["client"]:
            by_client.setdefault(request["client"]["pid"], []).append(request)
    samples, problems = [], []
    for row in log:
        of_client = by_client.get(row["client_pid"], [])
        first = bisect.bisect_left(of_client, row["start_ns"], key=lambda r: r["start_ns"])
        last = bisect.bisect_left(of_client, row["end_ns"], key=lambda r: r["start_ns"])
        found = of_client[first:last]
        if len(found) != 1:
            problems.append(f"request {row['seq']} was found {len(found)} times")
            continue
        request = found[0]
        if request["start_ns"] + request["latency_ns"] > row["end_ns"]:
            problems.append(f"request {row['seq']} ends after its client's last stamp")
        if not request["complete"]:
            problems.append(f"request {row['seq']} is incomplete: {request['reason']}")
            continue
        samples.append(Sample(row, request))
    return samples, problems


# ---- the verdict ----


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least a share q of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)] if ordered else 0


def attributed(sample: Sample, categories: Iterable[str]) -> int:
    of = sample.request["category_ns"]
    return sum(of.get(category) or 0 for category in categories)


def meets(sample: Sample, check: Check) -> bool:
    return max(sample.log[check.truth], attributed(sample, check.categories)) > MEDIAN_NS


def judge_check(check: Check, samples: list[Sample], by_chance: bool) -> dict:
    samples = [sample for sample in samples if sample.log[check.truth] != UNKNOWN]
    if by_chance:
        samples = [sample for sample in samples if meets(sample, check)]
    truths = [sample.log[check.truth] for sample in samples]
    founds = [attributed(sample, check.categories) for sample in samples]
    errors = [abs(found - truth) for found, truth in zip(founds, truths, strict=True)]
    # Each against the bound of its own request, as no two are given the same amount.
    excess50 = [
        error / max(MEDIAN_SHARE * truth, MEDIAN_NS)
        for error, truth in zip(errors, truths, strict=True)
    ]
    excess99 = [
        error / max(P99_SHARE * truth, P99_NS) for error, truth in zip(errors, truths, strict=True)
    ]
    p50 = quantile(truths, 0.5)
    worst = max(range(len(samples)), key=lambda i: excess99[i], default=0)
    result = {
        "truth": check.truth,
        "n": len(samples),
        "categories": list(check.categories),
        "injected_p50_ns": p50,
        "injected_max_ns": max(truths, default=0),
        "attributed_p50_ns": quantile(founds, 0.5),
        "bias_p50_ns": quantile(
            [found - truth for found, truth in zip(founds, truths, strict=True)], 0.5
        ),
        "median_ok": quantile(excess50, 0.5) <= 1,
        "p99_ok": quantile(excess99, 0.99) <= 1,
    }
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        result[f"error_{name}_ns"] = quantile(errors, q)
        shares = [error / truth for error, truth in zip(errors, truths, strict=True) if truth]
        result[f"error_{name}_share"] = quantile(shares, q)
    if samples:
        result["worst"] = {
            "request_id": samples[worst].request["request_id"],
            "injected_ns": truths[worst],
            "attributed_ns": founds[worst],
        }
    return result


def judge(case: Case, log: list[dict[str, int]], requests: list[dict]) -> dict:
    samples, failures = join(log, requests)
    problems = failures[:]
    failures = failures[:3] + ([f"... {len(failures)} in all"] if len(failures) > 3 else [])
    if len(samples) < MIN_REQUESTS:
        failures.append(f"only {len(samples)} requests can be compared")
    broken = [s for s in samples if sum(s.request["category_ns"].values()) != latency(s)]
    if broken:
        failures.append(f"law 1: {len(broken)} requests do not add up")
    total = sum(latency(sample) for sample in samples)
    unattributed = sum(attributed(sample, ("unattributed",)) for sample in samples)
    share = unattributed / total if total else 0
    if share > UNATTRIBUTED_SHARE:
        failures.append(f"unattributed {share:.2%}")

    checks = [judge_check(check, samples, case.by_chance) for check in case.checks]
    for check in checks:
        if check["n"] < (MIN_MET if case.by_chance else MIN_REQUESTS):
            failures.append(f"{check['truth']} is known of {check['n']} requests only")
        for bound, ok in (("median", check["median_ok"]), ("p99", check["p99_ok"])):
            if not ok:
                failures.append(f"{bound} error of {check['truth']}")
    # Nothing of it anywhere else.
    expected = {category for check in case.checks for category in check.categories}
    others = tuple(c for c in WAITS if c not in expected and c not in case.beside)
    known = [s for s in samples if all(s.log[check.truth] != UNKNOWN for check in case.checks)]
    amounts = [sum(s.log[check.truth] for check in case.checks) for s in known]
    strays = {}
    for name, q, portion, least in (
        ("median", 0.5, MEDIAN_SHARE, MEDIAN_NS),
        ("p99", 0.99, P99_SHARE, P99_NS),
    ):
        looked_at = [c for c in others if name == "median" or c not in NOISE]
        found = [attributed(sample, looked_at) for sample in known]
        strays[name] = quantile(found, q)
        excess = [
            stray / max(portion * amount, least)
            for stray, amount in zip(found, amounts, strict=True)
        ]
        if quantile(excess, q) > 1:
            sums = {c: sum(attributed(s, [c]) for s in samples) for c in looked_at}
            where = ", ".join(f"{c} {ns / 1e3:,.0f} us" for c, ns in sums.items() if ns)
            failures.append(f"{name} of other waits (in all {where})")
    for category in case.nothing:
        if any(attributed(sample, (category,)) for sample in samples):
            failures.append(f"{category}, where there is none")
    return {
        "case": title(case),
        "n": len(samples),
        "problems": problems,
        "checks": checks,
        "unattributed_share": share,
        "law1_broken": len(broken),
        "stray_ns": strays,
        "category_mean_ns": means(samples),
        "failures": failures,
        "passed": not failures,
    }


def latency(sample: Sample) -> int:
    return sample.request["latency_ns"]


def means(samples: list[Sample]) -> dict[str, float]:
    names = sorted({name for sample in samples for name in sample.request["category_ns"]})
    return {name: sum(attributed(s, (name,)) for s in samples) / len(samples) for name in names}


# ---- running and telling ----


@contextmanager
def cpus_awake():
    """Keeps every CPU from going idle, with threads that give way to any other at once.

    To wake an idle CPU takes long, most of all a virtual one, and it is not the cause under test;
    the kernel's own accounting, which is the truth of some cases, counts it as sleep.
    """
    pids = []
    try:
        for cpu in os.sched_getaffinity(0):
            pid = os.fork()
            if pid == 0:
                os.sched_setaffinity(0, {cpu})
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                parent = os.getppid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                while os.getppid() == parent:
                    for _ in range(100_000):
                        pass
                os._exit(0)
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_case(case: Case, options: argparse.Namespace, scratch: Path) -> dict:
    folder = scratch / title(case)
    folder.mkdir()
    log, capture = folder / "log.csv", folder / "capture"
    with mounted(folder, case.where) as place:
        argv = [options.rpcprobe, "run", "--quiet", "-o", str(capture), "--", HERE / "inject"]
        argv += [
            "-n",
            str(case.times * options.requests),
            "-d",
            str(place),
            "-l",
            str(log),
            case.name,
        ]
        # In a group of its own, so that all of it can be ended.
        child = subprocess.Popen([str(a) for a in argv], start_new_session=True)
        try:
            status = child.wait(timeout=options.timeout)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return failed(case, "took too long")
            raise
    if status != 0:
        return failed(case, f"ended with status {status}")
    result = judge(case, load_log(log), load_requests(options.rpcprobe, capture))
    if options.keep:
        kept = Path(options.keep) / title(case)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
    shutil.rmtree(folder)
    return result


def failed(case: Case, why: str) -> dict:
    return {"case": title(case), "n": 0, "checks": [], "failures": [why], "passed": False}


COLUMNS = "{:<26} {:<34} {:>4} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>5}  {}"
HEADER = (
    "case",
    "injected -> category",
    "n",
    "injected",
    "found",
    "err p50",
    "p90",
    "p99",
    "p50 %",
    "p90 %",
    "p99 %",
    "unatt",
    "law 1",
    "verdict",
)


def us(ns: float) -> str:
    return f"{ns / 1e3:,.1f}"


def tell(result: dict):
    verdict = "pass" if result["passed"] else "FAIL: " + "; ".join(result["failures"])
    law1 = "-" if "law1_broken" not in result else "BROKEN" if result["law1_broken"] else "exact"
    unattributed = f"{result.get('unattributed_share', 0):.2%}"
    first = True
    for check in result["checks"] or [None]:
        name = result["case"] if first else ""
        end = (unattributed, law1, verdict) if first else ("", "", "")
        first = False
        if check is None:
            print(COLUMNS.format(name, "", result["n"], *[""] * 8, *end).rstrip())
            continue
        categories = check["categories"]
        what = f"{check['truth'].removesuffix('_ns')} -> {'+'.join(categories)}"
        numbers = [us(check[k]) for k in ("injected_p50_ns", "attributed_p50_ns")]
        numbers += [us(check[f"error_{q}_ns"]) for q in ("p50", "p90", "p99")]
        numbers += [f"{check[f'error_{q}_share']:.1%}" for q in ("p50", "p90", "p99")]
        print(COLUMNS.format(name, what, check["n"], *numbers, *end).rstrip())
    sys.stdout.flush()


def stop(number, frame):
    """As for Ctrl-C: through every `finally`."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(title(case) for case in CASES))
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--rpcprobe", default="rpcprobe", help="the program to test")
    parser.add_argument("-n", "--requests", type=int, default=300, help="of each client")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    parser.add_argument("--keep", metavar="DIR", help="keep logs and captures in DIR")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a case may take")
    options = parser.parse_args()
    wanted = [
        case for case in CASES if not options.cases or {case.name, title(case)} & set(options.cases)
    ]
    unknown = set(options.cases) - {n for case in CASES for n in (case.name, title(case))}
    if unknown:
        give_up(f"no case has the name {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        give_up("needs root")
    if not shutil.which(options.rpcprobe):
        give_up(f"cannot find {options.rpcprobe}: see --rpcprobe")
    tool("make", "-s", "-C", HERE)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    results = []
    print(COLUMNS.format(*HEADER) + " (times in us)")
    with tempfile.TemporaryDirectory(prefix="ground_truth.") as scratch, cpus_awake():
        for case in wanted:
            result = run_case(case, options, Path(scratch))
            tell(result)
            results.append(result)
    if options.json:
        Path(options.json).write_text(json.dumps({"cases": results}, indent=2) + "\n")
    bad = [result["case"] for result in results if not result["passed"]]
    print(f"{len(results) - len(bad)} of {len(results)} cases passed")
    if bad:
        print("failed: " + ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
