"""held_pair.py nagle|nodelay|window|answers ROUNDS [serve|PORT [ADDRESS]]: a client whose requests the
kernel does not send at once, its server (which prints its port), or both.

nagle: each request is written in two small pieces, and the server answers when it has both. The
second waits for the first to be acknowledged; the server's kernel delays that, hoping for an answer
to send along. nodelay: the same, but it is sent at once (TCP_NODELAY).

window: each request is more than the server has room for, and the server takes its time.

answers: as nagle, but it is each answer that is written in two pieces.
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
    request = {"window": len(LARGE), "answers": len(PIECE)}.get(what, 2 * len(PIECE))
    while True:
        if what == "window":
            time.sleep(NAP_S)
        if not take(connection, request):
            return
        connection.send(PIECE)
        if what == "answers":
            connection.send(PIECE)


def listen(what, address):
    listener = socket.socket()
    if what == "window":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    listener.bind((address, 0))
    listener.listen()
    return listener


def ask(what, rounds, address):
    client = socket.socket()
    if what == "window":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(LARGE))
    if what == "nodelay":
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.connect(address)
    for _ in range(rounds):
        if what == "window":
            client.sendall(LARGE)
        else:
            client.send(PIECE)
            if what != "answers":
                client.send(PIECE)
        take(client, 2 * len(PIECE) if what == "answers" else len(PIECE))
    client.close()


def main():
    what, rounds, role = sys.argv[1], int(sys.argv[2]), sys.argv[3:4]
    address = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"
    if role and role[0] != "serve":
        ask(what, rounds, (address, int(role[0])))
        return
    listener = listen(what, address)
    if role:
        print(listener.getsockname()[1], flush=True)
        serve(listener, what)
        return
    server = os.fork()
    if server == 0:
        serve(listener, what)
        os._exit(0)
    ask(what, rounds, listener.getsockname())
    os.waitpid(server, 0)


main()
