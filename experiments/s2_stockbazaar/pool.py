"""More clients than threads: how much is the wait for a thread of the pool?"""

from study import Document, ab, interval, median, more, percent, us

from ours import GROUPS, LOOKUP, SOCKETS_2, SOCKETS_6, Ours, group_of

TITLE = "More clients than threads of the pool"


def finding(ours: Ours) -> str:
    last = ours.clients[-1]
    wait_ns, busy_ns = (ours.each(SOCKETS_2, last, c) for c in ("wait_ns", "pool_busy_ns"))
    latency_ns = ours.each(SOCKETS_2, last, "total_ns", "requests")
    six_ns = ours.each(SOCKETS_6, last, "wait_ns")
    six_busy_ns = ours.each(SOCKETS_6, last, "pool_busy_ns")
    why = (
        "a thread is free, but it has no CPU or not the interpreter's lock"
        if six_busy_ns < 0.1 * six_ns
        else f"in {us(six_busy_ns)} of that all six are busy"
    )
    pairs = [
        by_ns
        for clients in ours.clients
        if clients > SOCKETS_2.threads
        for by_ns in ours.paired(SOCKETS_2, SOCKETS_6, clients)
    ]
    low, high = interval(pairs)
    effect = (
        "make no difference that is beyond chance"
        if low <= 0 <= high
        else "make it slower"
        if low > 0
        else "make it faster"
    )
    parts = ours.interval_pooled(SOCKETS_2, last)
    whole = sum(parts.values())
    queued = sum(ns for name, ns in parts.items() if name.startswith("queue."))
    accept = ours.means(SOCKETS_2, last)["queue.accept", "server"]
    return f"""**More clients than threads: {
        "little" if busy_ns < 0.25 * latency_ns else "much"
    } of it is queueing for a thread.** With {last} clients and 2
        threads a request waits {
        us(wait_ns)
    } from its arrival (accepted) to its begin in the pool, by the server's stamps; in {
        us(busy_ns)
    } of that,
        {
        percent(busy_ns / latency_ns, 0)
    } of the response time, both threads are busy. With 6 threads, which are more than the clients, it still waits {
        us(six_ns)
    }:
        {why}. More threads {effect}: with 6 instead of 2 a request takes {
        more(median(pairs), 0)
    } (95 % interval {us(low, 0)} to {us(high, 0)}, {
        len(pairs)
    } pairs of runs with more than 2 clients). With the probe {
        percent(queued / whole, 0)
    } of that wait is `queue.*`; before it,
        {
        us(accept)
    } are `queue.accept`, in which the connection waits for the one thread that accepts."""


def tell(text: Document, ours: Ours):
    rows = []
    for system in (SOCKETS_2, SOCKETS_6, LOOKUP):
        for clients in ours.clients:
            means = ours.means(system, clients)
            wait_ns, busy_ns = (ours.each(system, clients, c) for c in ("wait_ns", "pool_busy_ns"))
            rows.append(
                [
                    system.name,
                    str(clients),
                    us(ours.each(system, clients, "total_ns", "requests")),
                    us(wait_ns),
                    us(busy_ns),
                    us(ours.each(system, clients, "wait_ns", probe=True)),
                    *(
                        us(
                            sum(
                                ns
                                for (name, side), ns in means.items()
                                if name == queue and side == "server"
                            )
                        )
                        for queue in ("queue.accept", "queue.socket", "queue.app")
                    ),
                ]
            )
    text.table(
        [
            "",
            "clients",
            "response time",
            "arrival to begin",
            "of it all threads busy",
            "arrival to begin, with the probe",
            "queue.accept",
            "queue.socket",
            "queue.app",
        ],
        rows,
    )
    text.say("""Means of a request; the first three figures without the probe. Arrival is when the connection was accepted, or gRPC handed the call to the pool's
        queue; begin is when a thread of the pool has it: the server's stamps. The queues are rpcprobe's of the server's side, of the whole
        request, which also waits before the arrival stamp and outside of the pool. gRPC's handlers end before the answer is sent, so that "all
        threads busy" is a lower bound there; with 6 threads and at most 5 calls under way its pool has always a free one.""")
    last = ours.clients[-1]
    columns = {
        system: ours.interval_pooled(system, last) for system in (SOCKETS_2, SOCKETS_6, LOOKUP)
    }
    before = "(before the client had sent)"
    rows = []
    for name in [*GROUPS, before]:
        cells = [
            sum(
                ns
                for c, ns in of.items()
                if (c == before) == (name == before) and (c == before or group_of(c) == name)
            )
            for of in columns.values()
        ]
        rows.append([name.strip("()"), *map(us, cells)])
    rows.append(["**arrival to begin**", *(us(sum(of.values())) for of in columns.values())])
    text.table([f"arrival to begin, {last} clients", *(system.name for system in columns)], rows)
    text.say("""What rpcprobe says of that time, a request on average, with the probe. By sockets the connection is there before the client has sent its
        request; that part is no wait of a request.""")
    text.say(f"With 5 clients, {ab.said(ours.changes(SOCKETS_2), SOCKETS_2.name, SOCKETS_6.name)}")
