#!/usr/bin/env python3
"""A web server with three endpoints, and its clients: the slow program of docs/tutorial.md.

  /ping   answers at once
  /hash   computes for about a millisecond
  /save   commits a row to SQLite, under a lock

`web.py` starts the server, lets --clients clients make --requests requests each, one in eight of them /save, and ends.
With --wal the database appends to a write-ahead log and writes its file later.
"""

import argparse
import contextlib
import hashlib
import http.client
import os
import sqlite3
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENDPOINTS = ["/ping"] * 5 + ["/hash"] * 2 + ["/save"]
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write per answer.
    wbufsize = -1

    def do_GET(self):
        body = ANSWERS[self.path](self.server.database)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def ping(_):
    return b"pong"


def compute(_):
    return hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2000).hex().encode()


def save(database):
    with lock:
        database.execute("insert into visits values (datetime())")
        database.commit()
    return b"saved"


ANSWERS = {"/ping": ping, "/hash": compute, "/save": save}


def client(port, requests):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(requests):
        connection.request("GET", ENDPOINTS[number % len(ENDPOINTS)])
        connection.getresponse().read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--wal", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        path = os.path.join(directory, "visits.db")
        with contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as database:
            if options.wal:
                database.execute("pragma journal_mode = wal")
                database.execute("pragma synchronous = normal")
            database.execute("create table visits (at text)")
            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.database = database
            threading.Thread(target=server.serve_forever, daemon=True).start()
            pid = os.fork()
            if pid == 0:
                server.socket.close()
                run_clients(server.server_port, options)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            server.shutdown()
    sys.exit(os.waitstatus_to_exitcode(status))


def run_clients(port, options):
    clients = [
        threading.Thread(target=client, args=(port, options.requests))
        for _ in range(options.clients)
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()


if __name__ == "__main__":
    main()
