#!/usr/bin/env python3
"""A server and a client in Python, over one connection.

peers.py serve-http ADDRESS PORT [FILE]          serves one connection after another until it is
                                                 killed, like a server that a capture is attached
                                                 to; says "ready" when it listens
peers.py serve-asyncio ADDRESS PORT              likewise, in asyncio; sleeps 20 ms before each answer
peers.py serve-bytes ADDRESS PORT [SLEEP_MS]     likewise; sleeps SLEEP_MS before each answer
peers.py serve-counting ADDRESS PORT             likewise; each answer has the number of segments
                                                 that TCP has sent again on the connection
peers.py serve-growing ADDRESS PORT LOG          likewise; before each answer it doubles its table of
                                                 descriptors, and logs how long it slept for that
peers.py ask-http|ask-bytes ADDRESS PORT REQUESTS
                                                 makes REQUESTS requests, one after another
peers.py ask-counting ADDRESS PORT REQUESTS LOG  makes one request more to serve-counting, and logs
                                                 for each but the last the number of segments that
                                                 both ends sent again for it

With FILE, the answer is the file's content, sent by sendfile().
"""

import asyncio
import csv
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer

BYTES = 64


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 4096  # headers and content in one packet

    file: str | None = None

    def do_GET(self):
        content = b"answer\n"
        file_bytes = os.path.getsize(self.file) if self.file else 0
        self.send_response(200)
        self.send_header("Content-Length", str(file_bytes or len(content)))
        self.end_headers()
        if not self.file:
            self.wfile.write(content)
            return
        self.wfile.flush()
        with open(self.file, "rb") as file:
            sent = 0
            while sent < file_bytes:
                sent += os.sendfile(
                    self.connection.fileno(), file.fileno(), sent, file_bytes - sent
                )

    def log_message(self, *args: object):
        pass


def serve_http(address: str, port: int, file: str | None = None):
    Answer.file = file
    server = HTTPServer((address, port), Answer)
    print("ready", flush=True)
    server.serve_forever()


def serve_asyncio(address: str, port: int):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            await asyncio.sleep(0.02)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanswer\n")
            await writer.drain()
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, address, port)
        print("ready", flush=True)
        await server.serve_forever()

    asyncio.run(serve())


def ask_http(address: str, port: int, requests: str):
    connection = HTTPConnection(address, port)
    for _ in range(int(requests)):
        connection.request("GET", "/asked")
        answer = connection.getresponse()
        expected_bytes = int(answer.headers["Content-Length"])
        if answer.status != 200 or len(answer.read()) != expected_bytes:
            sys.exit("peers.py: a wrong answer")
    connection.close()


def receive(connection: socket.socket) -> bytes:
    """Receives a message; at the end of the stream, possibly less than one."""
    message = b""
    while len(message) < BYTES and (part := connection.recv(BYTES - len(message))):
        message += part
    return message


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Yields accepted connections for ever; closes each before it accepts the next."""
    while True:
        connection, _ = listener.accept()
        with connection:
            yield connection


def serve_bytes(address: str, port: int, sleep_ms: str = "0"):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        for connection in accepted(listener):
            while len(message := receive(connection)) == BYTES:
                if sleep_ms != "0":
                    time.sleep(int(sleep_ms) / 1e3)
                connection.sendall(message)


# The table of descriptors has room for 64 at first (NR_OPEN_DEFAULT), and doubles.
FIRST_TABLE, LARGEST_TABLE = 64, 1 << 14


def waited_ns() -> int:
    """How long this thread has waited for a CPU so far, by the scheduler's account."""
    with open("/proc/thread-self/schedstat") as account:
        return int(account.read().split()[1])


def serve_growing(address: str, port: int, log: str):
    resource.setrlimit(resource.RLIMIT_NOFILE, (LARGEST_TABLE, LARGEST_TABLE))
    # The kernel waits for a grace period only if several threads use the table.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    with socket.create_server((address, port)) as listener, open(log, "w", buffering=1) as rows:
        print("start_ns,end_ns,asleep_ns", file=rows)
        print("ready", flush=True)
        for connection in accepted(listener):
            descriptor, start_ns = FIRST_TABLE, 0
            while len(message := receive(connection)) == BYTES:
                waited_before_ns = waited_ns()
                begin_ns, ran_before_ns = time.monotonic_ns(), time.thread_time_ns()
                os.dup2(connection.fileno(), descriptor)
                took_ns = time.monotonic_ns() - begin_ns
                ran_ns = time.thread_time_ns() - ran_before_ns
                os.close(descriptor)
                asleep_ns = took_ns - ran_ns - (waited_ns() - waited_before_ns)
                # A request begins after the previous answer was sent, and before its own is.
                end_ns = time.monotonic_ns()
                print(start_ns, end_ns, asleep_ns, sep=",", file=rows)
                descriptor, start_ns = descriptor * 2, end_ns
                connection.sendall(message)


def ask_bytes(address: str, port: int, requests: str):
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in range(int(requests)):
            message = bytes([request % 256]) * BYTES
            connection.sendall(message)
            if receive(connection) != message:
                sys.exit("peers.py: a wrong answer")


# struct tcp_info (include/uapi/linux/tcp.h): eight bytes, then fields of 32 bits.
TOTAL_RETRANS = 8 + 23 * 4


def sent_again(connection: socket.socket) -> int:
    """Segments that TCP has sent again on a connection, by the kernel's count (tcpi_total_retrans)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANS + 4)
    return struct.unpack_from("=I", info, TOTAL_RETRANS)[0]


def serve_counting(address: str, port: int):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        for connection in accepted(listener):
            while len(receive(connection)) == BYTES:
                connection.sendall(struct.pack("=I", sent_again(connection)).ljust(BYTES))


def ask_counting(address: str, port: int, requests: str, log: str):
    """Logs one row per request: its stamps, and the number of segments sent again for it by both
    ends."""
    counts, stamps = [], []
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(int(requests) + 1):
            of_client = sent_again(connection)
            start_ns = time.monotonic_ns()
            connection.sendall(bytes(BYTES))
            answer = receive(connection)
            stamps.append((start_ns, time.monotonic_ns()))
            # The count of both ends before this request: the server reads its count when it
            # answers, after its previous answer arrived.
            counts.append(of_client + struct.unpack_from("=I", answer)[0])
    with open(log, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("start_ns", "end_ns", "sent_again"))
        for (start_ns, end_ns), before, after in zip(stamps, counts, counts[1:], strict=False):
            rows.writerow((start_ns, end_ns, after - before))


def main():
    what, address, port, *more = sys.argv[1:]
    does = {
        "serve-http": serve_http,
        "serve-asyncio": serve_asyncio,
        "serve-bytes": serve_bytes,
        "serve-counting": serve_counting,
        "serve-growing": serve_growing,
        "ask-http": ask_http,
        "ask-bytes": ask_bytes,
        "ask-counting": ask_counting,
    }[what]
    does(address, int(port), *more)


if __name__ == "__main__":
    main()
