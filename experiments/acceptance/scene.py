#!/usr/bin/env python3
"""One scene: a server, its own client, and the client's count of requests.

scene.py NAME CLIENTS FOLDER [--wait]

Writes FOLDER/issued: the number of requests that were answered, according to the client. With
--wait it prints "ready" when the server listens, and starts the client when it reads a line. It
does not use rpcprobe.
"""

import csv
import math
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORT = 18300
REQUESTS = 1000
# The client's log, in the scene's folder: "client,request,method,begin_ns,end_ns,status".
LOG = "log.csv"
TARGETS = HERE.parents[1] / "targets"
# How much longer than the request the time between stamps may be, if the client takes them right
# before and after its system calls: at the median, at p99.
EXACT_NS = (5_000, 20_000)


@dataclass(frozen=True)
class Scene:
    """`client` gets the number of clients and the folder. `count` reads the number of requests from
    its output; if `count` is None, the requests of its log are counted."""

    server: Callable[[Path], list]
    client: Callable[[int, Path], list]
    count: Callable[[str, int], int] | None
    # Names of the server and client programs that must be installed.
    needs: tuple[str, ...] = ()
    # Set-up requests that the client does not count.
    besides: int = 0
    stop: signal.Signals = signal.SIGTERM
    # Concurrency: connections, or requests in flight on one connection.
    clients: tuple[int, ...] = (1, 2, 5)
    # The method that every request must have.
    method: str | None = None
    # The allowed differences of the client's stamps, as in EXACT_NS; None: not judged.
    bounds_ns: tuple[int, float] | None = None


def pair(*program: object, logs: bool = False, **more: object) -> Scene:
    def client(clients: int, folder: Path) -> list:
        log = [folder / LOG] if logs else []
        return [*program, "ask", PORT, clients, REQUESTS, *log]

    return Scene(
        server=lambda folder: [*program, "serve", PORT],
        client=client,
        count=lambda said, clients: int(said),
        needs=(str(program[0]),),
        **more,
    )


def grpc(*program: object) -> Scene:
    return pair(*program, clients=(1, 8, 64), method="/pair.Pair/Ask")


def logged(folder: Path) -> int:
    """The number of successful requests in a client's log."""
    with (folder / LOG).open(newline="") as log:
        return sum(row["status"] == "ok" for row in csv.DictReader(log))


def target(server: list, client: list, requests: int = REQUESTS, **more: object) -> Scene:
    """A scene of targets/, whose clients share these options."""

    def ask(clients: int, folder: Path) -> list:
        return [*client, "--clients", clients, "--requests", requests, "--log", folder / LOG]

    return Scene(
        server=lambda folder: server,
        client=ask,
        count=None,
        needs=(str(server[0]),),
        **more,
    )


def stockbazaar(transport: str, call: str, **more: object) -> Scene:
    folder = TARGETS / "stockbazaar"
    both = ["--port", PORT, "--transport", transport]
    python = folder / ".venv/bin/python"
    return target(
        [python, folder / "server.py", "--threads", 2, *both],
        [python, folder / "client.py", *both, "--method", call],
        300,
        **more,
    )


# Runs clients so that they do not preempt one another on wake-up. With more clients than CPUs, a
# client that has read its answer would otherwise often lose the CPU before it takes its stamp.
PATIENT = ("chrt", "--batch", "0")


def flexcache(method: str, transport: str) -> Scene:
    folder = TARGETS / "flexcache"
    return target(
        [folder / "objserver", "--port", PORT],
        [
            *(*PATIENT, folder / "flexclient", "--server", f"127.0.0.1:{PORT}"),
            *("--method", method, "--transport", transport),
        ],
        bounds_ns=EXACT_NS,
    )


def kvlog(method: str) -> Scene:
    folder = TARGETS / "kvlog"
    return target(
        [folder / "kvserver", "--port", PORT],
        [folder / "kvclient", "--port", PORT, "--method", method],
        300,
        bounds_ns=EXACT_NS,
    )


def greeter() -> Scene:
    folder = TARGETS / "greeter"
    return target(
        [folder / "greeter_server", "--port", PORT],
        [folder / "greeter_client", "--server", f"127.0.0.1:{PORT}"],
        method="/greeter.Greeter/SayHello",
        bounds_ns=(30_000, math.inf),
    )


def found(pattern: str) -> Callable[[str, int], int]:
    def count(said: str, clients: int) -> int:
        match = re.search(pattern, said, re.MULTILINE)
        if not match:
            raise SystemExit(f"scene.py: the client's words are not understood:\n{said}")
        return int(match[1])

    return count


def nginx(folder: Path) -> list:
    (folder / "www").mkdir()
    (folder / "www/file").write_bytes(bytes(20_000))
    return ["nginx", "-p", folder, "-c", HERE / "nginx.conf", "-g", "user root;"]


def wrk(path: str) -> Scene:
    return Scene(
        server=nginx,
        client=lambda clients, folder: [
            *("wrk", "-t1", f"-c{clients}", "-d1", f"http://127.0.0.1:{PORT}/{path}")
        ],
        count=found(r"^ *(\d+) requests in"),
        needs=("nginx", "wrk"),
        stop=signal.SIGQUIT,
    )


def redis(*options: object) -> Scene:
    return Scene(
        server=lambda folder: [
            *("redis-server", "--port", PORT, "--save", "", "--appendonly", "no"),
            *("--dir", folder, "--logfile", folder / "redis.log"),
        ],
        client=lambda clients, folder: [
            *("redis-benchmark", "-p", PORT, "-c", clients, "-n", clients * REQUESTS),
            *("-t", "set", *options),
        ],
        count=found(r"^ *(\d+) requests completed"),
        needs=("redis-server", "redis-benchmark"),
        # The client first reads two settings, each with its own request.
        besides=2,
    )


def memcached() -> Scene:
    return Scene(
        server=lambda folder: [
            *("memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", PORT, "-t", 2)
        ],
        client=lambda clients, folder: [
            *("memcslap", "-s", f"127.0.0.1:{PORT}", f"--concurrency={clients}"),
            *(f"--execute-number={REQUESTS}", f"--initial-load={REQUESTS}", "--test=get"),
        ],
        # The client stores its keys, then each thread reads all of them.
        count=lambda said, clients: REQUESTS + found(r"get +(\d+) keys by")(said, clients),
        needs=("memcached", "memcslap"),
    )


SCENES = {
    "C": pair(HERE / "build/pair", logs=True, bounds_ns=EXACT_NS),
    "Go": pair(HERE / "build/pair_go"),
    "Node": pair("node", HERE / "pair.js"),
    "Python": pair("python3", HERE / "pair.py", logs=True),
    "redis": redis(),
    "redis -P 16": redis("-P", 16),
    "nginx": wrk("hello"),
    "nginx, a file": wrk("file"),
    "memcached": memcached(),
    "gRPC, Go": grpc(HERE / "build/grpc_go"),
    "gRPC, Node": grpc("node", HERE / "grpc_node/pair.js"),
    "gRPC, Python": grpc(HERE / "build/python/bin/python", HERE / "grpc_python/pair.py"),
    "stockbazaar": stockbazaar("socket", "Lookup"),
    "stockbazaar, Lookup by gRPC": stockbazaar(
        "grpc", "Lookup", method="/stockbazaar.StockBazaar/Lookup"
    ),
    "stockbazaar, Trade by gRPC": stockbazaar(
        "grpc", "Trade", method="/stockbazaar.StockBazaar/Trade"
    ),
    "greeter": greeter(),
    "null RPC, UDP": flexcache("null", "udp"),
    "null RPC, TCP": flexcache("null", "tcp"),
    "invocation, UDP": flexcache("invoke", "udp"),
    "kvlog, ping": kvlog("ping"),
    "kvlog, write": kvlog("write"),
}


def wait_for(server: subprocess.Popen):
    """Waits until a process listens. Reads /proc, so that it makes no connection."""
    wanted = re.compile(rf":{PORT:04X} 0+:0000 0A")
    for _ in range(200):
        if any(wanted.search(Path(f"/proc/net/{name}").read_text()) for name in ("tcp", "tcp6")):
            return
        if server.poll() is not None:
            raise SystemExit(f"scene.py: the server ended with status {server.returncode}")
        time.sleep(0.05)
    raise SystemExit("scene.py: the server does not listen")


def listening() -> bool:
    try:
        socket.create_connection(("127.0.0.1", PORT), 0.1).close()
    except OSError:
        return False
    return True


def main():
    name, clients, folder, *wait = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]
    scene = SCENES[name]
    server = subprocess.Popen([str(a) for a in scene.server(folder)], stdout=subprocess.DEVNULL)
    try:
        wait_for(server)
        if wait == ["--wait"]:
            print("ready", flush=True)
            sys.stdin.readline()
        argv = [str(a) for a in scene.client(clients, folder)]
        said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        count = scene.count(said.stdout, clients) if scene.count else logged(folder)
        (folder / "issued").write_text(f"{count + scene.besides}\n")
    finally:
        server.send_signal(scene.stop)
        server.wait(timeout=10)


if __name__ == "__main__":
    main()
