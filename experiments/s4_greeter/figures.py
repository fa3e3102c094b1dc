"""S4's figures that do not show categories."""

import math
from collections import defaultdict

import plotly.graph_objects as go
from study import Results, colour, figure, median

from ours import Numbers

NAMES = {1: "1 client", 2: "2 clients"}


def by_quantile(results: Results) -> go.Figure:
    drawn = figure("share of calls", "latency, us", yaxis_type="log")
    for number, (count, name) in enumerate(NAMES.items()):
        at = defaultdict(list)
        for row in results.read("latencies", clients=count):
            at[row["quantile"]].append(row["latency_ns"])
        drawn.add_scatter(
            x=list(at),
            y=[median(values) / 1e3 for values in at.values()],
            name=name,
            mode="lines",
            line={"color": colour(number)},
        )
    return drawn


def by_unit(found: Numbers) -> go.Figure:
    drawn = figure(
        "latencies truncated to whole ...",
        "calls a millisecond",
        xaxis_type="log",
        yaxis_type="log",
    )
    units = sorted({unit_ns for _, unit_ns in found.truncated if unit_ns >= 1000})
    for number, (count, name) in enumerate(NAMES.items()):
        shown = [(u, median(found.truncated[count, u])) for u in units]
        shown = [(u, value) for u, value in shown if math.isfinite(value)]
        drawn.add_scatter(
            x=[u for u, _ in shown],
            y=[value for _, value in shown],
            name=f"{name}, truncated",
            mode="lines+markers",
            line={"color": colour(number)},
        )
        drawn.add_scatter(
            x=[units[0], units[-1]],
            y=[found.wall(count).middle] * 2,
            name=f"{name}, by the clock",
            mode="lines",
            line={"color": colour(number), "dash": "dash"},
        )
    ticks = {1_000: "1 us", 10_000: "10 us", 100_000: "100 us", 1_000_000: "1 ms"}
    drawn.update_xaxes(tickvals=list(ticks), ticktext=list(ticks.values()))
    return drawn
