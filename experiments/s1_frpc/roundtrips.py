"""Modes 3 to 6: one pair of processes, thousands of expressions through it."""

import random
from pathlib import Path

import study
from study import breakdown
from study.capture import Row, read_log, shell

MODES = (3, 4, 5, 6)
NAMES = {3: "pipes", 4: "pipes, batches of 16", 5: "shared memory, futex", 6: "Unix socket"}
TIMES = 10


def measure(experiment: study.Study, program: Path, expressions: Path):
    """`trips`: each run by its log; `trip_breakdown`: by category, of the captured ones."""
    many = experiment.scratch / "many"
    many.write_text(expressions.read_text() * TIMES)
    trips, parts = [], []
    for number, probed in study.rounds((False, True), experiment.often(10, 2)):
        folder = experiment.scratch / f"trips-{number}-{probed}"
        order = random.Random(f"{number} {probed}").sample(MODES, len(MODES))
        script = "\n".join(
            f"{program} -m {mode} -i {many} -o /dev/null --log {mode}.csv" for mode in order
        )
        if probed:
            capture = study.capture(folder, script)
        else:
            shell(folder, script)
        for mode in MODES:
            log = read_log(folder / f"{mode}.csv")
            trips.append({"round": number, "mode": mode, "probed": probed, **costs(log)})
            if probed:
                requests = within(capture, log)
                parts += breakdown.of(capture, requests, round=number, mode=mode)
    experiment.progress("round trips are measured")
    experiment.results.write("trips", trips)
    experiment.results.write("trip_breakdown", parts)


def costs(log: list[Row]) -> Row:
    """Nanoseconds per expression, by the program's own log."""
    each = [(row["end_ns"] - row["begin_ns"]) / row["expressions"] for row in log]
    return {
        "trips": len(log),
        "expressions": sum(row["expressions"] for row in log),
        "total_ns": sum(row["end_ns"] - row["begin_ns"] for row in log),
        "median_ns": study.median(each),
    }


def within(capture: study.Capture, log: list[Row]) -> list[Row]:
    """The round trips of that log: the only ones while it was written."""
    begin_ns, end_ns = log[0]["begin_ns"], log[-1]["end_ns"]
    return [
        request
        for request in capture.requests
        if request["kind"] in ("pipe", "shm", "unix")
        and request["complete"]
        and begin_ns <= request["start_ns"]
        and request["end_ns"] <= end_ns
    ]
