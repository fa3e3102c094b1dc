"""More at a time than is followed.

flood_pair.py pipeline COMMANDS     a Redis client that sends one command, so many by one call, and then
                                    20 one by one to a forked server
flood_pair.py connections COUNT     an HTTP/1 client of a forked server with so many connections, that are
                                    all in the middle of a chunked answer at a time; then three rounds
                                    of plain ones
"""

import os
import socket
import sys
import time

PING = b"*1\r\n$4\r\nPING\r\n"
PONG = b"+PONG\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n01234567"
TAIL = b"89abcdef\r\n0\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
REST_S = 0.15  # after which nothing can be under way


def receive(connection, count):
    while count:
        got = len(connection.recv(min(count, 1 << 20)))
        assert got
        count -= got


def pipeline(commands):
    client, server = socket.socketpair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    # After the first it is known that its writer is traced, and no read is looked at.
    rounds = [1, commands] + [1] * 20
    if os.fork() == 0:
        for count in rounds:
            receive(server, count * len(PING))
            for _ in range(0, count, 100):
                server.sendall(PONG * min(count, 100))
        os._exit(0)
    for count in rounds:
        client.sendall(PING * count)
        receive(client, count * len(PONG))
        time.sleep(REST_S)
    os.wait()


def connections(count):
    pairs = [socket.socketpair() for _ in range(count)]
    if os.fork() == 0:
        for answer in (HEAD, TAIL, PLAIN, PLAIN, PLAIN):
            for _, server in pairs:
                if answer is not TAIL:
                    receive(server, len(ASK))
                server.sendall(answer)
        os._exit(0)
    for answer in (HEAD, TAIL, PLAIN, PLAIN, PLAIN):
        for client, _ in pairs:
            if answer is not TAIL:
                client.sendall(ASK)
            receive(client, len(answer))
        if answer is not HEAD:
            time.sleep(REST_S)
    os.wait()


{"pipeline": pipeline, "connections": connections}[sys.argv[1]](int(sys.argv[2]))
