"""The first call: the breakdown of its phases."""

from collections import defaultdict

from study import Document, Results, colour, figure, median, percent, us
from study.labs import greeter as lab

from ours import Numbers

SERVER = "(server's)"
# Each kind has the colour of a category that it contains.
LIKE = {
    "user": "user",
    "page faults": "fault",
    "system calls": "kernel.tcp",
    "no CPU": "runqueue.wakeup",
    "interrupts": "interrupt",
    "waits": "idle.peer",
}
NAMES = {
    "the channel": "until the name is looked up: the channel is made",
    "name resolution": "name resolution",
    "the connection": "connect()",
    "HTTP/2's settings": "until the server's settings are there",
    "the call is made": "until the call's first byte",
    "the call": "the call's window",
    "after it": "until it is back in the program",
}


def medians(results: Results) -> dict[str, dict[str, float]]:
    """Medians over the runs, by phase and kind."""
    runs = defaultdict(lambda: defaultdict(list))
    for row in results.read("first"):
        runs[row["phase"]][row["kind"]].append(row["total_ns"])
    return {phase: {k: median(v) for k, v in kinds.items()} for phase, kinds in runs.items()}


def totals(results: Results) -> tuple[dict[str, float], dict[str, float], float]:
    """Means over the runs by phase, by kind, and in total."""
    phases, kinds, rounds = defaultdict(float), defaultdict(float), set()
    for row in results.read("first"):
        rounds.add(row["round"])
        if row["kind"] != SERVER:
            phases[row["phase"]] += row["total_ns"]
            kinds[row["kind"]] += row["total_ns"]
    count = len(rounds)
    by_phase = {name: ns / count for name, ns in phases.items()}
    return by_phase, {k: ns / count for k, ns in kinds.items()}, sum(by_phase.values())


def shares(results: Results) -> str:
    _, kinds, whole = totals(results)
    largest = sorted(kinds.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{percent(ns / whole, 0)} {name}" for name, ns in largest)


def finding(results: Results, found: Numbers, reported: tuple[float, float]) -> str:
    phases, kinds, whole = totals(results)
    low, high = reported
    middle_ms = found.first_ns[1, False].middle / 1e6
    within = (
        "as the report has it"
        if low <= middle_ms <= high
        else f"{'less' if middle_ms < low else 'more'} than the report's {low} to {high} ms"
    )
    later_ns = found.spread(1, False, lambda run: run["p50_ns"]).middle
    before = sum(ns for name, ns in phases.items() if name not in ("the call", "after it"))
    most = sorted(phases.items(), key=lambda item: -item[1])[:3]
    told = ", ".join(f"{NAMES[name]} {us(ns, 0)}" for name, ns in most)
    return f"""**The first call takes {middle_ms:.2f} ms, {within}**, {
        middle_ms * 1e6 / later_ns:.0f} times a later one. With the probe, where
        it has parts, {
        percent(before / whole, 0)
    } of it pass before the call's first byte is sent: it makes the channel, resolves the name,
        connects and waits for HTTP/2's settings. The largest phases: {told}. Of all of it {
        percent(kinds["user"] / whole, 0)
    } is user code, {percent(kinds["page faults"] / whole, 0)} page faults, {
        percent(kinds["system calls"] / whole, 0)
    } system calls, {percent(kinds["no CPU"] / whole, 0)} waits for a CPU."""


def tell(text: Document, results: Results, found: Numbers):
    per_phase = medians(results)
    shown = [k for k in lab.KINDS if any(kinds[k] for kinds in per_phase.values())]
    drawn_like = {row["category"]: row["colour"] for row in results.read("parts")}
    drawn = figure("median, us", "", barmode="stack", height=360)
    for number, kind in enumerate(shown):
        drawn.add_bar(
            orientation="h",
            name=kind,
            y=[NAMES[phase] for phase in per_phase],
            x=[kinds[kind] / 1e3 for kinds in per_phase.values()],
            marker={"color": drawn_like.get(LIKE.get(kind), colour(number))},
        )
    drawn.update_yaxes(autorange="reversed", automargin=True)
    runs = len({row["round"] for row in results.read("first")})
    text.show(
        "first",
        drawn,
        f"The first call of a client, by phase and what its time was: medians of {runs} runs with the probe.",
    )
    rows = []
    for phase, kinds in per_phase.items():
        whole = sorted(
            sum(
                r["total_ns"]
                for r in results.read("first", phase=phase, round=number)
                if r["kind"] != SERVER
            )
            for number in sorted({row["round"] for row in results.read("first")})
        )
        rows.append(
            [
                NAMES[phase],
                f"{us(median(whole))} ({us(whole[0])} to {us(whole[-1])})",
                *(us(kinds[kind]) for kind in shown),
                us(kinds[SERVER]),
            ]
        )
    text.table(["phase", "all", *shown, "of it in the server"], rows)
    text.say("""Medians of each cell, least and most of the runs in parentheses; in each run all phases and kinds add up to the client's stamps
        to the nanosecond. Until the call's first byte, and after its last, it is the time line of the client's process;
        in its window the call's own. "No CPU": runnable, another thread had it. System calls on the way mark where a phase begins.""")
    behind = defaultdict(int)
    for row in results.read("first_behind"):
        behind[row["by"]] += row["total_ns"]
    whole = sum(behind.values())
    told = ", ".join(
        f"{name} {percent(ns / whole, 0)}"
        for name, ns in sorted(behind.items(), key=lambda item: -item[1])
        if ns >= 0.05 * whole
    )
    if whole:
        text.say(f"""Outside of the window its waits for a CPU ({us(whole / runs)} a run on average) were behind these threads: {told}.
            `grpcpp_sync_ser` are the server's threads, `greeter_client`, `default-executo` and `event_engine` the client's own.""")
    text.say(
        f"""Without the probe the first call took {
            found.first_ns[1, False].told(1e6, 2, "ms")
        } with one client and {
            found.first_ns[2, False].told(1e6, 2, "ms")
        } with two, which start at once (each client of each run counts)."""
    )
