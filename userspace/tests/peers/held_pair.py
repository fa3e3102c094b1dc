"""held_pair.py nagle|nodelay|window ROUNDS [serve|PORT]: a client whose requests the kernel does not send at
once, its server (which prints its port), or both.

nagle: each request is written in two small pieces, and the server answers when it has both. The
second waits for the first to be acknowledged; the server's kernel delays that, hoping for an answer
to send along. nodelay: the same, but it is sent at once (TCP_NODELAY).

window: each request is more than the server has room for, and the server takes its time.
"""

import os
import socket
import sys
import time

PIECE = b"x" * 10
LARGE = b"x" * 300_000
NAP_S = 0.02


def take(connection, count):
    while count > 0:
        got = connection.recv(count)
        if not got:
            return False
        count -= len(got)
    return True


def serve(listener, what):
    connection, _ = listener.accept()
    request = len(LARGE) if what == "window" else 2 * len(PIECE)
    while True:
        if what == "window":
            time.sleep(NAP_S)
        if not take(connection, request):
            return
        connection.sendall(PIECE)


def listen(what):
    listener = socket.socket()
    if what == "window":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def ask(what, rounds, port):
    client = socket.socket()
    if what == "window":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(LARGE))
    if what == "nodelay":
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.connect(("127.0.0.1", port))
    for _ in range(rounds):
        if what == "window":
            client.sendall(LARGE)
        else:
            client.send(PIECE)
            client.send(PIECE)
        take(client, len(PIECE))
    client.close()


def main():
    what, rounds, role = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if role and role[0] != "serve":
        ask(what, rounds, int(role[0]))
        return
    listener = listen(what)
    port = listener.getsockname()[1]
    if role:
        print(port, flush=True)
        serve(listener, what)
        return
    server = os.fork()
    if server == 0:
        serve(listener, what)
        os._exit(0)
    ask(what, rounds, port)
    os.waitpid(server, 0)


main()
