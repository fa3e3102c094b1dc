#!/usr/bin/env python3
"""Does rpcprobe put a known cause into the right category, in the right amount?

Runs every case of ./inject (or the named cases) under rpcprobe. Compares, request by request, the
target's own measurements with rpcprobe's attribution. Needs root. Exit status: 0 if every case
passed, 1 if one failed, 2 if one could not be run.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import parquet
import reduced
import spike
import table
from capture import Sample, load_requests, switches_missed
from cases import ALL, CASES, Case, title
from inject import INJECT, inject
from judge import failed, judge
from machine import cpus_awake, give_up, tool
from truth import load_log

HERE = Path(__file__).resolve().parent


def run_once(
    case: Case, transport: str, options: argparse.Namespace, scratch: Path
) -> tuple[dict, list[Sample]]:
    folder = scratch / title(case, transport).replace("/", "-")
    folder.mkdir()
    try:
        log, capture = folder / "log.csv", folder / "capture"
        requests = case.requests or case.times * options.requests
        program = [
            options.rpcprobe,
            "run",
            "--quiet",
            *options.options,
            "-o",
            capture,
            "--",
            INJECT,
        ]
        why = inject(case, transport, requests, folder, log, options.timeout, program)
        if why:
            return failed(case, transport, why), []
        found = load_requests(options.rpcprobe, capture, transport)
        result, samples = judge(case, transport, load_log(log), found)
        result["switches_missed"] = switches_missed(capture)
        if case.spike:
            result["spike"] = spike.look(options.rpcprobe, capture, samples)
            result["failures"] += spike.failures_of(result["spike"])
            result["passed"] = not result["failures"]
        return result, samples
    finally:
        if options.keep:
            kept = Path(options.keep) / folder.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
        shutil.rmtree(folder)


def run_case(
    case: Case, transport: str, options: argparse.Namespace, scratch: Path
) -> tuple[dict, list[Sample]]:
    """Runs a case, again after a failure, which other programs may have caused. Reports each
    failure."""
    former = []
    for left in reversed(range(options.tries)):
        result, samples = run_once(case, transport, options, scratch)
        if result["passed"] or left == 0:
            break
        former.append(result["failures"])
    result["former_failures"] = former
    return result, samples


def stop(number, frame):
    """Ends the program like Ctrl-C, so that every `finally` block runs."""
    raise KeyboardInterrupt


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(case.name for case in CASES))
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("-t", "--transport", choices=ALL, help="only the cases over this transport")
    parser.add_argument("--rpcprobe", default="rpcprobe", help="the program to test")
    parser.add_argument("-n", "--requests", type=int, default=300, help="requests of each client")
    parser.add_argument("--tries", type=int, default=3, help="most runs of a case that fails")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    parser.add_argument(
        "--parquet", metavar="DIR", help="write cases.parquet and requests.parquet to DIR"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep logs and captures in DIR")
    parser.add_argument(
        "--option",
        dest="options",
        metavar="OPTION",
        action="append",
        default=[],
        help="for rpcprobe run: --option=--direct-hooks; may be given several times",
    )
    parser.add_argument(
        "--reduced",
        action="store_true",
        help="few requests, one capture of all cases, judged by shares: for emulated kernels",
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds a case may take")
    options = parser.parse_args()
    if options.tries < 1:
        parser.error("at least one try")
    return options


def select(options: argparse.Namespace) -> list[tuple[Case, str]]:
    runs = [(case, transport) for case in CASES for transport in case.transports]
    wanted = set(options.cases)
    known = {name for case, on in runs for name in (case.name, title(case, on))}
    if wanted - known:
        give_up(f"no case has the name {', '.join(sorted(wanted - known))}")
    return [
        (case, on)
        for case, on in runs
        if (not wanted or {case.name, title(case, on)} & wanted) and options.transport in (None, on)
    ]


def stolen() -> tuple[float, float]:
    """Seconds that the hypervisor has stolen from all CPUs, by the kernel's account (proc_stat(5)),
    and the total of seconds on all CPUs."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    hz = os.sysconf("SC_CLK_TCK")
    return fields[7] / hz, sum(fields) / hz


def main() -> int:
    options = parse()
    runs = select(options)
    if options.parquet:
        parquet.need_pyarrow()
    if os.geteuid() != 0:
        give_up("needs root")
    if not shutil.which(options.rpcprobe):
        give_up(f"cannot find {options.rpcprobe}: see --rpcprobe")
    tool("make", "-s", "-C", HERE)

    if options.reduced:
        return reduced.whole(runs, options)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    results, rows = [], []
    stolen_s, all_s = stolen()
    table.tell_header()
    with tempfile.TemporaryDirectory(prefix="ground_truth.") as scratch, cpus_awake():
        for case, transport in runs:
            result, samples = run_case(case, transport, options, Path(scratch))
            table.tell(result)
            results.append(result)
            rows += parquet.rows_of(case, result, samples)
    spikes = [result for result in results if "spike" in result]
    if spikes:
        spike.tell(spikes)
    if options.json:
        Path(options.json).write_text(json.dumps({"cases": results}, indent=2) + "\n")
    if options.parquet:
        parquet.write(Path(options.parquet), results, rows)
    bad = [result["case"] for result in results if not result["passed"]]
    stolen_s, all_s = (
        after - before for before, after in zip((stolen_s, all_s), stolen(), strict=True)
    )
    print(
        f"the hypervisor took {stolen_s / all_s:.2%} of the CPUs' time: whose, is not always known"
    )
    print(f"{len(results) - len(bad)} of {len(results)} cases passed")
    if bad:
        print("failed: " + ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
