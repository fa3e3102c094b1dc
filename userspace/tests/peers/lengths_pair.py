"""Asks forked servers in protocols of messages with their length before them, each in a connection of its
own: lengths of 1, 2, 3, 4 and 8 bytes, in both byte orders, with and without a byte for the type, with the length
counted or not; payloads of zeros, of ones, of counting bytes, of lengths from 0 to 300.

    lengths_pair.py ROUNDS      prints how many messages had their answer
"""

import itertools
import os
import socket
import sys


def receive(connection, count):
    """Whether so many bytes came."""
    return len(connection.recv(count, socket.MSG_WAITALL)) == count


def messages():
    payloads = [b"", b"\0", b"\0" * 4, b"\0" * 5, b"\0" * 300, b"\1" * 13, bytes(range(200))]
    widths, orders, types, counted = (1, 2, 3, 4, 8), ("big", "little"), (None, 0, 4), (False, True)
    for width, order, kind, whole in itertools.product(widths, orders, types, counted):
        for payload in payloads:
            body = payload if kind is None else bytes([kind]) + payload
            length = len(body) + (width if whole else 0)
            if length < 256**width:
                yield length.to_bytes(width, order) + body


def main():
    rounds = int(sys.argv[1])
    answered = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for message in messages():
            if not message.strip(b"\0") and len(message) < 2:
                continue
            client = socket.create_connection(listener.getsockname())
            server = listener.accept()[0]
            if os.fork() == 0:
                client.close()
                while receive(server, len(message)):
                    server.sendall(message)
                os._exit(0)
            server.close()
            for _ in range(rounds):
                client.sendall(message)
                answered += receive(client, len(message))
            client.close()
            os.wait()
    print(answered)


main()
