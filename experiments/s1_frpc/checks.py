"""Checks that do not depend on the categories: the evaluator alone, samples of user time, the cost
of a CPUID instruction."""

import subprocess
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import study
from inside import evaluations

# How often one process evaluates the 300 expressions.
TIMES = 100
HERE = Path(__file__).resolve().parent


def measure(experiment: study.Study, frpc: Path, expressions: Path, disk: Path):
    """Writes the tables `alone`, `instruction` and `samples`."""
    scratch, results = experiment.scratch, experiment.results
    results.write("alone", alone(experiment, frpc / "frpc", expressions))

    subprocess.run(["cc", "-O2", "-o", scratch / "cpuid", HERE / "cpuid.c"], check=True)
    often = range(experiment.often(10, 3))
    said = [subprocess.check_output([scratch / "cpuid"], text=True) for _ in often]
    results.write("instruction", [{"cpuid_ns": int(text)} for text in said])

    samples: Counter[tuple[str, str, str]] = Counter()
    for number in range(experiment.often(3, 1)):
        script = f"""{frpc}/measure -m 1 -e {expressions} --dir {disk} \\
            --results results --errors errors"""
        capture = study.capture(scratch / f"stacks-{number}", script, "--stacks")
        samples += user_samples(capture)
    results.write(
        "samples",
        [
            {"phase": phase, "function": function, "module": module, "samples": count}
            for (phase, function, module), count in samples.most_common()
        ],
    )
    experiment.progress("checks are made")


def alone(experiment: study.Study, program: Path, expressions: Path) -> list[dict[str, int]]:
    """The time of each run of one process that evaluates all expressions once, or a hundred
    times."""
    many = experiment.scratch / "hundred"
    many.write_text(expressions.read_text() * TIMES)
    lines = len(expressions.read_text().splitlines())
    rows = []
    arms = ((expressions, lines), (many, lines * TIMES))
    for number, (source, count) in study.rounds(arms, experiment.often(10, 3)):
        begin_ns = time.monotonic_ns()
        subprocess.run([program, "-m", "2", "-i", source, "-o", "/dev/null"], check=True)
        elapsed_ns = time.monotonic_ns() - begin_ns
        rows.append({"round": number, "expressions": count, "elapsed_ns": elapsed_ns})
    return rows


def user_samples(capture: study.Capture) -> Counter[tuple[str, str, str]]:
    """Samples of the evaluator's user time, by phase and innermost function. Samples in the kernel,
    at the edges of user time, count as one function."""
    frames = pyarrow.parquet.read_table(capture.table("stacks"), filters=[("depth", "=", 0)])
    names = {
        frame["stack_id"]: ("kernel", "")
        if frame["kernel"]
        else (frame["function"], frame["module"])
        for frame in frames.to_pylist()
    }
    found: Counter[tuple[str, str, str]] = Counter()
    columns = ("category", "side", "phase", "stack_id", "stack_samples")
    for own in capture.segments(evaluations(capture), columns).values():
        for s in own:
            if s["category"] == "user" and s["side"] == "server" and s["stack_samples"]:
                function, module = names[s["stack_id"]]
                found[s["phase"], function, Path(module or "").name] += s["stack_samples"]
    return found
