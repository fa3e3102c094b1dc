"""Sockets against gRPC: where do the milliseconds go?"""

from study import Document, breakdown, percent, us

from ours import LOOKUP, SOCKETS_6, Ours

TITLE = "Sockets against gRPC"
# The report's times of Lookup with one client: gRPC's minus sockets'.
REPORTED_MS = LOOKUP.reported[0] - SOCKETS_6.reported[0]
REPORTED_TIMES = LOOKUP.reported[0] / SOCKETS_6.reported[0]
REPORTED_LOAD = LOOKUP.reported[4] / LOOKUP.reported[0] - 1
SMALL_NS = 1500


def finding(ours: Ours) -> str:
    one, other = ours.mean_ns(SOCKETS_6, 1).middle, ours.mean_ns(LOOKUP, 1).middle
    more_ms, times = (other - one) / 1e6, other / one
    if more_ms < 0.5 * REPORTED_MS:
        says = f"That much does not occur here: ours is {REPORTED_MS / more_ms:.0f} times less"
    else:
        says = "Ours is of that order"
    a, b = ours.groups(SOCKETS_6, 1), ours.groups(LOOKUP, 1)
    whole = sum(b.values()) - sum(a.values())
    ranked = sorted(b, key=lambda name: a[name] - b[name])
    told = ", ".join(
        f"{name} {us(b[name] - a[name])} ({percent((b[name] - a[name]) / whole, 0)})"
        for name in ranked[:4]
    )
    kernel = "kernel and loopback"
    network = "no part in it" if b[kernel] - a[kernel] < 0.1 * whole else "a part in it, too"
    fixed_ns = b["other waits"]
    return f"""**Sockets against gRPC.** With one client a Lookup by gRPC takes {more_ms:.2f} ms more than by sockets ({other / 1e6:.2f} against {one / 1e6:.2f} ms,
        {times:.1f} times); the report has {REPORTED_MS:.1f} ms more ({REPORTED_TIMES:.1f} times). {says}. With the probe it is {us(whole)} more, and they are: {told}. The
        network has {network}: gRPC has {us(b[kernel])} in the kernel and on loopback, sockets, which open and close a connection for each request,
        {us(a[kernel])}. The report's gRPC takes only {percent(REPORTED_LOAD, 0)} longer with five clients than with one; what needs a CPU, or waits for one, grows with
        load. So most of its 4.3 ms must have been a wait of fixed length (that is an inference); ours has {us(fixed_ns)} of waits that are not for a CPU, a
        queue or a lock."""


def tell(text: Document, ours: Ours):
    bars = ours.bars(SOCKETS_6, 1, "sockets") + ours.bars(LOOKUP, 1, "gRPC")
    text.show(
        "transports",
        breakdown.bars(bars, "who", height=400),
        "A Lookup of one client by sockets (pool of 6) and by gRPC: mean between the client's stamps, all runs with the probe.",
    )
    a, b = ours.means(SOCKETS_6, 1), ours.means(LOOKUP, 1)
    keys = sorted({*a, *b}, key=lambda key: a.get(key, 0) - b.get(key, 0))
    shown = [key for key in keys if max(a.get(key, 0), b.get(key, 0)) >= SMALL_NS]
    rows = []
    for category, side in shown:
        pair = a.get((category, side), 0), b.get((category, side), 0)
        rows.append([category, side, us(pair[0]), us(pair[1]), us(pair[1] - pair[0])])
    rest = [sum(of.get(key, 0) for key in keys if key not in shown) for of in (a, b)]
    rows.append(["smaller ones", "", us(rest[0]), us(rest[1]), us(rest[1] - rest[0])])
    whole = sum(a.values()), sum(b.values())
    rows.append(["**mean by the client's stamps**", "", *map(us, whole), us(whole[1] - whole[0])])
    text.table(["category", "side", "sockets", "gRPC", "more"], rows, right=2)
    text.say(f"""The lines add up to the means, and their differences to the difference, to the nanosecond before rounding. What lies
        before a request's first byte and after its end is the client's stamps less the request; it is Python's and gRPC's own way to the
        first system call and back from the last. Of gRPC's request {percent(ours.modelled(LOOKUP, 1), 0)} is modelled: which of the
        server's threads worked for it, not how long it took.""")
    threads = ours.threads(SOCKETS_6, 1), ours.threads(LOOKUP, 1)
    names = sorted({*threads[0], *threads[1]}, key=lambda name: -threads[1].get(name, 0))
    text.table(
        ["on whose account", "sockets", "gRPC"],
        [
            [name, *("-" if name not in of else us(of[name]) for of in threads)]
            for name in names
            if any(of.get(name, 0) >= SMALL_NS for of in threads)
        ],
    )
    text.say("""The same requests by thread: its work on the request's way, and the request's waits for it. By sockets a request passes one
        thread of the client and two of the server; by gRPC the server's I/O threads, its Python loop, the pool, and back through the client's
        I/O threads.""")
