"""Part 1: sockets, one connection for each request, and a separate thread pool.

A request is a line, "Lookup NAME" or "Trade NAME COUNT buy|sell"; the answer is a line, "PRICE
TRADED" (or "-1 0") or the name of the outcome.
"""

import errno
import socket
import sys
import threading
import time

from market import Outcome
from thread_pool import ThreadPool

MOST_BYTES = 1024
PATIENCE_S = 5  # for a client that has connected but sends no request


class Malformed(Exception):
    """The received line is not a request, or not an answer."""


def receive_line(connection):
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(MOST_BYTES)
        if not piece:
            raise Malformed("the connection was closed in the middle of a line")
        data += piece
        if len(data) > MOST_BYTES:
            raise Malformed("the line is too long")
    try:
        return data.decode("ascii").split()
    except UnicodeDecodeError:
        raise Malformed("the line is not ASCII") from None


def answer(market, words):
    match words:
        case ["Lookup", name]:
            price, traded = market.lookup(name) or (-1, 0)
            return f"{price} {traded}"
        case ["Trade", name, count, "buy" | "sell"] if count.lstrip("-").isdecimal():
            return market.trade(name, int(count)).name
    raise Malformed("no such request")


class SocketServer:
    def __init__(self, port, threads, market, log):
        self._market = market
        self._log = log
        self._listener = socket.create_server(("", port), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self._pool = ThreadPool(threads, self._serve)
        self._acceptor = threading.Thread(target=self._accept, name="acceptor")
        self._acceptor.start()

    def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        self._pool.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:  # shut down
                    return
                print(f"stockbazaar: cannot accept: {error.strerror}", file=sys.stderr)
                time.sleep(0.01)  # most likely out of descriptors
                continue
            self._pool.submit((connection, time.monotonic_ns()))

    def _serve(self, job):
        connection, arrival_ns = job
        start_ns = time.monotonic_ns()
        method, status = "-", "ok"
        with connection:
            try:
                connection.settimeout(PATIENCE_S)
                words = receive_line(connection)
                reply = answer(self._market, words)
                method = words[0]
                connection.sendall(f"{reply}\n".encode("ascii"))
            except (Malformed, OSError, ValueError) as error:
                status = "malformed" if isinstance(error, Malformed) else "failed"
        thread = threading.current_thread().name
        end_ns, waited_ns = time.monotonic_ns(), self._market.lock_wait_ns()
        self._log.add(method, arrival_ns, start_ns, end_ns, status, thread, waited_ns)


class SocketClient:
    """Has the interface of the gRPC client."""

    def __init__(self, host, port):
        self._address = (host, port)

    def lookup(self, name):
        """The price, or None."""
        price, _ = self._ask(f"Lookup {name}")
        return None if float(price) < 0 else float(price)

    def trade(self, name, count):
        (outcome,) = self._ask(f"Trade {name} {count} buy")
        return Outcome[outcome]

    def close(self):
        """Does nothing: there is no connection between requests."""

    def _ask(self, request):
        with socket.create_connection(self._address) as connection:
            connection.sendall(f"{request}\n".encode("ascii"))
            return receive_line(connection)
