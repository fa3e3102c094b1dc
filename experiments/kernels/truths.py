"""The verdicts on the cases of ../ground_truth in their reduced form."""

import json
import subprocess
import sys
from pathlib import Path

from cases import CASES
from judge import GROUND_TRUTH, Verdict, not_run
from observed import Observed

# The workload that runs them.
(WORKLOAD,) = (case for case in CASES if case.ground_truth)
NAME = "truth: "


def judge_truths(observed: Observed, rpcprobe: Path, names: list[str]) -> list[Verdict]:
    """The verdicts on the named cases, or on all."""
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
    """The failed cases, by their names in reduced.py."""
    failed = [v.name for at, v in lines if at == way and not v.passed and v.name.startswith(NAME)]
    return list(dict.fromkeys(name.removeprefix(NAME).split("@")[0] for name in failed))


def replaced(
    lines: list[tuple[str, Verdict]], way: str, again: list[Verdict]
) -> list[tuple[str, Verdict]]:
    """Replaces failed verdicts with those of another run, whose notes quote the failed ones."""
    by_name = {verdict.name: verdict for verdict in again}

    def of(verdict: Verdict) -> Verdict:
        anew = by_name.get(verdict.name)
        if verdict.passed or not anew:
            return verdict
        note = f"{anew.note} [again; before: {verdict.note}]"
        return Verdict(anew.name, anew.passed, note, anew.skipped)

    return [(at, of(verdict) if at == way else verdict) for at, verdict in lines]
