"""The server's own stamps: arrival, begin and end of each request, and a trade's wait for the
lock."""

from bisect import bisect_right
from collections import Counter

from study import Capture
from study.capture import Row
from study.labs import stockbazaar as lab

from workload import System


def of_log(lines: list[Row], threads: int) -> Row:
    """Sums over the server's requests.

    `pool_busy_ns` is the part of the time from arrival to begin in which every thread of the pool
    was busy: more threads would avoid it."""
    return {
        "served": len(lines),
        "wait_ns": sum(line["start_ns"] - line["arrival_ns"] for line in lines),
        "pool_busy_ns": sum(all_busy(lines, threads)),
        "serve_ns": sum(line["end_ns"] - line["start_ns"] for line in lines),
        "lock_wait_ns": sum(line["lock_wait_ns"] for line in lines),
        "lock_wait_max_ns": max(line["lock_wait_ns"] for line in lines),
    }


def all_busy(lines: list[Row], threads: int) -> list[int]:
    """For each line, the time between its arrival and its begin in which all threads were at
    work."""
    begins = [(line["start_ns"], 1) for line in lines]
    ends = [(line["end_ns"], -1) for line in lines]
    busy, times, totals, full = 0, [0], [0], [False]
    for at_ns, change in sorted(begins + ends):
        totals.append(totals[-1] + (at_ns - times[-1]) * full[-1])
        times.append(at_ns)
        busy += change
        full.append(busy >= threads)

    def until(at_ns: int) -> int:
        place = bisect_right(times, at_ns) - 1
        return totals[place] + (at_ns - times[place]) * full[place]

    return [until(line["start_ns"]) - until(line["arrival_ns"]) for line in lines]


def matched(found: Capture, system: System) -> list[tuple[Row, Row]]:
    """Pairs of requests and the server's log lines."""
    if system.transport == "grpc":
        return lab.answered(found)
    return lab.served(found)


def pool(found: Capture, system: System, labels: Row) -> list[Row]:
    """rpcprobe's attribution of the time from arrival to begin, after the client had sent."""
    pairs = matched(found, system)
    segments = found.segments([request for request, _ in pairs])
    wait = lab.Wait()
    for request, line in pairs:
        wait.add(segments[request["request_id"]], line["arrival_ns"], line["start_ns"])
    wait.parts["(before the client had sent)"] = wait.ns - wait.there_ns
    return [
        {**labels, "category": name, "requests": len(pairs), "total_ns": total_ns}
        for name, total_ns in sorted(wait.parts.items())
    ]


def locks(found: Capture, system: System, labels: Row) -> list[Row]:
    """rpcprobe's `lock` time between the server's begin and end of a request, and in the whole
    request."""
    pairs = matched(found, system)
    segments = found.segments([request for request, _ in pairs])
    sums: Counter = Counter()
    for request, line in pairs:
        own = segments[request["request_id"]]
        inside = lab.within(own, line)
        sums["lock_ns"] += lab.spent(own, "lock")
        sums["lock_in_handler_ns"] += lab.spent(inside, "lock")
        sums["handler_ns"] += line["end_ns"] - line["start_ns"]
        sums["lock_wait_ns"] += line["lock_wait_ns"]
    return [{**labels, "requests": len(pairs), **sums}]
