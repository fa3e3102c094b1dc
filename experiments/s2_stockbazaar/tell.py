"""RESULTS.md of S2."""

from study import Document, Results, machine, median, percent
from study.capture import Row
from study.wording import largest

import jump
import load
import locks
import pool
import transports
from ours import Ours
from workload import SYSTEMS


def tell(results: Results) -> Document:
    ours = Ours(results)
    text = Document("S2: StockBazaar by sockets and by gRPC: where the milliseconds go")
    (on,) = results.read("machine")
    bare = ours.runs[SYSTEMS[0].name, ours.clients[0], False, False]
    probed = ours.runs[SYSTEMS[0].name, ours.clients[0], True, False]
    text.say(f"""On {machine.told(on)}. Each cell of the report's table: {len(bare)} runs of {bare[0]["requests"]:,} requests a client without the probe, and
        {len(probed)} of {probed[0]["requests"]:,} with it, in random order. The gRPC server has a pool of 6 threads. "Ours" are mean response times by the
        clients' own logs without the probe: the median of the runs, in parentheses the least and the most. "Attributed to" is of the runs with
        it, without each client's first request: shares of the mean between the client's stamps.""")
    text.compared(compared(ours))
    text.head("Findings")
    questions = (transports, load, jump, locks, pool)
    text.points([question.finding(ours) for question in questions] + [modelled(ours)])
    for question in questions:
        text.head(question.TITLE)
        question.tell(text, ours)
    text.head("With the probe and without")
    influence(text, ours)
    return text


def compared(ours: Ours) -> list[list[str]]:
    rows = []
    for system in SYSTEMS:
        for clients in ours.clients:
            parts = ours.parts[system.name, clients]
            rows.append(
                [
                    f"{system.name}, {clients} client{'s' * (clients > 1)}",
                    f"{system.reported[clients - 1]:g} ms",
                    ours.mean_ns(system, clients).told(1e6, 3, "ms"),
                    largest(parts, 3, ours.outside_ns(system, clients)),
                ]
            )
    return rows


def modelled(ours: Ours) -> str:
    low, high = ours.clients[0], ours.clients[-1]
    told = "; ".join(
        f"{system.name}: {percent(ours.modelled(system, low))} with {low} client, "
        f"{percent(ours.modelled(system, high))} with {high}"
        for system in SYSTEMS
    )
    return f"""**How much is inferred.** Behind gRPC requests pass between threads in memory, where nothing tells which thread works for which
        request. Of the requests' time this share is modelled, not measured: {told}. Latencies and their sums are exact; which of the
        server's threads a request waited for is not, and `queue.app` there is modelled altogether."""


def influence(text: Document, ours: Ours):
    def later(run: Row) -> float:
        return run["later_total_ns"] / run["later_requests"]

    rows, scatter = [], []
    for system in SYSTEMS:
        row = [system.name]
        for clients in ours.clients:
            bare, probed = (ours.spread(system, clients, later, probe) for probe in (False, True))
            ratios = [b / a - 1 for a, b in zip(bare.runs, probed.runs)]
            row.append(percent(median(ratios), 0, sign=True))
            scatter.append(max(bare.runs) / min(bare.runs))
        rows.append(row)
    text.table(["clients", *map(str, ours.clients)], rows)
    retaken = sum(run["retaken"] for runs in ours.runs.values() for run in runs)
    text.say(f"""How much longer the mean response time is with the probe, in the same round (medians of the rounds), of the same requests: each client's second to
        its last that is captured. Without the probe, the slowest run of a cell is {
        median(scatter):.2f} times the fastest (median of the cells; at most {
        max(scatter):.2f} times), so a difference of that size is no effect of the probe. {
        retaken
    } captures were taken again, because a request of the clients'
        logs was missing or incomplete in them.""")
