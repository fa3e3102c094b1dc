"""A connection for each request, opened without waiting: connect() says EINPROGRESS, poll() tells when it is there.

Usage: eager_pair.py COUNT
"""

import os
import selectors
import socket
import sys


def serve(listener, count):
    for _ in range(count):
        connection, _ = listener.accept()
        connection.sendall(connection.recv(100).upper())
        connection.close()


def until(client, event):
    with selectors.DefaultSelector() as selector:
        selector.register(client, event)
        selector.select()


def ask(address, number):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(address)
    until(client, selectors.EVENT_WRITE)
    client.send(b"hello %d" % number)
    until(client, selectors.EVENT_READ)
    assert client.recv(100) == b"HELLO %d" % number
    client.close()


def main():
    count = int(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        serve(listener, count)
        os._exit(0)
    for number in range(count):
        ask(listener.getsockname(), number)
    sys.exit(os.waitpid(server, 0)[1])


main()
