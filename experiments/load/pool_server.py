#!/usr/bin/env python3
"""An HTTP server of a common design: one thread reads, a pool of threads answers.

Usage: pool_server.py PORT [THREADS]. The reader hands a request to the pool through a queue in
memory. A thread of the pool computes for some 20 us and writes the answer itself.
"""

import selectors
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
READ_BYTES = 65536


def answer(connection):
    sum(range(1000))
    connection.sendall(ANSWER)


def main():
    port, threads = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    listener = socket.create_server(("127.0.0.1", port), backlog=20000)
    pool = ThreadPoolExecutor(threads)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    received = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ)
                received[connection] = b""
                continue
            try:
                data = key.fileobj.recv(READ_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                del received[key.fileobj]
                key.fileobj.close()
                continue
            *requests, received[key.fileobj] = (received[key.fileobj] + data).split(b"\r\n\r\n")
            for _ in requests:
                pool.submit(answer, key.fileobj)


if __name__ == "__main__":
    main()
