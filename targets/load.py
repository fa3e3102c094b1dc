#!/usr/bin/env python3
"""Has five clients ask each program under test 3000 times each, and says whether all went well.

The clients check the answers themselves: the price, the greeting, the value read back, the echo, or
the outcome of a trade. A call without a result only has to be answered. This script checks the
values of expressions, and after the trades whether the server counted every one. All requests must
be in the clients' log, and in the server's if it has one. Each line is one load, with percentiles
of the latencies in the clients' log.
"""

import argparse
import csv
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TARGETS = Path(__file__).resolve().parent
CLIENTS, REQUESTS = 5, 3000
ALL = CLIENTS * REQUESTS
# Size of each kvlog value: its default, 1 MB, would make 15 GB per load.
VALUE_BYTES = 10_000


@dataclass
class Load:
    """The results of one load: the clients' log, the count of served requests, and the errors."""

    rows: list[dict]
    wanted: int = REQUESTS  # lines per client
    served: int | None = None
    should_serve: int = ALL
    errors: list[str] = field(default_factory=list)

    def judge(self) -> list[str]:
        wrong = list(self.errors)
        if Counter(row["client"] for row in self.rows) != dict.fromkeys("01234", self.wanted):
            wrong.append(f"{len(self.rows)} lines in the clients' log")
        if failed := sum(row["status"] != "ok" for row in self.rows):
            wrong.append(f"{failed} failed")
        if any(int(row["begin_ns"]) >= int(row["end_ns"]) for row in self.rows):
            wrong.append("a request ended before it began")
        if self.served is not None and self.served != self.should_serve:
            wrong.append(f"{self.should_serve:,} requests should be in the servers' logs")
        return wrong


def read(path: Path) -> list[dict]:
    with path.open(newline="", encoding="ascii") as file:
        return list(csv.DictReader(file))


def run(command: list, errors: list[str], **more) -> str:
    """Runs a command and returns its output; adds a failure to `errors`."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    if done.returncode != 0 or done.stderr:
        errors.append(f"{Path(command[0]).name}: status {done.returncode} {done.stderr[:200]}")
    return done.stdout


@contextmanager
def server(command: list, errors: list[str]):
    """Runs a server; yields its first line of output, and ends it by SIGTERM."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        if process.returncode != 0 or said:
            errors.append(f"{Path(command[0]).name}: status {process.returncode} {said[:200]}")
    finally:
        process.kill()
        process.communicate()


def port_of(said: str) -> str:
    return re.search(r"ready on port (\d+)", said)[1]


def free_port() -> int:
    """A port that neither UDP nor TCP uses."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as datagrams, socket.socket() as stream:
            datagrams.bind(("0.0.0.0", 0))
            try:
                stream.bind(("0.0.0.0", datagrams.getsockname()[1]))
                return stream.getsockname()[1]
            except OSError:
                continue


def stockbazaar(folder: Path):
    target = TARGETS / "stockbazaar"
    python = target / ".venv/bin/python"
    for transport in ("socket", "grpc"):
        for threads in (2, 6):
            for method in ("Lookup", "Trade"):
                load = Load([])
                common = ["--transport", transport]
                # The limit of each stock equals the trades, so that a lost or doubly counted trade
                # shows.
                serve = [python, target / "server.py", *common, "--port", 0, "--threads", threads]
                serve += ["--log", folder / "served", "--most-traded", ALL // 4]
                with server(serve, load.errors) as said:
                    ask = [python, target / "client.py", *common, "--port", port_of(said)]
                    ask += ["--method", method, "--log", folder / "log"]
                    run([*ask, "--clients", CLIENTS, "--requests", REQUESTS], load.errors)
                    load.rows = read(folder / "log")
                    if method == "Trade":
                        run([*ask, "--requests", 4], [])
                        after = [row["status"] for row in read(folder / "log")]
                        if after != ["suspended"] * 4:
                            load.errors.append("not every trade was counted")
                        load.should_serve += 4
                load.served = sum(row["status"] == "ok" for row in read(folder / "served"))
                yield f"{transport}, {threads} threads, {method}", load


def greeter(folder: Path):
    target = TARGETS / "greeter"
    # Each client's first call makes the connection, and comes before the others.
    load = Load([], wanted=REQUESTS + 1, should_serve=ALL + CLIENTS)
    serve = [target / "greeter_server", "--port", 0, "--log", folder / "served"]
    with server(serve, load.errors) as said:
        ask = [target / "greeter_client", "--server", f"127.0.0.1:{port_of(said)}"]
        ask += ["--clients", CLIENTS, "--requests", REQUESTS, "--log", folder / "log"]
        run(ask, load.errors)
    load.rows, load.served = read(folder / "log"), len(read(folder / "served"))
    yield "SayHello", load


def flexcache(folder: Path):
    yield from object_server(folder)
    yield from object_caches(folder)


def object_server(folder: Path):
    target = TARGETS / "flexcache"
    for method in ("null", "invoke"):
        for transport in ("udp", "tcp"):
            load, port = Load([]), free_port()
            serve = [target / "objserver", "--port", port, "--log", folder / "served"]
            with server(serve, load.errors):
                ask = [target / "flexclient", "--method", method, "--transport", transport]
                ask += ["--server", f"127.0.0.1:{port}", "--log", folder / "log"]
                run([*ask, "--clients", CLIENTS, "--requests", REQUESTS], load.errors)
            load.rows, load.served = read(folder / "log"), len(read(folder / "served"))
            yield f"{method}, {transport}", load


def object_caches(folder: Path):
    """Two nodes: clients on the first node use an object of a client on the second."""
    target = TARGETS / "flexcache"
    # Messages that the cachers serve, for the requests and for the copy that each client makes
    # before it begins.
    messages = {
        "create": ALL,
        "cache": 2 * (ALL + CLIENTS),
        "validate": ALL + 2 * CLIENTS,
        "read": 2 * CLIENTS,
        "write": ALL + 2 * CLIENTS,
        "invalidate": 2 * CLIENTS,
    }
    for method, should_serve in messages.items():
        load = Load([], should_serve=should_serve)
        ports = free_port(), free_port()
        nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        own = folder / method
        for node in ("0", "1"):
            (own / node).mkdir(parents=True)

        def cacher(node, port, own=own):
            serve = [target / "consistency_cacher", "--dir", own / node, "--port", port]
            return [*serve, "--log", own / f"consistency{node}"]

        def on(node, own=own, nodes=nodes):
            return [target / "flexclient", "--dir", own / node, "--node", node, "--nodes", nodes]

        hold = [*on("1"), "--method", "create", "--first-process", 9, "--requests", 1, "--hold"]
        with (
            server(cacher("0", ports[0]), load.errors),
            server(cacher("1", ports[1]), load.errors),
            server(hold, load.errors),
        ):
            ask = [*on("0"), "--method", method, "--object", "1.9.0", "--log", own / "log"]
            ask += ["--cacher-log", own / "process", "--clients", CLIENTS, "--requests", REQUESTS]
            run(ask, load.errors)
        load.rows = [row for row in read(own / "log") if row["method"] == method]
        logs = [*own.glob("process*"), *own.glob("consistency*")]
        load.served = sum(len(read(path)) for path in logs)
        yield method, load


def kvlog(folder: Path):
    target = TARGETS / "kvlog"
    for method in ("write", "read", "mixed", "ping"):
        load = Load([])
        serve = [target / "kvserver", "--port", 0, "--log", folder / "served"]
        with server(serve, load.errors) as said:
            ask = [target / "kvclient", "--port", port_of(said), "--clients", CLIENTS]
            ask += ["--bytes", VALUE_BYTES, "--log", folder / "log"]
            if method == "read":
                run([*ask, "--requests", 10], load.errors)
                load.should_serve += CLIENTS * 10
            run([*ask, "--requests", REQUESTS, "--method", method], load.errors)
        load.rows = read(folder / "log")
        load.served = sum(row["status"] == "ok" for row in read(folder / "served"))
        size = "" if method == "ping" else f", {VALUE_BYTES // 1000} kB"
        yield f"{method}{size}", load


def frpc(folder: Path):
    """Each client is a front end with its own back end; the server has no log."""
    target = TARGETS / "frpc"
    times = REQUESTS // 300
    (folder / "asked").write_text((target / "expressions.txt").read_text() * times)
    expected = [float(line) for line in (target / "expected.txt").read_text().split()] * times
    for mode, name in ((3, "pipes"), (4, "pipes, batches of 16"), (5, "futex"), (6, "Unix socket")):
        batch = 16 if mode == 4 else 1
        load = Load([], wanted=-(-REQUESTS // batch))
        fronts = []
        for client in range(CLIENTS):
            ask = [target / "frpc", f"-m{mode}", "-i", folder / "asked"]
            ask += ["-o", folder / f"answers{client}", "--log", folder / f"log{client}"]
            fronts.append(subprocess.Popen(list(map(str, ask)), stderr=subprocess.PIPE, text=True))
        for client, front in enumerate(fronts):
            _, said = front.communicate()
            if front.returncode != 0 or said:
                load.errors.append(f"frpc: status {front.returncode} {said[:200]}")
            own = read(folder / f"log{client}")
            load.rows += [row | {"client": str(client)} for row in own]
            answers = (folder / f"answers{client}").read_text().splitlines()
            right = len(answers) == REQUESTS and all(map(is_value, answers, expected))
            if not right or sum(int(row["expressions"]) for row in own) != REQUESTS:
                load.errors.append(f"client {client} has not all the answers")
        yield f"mode {mode}, {name}", load


def is_value(answer: str, expected: float) -> bool:
    said = re.fullmatch(r"ANSWER: (\S+)", answer)
    return said is not None and abs(float(said[1]) - expected) <= 1e-12 * abs(expected)


def echo(folder: Path):
    for transport in ("tcp", "unix"):
        for options, name in ((), "a thread each"), (("-e",), "epoll"):
            load = Load([])
            log = folder / f"{transport}{len(options)}"
            ask = [TARGETS / "echo/echo", "-t", transport, *options, "--log", log]
            said = run([*ask, "-c", CLIENTS, "-n", REQUESTS], load.errors)
            if said != f"{ALL} answers\n":
                load.errors.append(f"said: {said}")
            load.rows = read(log)
            yield f"{transport}, {name}", load


PROGRAMS = {f.__name__: f for f in (stockbazaar, greeter, flexcache, kvlog, frpc, echo)}


def us(sorted_ns: list[int], share: float) -> str:
    return f"{sorted_ns[int(share * (len(sorted_ns) - 1))] / 1e3:,.2f}" if sorted_ns else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="*", help=f"of {', '.join(PROGRAMS)} (default: all)")
    chosen = parser.parse_args().program or list(PROGRAMS)
    if unknown := set(chosen) - set(PROGRAMS):
        parser.error(f"no program {', '.join(unknown)}")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    print(f"{CLIENTS} clients x {REQUESTS} requests, 0 errors wanted, on {os.cpu_count()} CPUs\n")
    print(
        f"{'program':12} {'load':30} {'in the logs of':>25} {'latency, us':>20}\n"
        f"{'':12} {'':30} {'clients':>12} {'servers':>12} {'p50':>10} {'p99':>9}"
    )
    failed = 0
    for program in chosen:
        with tempfile.TemporaryDirectory(prefix="load") as folder:
            for name, load in PROGRAMS[program](Path(folder)):
                wrong = load.judge()
                failed += bool(wrong)
                took = sorted(int(row["end_ns"]) - int(row["begin_ns"]) for row in load.rows)
                served = "-" if load.served is None else f"{load.served:,}"
                print(
                    f"{program:12} {name:30} {len(load.rows):>12,} {served:>12} "
                    f"{us(took, 0.5):>10} {us(took, 0.99):>9}  {'FAIL' if wrong else 'pass'}",
                    flush=True,
                )
                for what in wrong:
                    print(f"{'':12} {what}")
    print(f"\n{failed} failed" if failed else "\nall answered, all right, all in the logs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
