"""A server that writes each answer in two small writes, and a client whose kernel delays acknowledgements: by Nagle's
algorithm the second write waits for the acknowledgement of the first, unless the server has turned that off.

    split_pair.py PROTOCOL NAGLE ROUNDS

PROTOCOL is `http1` or `plain` (messages of four bytes), NAGLE `nagle` or `nodelay`. Alone, the server has the first
two for arguments, the client PROTOCOL and ROUNDS. The client prints, in nanoseconds, what a round takes on average, and
how much of that it was busy with itself, between an answer and its next question.
"""

import os
import select
import socket
import sys
import time

import ends

ANSWERS = {
    "http1": (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"done"),
    "plain": (b"head", b"body"),
}
QUESTIONS = {"http1": b"GET /split HTTP/1.1\r\nHost: here\r\n\r\n", "plain": b"ask!"}


def receive(connection, size):
    """So many bytes, or nothing at the end of the connection."""
    received = b""
    while len(received) < size:
        # The kernel forgets it when it has acknowledged at once.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        piece = connection.recv(size - len(received))
        if not piece:
            return b""
        received += piece
    return received


def serve(tell_port, stopped, protocol=None, nagle=None):
    if protocol is None:
        protocol, nagle = sys.argv[1:3]  # its client's, too
    listener = socket.create_server(("127.0.0.1", 0))
    os.write(tell_port, f"{listener.getsockname()[1]}\n".encode())
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(stopped, select.POLLIN | select.POLLHUP)
    while stopped not in [descriptor for descriptor, _ in waiting.poll()]:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nagle == "nodelay"))
        while receive(connection, len(QUESTIONS[protocol])):
            for part in ANSWERS[protocol]:
                connection.sendall(part)
        connection.close()


def ask(port, protocol, *rest):
    question, size = QUESTIONS[protocol], sum(map(len, ANSWERS[protocol]))
    rounds, own_ns = int(rest[-1]), 0
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        began_ns = answered_ns = time.monotonic_ns()
        for _ in range(rounds):
            own_ns += time.monotonic_ns() - answered_ns
            connection.sendall(question)
            assert receive(connection, size)
            answered_ns = time.monotonic_ns()
        print((answered_ns - began_ns) // rounds, own_ns // rounds, flush=True)


if __name__ == "__main__":
    ends.run(serve, ask)
