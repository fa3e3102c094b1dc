"""How notebooks show names, times and tables. Names are whatever programs choose, so they are made text."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import marimo as mo

UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))


def duration(ns: float) -> str:
    """With three digits: `1.23 ms`."""
    for size, unit in UNITS:
        if abs(ns) >= size:
            return (
                f"{ns / size:#.3g}".rstrip(".") + f" {unit}"
                if abs(ns) < 1000 * size
                else f"{ns / size:,.0f} {unit}"
            )
    return f"{ns:.0f} ns"


def text(name: Any) -> str:
    """A name in Markdown and HTML, as it is."""
    escaped = html.escape(str(name)).replace("\n", " ")
    return "".join(f"&#{ord(c)};" if c in "*_`[]()!#|~$\\" else c for c in escaped)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> mo.Html:
    """Rows as a table: keys of a row, and what stands above each. `_ns` at a key's end: a time."""

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
        return f'<td style="padding: 2px 8px">{html.escape(str(value))}</td>'

    head = "".join(
        f'<th style="padding: 2px 8px">{html.escape(name)}</th>' for name in columns.values()
    )
    body = "".join(f"<tr>{''.join(cell(row, key) for key in columns)}</tr>" for row in rows)
    return mo.Html(
        f'<div class="scroll" style="overflow-x: auto"><table><tr>{head}</tr>{body}</table></div>'
    )


def said(words: Any) -> mo.Html:
    """What a command prints, as it is."""
    return mo.Html(
        f'<pre style="overflow-x: auto; font-size: 12px">{html.escape(str(words))}</pre>'
    )
