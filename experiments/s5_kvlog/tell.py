"""RESULTS.md of s5_kvlog."""

import accounts
import findings
from facts import (
    ALL_WRITES,
    ANSWER_ESTIMATE_NS,
    ANSWER_NS,
    NEW,
    OVER,
    PROCESS_ESTIMATE_NS,
    PROCESS_NS,
    RESPONSE_NS,
    SEND_ESTIMATE_NS,
    SEND_NS,
    TEN,
    Facts,
)

import study
from study import Document, breakdown, ns, spread
from study.machine import told as told_of_machine


def tell(results: study.Results) -> Document:
    facts = Facts(results)
    document = Document("S5: writes of 1 MB, from the programs' stamps and from rpcprobe")
    document.say(
        f"""{facts.rounds} rounds of a run without the probe and one with it, in random order: 20 pings and 30 writes of
        1 MB each, over a 1 Gbit/s link between two network namespaces. *Ours* is without the probe, by the programs' own
        stamps on the true clock: the median of the runs' medians, and the least and the most of these. What it is
        *attributed to* are means over all writes of the probed runs. `~`: in part modelled.
        The report shows ten writes; here the first ten of a connection store under new keys, the other 20 overwrite."""
    )
    document.compared(compared(facts))
    document.head("Findings")
    for finding in (*findings.ALL, *accounts.ALL):
        finding(document, facts)
    document.head("Measured on")
    document.say(f"On {told_of_machine(facts.machine)}.")
    return document


def compared(facts: Facts) -> list[list[str]]:
    def ours(column: str, stages) -> str:
        return spread(facts.of_runs(column, stages))

    def attributed(step: str, stages) -> str:
        rows = facts.part(step, stages)
        return f"of {ns(breakdown.mean_ns(rows))}: {breakdown.largest(rows)}"

    errors = facts.clock_errors()
    first = facts.more_of_first("process")
    return [
        [
            "send the 1 MB request",
            f"{ns(SEND_NS)}, estimated {ns(SEND_ESTIMATE_NS)}",
            ours("send_ns", TEN),
            attributed("send", TEN),
        ],
        [
            "process it, under a new key",
            f"{ns(PROCESS_NS)}, estimated {ns(PROCESS_ESTIMATE_NS)}",
            ours("process_ns", TEN),
            attributed("process", TEN),
        ],
        [
            "process it, overwriting",
            "not told apart",
            ours("process_ns", OVER),
            attributed("process", OVER),
        ],
        [
            "send the answer",
            f"{ns(ANSWER_NS)}, estimated {ns(ANSWER_ESTIMATE_NS)}",
            ours("answer_ns", TEN),
            attributed("answer", TEN),
        ],
        [
            "the answer's way, server's stamp to client's",
            f"response time seen: about {ns(RESPONSE_NS)}",
            ours("response_ns", TEN),
            attributed("response", TEN),
        ],
        [
            "client's gap between RPCs",
            "1 to 2 ms",
            ours("gap_ns", NEW),
            attributed("gap", NEW),
        ],
        [
            "first 3 RPCs, processing more than in later ones under new keys",
            "slower, cause open",
            ns(facts.median("process_ns", ("first",)) - facts.median("process_ns", NEW)),
            f"page faults {ns(study.median(facts.more_of_first('process', 'fault')))} more, all of "
            f"it {ns(study.median(first))} more (medians of runs)",
        ],
        [
            "clocks' offset, error of the estimate",
            "not known there",
            f"{ns(study.median([abs(error) for error, _ in errors]))} in the median, "
            f"{ns(max(abs(error) for error, _ in errors))} at most",
            f"the injected shift is known; uncertainty as estimated "
            f"{ns(study.median([uncertainty for _, uncertainty in errors]))} in the median",
        ],
        [
            "slop: not explained",
            "what remains",
            ours("post_slop_ns", TEN),
            f"{ns(facts.mean('all', ALL_WRITES, 'unattributed'))} of a probed write on average unattributed",
        ],
    ]
