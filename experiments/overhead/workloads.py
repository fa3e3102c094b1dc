"""The measured workloads: commands whose own clients time their requests."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GREETER = HERE.parents[1] / "targets" / "greeter"


@dataclass(frozen=True)
class Sample:
    """A workload's own results; `requests` includes the warm-up."""

    p50_ns: float
    p99_ns: float
    requests: int
    per_second: float
    begin_ns: int
    end_ns: int
    # CPU time of all requests, if the workload reports it.
    cpu_ns: float | None = None


@dataclass(frozen=True)
class Workload:
    """`command` gets the folder it may write into, `read` the same folder and the output."""

    name: str
    command: Callable[[Path], list[str]]
    read: Callable[[Path, str], Sample]
    # Pins the workload to one CPU and the tool to another; otherwise the scheduler chooses.
    pinned: bool = True


def percentile(ordered: list[int], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def read_null_rpc(folder: Path, said: str) -> Sample:
    told = json.loads(said)
    seconds = (told["end_ns"] - told["begin_ns"]) / 1e9
    return Sample(
        told["p50_ns"],
        told["p99_ns"],
        told["all_requests"],
        told["requests"] / seconds,
        told["begin_ns"],
        told["end_ns"],
        told["cpu_s"] * 1e9,
    )


def null_rpc(transport: str, requests: int, pairs: int = 1) -> Workload:
    options = ["-t", transport, "-n", str(requests), "-c", str(pairs)]
    name = f"null RPC, {transport}" if pairs == 1 else f"null RPC, {transport}, {pairs} pairs"
    command = [str(HERE / "null_rpc"), *options]
    return Workload(name, lambda folder: command, read_null_rpc, pinned=pairs == 1)


GRPC = """
{greeter}/greeter_server --port 0 > "$0/server" & server=$!
trap 'kill $server' EXIT
for i in $(seq 200); do grep -qs ready "$0/server" && break; sleep 0.05; done
port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' "$0/server")
{greeter}/greeter_client --server 127.0.0.1:$port --requests {requests} --log "$0/log.csv"
"""


def grpc(requests: int) -> Workload:
    script = GRPC.format(greeter=GREETER, requests=requests)

    def read(folder: Path, said: str) -> Sample:
        with (folder / "log.csv").open(newline="") as log:
            # Without the first call, which connects.
            calls = [(int(row["begin_ns"]), int(row["end_ns"])) for row in csv.DictReader(log)][1:]
        latencies_ns = sorted(end - begin for begin, end in calls)
        begin_ns, end_ns = calls[0][0], calls[-1][1]
        return Sample(
            percentile(latencies_ns, 0.5),
            percentile(latencies_ns, 0.99),
            len(calls) + 1,
            len(calls) / ((end_ns - begin_ns) / 1e9),
            begin_ns,
            end_ns,
        )

    return Workload("gRPC, unary", lambda folder: ["/bin/sh", "-ec", script, str(folder)], read)


REDIS = """
redis-server --port 0 --unixsocket "$0/redis" --save '' --daemonize no > "$0/server" & server=$!
trap 'kill $server' EXIT
for i in $(seq 200); do [ -S "$0/redis" ] && break; sleep 0.05; done
ask() {{ redis-benchmark -s "$0/redis" -c 1 -t get --csv -n "$1"; }}
ask 1000 > /dev/null
read begin rest < /proc/uptime
ask {requests}
read end rest < /proc/uptime
echo "$begin $end"
"""


def redis(requests: int) -> Workload:
    def read(folder: Path, said: str) -> Sample:
        titles, row, stamps = said.strip().splitlines()[-3:]
        line = dict(next(csv.DictReader([titles, row])))
        begin_ns, end_ns = (int(float(stamp) * 1e9) for stamp in stamps.split())
        return Sample(
            float(line["p50_latency_ms"]) * 1e6,
            float(line["p99_latency_ms"]) * 1e6,
            requests + 1000,
            float(line["rps"]),
            begin_ns,
            end_ns,
        )

    script = REDIS.format(requests=requests)
    return Workload("redis, GET", lambda folder: ["/bin/sh", "-ec", script, str(folder)], read)


WORKLOADS = {
    "pipe": null_rpc("pipe", 150_000),
    "pipe-2": null_rpc("pipe", 50_000, pairs=2),
    "pipe-8": null_rpc("pipe", 20_000, pairs=8),
    "unix": null_rpc("unix", 30_000),
    "tcp": null_rpc("tcp", 30_000),
    "grpc": grpc(2_000),
    "redis": redis(20_000),
}
