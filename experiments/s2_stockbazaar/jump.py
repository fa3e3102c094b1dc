"""The jump at five clients: does it occur, and what could carry it?"""

from study import Document, median, ms, percent, us

from ours import SOCKETS_2, SOCKETS_6, Ours
from workload import SHORT_BACKLOG

TITLE = "The jump at five clients"
# Five clients' mean response time, as a multiple of four clients'.
REPORTED = {s: s.reported[4] / s.reported[3] for s in (SOCKETS_2, SOCKETS_6)}
JUMP = 1.5
REPORTED_REQUESTS = 5 * 3000


def ratios(ours: Ours, clients: int = 5) -> dict[str, float]:
    """Mean response time with `clients` clients, as a multiple of that with one client fewer."""
    return {
        system.name: ours.mean_ns(system, clients).middle / ours.mean_ns(system, clients - 1).middle
        for system in (SOCKETS_2, SOCKETS_6)
    }


def before(ours: Ours) -> str:
    """The same from three clients to four, if three were measured."""
    if 3 not in ours.clients:
        return ""
    told = " and ".join(f"{ratio:.2f}" for ratio in ratios(ours, 4).values())
    reported = " and ".join(f"{s.reported[3] / s.reported[2]:.2f}" for s in (SOCKETS_2, SOCKETS_6))
    return f" From three to four it rises to {told} times; reported were {reported}."


def lost(ours: Ours, clients: int) -> tuple[int, int, int]:
    """With the short listen queue, without the probe: number of runs, of lost SYNs seen by clients,
    and of overflows counted by the kernel."""
    runs = ours.runs[SOCKETS_2.name, clients, False, True]
    return len(runs), *(sum(run[c] for run in runs) for c in ("lost_syns", "listen_overflows"))


def finding(ours: Ours) -> str:
    found = ratios(ours)
    occurs = [name for name, ratio in found.items() if ratio >= JUMP]
    told = " and ".join(f"{ratio:.2f} times" for ratio in found.values())
    reported = " and ".join(f"{ratio:.2f}" for ratio in REPORTED.values())
    grown = {}
    for system in (SOCKETS_2, SOCKETS_6):
        four, five = ours.groups(system, 4), ours.groups(system, 5)
        name = max(five, key=lambda group: five[group] - four[group])
        grown[name] = max(grown.get(name, 0), five[name] - four[name])
    carried = ", ".join(f"{name} (up to {us(ns)} more)" for name, ns in grown.items())
    runs, at_five, _ = lost(ours, 5)
    _, at_four, _ = lost(ours, 4)
    needed = [
        (s.reported[4] - s.reported[3]) / 1e3 * REPORTED_REQUESTS for s in (SOCKETS_2, SOCKETS_6)
    ]
    slow = ours.runs[SOCKETS_2.name, 5, False, True]
    added_ns = sum(run["max_ns"] for run in slow if run["lost_syns"]) / sum(
        run["requests"] for run in slow
    )
    reported_ns = [(s.reported[4] - s.reported[3]) * 1e6 for s in (SOCKETS_2, SOCKETS_6)]
    only_five = at_five > 0 and at_four == 0
    report_lost = " and ".join(f"{seconds:.0f}" for seconds in needed)
    report_more = " and ".join(f"{seconds:.1f} s" for seconds in needed)
    if only_five:
        cause = f"""A cause that gives a jump exactly there, whatever the pool, is a short listen queue: with a backlog of {SHORT_BACKLOG}, in which
            {SHORT_BACKLOG + 1} connections fit, {at_five} request(s) in {runs} run(s) of five clients had their SYN dropped and waited a second for the next; none
            of four clients' had. The report's jumps are {report_more} more over {REPORTED_REQUESTS:,} requests, as of {report_lost} such requests.
            In our runs they add {us(added_ns)} to the mean, not the report's {us(median(reported_ns), 0)}; and what queue its server had is not known. So this is a
            possible cause, not a shown one."""
    else:
        cause = f"""A short listen queue (a backlog of {SHORT_BACKLOG}) was tried as a cause: {at_four} requests of four clients and {at_five} of five had their
            SYN dropped in {runs} runs each, which does not show one."""
    return f"""**The jump at five clients {"occurs" if occurs else "does not occur"} here.** From four clients to five the mean response time rises to {told} (pools of 2
        and 6); the report has {reported} times.{before(ours)}
        What grows most from four to five: {carried}. {cause}"""


def tell(text: Document, ours: Ours):
    rows = []
    for short in (False, True):
        for clients in (4, 5):
            runs = ours.runs[SOCKETS_2.name, clients, False, short]
            count = sum(run["requests"] for run in runs)
            rows.append(
                [
                    str(SHORT_BACKLOG) if short else "1024",
                    str(clients),
                    ours.mean_ns(SOCKETS_2, clients, short).told(1e6, 3, "ms"),
                    ms(max(run["max_ns"] for run in runs), 1),
                    str(sum(run["lost_syns"] for run in runs)),
                    f"{count:,}",
                    str(sum(run["listen_overflows"] for run in runs)),
                ]
            )
    heads = ["backlog", "clients", "mean response time", "longest", "requests that lost a SYN"]
    text.table([*heads, "of", "overflows that the kernel counted"], rows, right=2)
    text.say("""Sockets, pool of 2, without the probe. A request that lost a SYN took more than 0.9 s: Linux sends the next after 1 s. The backlog was
        made short by net.core.somaxconn of the run's network namespace; the program is the same.""")
    capture = ours.results.read("lost")
    slow = [row for row in capture if row["which"] == "lost SYN"]
    if not slow:
        text.say("In the capture with the short backlog no request lost a SYN.")
        return
    whole = sum(row["total_ns"] for row in slow)
    everything = sum(row["total_ns"] for row in capture if row["which"] == "all")
    count = next(row["requests"] for row in capture if row["which"] == "all")
    most = max(slow, key=lambda row: row["total_ns"])
    text.say(f"""In a capture of five clients with the short backlog {slow[0]["requests"]} of {count:,} requests lost a SYN, and had {percent(whole / everything, 0)} of all the
        requests' time. Of that, {percent(most["total_ns"] / whole)} is `{most["category"]}` ({most["side"]}, {most["where"]}): rpcprobe shows the client
        asleep in connect(), and not that the server's queue was full, which the kernel's counter says.""")
