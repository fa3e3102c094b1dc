"""The figures of RESULTS.md."""

import plotly.graph_objects as go
import study
from facts import DISKS, SCENES, Facts
from study import breakdown
from study.statistics import quantile

# The quantiles drawn for a distribution, denser in the tail, where evaluations are few.
SHARES = [n / 100 for n in range(100)] + [0.99 + n / 2000 for n in range(1, 20)] + [1]
PARTS = 10


def distributions(facts: Facts) -> go.Figure:
    made = study.figure("latency, ms (log scale)", "share of evaluations that take longer")
    for number, scene in enumerate(SCENES):
        for disk in DISKS:
            values = facts.values(scene, disk)
            made.add_scatter(
                x=[quantile(values, share) / 1e6 for share in SHARES],
                y=[max(1 - share, 0.5 / len(values)) for share in SHARES],
                name=f"{disk}, {scene}",
                mode="lines",
                line={
                    "color": study.colour(DISKS.index(disk)),
                    "dash": ("solid", "dash")[number],
                },
            )
    made.update_xaxes(type="log")
    made.update_yaxes(type="log", tickformat=".2~%")
    made.update_layout(legend={"x": 0.98, "y": 0.98, "xanchor": "right"})
    return made


def composition(facts: Facts) -> go.Figure:
    rows = [
        {**row, "name": f"{disk}, {scene}"}
        for scene in SCENES
        for disk in DISKS
        for row in facts.results.read("breakdown", scene=scene, disk=disk)
    ]
    return breakdown.bars(rows, "name", "an evaluation by category (probed)", height=440)


def changed(facts: Facts, statistic: str) -> go.Figure:
    """The changes by tmpfs, by category, with ab's 95 % intervals."""
    made = study.figure(
        "tmpfs less ext4, us", "", f"change of the {statistic}, by category and side"
    )
    names = list(
        dict.fromkeys(
            f"{row['category']} · {row['side']}"
            for scene in SCENES
            for row in facts.parts(scene, statistic)[:PARTS]
        )
    )
    for number, scene in enumerate(SCENES):
        by_name = {
            f"{row['category']} · {row['side']}": row for row in facts.parts(scene, statistic)
        }
        shown = [name for name in names if name in by_name]
        of = [by_name[name] for name in shown]
        made.add_scatter(
            x=[row["change_ns"] / 1e3 for row in of],
            y=shown,
            name=scene,
            mode="markers",
            marker={"color": study.colour(number), "symbol": ("circle", "diamond")[number]},
            error_x={
                "array": [
                    ((row["high_ns"] or row["change_ns"]) - row["change_ns"]) / 1e3 for row in of
                ],
                "arrayminus": [
                    (row["change_ns"] - (row["low_ns"] or row["change_ns"])) / 1e3 for row in of
                ],
            },
        )
    made.update_yaxes(autorange="reversed", type="category", automargin=True)
    made.add_vline(x=0, line={"width": 1, "color": "#808080"})
    return made
