"""Finds the tasks that had the CPU while requests waited for one."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet

from .capture import Capture, Row

# Threads, neither the server's nor a client's, that are named.
NAMED = ("idle", "rpcprobe")


def behind(found: Capture, requests: Iterable[Row], **labels: Any) -> list[Row]:
    """`total_ns` of these requests' waits for a CPU, by the task that had it: the server, a client,
    `idle` (the CPU had to wake up), rpcprobe, others.

    If several tasks had the CPU during a wait, the wait counts for the task with most of it
    (docs/design.md, "Few segments")."""
    requests = list(requests)
    servers = {request["server_pid"] for request in requests}
    clients = {request["client_pid"] for request in requests}
    threads = pyarrow.parquet.read_table(found.table("threads")).to_pylist()
    process = {f"{thread['comm']}/{thread['tid']}": thread["pid"] for thread in threads}
    sums: Counter = Counter()
    for segments in found.segments(requests).values():
        for s in segments:
            if s["category"].startswith("runqueue."):
                by = s["by"] or "unknown"
                pid, name = process.get(by), by.split("/")[0]
                own = "the server" if pid in servers else "a client" if pid in clients else ""
                sums[own or (name if name in NAMED else "others")] += s["duration_ns"]
    return [
        {**labels, "by": by, "requests": len(requests), "total_ns": total_ns}
        for by, total_ns in sums.most_common()
    ]
