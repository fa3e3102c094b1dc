"""Runs `rpcprobe ab`: two commands in turn, in random order within each pair, and their
differences."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .capture import RPCPROBE, Row
from .text import more, ns, percent, us

SEED = 1
COLUMNS = ("category", "side", "a_ns", "b_ns", "change_ns")
# The number of the largest changed parts that are named.
NAMED = 4


def compare(out: Path, a: Sequence[str], b: Sequence[str], pairs: int) -> Row:
    """The result of `ab --json` with `pairs` pairs. The captures' tables are in `out`/a.1,
    `out`/b.1 and so on."""
    command = [RPCPROBE, "ab", "--json", "--keep", "tables", "--pairs", str(pairs)]
    command += ["--seed", str(SEED), "-o", str(out), "--", *a, "---", *b]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"rpcprobe ab: {done.stderr.decode()}")
    return json.loads(done.stdout)


def of_kind(comparison: Row, kind: str) -> Row:
    """The comparison of one kind of request."""
    return next(of for of in comparison["kinds"] if of["kind"] == kind)


def changes(comparison: Row, kind: str, **labels: Any) -> list[Row]:
    """Rows for each statistic, in total (`category` null) and by part, with these labels in front.

    `shown`: changed beyond chance, by at least 1 % of the mean latency and the probe's own change.
    `low_ns` and `high_ns`, a 95 % interval, are null if there are too few pairs."""
    rows = []
    for of in of_kind(comparison, kind)["statistics"]:
        own = {**labels, "pairs": len(comparison["a"]["runs"]), "statistic": of["statistic"]}
        whole = {"category": None, "side": None, **of["total"]}
        for part in (whole, *of["parts"]):
            low, high = part.get("interval_ns") or (None, None)
            tested = {key: part.get(key) for key in ("p", "shown", "detectable_ns")}
            columns = {key: part[key] for key in COLUMNS}
            rows.append({**own, **columns, "low_ns": low, "high_ns": high, **tested})
    return rows


def said(rows: Sequence[Row], a: str, b: str, statistic: str = "mean") -> str:
    """One comparison in a sentence or two: B's statistic beside A's, and the parts that changed."""
    rows = [row for row in rows if row["statistic"] == statistic]
    total = next(row for row in rows if row["category"] is None)
    name = {"mean": "mean", "p50": "median"}[statistic]
    between = (
        ""
        if total["low_ns"] is None
        else f"; 95 % interval {us(total['low_ns'])} to {us(total['high_ns'])}"
    )
    verdict = "changed" if total["shown"] else "not beyond chance"
    text = f"""`rpcprobe ab`, {total["pairs"]} pairs of runs in random order: the {name} of {b} is {
        ns(total["b_ns"])
    } against {ns(total["a_ns"])} of {a}, {more(total["change_ns"])} ({
        percent(total["change_ns"] / total["a_ns"], sign=True)
    }{between}): {verdict}."""
    if not total["shown"] and total["detectable_ns"]:
        text += f" A change of {us(total['detectable_ns'])} would have been found in 8 of 10 such comparisons."
    parts = sorted(
        (row for row in rows if row["category"] is not None and row["shown"]),
        key=lambda row: -abs(row["change_ns"]),
    )
    if not parts:
        return f"{text} No category changed beyond chance."
    named = ", ".join(
        f"{row['category']} ({row['side']}) {row['change_ns'] / 1e3:+.1f} us"
        for row in parts[:NAMED]
    )
    rest = f", and {len(parts) - NAMED} others" if len(parts) > NAMED else ""
    return f"{text} Changed: {named}{rest}."
