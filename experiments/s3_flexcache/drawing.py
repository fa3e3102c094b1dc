"""The figures of s3_flexcache."""

import plotly.graph_objects as go
from facts import LOCAL_CALL, NAMES, REMOTE, Facts

import study
from study import breakdown


def operations(facts: Facts) -> go.Figure:
    """A bar for each operation with requests: the breakdown of probed operations."""
    rows = []
    for operation in (*REMOTE, *LOCAL_CALL):
        for line in ("quiet", "busy"):
            if line == "quiet" or operation in ("validate", "cache"):
                name = NAMES[operation] + (", busy line" if line == "busy" else "")
                rows += [{**row, "bar": name} for row in added_up(facts, operation, line)]
    return breakdown.bars(rows, "bar", height=440)


def added_up(facts: Facts, operation: str, line: str) -> list[dict]:
    """Adds up the breakdowns by transport."""
    count = facts.count(operation, line)
    sums: dict[tuple[str, str], dict] = {}
    for row in facts.part(operation, line):
        key = row["category"], row["side"]
        part = sums.setdefault(key, {**row, "total_ns": 0, "modelled_ns": 0, "requests": count})
        part["total_ns"] += row["total_ns"]
        part["modelled_ns"] += row["modelled_ns"]
    return [{**part, "round": 0, "transport": ""} for part in sums.values()]


def time_line(facts: Facts, operation: str) -> go.Figure:
    """One operation of the first probed run: a lane for each request, without the time of inner
    requests. Hollow bars: wire."""
    rows = [row for row in facts.timeline if row["operation"] == operation]
    lanes = list(dict.fromkeys(row["who"] for row in rows))
    names = {who: "whole operation" if not who else who.replace(" > ", " > <br>") for who in lanes}
    made = study.figure(
        "since the operation began, us", "", height=110 + 55 * len(lanes), barmode="overlay"
    )
    kinds: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        kinds.setdefault((row["category"], row["side"]), []).append(row)
    ordered = sorted(kinds.items(), key=lambda kind: -sum(r["duration_ns"] for r in kind[1]))
    for (category, side), drawn in ordered:
        hollow = category.startswith("wire.")
        colour = drawn[0]["colour"] or breakdown.REST_COLOUR
        made.add_bar(
            orientation="h",
            name=f"{category} · {side}" if side else "client's stamps",
            base=[row["begin_ns"] / 1e3 for row in drawn],
            x=[row["duration_ns"] / 1e3 for row in drawn],
            y=[names[row["who"]] for row in drawn],
            marker={
                "color": "white" if hollow else colour,
                "line": {"color": colour if hollow else "white", "width": 1 if hollow else 0.3},
                "pattern": {
                    "shape": breakdown.PATTERNS.get(side, ""),
                    "size": 5,
                    "solidity": 0.25,
                },
            },
            width=0.7,
        )
    made.update_yaxes(
        categoryorder="array", categoryarray=[names[w] for w in lanes], autorange="reversed"
    )
    made.update_yaxes(automargin=True)
    return made


def with_the_line(facts: Facts) -> go.Figure:
    """For each operation by messages: the measured time of programs and kernel, and the time that
    two Ethernets would add."""
    made = study.figure("us", "", height=340, barmode="stack")
    names = [NAMES[operation] for operation in (*REMOTE, *LOCAL_CALL)]
    for number, (name, of) in enumerate(
        (
            ("measured on a quiet line, without the probe", lambda o: facts.median(o)),
            (
                "its frames on two Ethernets of 10 Mbit/s, computed",
                lambda o: facts.serialised_ns(o) if o in REMOTE else 0,
            ),
        )
    ):
        hollow = {"color": "white", "line": {"color": study.colour(1), "width": 1.5}}
        made.add_bar(
            orientation="h",
            name=name,
            x=[of(operation) / 1e3 for operation in (*REMOTE, *LOCAL_CALL)],
            y=names,
            marker=hollow if number else {"color": study.colour(0)},
        )
    made.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0})
    made.update_yaxes(autorange="reversed", automargin=True)
    return made
