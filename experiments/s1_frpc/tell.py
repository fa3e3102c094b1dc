"""Makes RESULTS.md from the tables."""

import common
import rows
import study
import words
from facts import MODES, NAMES, PHASES, Facts
from pictures import by_mode, by_phase, overlay, scatter, trips
from roundtrips import NAMES as TRIPS
from roundtrips import ONE_CPU
from study import ab, ns, outliers, percent
from study.machine import told
from study.statistics import median


def tell(results: study.Results) -> study.Document:
    facts = Facts(results)
    document = study.Document("S1: an expression evaluator in three transports")
    document.say(
        f"""300 expressions of 2 to 11 tokens, each by a process of its own (`targets/frpc/measure`: fork, exec, wait), in
        {facts.rounds} rounds of runs in random order, with and without the probe, files on an ext4 of their own; on
        {told(results.read("machine")[0])}. Times of *ours* are without the probe, by the driver's own stamps: medians over
        runs of one figure a run, with a 95 % bootstrap interval over runs, or the range of runs where that is said.
        Shares by phase and category are of the middle half of the evaluations of each run under rpcprobe."""
    )
    document.compared(rows.compared(facts))
    document.say("What contradicts the report, or what it says of the causes:")
    document.points(words.contradictions(facts))
    document.head("Where the time of one evaluation goes")
    where(document, facts)
    document.head("Files against standard streams")
    document.say(words.files(facts))
    document.say(ab.said(results.read("changes", mode=2), "mode 1", "mode 2", "p50"))
    document.head("Pipes against standard streams")
    document.say(words.pipes(facts))
    document.say(ab.said(results.read("changes", mode=3), "mode 1", "mode 3", "p50"))
    document.table(
        ("more than mode 1, us", "mode 2", "mode 3"),
        [
            (name, *(common.us_and_interval(facts.differences(mode)[name]) for mode in (2, 3)))
            for name in facts.differences(2)
        ],
    )
    document.show("modes", by_mode(facts), "An evaluation by category, of each mode")
    document.head("Outliers")
    document.say(words.outliers(facts))
    document.table(
        ("mode", "latency", "typical", "what it has more than typical evaluations of its run"),
        outliers.table(results.read("outliers"), ("mode",)),
        right=4,
    )
    document.head("Tokens")
    document.say(words.tokens(facts))
    for mode in MODES:
        what = f"{NAMES[mode]}: each evaluation by its tokens, moved sideways at random"
        document.show(f"mode{mode}", scatter(facts, mode), what)
    document.show("overlay", overlay(facts), "All three modes: the same axes")
    by_tokens = {mode: facts.by_tokens(mode) for mode in MODES}
    document.table(
        ("tokens", *(f"mode {mode}: median / IQR / max, us" for mode in MODES)),
        [
            (str(tokens), *(common.spread(by_tokens[mode][tokens]) for mode in MODES))
            for tokens in by_tokens[1]
        ],
    )
    document.head("Other ways to an evaluator that runs already")
    document.say(words.roundtrips(facts))
    document.table(
        (
            "",
            "ns an expression",
            "range of runs",
            "on one CPU",
            "under the probe",
            "round trips a second",
        ),
        [
            (
                f"mode {mode}, {name}",
                f"{median(plain):,.0f}",
                f"{min(plain):,.0f} - {max(plain):,.0f}",
                f"{median(facts.trips(mode, cpus=ONE_CPU)):,.0f}",
                f"{median(facts.trips(mode, probed=True)):,.0f}",
                f"{words.trips_per_second(facts, mode):,.0f}",
            )
            for mode, name in TRIPS.items()
            for plain in [facts.trips(mode)]
        ],
    )
    document.say(words.placement(facts))
    document.show(
        "trips", trips(facts, TRIPS), "A round trip by category; mode 4's is of 16 expressions"
    )
    document.head("What the probe changes")
    document.say(words.probe(facts))
    return document


def where(document: study.Document, facts: Facts):
    document.say(words.contradiction(facts))
    total = facts.mean_ns(1)
    document.table(
        ("phase", "most of it", "mean", "share", "page faults"),
        [
            (
                phase,
                common.largest(facts, phase),
                ns(facts.mean_ns(1, phase=phase)),
                percent(facts.mean_ns(1, phase=phase) / total),
                f"{facts.faults(phase=phase):.0f}",
            )
            for phase in PHASES
        ]
        + [("in all", common.largest(facts, ""), ns(total), percent(1), f"{facts.faults():.0f}")],
        right=2,
    )
    document.say(words.evaluation(facts))
    document.show("phases", by_phase(facts, 1), "Mode 1 by phase and category")
    document.say(words.linking(facts))
    document.say(words.typical(facts))
    document.code(common.time_line(facts))
