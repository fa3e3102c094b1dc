"""Measures evaluations, process by process, with and without the probe."""

import csv
import subprocess
from dataclasses import dataclass
from pathlib import Path

import checks
import inside
import roundtrips
import study
from study import ab
from study.capture import TARGETS, shell
from study.disks import mounted

FRPC = TARGETS / "frpc"
EXPRESSIONS = FRPC / "expressions.txt"
MODES = (1, 2, 3)
DYNAMIC, STATIC = "dynamic", "static"


@dataclass(frozen=True)
class Arm:
    mode: int
    linked: str
    probed: bool


ARMS = [Arm(mode, DYNAMIC, probed) for mode in MODES for probed in (False, True)]
ARMS += [Arm(1, STATIC, probed) for probed in (False, True)]


def measure(experiment: study.Study):
    """Writes the tables `evaluations`, by measure's own stamps; from captures, `breakdown`,
    `evaluating`, `faults`, `stretch`, `typical`, `outliers` (inside.py); `trips`, `trip_breakdown`
    (roundtrips.py); `alone`, `instruction`, `samples` (checks.py); `changes` (ab)."""
    subprocess.run(["make", "-s", "-C", FRPC], check=True)
    programs = {DYNAMIC: FRPC / "frpc", STATIC: linked_statically(experiment.scratch)}
    evaluations, found = [], inside.Found()
    with mounted("ext4", experiment.scratch / "ext4") as disk:
        for number, arm in study.rounds(ARMS, experiment.often(10, 2)):
            folder = experiment.scratch / f"{number}-{arm.mode}-{arm.linked}-{arm.probed}"
            script = (
                f"{FRPC}/measure -m {arm.mode} -e {EXPRESSIONS} --frpc {programs[arm.linked]} "
                f"--dir {disk} --results results --errors errors"
            )
            latencies: list[int | None] = [None] * sum(1 for _ in EXPRESSIONS.open())
            labels = {"round": number, "mode": arm.mode, "linked": arm.linked}
            if arm.probed:
                capture = study.capture(folder, script)
                requests = inside.evaluations(capture)
                latencies = [request["latency_ns"] for request in requests]
                found.add(capture, requests, labels)
                if arm == Arm(3, DYNAMIC, True):
                    experiment.keep(capture, "exec")
            else:
                shell(folder, script)
            timed = results(folder / "results")
            if len(timed) != len(latencies):
                raise SystemExit(f"{len(timed)} results, {len(latencies)} requests")
            evaluations += [
                {**labels, "probed": arm.probed, **row, "latency_ns": latency}
                for row, latency in zip(timed, latencies, strict=True)
            ]
        experiment.progress("evaluations are measured")
        experiment.results.write("evaluations", evaluations)
        found.write(experiment.results)
        roundtrips.measure(experiment, FRPC / "frpc", EXPRESSIONS)
        checks.measure(experiment, FRPC, EXPRESSIONS, disk)
        compared(experiment, disk)


def compared(experiment: study.Study, disk: Path):
    """Writes the table `changes`: modes 2 and 3 against mode 1, in pairs of runs."""
    evaluator = (
        f"{FRPC}/measure -e {EXPRESSIONS} --dir {disk} --results /dev/null --errors /dev/null"
    )
    rows = []
    for mode in (2, 3):
        sides = [f"{evaluator} -m {of}".split() for of in (1, mode)]
        out = experiment.scratch / f"ab-{mode}"
        comparison = ab.compare(out, *sides, experiment.often(10, 2))
        rows += ab.changes(comparison, "exec", mode=mode)
    experiment.results.write("changes", rows)


def linked_statically(scratch: Path) -> Path:
    """Links the same objects statically."""
    program = scratch / "static" / "frpc"
    program.parent.mkdir()
    tests_and_driver = ("measure", "trial", "summary")
    objects = [of for of in FRPC.glob("*.o") if of.stem not in tests_and_driver]
    subprocess.run(["cc", "-static", "-o", program, *objects, "-lm"], check=True)
    return program


def results(path: Path) -> list[dict[str, int]]:
    """`tokens` and `elapsed_ns` of each evaluation, by measure's own stamps."""
    with path.open(newline="") as file:
        return [
            {"tokens": int(row["tokens"]), "elapsed_ns": int(row["elapsed_ns"])}
            for row in csv.DictReader(file)
        ]
