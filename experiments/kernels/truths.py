"""The cases of ../ground_truth in their reduced form: what came of each."""

import json
import subprocess
import sys
from pathlib import Path

from cases import CASES
from judge import GROUND_TRUTH, Verdict, not_run
from observed import Observed

# Of the workload that runs them.
(WORKLOAD,) = (case for case in CASES if case.ground_truth)
NAME = "truth: "


def judge_truths(observed: Observed, rpcprobe: Path, names: list[str]) -> list[Verdict]:
    """Of those of these names, or of all."""
    if verdict := not_run(observed, WORKLOAD):
        return [verdict]
    folder = observed.folder
    argv = [sys.executable, GROUND_TRUTH / "reduced.py", "judge"]
    argv += [folder / "ground_truth", folder / "capture", rpcprobe, *names]
    said = subprocess.run([str(a) for a in argv], check=True, capture_output=True).stdout
    return [
        Verdict(
            f"{NAME}{result['case']}",
            not result["failures"],
            "; ".join(result["failures"] or result["notes"]),
            skipped=result["skipped"],
        )
        for result in json.loads(said)
    ]


def failed_names(lines: list[tuple[str, Verdict]], way: str) -> list[str]:
    """The cases that did not pass, as reduced.py knows them."""
    failed = [v.name for at, v in lines if at == way and not v.passed and v.name.startswith(NAME)]
    return list(dict.fromkeys(name.removeprefix(NAME).split("@")[0] for name in failed))


def replaced(
    lines: list[tuple[str, Verdict]], way: str, again: list[Verdict]
) -> list[tuple[str, Verdict]]:
    """With the verdicts of another run in place of those that failed, which they tell of."""
    by_name = {verdict.name: verdict for verdict in again}

    def of(verdict: Verdict) -> Verdict:
        anew = by_name.get(verdict.name)
        if verdict.passed or not anew:
            return verdict
        note = f"{anew.note} [again; before: {verdict.note}]"
        return Verdict(anew.name, anew.passed, note, anew.skipped)

    return [(at, of(verdict) if at == way else verdict) for at, verdict in lines]
