"""Modes 3 to 6: one pair of processes, thousands of expressions through it."""

import random
from pathlib import Path

import pyarrow.parquet
import study
from study import breakdown
from study.capture import Row, read_log, shell

MODES = (3, 4, 5, 6)
NAMES = {3: "pipes", 4: "pipes, batches of 16", 5: "shared memory, futex", 6: "Unix socket"}
TIMES = 10
ANY_CPU, ONE_CPU = "any CPU", "one CPU"
ARMS = ((False, ANY_CPU), (True, ANY_CPU), (False, ONE_CPU))


def measure(experiment: study.Study, program: Path, expressions: Path):
    """Writes `trips`: each run by its log, and if captured, `woke_idle_ns`: waits for a CPU that
    was idle and had to wake up; and `trip_breakdown`: captured runs by category.

    Both processes run on any CPU, or both on one CPU."""
    many = experiment.scratch / "many"
    many.write_text(expressions.read_text() * TIMES)
    trips, parts = [], []
    for number, (probed, cpus) in study.rounds(ARMS, experiment.often(10, 2)):
        folder = experiment.scratch / f"trips-{number}-{probed}-{cpus}"
        order = random.Random(f"{number} {probed}").sample(MODES, len(MODES))
        before = "taskset -c 0 " if cpus == ONE_CPU else ""
        script = "\n".join(
            f"{before}{program} -m {mode} -i {many} -o /dev/null --log {mode}.csv" for mode in order
        )
        if probed:
            capture = study.capture(folder, script)
        else:
            shell(folder, script)
        for mode in MODES:
            log = read_log(folder / f"{mode}.csv")
            labels = {"round": number, "mode": mode, "probed": probed, "cpus": cpus}
            trips.append({**labels, **costs(log), "captured": None, "woke_idle_ns": None})
            if probed:
                requests = within(capture, log)
                trips[-1] |= {
                    "captured": len(requests),
                    "woke_idle_ns": woke_idle(capture, requests),
                }
                parts += breakdown.of(capture, requests, round=number, mode=mode)
    experiment.progress("round trips are measured")
    experiment.results.write("trips", trips)
    experiment.results.write("trip_breakdown", parts)


def woke_idle(capture: study.Capture, requests: list[Row]) -> int:
    """The requests' total time of waiting for a CPU that was idle."""
    names = ["request_id", "duration_ns", "by"]
    filters = [("category", "=", "runqueue.wakeup")]
    wanted = {request["request_id"] for request in requests}
    table = pyarrow.parquet.read_table(capture.table("segments"), columns=names, filters=filters)
    return sum(
        s["duration_ns"]
        for s in table.to_pylist()
        if s["request_id"] in wanted and s["by"] == "idle"
    )


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
    """The round trips of that log: all that were made while it was written."""
    begin_ns, end_ns = log[0]["begin_ns"], log[-1]["end_ns"]
    return [
        request
        for request in capture.requests
        if request["kind"] in ("pipe", "shm", "unix")
        and request["complete"]
        and begin_ns <= request["start_ns"]
        and request["end_ns"] <= end_ns
    ]
