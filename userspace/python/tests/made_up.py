"""A capture that is made up: requests of two kinds, the same at every run. It needs neither root nor the kernel."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

START_NS = 1_000_000_000
CATEGORIES = (
    "user kernel.pipe kernel.unix kernel.tcp kernel.udp kernel.vfs kernel.exec kernel.mm kernel.futex kernel.poll"
    " kernel.sched kernel.other copy fault runqueue.wakeup runqueue.preempted interrupt steal lock journal block_io"
    " writeback queue.accept queue.socket queue.pipe queue.app wire.qdisc wire.link wire.stack sleep idle.peer"
    " unattributed"
).split()
USED = ("user", "kernel.tcp", "runqueue.wakeup", "lock", "queue.socket")
TEXTS = {"kind", "reason", "client_comm", "server_comm", "channel", "method", "certainty"}
TEXTS |= {"category", "side", "comm", "detail", "cause", "by", "evidence", "phase", "rule"}
FLAGS = {"complete", "detached"}
OF_REQUESTS = (
    "request_id! parent_request_id kind! start_ns! latency_ns! complete! reason records_lost! client_pid client_tid"
    " client_comm server_pid server_tid server_comm channel stream_id xid retransmissions method status request_bytes"
    " response_bytes certainty detached"
).split() + CATEGORIES
OF_SEGMENTS = (
    "request_id! seq! start_ns! duration_ns! category! side! pid! tid! comm! cpu detail cause by evidence! phase rule"
    " shared! stack_id stack_samples samples"
).split()
OF_THREADS = "comm! pid! tid! start_ns! duration_ns! cpu_ns! own_ns! shared_ns! none_ns!".split()


def schema(names: list[str]) -> pa.Schema:
    """`!`: never null."""
    fields = []
    for name in names:
        plain = name.rstrip("!")
        kind = pa.string() if plain in TEXTS else pa.bool_() if plain in FLAGS else pa.int64()
        fields.append(pa.field(plain, kind, nullable=not name.endswith("!")))
    return pa.schema(fields)


def write(file: Path, names: list[str], rows: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=schema(names)), file)


def one(number: int, chance: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A request with its segments."""
    kind = chance.choice(["http1", "http1", "resp"])
    request: dict[str, Any] = {
        "request_id": number,
        "kind": kind,
        "start_ns": START_NS + number * 7_000,
        "complete": number % 17 != 0,
        "records_lost": 0,
        "client_pid": 100,
        "client_tid": 101,
        "client_comm": "client",
        "server_pid": 200,
        "server_tid": 201,
        "server_comm": "server",
        "certainty": "sure",
        "detached": False,
        "method": chance.choice(["GET /a", "GET /b", "GET /c"]) if kind == "http1" else "GET",
        "status": 200 if kind == "http1" else 0,
        "latency_ns": chance.randrange(1, 9_000),
    }
    if not request["complete"]:
        return request | {"reason": "the capture ended before the answer"}, []
    at_ns, segments = request["start_ns"], []
    for seq in range(chance.randrange(1, 7)):
        category = chance.choice(USED)
        duration_ns = chance.randrange(1, 5_000) * (50 if number % 80 == 3 else 1)
        segments.append(
            {
                "request_id": number,
                "seq": seq,
                "start_ns": at_ns,
                "duration_ns": duration_ns,
                "category": category,
                "side": chance.choice(["client", "server"]),
                "pid": 200,
                "tid": 201,
                "comm": "server",
                "by": "other/7" if category == "runqueue.wakeup" else None,
                "evidence": chance.choice(["measured", "measured", "modelled"]),
                "shared": 1,
            }
        )
        request[category] = request.get(category, 0) + duration_ns
        at_ns += duration_ns
    return request | {"latency_ns": at_ns - request["start_ns"]}, segments


Change = Callable[[dict[str, Any], list[dict[str, Any]]], None]


def make(directory: Path, requests: int = 400, seed: int = 1, change: Change | None = None) -> Path:
    """Writes a capture into a new directory, each request changed as `change` does."""
    directory.mkdir(parents=True)
    chance = random.Random(seed)
    rows, pieces = [], []
    for number in range(1, requests + 1):
        request, segments = one(number, chance)
        if change is not None:
            change(request, segments)
        rows.append(request)
        pieces += segments
    write(directory / "requests.parquet", OF_REQUESTS, rows)
    write(directory / "segments.parquet", OF_SEGMENTS, pieces)
    zero = dict.fromkeys((name.rstrip("!") for name in OF_THREADS), 0)
    write(directory / "threads.parquet", OF_THREADS, [zero | {"comm": "server", "tid": 201}])
    (directory / "manifest.json").write_text(json.dumps(manifest(rows)))
    return directory


def manifest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = [row["kind"] for row in rows]
    counts = {"requests": len(rows), "requests_by_kind": {k: kinds.count(k) for k in sorted({*kinds})}}
    return {"format_version": 1, "start_ns": START_NS, "duration_ns": 10_000_000, "counts": counts}
