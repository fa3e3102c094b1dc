"""A made-up capture: requests of two kinds, identical in every run. It needs neither root nor the kernel."""

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
    """A name that ends in `!` is a column without nulls."""
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
    """Writes a capture into a new directory, after `change` has been applied to each request."""
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


COUNTED = "records records_lost raw_bytes stored_bytes syscalls switches wakings faults interrupts records_late".split()
MEASURED = (
    "syscall_ns switch_ns fault_ns copy_ns_per_byte transfer_ns socket_copy_ns_per_byte socket_transfer_ns"
    " fault_outside_ns fault_inside_ns call_outside_ns"
).split()


def manifest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = [row["kind"] for row in rows]
    counts: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    counts["requests"] = len(rows)
    counts["requests_incomplete"] = sum(not row["complete"] for row in rows)
    counts["requests_by_kind"] = {kind: kinds.count(kind) for kind in sorted({*kinds})}
    host = {
        "name": "host",
        "kernel": "6",
        "machine": "x86_64",
        "clock": "monotonic",
        "clock_source": "tsc",
    }
    return {
        "format_version": 1,
        "rpcprobe_version": "0.1.0",
        "host": host | {"cpus": 2},
        "command": {"argv": ["server", "<b>x</b>"], "pid": 200, "wait_status": 0},
        "labels": {},
        "start_ns": START_NS,
        "start_utc": "2026-01-01T00:00:00Z",
        "duration_ns": 10_000_000,
        "options": {
            "scope": "machine",
            "paths": True,
            "methods": True,
            "ring_bytes_per_cpu": 1 << 20,
        },
        "hooks": [],
        "counts": counts,
        "losses": [],
        "calibration": dict.fromkeys(MEASURED, 0.0),
        "warnings": [],
    }
