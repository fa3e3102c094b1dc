"""Servers that already run when rpcprobe attaches to them, with clients that are not traced.

They extend workloads.py, and likewise need only Python's own modules.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from workloads import HERE, PORT, TARGETS, Skipped, present, run, served

sys.path.insert(0, str(HERE.parent))

from attached import attached  # noqa: E402

PEERS = (sys.executable, HERE / "peers.py")
GREETER = TARGETS / "greeter"
GO_SERVER = TARGETS.parent / ".cache" / "kernels" / f"go-server-{os.uname().machine}"
Argv = Callable[[int], tuple[object, ...]]


@dataclass(frozen=True)
class Server:
    """The commands of the server and the client, by port, and the number of requests."""

    serves: Argv
    ready: str
    asks: Argv
    requests: int
    needs: tuple[object, ...] = ()


SERVERS = {
    "attach, TCP": Server(
        lambda port: (*PEERS, "serve-bytes", "127.0.0.1", port),
        "ready",
        lambda port: (*PEERS, "ask-bytes", "127.0.0.1", port, 100),
        100,
    ),
    "attach, HTTP/1": Server(
        lambda port: (*PEERS, "serve-http", "127.0.0.1", port),
        "ready",
        lambda port: (*PEERS, "ask-http", "127.0.0.1", port, 50),
        50,
    ),
    "attach, goroutines": Server(
        lambda port: (GO_SERVER, "serve", port),
        "ready",
        lambda port: (*PEERS, "ask-http", "127.0.0.1", port, 25),
        25,
        (GO_SERVER,),
    ),
    "attach, asyncio": Server(
        lambda port: (*PEERS, "serve-asyncio", "127.0.0.1", port),
        "ready",
        lambda port: (*PEERS, "ask-http", "127.0.0.1", port, 25),
        25,
    ),
    "attach, Redis": Server(
        lambda port: ("redis-server", "--port", port, "--save", "", "--daemonize", "no"),
        "Ready to accept connections",
        lambda port: ("redis-benchmark", "-p", port, "-c", 1, "-n", 50, "-t", "get"),
        52,  # the client first reads two settings
        ("redis-server", "redis-benchmark"),
    ),
    "attach, gRPC": Server(
        lambda port: (GREETER / "greeter_server", "--port", port),
        "ready",
        lambda port: (
            *(GREETER / "greeter_client", "--server", f"127.0.0.1:{port}"),
            *("--requests", 49),
        ),
        50,
        (GREETER / "greeter_server", GREETER / "greeter_client"),
    ),
}


def captured(rpcprobe: str, folder: Path, options: list[str], names: list[str]):
    """Takes one capture of all these servers. Writes windows.json, as workloads.py does, and
    capture/."""
    windows: dict[str, dict] = {}
    with ExitStack() as running:
        pids = {}
        for port, name in enumerate(names, PORT):
            windows[name] = {"name": name, "begin_ns": 0, "end_ns": 0}
            server = SERVERS[name]
            try:
                present(*server.needs)
            except Skipped as why:
                windows[name]["skipped"] = str(why)
                continue
            serves = served(*server.serves(port), ready=server.ready)
            pids[name, port] = running.enter_context(serves)
        with attached(list(pids.values()), folder, *options, rpcprobe=rpcprobe):
            for name, port in pids:
                windows[name]["begin_ns"] = time.monotonic_ns()
                run(*SERVERS[name].asks(port))
                windows[name] |= {
                    "end_ns": time.monotonic_ns(),
                    "requests": SERVERS[name].requests,
                }
    (folder / "windows.json").write_text(json.dumps(list(windows.values())))
