"""Breakdowns of requests by category, side and thread."""

from collections import defaultdict
from collections.abc import Callable

import pyarrow.parquet
from study import Capture, breakdown
from study.capture import Row


def of(found: Capture, requests: list[Row], labels: Row) -> list[Row]:
    """Rows like those of `study.breakdown`, but also by thread; they add up exactly to the
    latencies."""
    thread_of = roles(found, requests)
    colours = breakdown.colours(found, {request["kind"] for request in requests})
    sums: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])
    for segments in found.segments(requests).values():
        for s in segments:
            part = sums[s["category"], s["side"], thread_of(s)]
            part[0] += s["duration_ns"]
            part[1] += s["duration_ns"] * (s["evidence"] != "measured")
    if sum(part[0] for part in sums.values()) != sum(r["latency_ns"] for r in requests):
        raise SystemExit("the segments do not sum to the latencies")
    return [
        {
            **labels,
            "category": category,
            "side": side,
            "thread": thread,
            "requests": len(requests),
            "total_ns": total_ns,
            "modelled_ns": modelled_ns,
            "colour": colours[category],
        }
        for (category, side, thread), (total_ns, modelled_ns) in sorted(sums.items())
    ]


def roles(found: Capture, requests: list[Row]) -> Callable[[Row], str]:
    """The role of a segment's thread.

    With sockets, the threads that read requests are the pool's; the other thread accepts. With
    gRPC, the library's threads have their own names. Of the server's Python threads, the first one
    started takes calls from the library; the others are the pool's.
    """
    grpc = requests[0]["kind"] == "http2"
    server = requests[0]["server_pid"]
    pool = {request["server_tid"] for request in requests}
    if grpc:
        threads = pyarrow.parquet.read_table(found.table("threads")).to_pylist()
        own = [thread for thread in threads if thread["pid"] == server]
        name = next(thread["comm"] for thread in own if thread["tid"] == server)
        python = sorted(t["tid"] for t in own if t["comm"] == name and t["tid"] != server)
        loop, pool = python[0], set(python[1:])

    def role(segment: Row) -> str:
        tid, side = segment["tid"], segment["side"]
        if side == "client":
            return "client's calling thread" if tid == segment["pid"] else "client's gRPC threads"
        if side != "server":
            return "others"
        if tid in pool:
            return "server's pool"
        if not grpc:
            return "server's acceptor"
        return "server's gRPC loop" if tid == loop else "server's gRPC threads"

    return role
