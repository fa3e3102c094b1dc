"""The effect of load: which categories grow with the clients?"""

from study import Document, breakdown, colour, figure, percent, us

from ours import GROUPS, LOOKUP, OUTSIDE, SOCKETS_6, Ours
from workload import SYSTEMS, System

TITLE = "The effect of load"
# A throughput with all clients of less than this multiple of the best with fewer clients is not an
# increase.
FLAT = 1.15
WORK = ("user code", "kernel and loopback")


def per_second(ours: Ours, system: System, clients: int) -> float:
    return ours.spread(system, clients, lambda r: r["requests"] / r["whole_ns"] * 1e9).middle


def grown(ours: Ours, system: System) -> tuple[str, float]:
    """The groups that grow most from the fewest clients to the most, and the growth of all
    groups."""
    low, high = ours.groups(system, ours.clients[0]), ours.groups(system, ours.clients[-1])
    whole = sum(high.values()) - sum(low.values())
    ranked = sorted(high, key=lambda name: low[name] - high[name])[:3]
    told = ", ".join(f"{name} {percent((high[name] - low[name]) / whole, 0)}" for name in ranked)
    return told, whole


def worked(ours: Ours, system: System) -> float:
    """The increase of work on a request's critical path from the fewest clients to the most."""
    low, high = (ours.groups(system, clients) for clients in (ours.clients[0], ours.clients[-1]))
    return sum(high[name] - low[name] for name in WORK)


def finding(ours: Ours) -> str:
    first, last = ours.clients[0], ours.clients[-1]
    said, work = [], []
    for name, system in (("sockets (pool of 6)", SOCKETS_6), ("gRPC", LOOKUP)):
        ratio = ours.mean_ns(system, last).middle / ours.mean_ns(system, first).middle
        reported = system.reported[last - 1] / system.reported[first - 1]
        at = {clients: per_second(ours, system, clients) for clients in ours.clients}
        others = max(rate for clients, rate in at.items() if clients < last)
        if at[last] >= FLAT * others:
            filled = "still more than with fewer"
        elif at[last] > others:
            filled = f"hardly more than with fewer ({others:,.0f} at most), so it is saturated"
        else:
            filled = f"no more than with fewer ({others:,.0f} at most), so it is saturated"
        told, whole = grown(ours, system)
        work.append(worked(ours, system) / whole)
        told += f", work {percent(work[-1], 0)}"
        differs = not 0.67 < ratio / reported < 1.5
        said.append(
            f"""{name}: {ratio:.1f} times with {last} clients (report: {reported:.2f} times{
                ", which ours contradicts" if differs else ""
            }); {at[first]:,.0f} requests a second with {first} client, {at[last]:,.0f} with {
                last
            }, {filled}. Of the {us(whole)} more with the probe: {told}"""
        )
    what = (
        "What grows is waiting, not work."
        if max(work) < 0.2
        else f"Of what grows, {percent(min(work), 0)} to {percent(max(work), 0)} is work, the rest waiting."
    )
    return f"""**The effect of load.** {what} {"; ".join(said)}."""


def tell(text: Document, ours: Ours):
    drawn = figure("clients", "mean response time, ms", yaxis_type="log")
    for number, system in enumerate(SYSTEMS):
        spreads = [ours.mean_ns(system, clients) for clients in ours.clients]
        drawn.add_scatter(
            x=ours.clients,
            y=[spread.middle / 1e6 for spread in spreads],
            error_y={
                "type": "data",
                "array": [(max(s.runs) - s.middle) / 1e6 for s in spreads],
                "arrayminus": [(s.middle - min(s.runs)) / 1e6 for s in spreads],
            },
            name=f"{system.name}, ours",
            line={"color": colour(number)},
        )
        drawn.add_scatter(
            x=[1, 2, 3, 4, 5],
            y=list(system.reported),
            name=f"{system.name}, reported",
            line={"color": colour(number), "dash": "dot"},
        )
    text.show(
        "response",
        drawn,
        "Mean response times by number of clients: ours without the probe (median, least and most of the runs), and as reported.",
    )
    bars = []
    for name, system in (("sockets", SOCKETS_6), ("gRPC", LOOKUP)):
        for clients in ours.clients:
            bars += ours.bars(system, clients, f"{name}, {clients}")
    text.show(
        "load",
        breakdown.bars(bars, "who", height=460),
        "A Lookup by number of clients, sockets (pool of 6) and gRPC: mean between the client's stamps, all runs with the probe.",
    )
    for name, system in (("Sockets, pool of 6", SOCKETS_6), ("gRPC", LOOKUP)):
        groups = {clients: ours.groups(system, clients) for clients in ours.clients}
        rows = []
        for group in [*GROUPS, OUTSIDE]:
            cells = [groups[clients][group] for clients in ours.clients]
            rows.append([group, *map(us, cells), us(cells[-1] - cells[0])])
        cells = [sum(groups[clients].values()) for clients in ours.clients]
        rows.append(["**mean with the probe**", *map(us, cells), us(cells[-1] - cells[0])])
        rates = [f"{per_second(ours, system, clients):,.0f}" for clients in ours.clients]
        rows.append(["requests a second without it", *rates, ""])
        rows.append(["modelled", *(percent(ours.modelled(system, c)) for c in ours.clients), ""])
        text.table([f"{name}: clients", *map(str, ours.clients), "growth"], rows)
    text.say("Who had the CPU while requests waited for one, a request on average:")
    rows = []
    for name, system in (("sockets, pool of 6", SOCKETS_6), ("gRPC", LOOKUP)):
        for clients in (ours.clients[0], ours.clients[-1]):
            found = ours.results.read("behind", system=system.name, clients=clients)
            count = ours.sum(system, clients, "later_requests", True)
            by = {who: 0.0 for who in ("the server", "a client", "idle", "rpcprobe", "others")}
            for row in found:
                by[row["by"]] += row["total_ns"] / count
            rows.append([name, str(clients), *map(us, by.values())])
    heads = ["", "clients", "the server", "a client", "idle: it had to wake up", "rpcprobe"]
    text.table([*heads, "other programs"], rows, right=1)
