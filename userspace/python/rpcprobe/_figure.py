"""Figures: computed by the program, given a size and a title here."""

import html
import textwrap
from typing import TYPE_CHECKING, Any

from . import _program
from ._error import Error

if TYPE_CHECKING:
    import plotly.graph_objects

# The program's figure for each `by` of "breakdown".
BREAKDOWN_BY = {"band": "breakdown", "method": "methods", "time": "overtime"}
# Heights in pixels: per row for figures that grow with their rows, in total for the others.
ROW = {"methods": 44, "timeline": 46, "tree": 36, "cpu": 30}
HEIGHT = {"latency": 420, "breakdown": 420, "requests": 400, "shift": 380, "waterfall": 420}
# Figures whose colours denote categories and therefore need a legend.
COLOURED = {"breakdown", "methods", "overtime", "requests", "timeline", "cpu"}
# plotly does not wrap titles. Numbers of characters of a title and of a note that fit the width of a phone.
OF_TITLE, OF_NOTE = 40, 48


def name_of(name: str, by: str | None, of_two: bool) -> str:
    """The program's name for a figure.

    Raises:
        Error: the figure does not exist, belongs to a comparison, not a capture (or vice versa), or `by` is wrong.
    """
    known = _program.figures()
    if name not in known:
        raise Error(f"there is no figure {name!r}; there are {', '.join(known)}")
    if (name in ("shift", "waterfall")) != of_two:
        other = "rpcprobe.diff(a, b)" if not of_two else "a capture"
        raise Error(f"the figure {name!r} is one of {other}: {other}.figure({name!r})")
    if by is None:
        return name
    if name != "breakdown":
        raise Error(f"only the figure 'breakdown' has a choice of `by`, not {name!r}")
    if by not in BREAKDOWN_BY:
        raise Error(f"a breakdown is by {', '.join(map(repr, BREAKDOWN_BY))}, not by {by!r}")
    return BREAKDOWN_BY[by]


def drawn(
    name: str, *arguments: str, given: str | None = None, of: str | None = None
) -> "plotly.graph_objects.Figure":
    """The figure that the program computes, with a title, notes below it and a fitting height; `of`: its category.

    Raises:
        Error: the program fails; the message is the program's.
    """
    import plotly.graph_objects

    printed, said = _program.answer("figure", name, *arguments, given=given)
    figure: dict[str, Any] = _program.from_json(printed)
    layout = figure["layout"]
    meta = layout.get("meta") or {}
    notes = [said.replace("--kind selects", "`kind` selects"), str(meta.get("note") or "")]
    shows = _program.figures()[name] if of is None else f"How long requests spend in {of}"
    title = lines(shows, OF_TITLE)
    below = [line for note in notes for line in lines(note, OF_NOTE)]
    if "rows" in meta:
        height = max(int(meta["rows"]) * ROW.get(name, 34) + 80, 140)
    else:
        height = HEIGHT.get(name, 340)
    if name in COLOURED:
        below += legend(figure["data"])
    top = 24 + 20 * len(title) + 16 * len(below)
    made = plotly.graph_objects.Figure(data=figure["data"], layout=layout)
    made.update_layout(
        title={
            "text": "<br>".join(title),
            "font": {"size": 15},
            "subtitle": {"text": "<br>".join(below), "font": {"size": 12}},
            "x": 0.01,
            "yref": "container",
            "y": 1 - 16 / (height + top),
            "yanchor": "top",
        },
        height=height + top,
        margin={"l": 56, "r": 16, "t": top + 12, "b": 48, "pad": 4},
    )
    made.update_xaxes(automargin=True, tickfont={"size": 11})
    made.update_yaxes(automargin=True, tickfont={"size": 11})
    return made


def legend(data: list[dict[str, Any]]) -> list[str]:
    """Lines that name each category in its colour. plotly's own legend would fill the whole figure on a phone."""
    named: dict[str, str] = {}
    for trace in data:
        if (trace.get("meta") or {}).get("category") is not None:
            named.setdefault(trace["meta"]["category"], trace["marker"]["color"])
    rows: list[list[str]] = [[]]
    for name in named:
        if len("  ".join([*rows[-1], f"■ {name}"])) > OF_NOTE:
            rows.append([])
        rows[-1].append(f"■ {name}")
    colour = {
        f"■ {name}": f'<span style="color:{of}">■</span> {name}' for name, of in named.items()
    }
    return ["  ".join(colour[entry] for entry in row) for row in rows if row]


def lines(text: str, most: int) -> list[str]:
    """Wraps text at `most` characters and escapes it, so that plotly shows it unchanged."""
    return [html.escape(line, quote=False) for line in textwrap.wrap(text, most)]
