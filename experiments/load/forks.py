#!/usr/bin/env python3
"""A server that forks for each connection: does an event cost the same, however many there were?

Each request opens a connection, and a process of its own answers it and exits. What is kept of
ended connections and processes must not be looked through for each new one. The table has a row for
each number of requests. Needs root. Usage: forks.py [--requests N,M] [--ends server|both]
[--keep DIR]; rpcprobe from $RPCPROBE or PATH. Exit status: 0 if every request was found, and an
event of the last row costs at most 1.5 times as much CPU time as one of the first, else 1.
"""

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import duckdb
from run import REQUESTS, attribute_again, capture

CLIENTS = 4
MOST_RATIO = 1.5
QUESTION = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Forks:
    port = 6407

    def __init__(self):
        self.server = [sys.executable, __file__, "--serve"]

    def client(self, _, requests):
        return [sys.executable, __file__, "--ask", requests]


def serve():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave nothing behind
    listener = socket.create_server(("127.0.0.1", Forks.port), backlog=512)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            if connection.recv(4096):
                connection.sendall(ANSWER)
            os._exit(0)
        connection.close()


def ask(requests):
    children = []
    for number in range(CLIENTS):
        child = os.fork()
        if child == 0:
            for _ in range(number, requests, CLIENTS):
                with socket.create_connection(("127.0.0.1", Forks.port)) as connection:
                    connection.sendall(QUESTION)
                    if connection.recv(4096) != ANSWER:
                        os._exit(1)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def row(requests, ends, out):
    capture(Forks(), ends, out, CLIENTS, requests)
    seconds, peak_bytes = attribute_again(out)
    manifest = json.loads((out / "manifest.json").read_text())
    asked = {"requests": str(out / "requests.parquet"), "kind": "http1", "method": "GET /%"}
    found, _ = duckdb.connect().execute(REQUESTS, asked).fetchone()
    events, lost = (manifest["counts"][name] for name in ("records", "records_lost"))
    event_us = seconds / max(events, 1) * 1e6
    print(f"{found:9}{requests:9}{lost:7}{events:10}{event_us:10.2f}{peak_bytes / 1e6:7.0f} MB")
    return found == requests, event_us


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--requests", default="3000,30000", help="of each row (default: %(default)s)"
    )
    parser.add_argument("--ends", choices=("server", "both"), default="server", help="traced")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the captures there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.ask is not None:
        return ask(options.ask)
    print(f"{'found':>9}{'of':>9}{'lost':>7}{'events':>10}{'us/event':>10}{'memory':>10}")
    with tempfile.TemporaryDirectory() as directory:
        rows = [
            row(requests, options.ends, (options.keep or Path(directory)) / f"forks-{requests}")
            for requests in map(int, options.requests.split(","))
        ]
    ratio = rows[-1][1] / rows[0][1]
    print(f"an event of the last row costs {ratio:.2f} times as much as one of the first")
    return int(ratio > MOST_RATIO or not all(complete for complete, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
