"""Matches requests with lines of clients' logs. Each client is a process and makes one request
after another."""

from collections import defaultdict
from collections.abc import Iterable

from .capture import Row


def asked(requests: Iterable[Row], log: Iterable[Row]) -> list[tuple[Row, Row]] | None:
    """(request, line) in the order of the log; None unless each line has exactly one request within
    its stamps, and no request is left over."""
    of_process, of_client = defaultdict(list), defaultdict(list)
    for request in sorted(requests, key=lambda request: request["start_ns"]):
        of_process[request["client_pid"]].append(request)
    lines = list(log)
    for line in lines:
        of_client[line["client"]].append(line)
    found = {}
    for client, own in of_client.items():
        fitting = [pid for pid, theirs in of_process.items() if _fit(own, theirs)]
        if len(fitting) != 1:
            return None
        theirs = of_process.pop(fitting[0])
        found.update({(client, line["request"]): r for line, r in zip(own, theirs)})
    if of_process:
        return None
    return [(found[line["client"], line["request"]], line) for line in lines]


def _fit(lines: list[Row], requests: list[Row]) -> bool:
    return len(lines) == len(requests) and all(
        line["begin_ns"] <= request["start_ns"] and request["end_ns"] <= line["end_ns"]
        for line, request in zip(lines, requests)
    )
