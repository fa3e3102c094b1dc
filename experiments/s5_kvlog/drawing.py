"""The figures of s5_kvlog."""

import plotly.graph_objects as go
from facts import NEW, OVER, TEN, Facts

import study
from study import breakdown

LANES = ("client makes the value", "1 MB on the way", "server processes", "answer on the way")
LANE_STEPS = ("gap", "send", "process", "response")
HOLLOW = ("1 MB on the way", "answer on the way")


def bar(begin_ns: float, length_ns: float, lane: str, colour: str, hollow: bool) -> dict:
    """The attributes of a horizontal bar in milliseconds; a hollow bar has only a border."""
    marker = (
        {"color": "white", "line": {"color": colour, "width": 1}} if hollow else {"color": colour}
    )
    return {"base": begin_ns / 1e6, "x": length_ns / 1e6, "y": lane, "marker": marker}


def one_line(facts: Facts) -> go.Figure:
    """Ten RPCs of the first run without the probe, from the stamps alone."""
    rows = [r for r in facts.writes if r["arm"] == "bare" and r["round"] == 0 and r["stage"] in TEN]
    origin_ns = rows[0]["begin_ns"] - rows[0]["gap_ns"]
    made = study.figure("time, ms", "", height=270, barmode="overlay", showlegend=False)
    for lane_number, (lane, step) in enumerate(zip(LANES, LANE_STEPS)):
        begins = []
        for row in rows:
            begin_ns = row["begin_ns"] - origin_ns
            begins.append(
                {
                    "gap": begin_ns - row["gap_ns"],
                    "send": begin_ns,
                    "process": begin_ns + row["send_ns"],
                    "response": begin_ns + row["send_ns"] + row["process_ns"],
                }[step]
            )
        drawn = [
            bar(begin, row[f"{step}_ns"], lane, study.colour(lane_number), lane in HOLLOW)
            for begin, row in zip(begins, rows)
        ]
        made.add_bar(
            orientation="h",
            base=[each["base"] for each in drawn],
            x=[each["x"] for each in drawn],
            y=[each["y"] for each in drawn],
            marker=drawn[0]["marker"],
        )
    made.update_yaxes(autorange="reversed", automargin=True)
    return made


def aligned(facts: Facts) -> go.Figure:
    """The ten RPCs of the first probed run from a common start, by category."""
    made = study.figure("since the client began to send, ms", "RPC", height=460, barmode="overlay")
    kinds = dict.fromkeys((row["category"], row["side"]) for row in facts.timeline)
    sums = {
        kind: sum(r["duration_ns"] for r in facts.timeline if (r["category"], r["side"]) == kind)
        for kind in kinds
    }
    whole_ns = sum(sums.values())
    shown = [kind for kind in sorted(kinds, key=lambda k: -sums[k]) if sums[kind] > whole_ns / 2000]
    for kind in shown:
        rows = [r for r in facts.timeline if (r["category"], r["side"]) == kind]
        category, side = kind
        hollow = category.startswith("wire.")
        drawn = [
            bar(row["begin_ns"], row["duration_ns"], "", row["colour"], hollow) for row in rows
        ]
        made.add_bar(
            orientation="h",
            name=f"{category} · {side}",
            base=[each["base"] for each in drawn],
            x=[each["x"] for each in drawn],
            y=[row["number"] + 1 for row in rows],
            marker=drawn[0]["marker"],
            width=0.7,
        )
    made.update_yaxes(range=[10.6, 0.4], dtick=1)
    return made


def by_number(facts: Facts) -> go.Figure:
    """The breakdown of processing, write by write: means over the probed runs, and the median
    without the probe."""
    made = study.figure("write of a run", "processing at the server, us", barmode="stack")
    numbers = sorted({row["number"] for row in facts.writes})
    probed = {
        n: [r for r in facts.writes if r["number"] == n and r["arm"] == "probed"] for n in numbers
    }

    def mean(number: int, column: str) -> float:
        return sum(row[column] for row in probed[number]) / len(probed[number]) / 1e3

    colours = {row["category"]: row["colour"] for row in facts.parts}
    for name, column in (("user", "process_user_ns"), ("fault", "process_fault_ns")):
        made.add_bar(
            name=name,
            x=[n + 1 for n in numbers],
            y=[mean(n, column) for n in numbers],
            marker_color=colours.get(name, study.colour(6)),
        )
    rest = [
        mean(n, "process_ns") - mean(n, "process_user_ns") - mean(n, "process_fault_ns")
        for n in numbers
    ]
    made.add_bar(
        name="all else", x=[n + 1 for n in numbers], y=rest, marker_color=breakdown.REST_COLOUR
    )
    bare = {
        n: [r for r in facts.writes if r["number"] == n and r["arm"] == "bare"] for n in numbers
    }
    made.add_scatter(
        name="without the probe, median of runs",
        mode="lines+markers",
        x=[n + 1 for n in numbers],
        y=[study.median([row["process_ns"] for row in bare[n]]) / 1e3 for n in numbers],
        line={"color": "black", "width": 1},
        marker={"size": 5},
    )
    return made


def steps(facts: Facts) -> go.Figure:
    """Breakdowns of all steps except the transmission, which is a hundred times as long."""
    rows = []
    for step, name in (("gap", "client's gap"), ("process", "process"), ("response", "response")):
        for stages, which in ((("first",), "first 3"), (NEW, "new key"), (OVER, "overwrites")):
            for row in facts.part(step, stages):
                rows.append({**row, "bar": f"{name}, {which}"})
    return breakdown.bars(rows, "bar", height=440)


def clocks(facts: Facts) -> go.Figure:
    """The error of the estimated clock offset in each run, with its uncertainty."""
    made = study.figure("round", "estimated offset less the injected one, us", height=340)
    for number, arm in enumerate(("bare", "probed")):
        errors = facts.clock_errors(arm)
        made.add_scatter(
            name="without the probe" if arm == "bare" else "with it",
            mode="markers",
            x=[place + 1 + 0.25 * number for place in range(len(errors))],
            y=[error / 1e3 for error, _ in errors],
            error_y={"type": "data", "array": [uncertainty / 1e3 for _, uncertainty in errors]},
            marker_color=study.colour(number),
        )
    made.update_xaxes(dtick=max(1, facts.rounds // 10))
    return made
