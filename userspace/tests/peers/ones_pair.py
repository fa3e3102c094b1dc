"""Asks a forked server with messages of nothing but ones, and logs when. They look like HTTP/2 frames
of 65,793 bytes, and several of those fit into each message.

    ones_pair.py tcp|unix REQUESTS LOG
"""

import os
import socket
import sys
import time


def connect(transport):
    if transport == "unix":
        return socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def receive(connection, size):
    while size:
        got = len(connection.recv(size))
        if not got:
            return False
        size -= got
    return True


def main():
    transport, requests, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    client, server = connect(transport)
    message = b"\1" * 228059
    if os.fork() == 0:
        client.close()
        while receive(server, len(message)):
            server.sendall(message)
        os._exit(0)
    server.close()
    with open(log, "w", buffering=1) as lines:
        print("pid,begin_ns,end_ns", file=lines)
        for _ in range(requests):
            begin_ns = time.monotonic_ns()
            client.sendall(message)
            receive(client, len(message))
            print(f"{os.getpid()},{begin_ns},{time.monotonic_ns()}", file=lines)
    client.close()
    os.wait()


main()
