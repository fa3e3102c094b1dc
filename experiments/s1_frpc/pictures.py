"""The figures of RESULTS.md."""

import random
from math import log10

import plotly.graph_objects as go
import study
from facts import MODES, NAMES, PHASES, Facts
from study import breakdown
from study.statistics import median, quantile

# Most points of a scatter plot. If there are more: the slowest, and a sample of the others.
POINTS, SLOWEST = 600, 20


def points(facts: Facts, mode: int) -> tuple[list[float], list[float], int]:
    """Tokens, shifted at random so that points do not hide each other; nanoseconds; and the number
    of all points."""
    found = [(t, ns) for t, values in facts.by_tokens(mode).items() for ns in values]
    found.sort(key=lambda point: -point[1])
    drawn = random.Random(mode)
    others = found[SLOWEST:]
    shown = found[:SLOWEST] + drawn.sample(others, min(POINTS - SLOWEST, len(others)))
    x = [round(tokens + drawn.uniform(-0.3, 0.3), 2) for tokens, _ in shown]
    return x, [ns for _, ns in shown], len(found)


def axes(made: go.Figure, facts: Facts) -> go.Figure:
    """Sets the same axes for all modes."""
    every = [ns for mode in MODES for values in facts.by_tokens(mode).values() for ns in values]
    low, high = min(every) * 0.9, max(every) * 1.1
    made.update_xaxes(range=[1.5, 11.5], dtick=1)
    made.update_yaxes(type="log", range=[log10(low), log10(high)], exponentformat="power")
    return made


def scatter(facts: Facts, mode: int) -> go.Figure:
    x, y, count = points(facts, mode)
    title = f"{NAMES[mode]}: {len(x)} of {count:,} evaluations, with the {SLOWEST} slowest"
    made = study.figure("tokens", "ns (log scale)", title)
    made.add_scatter(x=x, y=y, mode="markers", marker={"size": 4, "color": study.colour(mode - 1)})
    return axes(made, facts)


def overlay(facts: Facts) -> go.Figure:
    """Medians by tokens, with bars from the first to the third quartile."""
    made = study.figure(
        "tokens", "ns (log scale)", "medians, quartiles (bars) and maxima (crosses)"
    )
    for mode in MODES:
        by_tokens = facts.by_tokens(mode)
        x = [tokens + (mode - 2) * 0.15 for tokens in by_tokens]
        middle = [median(values) for values in by_tokens.values()]
        colour = study.colour(mode - 1)
        made.add_scatter(
            x=x,
            y=middle,
            name=NAMES[mode],
            mode="markers+lines",
            line={"color": colour, "width": 1},
            error_y={
                "array": [
                    quantile(v, 0.75) - m for v, m in zip(by_tokens.values(), middle, strict=True)
                ],
                "arrayminus": [
                    m - quantile(v, 0.25) for v, m in zip(by_tokens.values(), middle, strict=True)
                ],
                "thickness": 2,
            },
        )
        made.add_scatter(
            x=x,
            y=[max(values) for values in by_tokens.values()],
            mode="markers",
            marker={"symbol": "x", "size": 6, "color": colour},
            showlegend=False,
        )
    made.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0.45})
    return axes(made, facts)


def by_phase(facts: Facts, mode: int) -> go.Figure:
    rows = [row for row in facts.of(mode) if row["phase"] in PHASES]
    rows.sort(key=lambda row: PHASES.index(row["phase"]))
    title = f"{NAMES[mode]}: an evaluation by phase (middle half of all, probed)"
    made = breakdown.bars(rows, "phase", title, height=440)
    made.update_xaxes(title="us of an evaluation")
    return made


def by_mode(facts: Facts) -> go.Figure:
    rows = [{**row, "name": NAMES[mode]} for mode in MODES for row in facts.of(mode)]
    rows += [{**row, "name": "mode 1, linked statically"} for row in facts.of(1, "static")]
    title = "an evaluation by category (middle half of all, probed)"
    return breakdown.bars(rows, "name", title, height=440)


def trips(facts: Facts, names: dict[int, str]) -> go.Figure:
    rows = [
        {**row, "name": f"mode {row['mode']}, {names[row['mode']]}"}
        for mode in names
        for row in facts.results.read("trip_breakdown", mode=mode)
    ]
    return breakdown.bars(rows, "name", "a round trip by category (probed)", height=440)
