"""RESULTS.md of S4."""

import math

from study import Document, Results, breakdown, machine, percent, us
from study.wording import largest

import first
from figures import by_quantile, by_unit
from ours import Numbers, numbers

REPORTED_FIRST_MS = (3, 5)
# Messages per millisecond, with one client and with two.
REPORTED_PER_MS = {1: 19.6, 2: 42.77}
REPORTED_CALLS = 1000
MILLISECOND_NS = 1_000_000
# From this share on, the text says that the CPUs limit the programs.
BUSY = 0.85


def tell(results: Results) -> Document:
    found = numbers(results)
    parts = {count: results.read("parts", clients=count) for count in (1, 2)}
    text = Document("S4: gRPC's greeter: the first call, the others, and throughput")
    (on,) = results.read("machine")
    runs = len(found.runs[1, False])
    text.say(f"""On {machine.told(on)}. {runs} runs of one client and {runs} of two without the probe,
        {len(found.runs[1, True])} of each with it, in random order, {found.runs[1, False][0]["calls"]:,} calls of each
        client after its first. A figure of ours is the median of the runs without the probe, in parentheses the least and the most; what it is
        attributed to is from the runs with it.""")
    text.compared(compared(found, results, parts))
    text.head("Findings")
    text.points(findings(found, results, parts))
    text.head("The first call")
    first.tell(text, results, found)
    text.head("A call in the steady state")
    steady(text, found, results, parts)
    text.head("Throughput, and what truncation makes of it")
    throughput(text, found)
    text.head("With the probe and without")
    influence(text, found)
    return text


def compared(found: Numbers, results: Results, parts) -> list[list[str]]:
    low, high = REPORTED_FIRST_MS
    rows = [
        [
            "first call",
            f"{low} to {high} ms",
            found.first_ns[1, False].told(1e6, 2, "ms"),
            first.shares(results),
        ]
    ]
    for count in (1, 2):
        name = "1 client" if count == 1 else "2 clients"
        for p in (50, 90, 99):
            took = found.spread(count, False, lambda run, p=p: run[f"p{p}_ns"])
            told = largest(parts[count]) if p == 50 else ""
            rows.append([f"later calls, {name}, p{p}", "-", took.told(1e3, 1, "us"), told])
    for count, reported in REPORTED_PER_MS.items():
        name = "1 client" if count == 1 else "2 clients"
        rows.append(
            [
                f"throughput, {name}, calls/ms",
                "-",
                found.wall(count).told(1, 2),
                f"{us(found.cpu_ns[count])} of CPU a call: {found.busy_cpus(count):.2f} CPUs busy",
            ]
        )
        rows.append(
            [
                f"the same from latencies truncated to whole ms, {name}",
                f"{reported:g}",
                truncated_told(found, count),
                f"truncation: {error_told(found, count)}",
            ]
        )
    return rows


def truncated_told(found: Numbers, count: int) -> str:
    values = found.truncated[count, MILLISECOND_NS]
    finite = [value for value in values if math.isfinite(value)]
    infinite = len(values) - len(finite)
    said = []
    if finite:
        said.append(f"{min(finite):,.1f} to {max(finite):,.1f}")
    if infinite:
        said.append(f"infinite in {infinite} of {len(values)} runs")
    return ", ".join(said)


def error_told(found: Numbers, count: int) -> str:
    """The ratio of the truncated figure to the true one."""
    pairs = zip(found.truncated[count, MILLISECOND_NS], found.wall(count).runs)
    ratios = sorted(value / true for value, true in pairs)
    high = "infinitely many" if math.isinf(ratios[-1]) else f"{ratios[-1]:,.0f}"
    return f"{ratios[0]:,.0f} to {high} times the throughput by the clock"


def findings(found: Numbers, results: Results, parts) -> list[str]:
    one, two = found.wall(1).middle, found.wall(2).middle
    below = sum(run["total_ns"] for run in found.runs[1, False])
    calls = sum(run["calls"] for run in found.runs[1, False])
    high = max(max(found.truncated[count, MILLISECOND_NS]) for count in (1, 2))
    low = min(min(found.truncated[count, MILLISECOND_NS]) for count in (1, 2))
    sums_ms = round(REPORTED_CALLS / REPORTED_PER_MS[1])
    points = [
        f"""**The reported throughputs are wrong, and ours contradict them.** By the clock on the wall one client makes
        {one:.2f} calls a millisecond and two make {
            two:.2f} together. The report's computation gives {low:,.1f} to {
            "infinity" if math.isinf(high) else f"{high:,.1f}"
        } on the same logs: it measures how often a call happened to take
        a whole millisecond. Its own figure shows this: {REPORTED_CALLS} / {sums_ms} ms = {
            REPORTED_CALLS / sums_ms:.1f}, so {REPORTED_CALLS} calls had {
            sums_ms
        } whole milliseconds in all, which would be {sums_ms} us a call. Ours took {
            us(below / calls)
        } on average.""",
        doubling(found),
        first.finding(results, found, REPORTED_FIRST_MS),
        f"""**A steady call** has a median of {
            us(found.spread(1, False, lambda r: r["p50_ns"]).middle)
        }: {largest(parts[1], 4)} (shares of the mean with the probe, of the call's window).""",
        limit(found, results),
    ]
    return points


def doubling(found: Numbers) -> str:
    ratio = found.wall(2).middle / found.wall(1).middle
    reported = REPORTED_PER_MS[2] / REPORTED_PER_MS[1]
    said = "contradicts the report" if ratio < 0.9 * reported else "is about what the report has"
    return f"""**A second client gives {ratio:.2f} times the throughput**; the report has {reported:.2f} times, more than two
        clients could. That {said}. The report adds up the clients' own rates, each from truncated sums, and neither is a rate."""


def behind(results: Results, count: int) -> tuple[dict[str, float], float]:
    """Shares of the waits for a CPU, by the task that had it; and the total of these waits per
    call."""
    rows = results.read("behind", clients=count)
    whole = sum(row["total_ns"] for row in rows)
    calls = sum(row["calls"] for row in results.read("runs", clients=count, probe=True))
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["by"]] = shares.get(row["by"], 0) + row["total_ns"] / whole
    return shares, whole / calls


def limit(found: Numbers, results: Results) -> str:
    (on,) = results.read("machine")
    busy, cpus = found.busy_cpus(2), on["cpus"]
    shares, waits_ns = behind(results, 2)
    told = ", ".join(
        f"{percent(share, 0)} behind {by}"
        if by != "idle"
        else f"{percent(share, 0)} for an idle CPU"
        for by, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 0.05
    )
    share = waits_ns / found.mean_ns(2, True).middle
    waits = f"""A call of one of two clients waits {us(waits_ns)} for a CPU on its way ({percent(share, 0)} of its latency
        with the probe): {told}."""
    runs = found.runs[2, False]
    idle = sum(run["idle_ticks"] for run in runs) / sum(run["all_ticks"] for run in runs)
    if busy >= BUSY * cpus:
        said = (
            f"**Two clients are limited by the CPUs.** The programs keep {busy:.2f} of {cpus} busy."
        )
    elif idle >= 1 - BUSY:
        said = f"""**Two clients leave CPUs idle, and yet wait for one.** The programs keep {busy:.2f} of {cpus} busy, {percent(idle, 0)} of the
            CPUs' time is idle: threads that wake each other run on the same CPU, it seems."""
    else:
        said = f"""**Two clients are limited by the CPUs, which other programs use as well.** The programs themselves keep {
            busy:.2f} of {cpus} busy, and the machine is idle for {
            percent(idle, 0)
        } of the CPUs' time only."""
    alone = f"""One client keeps {found.busy_cpus(1):.2f} busy: a call is {
        us(found.cpu_ns[1])
    } of CPU time ({us(found.server_cpu_ns[1])} of it the server's) in {
        us(found.mean_ns(1).middle)
    } of latency."""
    return f"{said} {waits} {alone}"


def steady(text: Document, found: Numbers, results: Results, parts):
    rows = []
    for count in (1, 2):
        name = "1 client" if count == 1 else "2 clients"
        rows += [{**row, "who": name} for row in parts[count]]
    drawn = breakdown.bars(rows, "who", height=400)
    text.show(
        "steady",
        drawn,
        "Calls after the first, by category and side, mean of all runs with the probe: from the request's first byte to "
        "the answer's last read.",
    )
    table = []
    keys = {(row["category"], row["side"]) for count in (1, 2) for row in parts[count]}
    means = {
        (key, count): sum(
            row["total_ns"] for row in parts[count] if (row["category"], row["side"]) == key
        )
        / sum(run["calls"] for run in found.runs[count, True])
        for key in keys
        for count in (1, 2)
    }
    shown = sorted(keys, key=lambda key: -means[key, 2])
    large = [key for key in shown if max(means[key, 1], means[key, 2]) >= 1000]
    for category, side in large:
        one, two = means[(category, side), 1], means[(category, side), 2]
        table.append([category, side, us(one), us(two), us(two - one)])
    small = {count: sum(means[key, count] for key in shown if key not in large) for count in (1, 2)}
    table.append(["smaller ones", "", us(small[1]), us(small[2]), us(small[2] - small[1])])
    for place, name in (("before", "before the first byte"), ("after", "after the last read")):
        one, two = (
            sum(run[f"{place}_ns"] for run in found.runs[count, True])
            / sum(run["calls"] for run in found.runs[count, True])
            for count in (1, 2)
        )
        table.append([f"client, {name}", "client", us(one), us(two), us(two - one)])
    whole = [
        sum(run["total_ns"] for run in found.runs[count, True])
        / sum(run["calls"] for run in found.runs[count, True])
        for count in (1, 2)
    ]
    table.append(["mean by the client's stamps", "", *map(us, whole), us(whole[1] - whole[0])])
    text.table(["category", "side", "1 client", "2 clients", "more"], table, right=2)
    modelled = {
        count: sum(row["modelled_ns"] for row in parts[count])
        / sum(row["total_ns"] for row in parts[count])
        for count in (1, 2)
    }
    text.say(f"""The lines add up to the mean by the client's stamps. Of the time in the calls' windows {percent(modelled[1])} is modelled
        with one client and {percent(modelled[2])} with two; what lies before the first byte and after the last read is the
        client's stamps less the window, not attributed further.""")
    text.show(
        "quantiles",
        by_quantile(results),
        "Latencies of calls after the first without the probe: each quantile is the median of the runs.",
    )


def throughput(text: Document, found: Numbers):
    rows = []
    for count in (1, 2):
        for run, value in zip(found.runs[count, False], found.truncated[count, MILLISECOND_NS]):
            wall = run["calls"] / run["whole_ns"] * 1e6
            rows.append((count, wall, run["printed_untruncated_per_ms"], value))
    table = []
    for count in (1, 2):
        own = [row for row in rows if row[0] == count]
        columns = []
        for index in (1, 2, 3):
            values = sorted(row[index] for row in own)
            columns.append(f"{shown(values[0])} to {shown(values[-1])}")
        table.append([str(count), *columns])
    text.table(
        ["clients", "by the clock", "by the sum of latencies", "by latencies truncated to ms"],
        table,
    )
    exact = all(
        agrees(run["printed_truncated_per_ms"], value)
        for count in (1, 2)
        for run, value in zip(found.runs[count, False], found.truncated[count, MILLISECOND_NS])
    )
    text.say(f"""Calls a millisecond, least and most of the runs. The client prints all three; what its log gives {
        "is the same in each run" if exact else "is NOT the same in each run"
    }. The sum of latencies leaves out what a client does between calls, so it is a little too high. Truncated to
        whole milliseconds, a call of less than 1 ms counts as nothing, and only the few that are late are left.""")
    text.show(
        "truncation",
        by_unit(found),
        "Throughput as it seems to be if latencies are truncated to a unit, from our logs (median of the runs); dashed: by the clock "
        "on the wall. Units with an infinite figure are not drawn.",
    )


def agrees(printed: float, computed: float) -> bool:
    return printed == computed or abs(printed - computed) <= 0.001


def shown(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:,.2f}"


def influence(text: Document, found: Numbers):
    table = []
    for count in (1, 2):
        for probe in (False, True):
            first_ns = found.first_ns[count, probe]
            table.append(
                [
                    str(count),
                    "with" if probe else "without",
                    first_ns.told(1e6, 2, "ms"),
                    found.spread(count, probe, lambda run: run["p50_ns"]).told(1e3, 1, "us"),
                    found.mean_ns(count, probe).told(1e3, 1, "us"),
                    found.wall(count, probe).told(1, 2),
                ]
            )
    text.table(
        ["clients", "probe", "first call", "later, p50", "later, mean", "calls/ms by the clock"],
        table,
        right=2,
    )
    more = {
        count: found.mean_ns(count, True).middle / found.mean_ns(count).middle - 1
        for count in (1, 2)
    }
    retaken = sum(run["retaken"] for runs in found.runs.values() for run in runs)
    one, two = (percent(more[count], sign=True) for count in (1, 2))
    text.say(f"""With the probe the mean call takes {one} (one client) and {two} (two). No figure of the first table's
        column "ours" is from runs with it. {retaken} captures were taken again, because a call of the log was missing or
        incomplete in them, or the first call's parts did not add up.""")
