#!/usr/bin/env python3
"""The reduced form: a few requests of every case in one capture, judged by shares at the median.

For kernels in software emulation, where each hook and each wake-up takes many times as long, so
that bounds in nanoseconds are meaningless. There the two halves are separate: the injecting half
runs in the guest and needs only Python's own modules.

reduced.py inject FOLDER [CASE...]                  runs the cases and writes their logs
reduced.py judge FOLDER CAPTURE RPCPROBE [CASE...]  prints the result of each case as JSON
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from capture import Sample, join, load_requests
from cases import CASES, NOISE, UNATTRIBUTED_SHARE, WAITS, Case, Check, title
from inject import INJECT, inject
from machine import GivenUp, cpus_awake
from truth import UNKNOWN, Row, load_log

REQUESTS = 25
TIMEOUT_S = 120
# Allowed ratio of attributed to injected, at the median. A guest's CPU may stand still in the
# middle of a request, which disturbs that request's truth.
LOW, HIGH = 0.9, 1.25
# Allowed ratio to injected of time in waits to which the cause does not belong.
STRAYS = 0.1
# Requests that must have met the cause; with fewer, the case is not judged.
MIN_MET = 5


def runs_of(names: list[str]) -> list[tuple[Case, str]]:
    """The named cases, or all, each over its first transport. Omits cases with all causes at once:
    in emulation the target's own measuring takes longer than the injected causes."""
    cases = [case for case in CASES if not case.correlate]
    return [(case, case.transports[0]) for case in cases if not names or case.name in names]


def folder_of(folder: Path, case: Case, transport: str) -> Path:
    return folder / title(case, transport).replace("/", "-")


def inject_all(folder: Path, runs: list[tuple[Case, str]]):
    """Runs the cases. Each leaves log.csv, or a file `failed` or `skipped` with the reason."""
    with tempfile.TemporaryDirectory() as scratch, cpus_awake():
        # The program and its log are in memory: accesses to the host's files would have to be
        # waited for.
        program, log = shutil.copy2(INJECT, scratch), Path(scratch, "log.csv")
        for case, transport in runs:
            place = folder_of(folder, case, transport)
            place.mkdir(parents=True)
            # Cases that wait for a disk get an image: the folder may be on the host's files, not on
            # a disk.
            if case.where == "disk" and any("block_io" in c.categories for c in case.checks):
                case = replace(case, where="ext4")
            try:
                requests = case.times * REQUESTS
                if why := inject(case, transport, requests, place, log, TIMEOUT_S, [program]):
                    (place / "failed").write_text(why)
                else:
                    shutil.move(log, place / "log.csv")
            except GivenUp as given_up:
                (place / "skipped").write_text(given_up.why)


def judge_check(check: Check, samples: list[Sample]) -> tuple[str, bool | None]:
    """The finding, and whether it is right (None: the target could not measure the injection)."""
    met = [s for s in samples if s.log[check.truth] not in (0, UNKNOWN)]
    if len(met) < MIN_MET:
        return f"{check.truth} not known here", None
    where = "+".join(check.categories)
    share = median(s.attributed(check.categories) / s.log[check.truth] for s in met)
    return f"{where} {share:.2f} of {check.truth}", LOW <= share <= HIGH


def strays(case: Case, checks: list[Check], samples: list[Sample]) -> float:
    """Median ratio to injected of time in waits to which the cause does not belong."""
    expected = {category for check in checks for category in check.categories}
    others = [c for c in WAITS if c not in (*expected, *case.beside, *NOISE)]

    def injected_ns(sample: Sample) -> int:
        return sum(ns for check in checks if (ns := sample.log[check.truth]) != UNKNOWN)

    met = [s for s in samples if injected_ns(s)]
    return median(s.attributed(others) / injected_ns(s) for s in met) if met else 0


def judge_shares(case: Case, transport: str, log: list[Row], requests: list[dict]) -> dict:
    """Notes, failures, and whether the case could not be judged here."""
    samples, problems = join(log, requests)
    failures = problems[:3]
    notes = [f"{len(samples)} of {len(log)}"]
    if any(sum(s.request["category_ns"].values()) != s.latency_ns for s in samples):
        failures.append("law 1: requests that do not add up")
    total_ns = sum(s.latency_ns for s in samples)
    unattributed_ns = sum(s.attributed(("unattributed",)) for s in samples)
    if unattributed_ns > UNATTRIBUTED_SHARE * total_ns:
        failures.append(f"unattributed {unattributed_ns / total_ns:.2%}")
    checks = case.checks_on(transport)
    verdicts = [judge_check(check, samples) for check in checks]
    notes += [note for note, _ in verdicts]
    failures += [f"{note}: out of bounds" for note, good in verdicts if good is False]
    stray = strays(case, checks, samples)
    if stray > STRAYS:
        failures.append(f"{stray:.2f} of what is injected in other waits")
    for category in case.nothing:
        if any(s.attributed((category,)) for s in samples):
            failures.append(f"{category}, where there is none")
    untold = bool(checks) and all(good is None for _, good in verdicts)
    return {"notes": notes, "failures": failures, "skipped": untold and not failures}


def judge_all(
    folder: Path, capture: Path, rpcprobe: str, runs: list[tuple[Case, str]]
) -> list[dict]:
    found: dict[str, list[dict]] = {}
    results = []
    for case, transport in runs:
        place = folder_of(folder, case, transport)
        result = {"case": title(case, transport), "notes": [], "failures": [], "skipped": False}
        if (place / "failed").exists():
            result["failures"] = [(place / "failed").read_text()]
        elif (place / "skipped").exists():
            result |= {"notes": [(place / "skipped").read_text()], "skipped": True}
        else:
            if transport not in found:
                found[transport] = load_requests(rpcprobe, capture, transport)
            log = load_log(place / "log.csv")
            result |= judge_shares(case, transport, log, found[transport])
        results.append(result)
    return results


def whole(runs: list[tuple[Case, str]], options: argparse.Namespace) -> int:
    """Both halves, for run.py --reduced."""
    names = list(dict.fromkeys(case.name for case, _ in runs))
    with tempfile.TemporaryDirectory(prefix="ground_truth.") as scratch:
        folder = Path(scratch)
        argv = [options.rpcprobe, "run", "--quiet", *options.options, "-o", folder / "capture"]
        argv += ["--", "/usr/bin/python3", __file__, "inject", folder, *names]
        if status := subprocess.run([str(a) for a in argv]).returncode:
            return status
        results = judge_all(folder, folder / "capture", options.rpcprobe, runs_of(names))
    for result in results:
        verdict = "; ".join(result["failures"]) or "; ".join(result["notes"])
        word = "FAIL" if result["failures"] else "skip" if result["skipped"] else "pass"
        print(f"{result['case']:22} {word}  {verdict}")
    return 1 if any(result["failures"] for result in results) else 0


def main() -> int:
    what, folder, *more = sys.argv[1:]
    if what == "inject":
        inject_all(Path(folder), runs_of(more))
        return 0
    capture, rpcprobe, *names = more
    print(json.dumps(judge_all(Path(folder), Path(capture), rpcprobe, runs_of(names))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
