#!/usr/bin/env python3
"""Servers under load, from 1 to 10,000 connections: is every request found, is no work booked twice, and
what does a request cost?

A row is one capture of one load at one number of connections, with both ends traced, only the
client, or only the server. Columns:

  found        complete requests of the load's kind, beside the load generator's number of requests
  segments     per request: mean, median, 99th percentile
  twice        on-CPU time that more than one request has for its own, as a share of threads' time
               for requests
  shared       on-CPU time that is marked as shared by several requests, likewise
  ledger       CPU time of the server's threads in threads.parquet, as a share of the CPU time of
               its processes by the kernel (their CPU clocks, which include ended threads; only if
               the server alone is traced, because these captures begin and end at the same time as
               the kernel's account)
  unplaced     stolen time of all CPUs that is not placed in time (steal_unplaced_ns of the
               manifest), as a share of the same: the kernel's account leaves it out, the ledger
               cannot
  B/event      bytes of the segments' table for each record of events.bin
  us/event     CPU time to attribute the events again, and the peak of memory: the minimum of up to
               five times, for at most ten seconds in total (other work on the machine only adds
               time)
  instr/event  instructions to attribute the events again (--instructions, under valgrind): unlike
               CPU time, the same in each run, independent of other work and of memory's latency
  mean         latency, beside the load generator's measurement

Needs root, redis-server with redis-tools for redis and pipeline (16 commands in one write), h2load
(nghttp2-client) for http (to nginx), pool (to pool_server.py), grpc (10 streams on each connection,
to targets/greeter) and streams (1,000 on each). Usage: run.py [--connections 1,50,...]
[--requests N] [--ends both,client,server] [--keep DIR] [--instructions] [LOAD ...]; rpcprobe from
$RPCPROBE or PATH. Exit status: 0 if every request was found and no work was booked twice, else 1.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_clock import ran  # noqa: E402

RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
GREETER = Path(__file__).resolve().parents[2] / "targets/greeter/greeter_server"
ENDS = ("both", "client", "server")
# attach's progress message on a busy machine.
ATTACHING = "rpcprobe: checking and attaching hooks, "
# Longest time for one row.
MOST_SECONDS = 600
# Attribution is repeated at most MOST_TIMES, within MOST_SECONDS_AGAIN in total.
MOST_TIMES, MOST_SECONDS_AGAIN = 5, 10
ON_CPU = "(category in ('user', 'copy', 'fault') or category like 'kernel.%')"
TWICE = f"""
with spans as (
    select tid, s.start_ns, s.start_ns + s.duration_ns as end_ns, shared = 1 as own
    from read_parquet($segments) s join read_parquet($requests) r using (request_id)
    where r.kind = $kind and r.complete and {ON_CPU}
), reached as (
    select *, max(end_ns) over (partition by tid order by start_ns, end_ns
                                rows between unbounded preceding and 1 preceding) as before_ns
    from spans
), own as (
    select *, max(end_ns) over (partition by tid order by start_ns, end_ns
                                rows between unbounded preceding and 1 preceding) as before_ns
    from spans where own
), ran as (
    select sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, 0)))) as ns from reached
), once as (
    select sum(end_ns - start_ns) as all_ns,
           sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, 0)))) as ns
    from own
)
select ran.ns, coalesce(once.all_ns - once.ns, 0), ran.ns - coalesce(once.ns, 0) from ran, once
"""
LEDGER = "select pid, cpu_ns, cpu_ns - own_ns - shared_ns - none_ns from read_parquet($threads)"
REQUESTS = """
select count(*) filter (where complete), avg(latency_ns) filter (where complete)
from read_parquet($requests) where kind = $kind and (coalesce(method, '') like $method)
"""
SEGMENTS = """
select avg(n), quantile_cont(n, 0.5), quantile_cont(n, 0.99) from (
    select count(*) as n from read_parquet($segments) join read_parquet($requests) r using (request_id)
    where r.kind = $kind and r.complete group by request_id
)
"""


@dataclass
class Made:
    """A load generator's results."""

    requests: int
    mean_us: float


class Redis:
    kind, method, port, pipeline = "resp", "GET", 6401, 1

    def __init__(self, directory):
        self.server = ["redis-server", "--port", str(self.port), "--save", "", "--dir", directory]
        self.server += ["--maxclients", "20000", "--loglevel", "warning"]

    def client(self, connections, requests):
        return [
            "redis-benchmark",
            "-p",
            str(self.port),
            "-t",
            "get",
            "--csv",
            "-c",
            str(connections),
        ] + [
            "-n",
            str(requests),
            "-P",
            str(self.pipeline),
        ]

    def made(self, said, requests):
        row = next(line for line in said.splitlines() if line.startswith('"GET"'))
        return Made(requests, float(row.replace('"', "").split(",")[2]) * 1000)


class Pipeline(Redis):
    """16 commands in one write."""

    port, pipeline = 6403, 16


class Grpc:
    """10 streams on each connection."""

    kind, method, port, streams = "http2", "%SayHello", 6404, 10

    def __init__(self, directory):
        # A gRPC message (a prefix of 5 bytes with the length) that holds the name "load".
        self.message = Path(directory) / "message"
        self.message.write_bytes(bytes([0, 0, 0, 0, 6, 0x0A, 4]) + b"load")
        self.server = [GREETER, "--port", str(self.port)]

    def client(self, connections, requests):
        command = ["h2load", "-t", "1", "-n", str(requests), "-c", str(connections)]
        command += ["-m", str(self.streams)]
        command += [
            "-d",
            self.message,
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
        ]
        return [*command, f"http://127.0.0.1:{self.port}/greeter.Greeter/SayHello"]

    def made(self, said, _):
        return Http.made(self, said, _)


class Streams(Grpc):
    """1,000 streams on each connection."""

    port, streams = 6405, 1000


class Http:
    kind, method, port = "http1", "GET /%", 6402

    def __init__(self, directory):
        directory = Path(directory)
        (directory / "index.html").write_text("x" * 1000)
        (directory / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; pid {directory}/nginx.pid; error_log {directory}/error.log;\n"
            "events { worker_connections 20000; }\n"
            f"http {{ access_log off; keepalive_requests 1000000;\n"
            f"server {{ listen 127.0.0.1:{self.port} backlog=20000; root {directory}; }} }}\n"
        )
        os.chmod(directory, 0o755)
        self.server = ["nginx", "-c", directory / "nginx.conf", "-p", directory]

    def client(self, connections, requests):
        command = ["h2load", "--h1", "-t", "1", "-n", str(requests), "-c", str(connections)]
        return [*command, f"http://127.0.0.1:{self.port}/"]

    def made(self, said, _):
        succeeded = int(re.search(r"(\d+) succeeded", said)[1])
        row = next(line for line in said.splitlines() if line.startswith("time for request:"))
        return Made(succeeded, microseconds(row.split()[5]))


class Pool(Http):
    """One reading thread and a pool of answering threads, in Python."""

    method, port = "GET /%", 6406

    def __init__(self, directory):
        self.server = [sys.executable, Path(__file__).with_name("pool_server.py"), self.port]


LOADS = {
    "redis": Redis,
    "pipeline": Pipeline,
    "http": Http,
    "pool": Pool,
    "grpc": Grpc,
    "streams": Streams,
}


def microseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def words(command):
    return [str(word) for word in command]


def wait_for_port(port):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port} after 30 s")


def end(process, signal_number=signal.SIGTERM):
    process.send_signal(signal_number)
    process.wait(MOST_SECONDS)


@contextlib.contextmanager
def server_of(load):
    server = subprocess.Popen(
        words(load.server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(load.port)
        if server.poll() is not None:
            raise RuntimeError(f"{server.args[0]} has ended: is port {load.port} in use?")
        yield server
    finally:
        end(server)


def said_by(command):
    done = subprocess.run(
        words(command), capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return done.stdout


BOTH = """
"$SERVER" {server} > /dev/null 2>&1 & server=$!
until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done
{client}; status=$?
kill $server; wait $server; exit $status
"""


def quoted(command):
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words(command))


def capture(load, ends, out, connections, requests):
    """Captures the load; returns its generator's output, and the server's run time by thread."""
    client = load.client(connections, requests)
    run = [RPCPROBE, "run", "-q", "-o", out, "--"]
    if ends == "both":
        script = BOTH.replace('"$SERVER" {server}', quoted(load.server))
        script = script.format(port=load.port, client=quoted(client))
        return said_by([*run, "bash", "-c", script]), {}
    with server_of(load) as server:
        if ends == "client":
            return said_by([*run, *client]), {}
        attach = words([RPCPROBE, "attach", "-o", out, "--port", load.port])
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        attached = subprocess.Popen(attach, **pipes)
        try:
            while (line := attached.stderr.readline()).startswith(ATTACHING):
                pass
            if "attached" not in line:
                raise RuntimeError(f"attach: {line.strip()}")
            before = ran(with_children(server.pid))
            said = said_by(client)
            after = ran_until_quiet(server.pid)
        finally:
            end(attached, signal.SIGINT)
    return said, {pid: ns - before.get(pid, 0) for pid, ns in after.items()}


# The server's work after the load (such as closing connections) is in the capture, too. The capture
# ends when the server runs for less than a hundredth of the time.
QUIET_SECONDS = 0.1
QUIET_PART = 0.01


def ran_until_quiet(pid):
    """The same, once the threads hardly run any more, or after 10 s."""
    until, last = time.monotonic() + 10, ran(with_children(pid))
    while time.monotonic() < until:
        time.sleep(QUIET_SECONDS)
        now = ran(with_children(pid))
        ran_ns = sum(now.values()) - sum(last.values())
        last = now
        if ran_ns < QUIET_SECONDS * 1e9 * QUIET_PART:
            break
    return last


def with_children(pid):
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def attribute(out):
    """CPU time in seconds and peak memory in bytes to attribute the capture again."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(words([RPCPROBE, "attribute", "-q", out]), stderr=subprocess.DEVNULL)
    until, peak_bytes = begin + MOST_SECONDS, 0
    while True:
        # Not wait4()'s value, which includes this program's memory before exec replaced it.
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{child.pid}/status").read_text()
            peak_bytes = max(
                [peak_bytes, *(int(kb) * 1024 for kb in re.findall(r"VmHWM:\s+(\d+)", status))]
            )
        if child.poll() is not None:
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
            return user + system, peak_bytes
        if time.monotonic() > until:
            child.kill()
            child.wait()
            raise RuntimeError(f"attribute was not done after {MOST_SECONDS} s")
        time.sleep(0.02)


def attribute_again(out):
    """The same: the minimum of several times, and the peak of memory."""
    begin, each = time.monotonic(), [attribute(out)]
    while len(each) < MOST_TIMES and time.monotonic() - begin < MOST_SECONDS_AGAIN:
        each.append(attribute(out))
    seconds, peak_bytes = zip(*each, strict=True)
    return min(seconds), max(peak_bytes)


def instructions(out):
    """The number of instructions of all threads to attribute the capture again."""
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        words([*counter, RPCPROBE, "attribute", "-q", out]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=MOST_SECONDS,
    )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not counted:
        raise RuntimeError(f"valgrind ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return int(counted[1])


def row(name, ends, connections, requests, keep, count):
    with tempfile.TemporaryDirectory() as directory:
        load = LOADS[name](directory)
        out = (keep or Path(directory)) / f"{name}-{ends}-{connections}"
        said, by_kernel = capture(load, ends, out, connections, requests)
        made = load.made(said, requests)
        seconds, peak_bytes = attribute_again(out)
        manifest = json.loads((out / "manifest.json").read_text())
        tables = {name: str(out / f"{name}.parquet") for name in ("requests", "segments")}
        kind = {"kind": load.kind}
        one = {"requests": tables["requests"], **kind}
        ask = duckdb.connect().execute
        found, mean_ns = ask(REQUESTS, one | {"method": load.method}).fetchone()
        segments, median, p99 = ask(SEGMENTS, tables | kind).fetchone()
        ran_ns, twice_ns, shared_ns = ask(TWICE, tables | kind).fetchone()
        events = manifest["counts"]["records"]
        size = (out / "segments.parquet").stat().st_size
        return {
            "load": name,
            "traced": ends,
            "connections": connections,
            "made": made.requests,
            "ledger": ledger(
                ask(LEDGER, {"threads": str(out / "threads.parquet")}).fetchall(), by_kernel
            ),
            "unplaced": unplaced(manifest, by_kernel),
            "found": found,
            "lost": manifest["counts"]["records_lost"],
            "segments": segments or 0,
            "segments_p50": median or 0,
            "segments_p99": p99 or 0,
            "twice": (twice_ns or 0) / max(ran_ns or 0, 1),
            "shared": (shared_ns or 0) / max(ran_ns or 0, 1),
            "event_bytes": size / max(events, 1),
            "event_us": seconds / max(events, 1) * 1e6,
            "event_instructions": instructions(out) / max(events, 1) if count else None,
            "peak_mb": peak_bytes / 1e6,
            "mean_us": (mean_ns or 0) / 1000,
            "made_us": made.mean_us,
        }


HEADER = (
    f"{'load':8} {'traced':7}{'conns':>6}{'found':>9}{'of':>9}{'lost':>7}{'segments':>10}{'p50':>5}{'p99':>5}{'twice':>9}{'shared':>8}{'ledger':>8}{'unplaced':>9}"
    f"{'B/event':>9}{'us/event':>9}{'memory':>9}{'mean':>10}{'client says':>12}"
)


COUNTED = f"{'instr/event':>13}"


def shown(of):
    counted = of["event_instructions"]
    return (
        f"{of['load']:8} {of['traced']:7}{of['connections']:>6}{of['found']:>9}{of['made']:>9}{of['lost']:>7}"
        f"{of['segments']:>10.1f}{of['segments_p50']:>5.0f}{of['segments_p99']:>5.0f}{of['twice']:>9.2%}{of['shared']:>8.0%}{of['ledger'] or '-':>8}{of['unplaced'] or '-':>9}{of['event_bytes']:>9.1f}{of['event_us']:>10.2f}"
        f"{of['peak_mb']:>6.0f} MB{of['mean_us']:>7.0f} us{of['made_us']:>9.0f} us"
        + (f"{counted:>13.0f}" if counted else "")
    )


def ledger(accounts, ran_ns):
    """The ledger's time as a share of the kernel's; empty if the kernel's is unknown."""
    if any(rest for _, _, rest in accounts):
        return "WRONG"
    if not any(ran_ns.values()):
        return ""
    return (
        f"{sum(cpu_ns for pid, cpu_ns, _ in accounts if pid in ran_ns) / sum(ran_ns.values()):.1%}"
    )


def unplaced(manifest, ran_ns):
    """Stolen time that is not placed, as a share of the kernel's account; empty if that is
    unknown."""
    if not any(ran_ns.values()):
        return ""
    return f"{manifest['counts'].get('steal_unplaced_ns', 0) / sum(ran_ns.values()):.1%}"


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--connections", type=numbers, default=[1, 5, 50, 500, 5000, 10000])
    parser.add_argument("--requests", type=int, default=30000)
    parser.add_argument("--ends", type=lambda text: text.split(","), default=list(ENDS))
    parser.add_argument("--keep", type=Path, help="where to keep the captures")
    parser.add_argument("--instructions", action="store_true", help="also count instructions")
    parser.add_argument("--json", action="store_true", help="print one JSON object a row")
    options = parser.parse_args()
    for name in options.loads:
        if name not in LOADS:
            parser.error(f"no load {name}: {', '.join(LOADS)}")
    if os.geteuid() != 0:
        sys.exit("run.py needs root")
    if options.instructions and not shutil.which("valgrind"):
        sys.exit("run.py: --instructions needs valgrind")
    if not shutil.which(RPCPROBE):
        sys.exit(f"{RPCPROBE} is not there: make build")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if not options.json:
        print(HEADER + (COUNTED if options.instructions else ""))
    good = True
    for name in options.loads or LOADS:
        for ends in options.ends:
            for connections in options.connections:
                try:
                    requests = max(options.requests, connections)
                    count = options.instructions
                    of = row(name, ends, connections, requests, options.keep, count)
                except (RuntimeError, OSError, subprocess.TimeoutExpired, duckdb.Error) as error:
                    good = False
                    print(f"{name:6} {ends:7}{connections:>6}  {error}", flush=True)
                    continue
                good &= of["found"] == of["made"] and of["twice"] < 0.001
                print(json.dumps(of) if options.json else shown(of), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
