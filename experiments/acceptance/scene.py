#!/usr/bin/env python3
"""One scene: a server, its own client, and what the client says it did.

scene.py NAME CLIENTS FOLDER [--wait]

Writes FOLDER/issued: requests the client says were answered. With --wait it says "ready" when the server listens,
and starts the client when it is sent a line. Knows nothing of rpcprobe.
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
# Of the client, in the scene's folder: "client,request,method,begin_ns,end_ns,status".
LOG = "log.csv"
TARGETS = HERE.parents[1] / "targets"
# By how much stamps taken right before and after system calls may exceed the requests: at the median, at p99.
EXACT_NS = (5_000, 20_000)


@dataclass(frozen=True)
class Scene:
    """`client` gets the number of clients and the folder; `count` reads what it printed. Without it,
    the requests of its log are counted."""

    server: Callable[[Path], list]
    client: Callable[[int, Path], list]
    count: Callable[[str, int], int] | None
    # What the server and client are called, where they must be installed.
    needs: tuple[str, ...] = ()
    # Requests of the set-up that the client's count does not have.
    besides: int = 0
    stop: signal.Signals = signal.SIGTERM
    # How many at once: connections, or requests in flight on one.
    clients: tuple[int, ...] = (1, 2, 5)
    # What every request must be called.
    method: str | None = None
    # What is allowed of its client's stamps.
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
    """The requests of a client's log that went well."""
    with (folder / LOG).open(newline="") as log:
        return sum(row["status"] == "ok" for row in csv.DictReader(log))


def target(server: list, client: list, requests: int = REQUESTS, **more: object) -> Scene:
    """One of targets/; its client takes so many options alike."""

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


# Clients that do not take the CPU from one another as they are woken: where they are more than the CPUs,
# one that has read its answer would often lose the CPU before it takes its stamp.
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
        # It first asks for two settings, each by a request of its own.
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
        # It loads its keys, then each thread gets all of them.
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
    """Until somebody listens: told by /proc, so that no connection is made for it."""
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
