"""Formats names, times and tables for notebooks. Programs choose the names, so they are escaped as
text."""

import html
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import marimo as mo

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
SHARE = re.compile(r"[<+-]?[\d.,]+ %")
UNITS = ((10**3, "us"), (10**6, "ms"), (10**9, "s"))


def duration(ns: float) -> str:
    """A duration as in reports: three digits in a fitting unit, halves rounded up (`1.23 ms`)."""
    whole = math.floor(abs(ns) + 0.5)
    sign = "-" if ns < 0 and whole else ""
    if whole < 1000:
        return f"{sign}{whole} ns"
    for size, unit in UNITS:
        for decimals in (2, 1, 0):
            scaled = (whole * 10**decimals + size // 2) // size
            if scaled < 1000:
                return f"{sign}{scaled / 10**decimals:.{decimals}f} {unit}"
    return f"{sign}{(whole + 500_000_000) // 10**9} s"


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent, as reports show it: `12.3 %`."""
    if whole == 0:
        return "-"
    per_mille = (part * 1000 + whole // 2) // whole
    return "<0.1 %" if per_mille == 0 and part > 0 else f"{per_mille / 10:.1f} %"


def text(name: Any) -> str:
    """Escapes a name for Markdown and HTML, so that it is shown unchanged."""
    escaped = html.escape(str(name)).replace("\n", " ")
    return "".join(f"&#{ord(c)};" if c in "*_`[]()!#|~$\\" else c for c in escaped)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> mo.Html:
    """Rows as a table. `columns` maps a row's keys to headings; a key that ends in `_ns` is a
    time."""

    def cell(row: Mapping[str, Any], key: str) -> str:
        value = row[key]
        if value is None:
            return "<td></td>"
        if isinstance(value, int | float):
            shown = (
                duration(value)
                if key.endswith("_ns")
                else f"{value:,}"
                if isinstance(value, int)
                else f"{value:.1f}"
            )
            return (
                f'<td style="text-align: right; white-space: nowrap; padding: 2px 8px">{shown}</td>'
            )
        side = "right" if SHARE.fullmatch(str(value)) else "left"
        return f'<td style="text-align: {side}; padding: 2px 8px">{html.escape(str(value))}</td>'

    head = "".join(
        f'<th style="padding: 2px 8px">{html.escape(name)}</th>' for name in columns.values()
    )
    body = "".join(f"<tr>{''.join(cell(row, key) for key in columns)}</tr>" for row in rows)
    return mo.Html(
        f'<div class="scroll" style="overflow-x: auto"><table><tr>{head}</tr>{body}</table></div>'
    )


def results(study: str) -> mo.Html:
    """The results of `experiments/STUDY`: the table *reported, ours, attributed to* of its
    RESULTS.md."""
    lines = (EXPERIMENTS / study / "RESULTS.md").read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("|"))
    body = list(itertools.takewhile(lambda line: line.startswith("|"), lines[begin:]))
    cells = [[cell.strip().replace("`", "") for cell in line[1:-1].split(" | ")] for line in body]
    heads, _, *rows = cells
    keys = [f"column {number}" for number in range(len(heads))]
    return table([dict(zip(keys, row)) for row in rows], dict(zip(keys, heads)))


def said(words: Any) -> mo.Html:
    """A command's output, unchanged."""
    return mo.Html(
        f'<pre style="overflow-x: auto; font-size: 12px">{html.escape(str(words))}</pre>'
    )
