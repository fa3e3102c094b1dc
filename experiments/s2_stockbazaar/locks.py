"""Lookup against Trade: how much is the wait for the market's lock?"""

from study import Document, ab, interval, median, more, percent, us

from ours import LOOKUP, TRADE, Ours

TITLE = "Lookup against Trade"


def differences(ours: Ours) -> list[float]:
    """Trade minus Lookup in ns, for each round and number of clients."""
    return [more for clients in ours.clients for more in ours.paired(LOOKUP, TRADE, clients)]


def finding(ours: Ours) -> str:
    pairs = differences(ours)
    low, high = interval(pairs)
    last = ours.clients[-1]
    reported = median([b - a for a, b in zip(LOOKUP.reported, TRADE.reported)])
    lock_ns = ours.each(TRADE, last, "lock_wait_ns")
    latency_ns = ours.mean_ns(TRADE, last).middle
    works_ns = ours.each(TRADE, last, "serve_ns") - ours.each(LOOKUP, last, "serve_ns")
    shown = (
        "which is not beyond chance"
        if low <= 0 <= high
        else "so a Trade takes longer"
        if low > 0
        else "so a Trade does not take longer"
    )
    by_lock = lock_ns / latency_ns
    no_part = by_lock < 0.01
    return f"""**Lookup against Trade: the lock is {
        "not the reason" if no_part else "part of it"
    }.** The market's lock costs {us(lock_ns, 2)} a Trade with {last}
        clients by the server's stamps, {
        percent(by_lock, 2)
    } of its response time; the longest wait for it was {
        us(
            max(
                run["lock_wait_max_ns"]
                for c in ours.clients
                for run in ours.runs[TRADE.name, c, False, False]
            ),
            0,
        )
    }. In the handler a Trade takes {
        us(works_ns)
    } longer than a Lookup. In response time a Trade takes {more(median(pairs), 0)} than a Lookup
        (median of {len(pairs)} pairs of runs; 95 % interval {us(low, 0)} to {us(high, 0)}), {
        shown
    }; the report has {reported * 1000:.0f} us more. Other locks, the
        interpreter's and gRPC's own, are {
        us(ours.locks(TRADE, last)["lock_ns"] - ours.locks(TRADE, last)["lock_in_handler_ns"])
    } of a Trade outside of its handler
        and {
        us(ours.locks(LOOKUP, last)["lock_ns"] - ours.locks(LOOKUP, last)["lock_in_handler_ns"])
    } of a Lookup, which takes no lock of the market."""


def tell(text: Document, ours: Ours):
    rows = []
    for clients in ours.clients:
        lookup, trade = (ours.locks(system, clients) for system in (LOOKUP, TRADE))
        pairs = ours.paired(LOOKUP, TRADE, clients)
        rows.append(
            [
                str(clients),
                us(median(pairs), 0),
                us(ours.each(LOOKUP, clients, "serve_ns")),
                us(ours.each(TRADE, clients, "serve_ns")),
                us(ours.each(TRADE, clients, "lock_wait_ns"), 2),
                us(trade["lock_wait_ns"], 2),
                us(trade["lock_in_handler_ns"], 2),
                us(lookup["lock_in_handler_ns"], 2),
                us(trade["lock_ns"]),
                us(lookup["lock_ns"]),
            ]
        )
    text.table(
        [
            "clients",
            "Trade less Lookup",
            "in the handler: Lookup",
            "Trade",
            "market's lock, stamps",
            "the same with the probe",
            "`lock` in the handler: Trade",
            "Lookup",
            "`lock` in all: Trade",
            "Lookup",
        ],
        rows,
        right=0,
    )
    text.say("""The first five columns are without the probe (the first: median of the rounds' differences of mean response times), the others with it;
        means of a request. Stamps are the server's: in the handler, from its begin to its end; the market's lock, from before it is asked for until it is had, which
        includes reading the clock. `lock` is rpcprobe's category. In a handler it can also be the interpreter's lock, which a thread gives
        up and wants back: Lookups have it, too, and take no other lock.""")
    text.say(f"With 5 clients, {ab.said(ours.changes(LOOKUP), LOOKUP.name, TRADE.name)}")
