#!/usr/bin/env python3
"""A server and its clients: pair.py serve PORT | pair.py ask PORT CLIENTS REQUESTS [LOG]

Each request is 64 bytes, each answer 100. The clients print the number of answers, and log the
begin and end of each request in the format of targets/README.md.
"""

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread


def take(connection: socket.socket, size: int) -> bool:
    """Receives `size` bytes and discards them. Returns False at the end of the connection."""
    while size:
        data = connection.recv(size)
        if not data:
            return False
        size -= len(data)
    return True


def serve_one(connection: socket.socket):
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while take(connection, 64):
            connection.sendall(bytes(100))


def serve(port: int):
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            Thread(target=serve_one, args=(connection,), daemon=True).start()


def ask(port: int, client: int, requests: int, log: list[str]) -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = 0
        for request in range(requests):
            begin_ns = time.monotonic_ns()
            connection.sendall(bytes(64))
            answers += take(connection, 100)
            log.append(f"{client},{request},ask,{begin_ns},{time.monotonic_ns()},ok\n")
        return answers


if __name__ == "__main__":
    port = int(sys.argv[2])
    if sys.argv[1] == "serve":
        serve(port)
    clients, requests = int(sys.argv[3]), int(sys.argv[4])
    log: list[str] = ["client,request,method,begin_ns,end_ns,status\n"]
    with ThreadPoolExecutor(clients) as pool:
        print(sum(pool.map(lambda client: ask(port, client, requests, log), range(clients))))
    if len(sys.argv) > 5:
        with open(sys.argv[5], "w") as file:
            file.writelines(log)
