#!/usr/bin/env python3
"""Half an hour at a high rate: memory, files and losses.

Runs ./steady under rpcprobe, and measures every few seconds the memory of the probe, the files of
the capture and the free disk space. Every lost record must be reported, memory must stay flat while
the probe records, the file must grow linearly in time, and as many requests must be found as were
made. Writes soak.csv and a plot. Needs root. Exit status: 0 if all of that holds, 1 if not or if
the disk became too full, 2 if it could not be run.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from soak_plot import plot
from tools import file_sizes, give_up, own_children

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30

# The probe holds the records of the last 10 ms and one block per CPU: nothing permanent. The memory
# that an allocator may keep after a burst exceeds a leak of one byte per request in a minute.
FLAT_BYTES = 16 * MIB
# Allowed deviation of the file's growth in each quarter from the mean: others share the machine.
LINEAR_WITHIN = 0.10
# Size of attribution's tables as a share of the events; they need room, too.
TABLES_SHARE = 0.6


@dataclass
class Sample:
    """The measurements of one moment; the file sizes include files still being written."""

    at_s: float
    phase: str
    rss_bytes: int
    peak_bytes: int
    cpu_s: float
    events_bytes: int
    requests_bytes: int
    segments_bytes: int
    disk_free_bytes: int


@dataclass
class Soak:
    samples: list[Sample] = field(default_factory=list)
    stopped: str | None = None

    def of(self, phase: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.phase == phase]


def memory_of(pid: int) -> tuple[int, int]:
    """The process's present and peak memory."""
    values = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        values[name] = value
    return tuple(int(values[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look(pid: int, capture: Path, at_s: float, phase: str) -> Sample:
    sizes = file_sizes(capture)

    def bytes_of(name: str) -> int:
        return max((size for file, size in sizes.items() if name in file), default=0)

    rss_bytes, peak_bytes = memory_of(pid)
    return Sample(
        at_s,
        phase,
        rss_bytes,
        peak_bytes,
        cpu_of(pid),
        bytes_of("events.bin"),
        bytes_of("requests.parquet"),
        bytes_of("segments.parquet"),
        shutil.disk_usage(capture.parent).free,
    )


def watch(child: subprocess.Popen, capture: Path, every_s: float, leave_bytes: int) -> Soak:
    soak, began = Soak(), time.monotonic()
    while child.poll() is None:
        try:
            targets = own_children(child.pid) if file_sizes(capture) else []
            former = soak.samples[-1].phase if soak.samples else "begin"
            phase = "record" if targets else "begin" if former == "begin" else "attribute"
            sample = look(child.pid, capture, time.monotonic() - began, phase)
        except (OSError, KeyError):
            break  # the process has ended
        soak.samples.append(sample)
        if not soak.stopped and targets:
            need_bytes = leave_bytes + TABLES_SHARE * sample.events_bytes
            if sample.disk_free_bytes < need_bytes:
                soak.stopped = (
                    f"stopped after {sample.at_s:.0f} s: {sample.disk_free_bytes / GIB:.1f} GiB are free,"
                    f" and {need_bytes / GIB:.1f} are needed for the tables and to be left"
                )
                print(soak.stopped, flush=True)
                for target in targets:
                    os.kill(target, signal.SIGTERM)
        try:
            child.wait(timeout=every_s if targets else min(every_s, 1))
        except subprocess.TimeoutExpired:
            pass
    return soak


def tell_memory(samples: list[Sample]):
    print(
        f"{'recording':<12}{'s':>8}{'RSS, MiB':>10}{'peak':>8}{'CPU, %':>8}{'events, MiB':>13}{'free, GiB':>11}"
    )
    names = ("begin", "1/4", "1/2", "3/4", "end")
    for name, at in zip(names, quarters(samples), strict=True):
        sample = samples[at]
        share = sample.cpu_s / sample.at_s if sample.at_s else 0
        print(
            f"{name:<12}{sample.at_s:>8.0f}{sample.rss_bytes / MIB:>10.1f}{sample.peak_bytes / MIB:>8.1f}"
            f"{share:>8.1%}{sample.events_bytes / MIB:>13,.1f}{sample.disk_free_bytes / GIB:>11.1f}"
        )


def quarters(samples: list) -> list[int]:
    return [(len(samples) - 1) * quarter // 4 for quarter in range(5)]


class Verdicts:
    def __init__(self):
        self.good = True

    def check(self, held: bool, what: str):
        print(f"{'pass' if held else 'FAIL'}: {what}", flush=True)
        self.good &= held


def judge_recording(samples: list[Sample], verdicts: Verdicts):
    marks = quarters(samples)
    early = samples[marks[1]].rss_bytes
    late = max(sample.rss_bytes for sample in samples[marks[1] :])
    verdicts.check(
        late - early <= FLAT_BYTES,
        f"memory grew by {(late - early) / MIB:.1f} MiB after the first quarter; at most {FLAT_BYTES / MIB:.0f}",
    )
    paces = []
    for begin, end in zip(marks, marks[1:], strict=False):
        passed_s = samples[end].at_s - samples[begin].at_s
        grown = samples[end].events_bytes - samples[begin].events_bytes
        paces.append(grown / passed_s)
    mean = sum(paces) / len(paces)
    off = max(abs(pace / mean - 1) for pace in paces)
    shown = ", ".join(f"{pace / MIB:.2f}" for pace in paces)
    verdicts.check(
        off <= LINEAR_WITHIN,
        f"events by quarter: {shown} MiB a second; within {off:.1%} of the mean, at most {LINEAR_WITHIN:.0%}",
    )


def judge_capture(rpcprobe: Path, capture: Path, kind: str, made: int, verdicts: Verdicts) -> dict:
    """Judges the capture; returns its manifest."""
    manifest = json.loads((capture / "manifest.json").read_text())
    counts = manifest["counts"]
    found, lost = counts["requests_by_kind"].get(kind, 0), counts["records_lost"]
    began = time.monotonic()
    command = [rpcprobe, "report", "--json", capture]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        give_up(done.stderr.strip())
    report = json.loads(done.stdout)
    told = sum(loss["count"] for loss in manifest["losses"])
    print(
        f"{counts['records']:,} records, {lost:,} lost; {counts['stored_bytes'] / made:.0f} bytes a request;"
        f" report: {seconds:.0f} s"
    )
    verdicts.check(told == lost, f"{lost:,} records lost, all with their time")
    incomplete = counts["requests_incomplete"]
    if lost == 0:
        same = found == made and incomplete == 0
        verdicts.check(same, f"{made:,} requests made, {found:,} found, {incomplete:,} incomplete")
    else:
        verdicts.check(
            found <= made,
            f"{made:,} requests made, {found:,} found, {incomplete:,} of them marked",
        )
    broken = report["not_conserved"]
    verdicts.check(broken == 0, f"law 1: {broken:,} requests do not add up")
    return manifest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rpcprobe", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=40_000, help="requests a second, all pairs")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--transport", choices=("pipe", "unix", "tcp"), default="pipe")
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
    parser.add_argument("--leave-gib", type=float, default=10, help="disk space to leave free")
    parser.add_argument("--scratch", type=Path, help="where the capture is made and removed")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    options.results.mkdir(exist_ok=True)
    scratch = options.scratch or options.results
    capture = scratch / "capture"
    shutil.rmtree(capture, ignore_errors=True)
    per_pair, seconds = options.rate // options.pairs, round(60 * options.minutes)
    target = [HERE / "steady", "-t", options.transport, "-c", options.pairs]
    command = [options.rpcprobe.resolve(), "run", "--quiet", "-o", capture, "--", *target]
    command += ["-s", seconds, "-r", per_pair]
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        soak = watch(child, capture, options.every, round(options.leave_gib * GIB))
        out = child.communicate()[0]
        if child.returncode != 0:
            give_up(f"rpcprobe ended with status {child.returncode}")
        verdicts = Verdicts()
        made = json.loads(out)
        recording, attributing = soak.of("record"), soak.of("attribute")
        print(
            f"{made['requests'] / made['seconds']:,.0f} requests a second over {options.transport}"
        )
        tell_memory(recording)
        judge_recording(recording, verdicts)
        if attributing:
            last = attributing[-1]
            peak_bytes = max(sample.rss_bytes for sample in attributing)
            print(
                f"attribution: {last.at_s - recording[-1].at_s:.0f} s, at most {peak_bytes / MIB:.1f} MiB;"
                f" requests {last.requests_bytes / MIB:,.1f} MiB, segments {last.segments_bytes / MIB:,.1f} MiB"
            )
        manifest = judge_capture(
            options.rpcprobe, capture, options.transport, made["requests"], verdicts
        )
        with (options.results / "soak.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, asdict(soak.samples[0]))
            writer.writeheader()
            writer.writerows(asdict(sample) for sample in soak.samples)
        plot(soak.samples, manifest, options.results)
        if soak.stopped:
            verdicts.check(False, soak.stopped)
        return 0 if verdicts.good else 1
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
        shutil.rmtree(capture, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
