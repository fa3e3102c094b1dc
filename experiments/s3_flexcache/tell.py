"""RESULTS.md of s3_flexcache."""

import costs
import findings
from facts import LOCAL_CALL, NAMES, NO_CALL, REMOTE, REPORTED_NS, Facts

import study
from study import Document, breakdown, ns, percent, spread
from study.machine import told as told_of_machine


def tell(results: study.Results) -> Document:
    facts = Facts(results)
    document = Document("S3: remote and cached objects, operation by operation")
    document.say(
        f"""{facts.rounds} rounds of a run without the probe and one with it, in random order, on two Ethernets of 10 Mbit/s
        and a router, each a network namespace. *Ours* is by the client's own stamps without the probe, on a quiet line: the
        median of the runs' medians, and the least and the most of these. What it is *attributed to* are means of the probed
        operations on a quiet line, without the quickest and the slowest quarter of each run. `~`: in part modelled. A part lies
        with the client or the server of the request that it is in."""
    )
    document.compared(compared(facts))
    document.head("Findings")
    for finding in (*findings.ALL, *costs.ALL):
        finding(document, facts)
    document.head("Measured on")
    document.say(f"On {told_of_machine(facts.machine)}.")
    return document


def reported(operation: str) -> str:
    if operation in REPORTED_NS:
        return ns(REPORTED_NS[operation])
    return {
        "null_udp": f"slightly below {ns(REPORTED_NS['invoke_udp'])}",
        "invalidate": "local, negligible",
    }.get(operation, "")


def attributed(facts: Facts, operation: str) -> str:
    if operation in NO_CALL:
        return "no request: nothing but the program's own code"
    whole_ns = facts.mean(operation)
    by = {
        name: facts.mean(operation, transport=transport)
        for transport, name in (("udp", "over UDP"), ("tcp", "over TCP"), ("unix", "by IPC"))
    }
    shares = ", ".join(f"{name} {percent(of / whole_ns)}" for name, of in by.items() if of)
    parts = breakdown.largest(facts.part(operation), 0.1, facts.count(operation))
    return f"of {ns(whole_ns)}: {shares}; {parts}"


def compared(facts: Facts) -> list[list[str]]:
    return [
        [
            NAMES[operation],
            reported(operation),
            spread(facts.of_runs(operation)),
            attributed(facts, operation),
        ]
        for operation in (*REMOTE[:4], NO_CALL[0], *LOCAL_CALL, *REMOTE[4:], NO_CALL[1])
    ]
