"""Requests of 100 kB over a shaped link: transfer.py serve | ask HOST TIMES."""

import socket
import sys

BYTES = 100_000
PORT = 7706

if sys.argv[1] == "serve":
    with socket.create_server(("", PORT)) as listener:
        connection, _ = listener.accept()
        with connection:
            while left := BYTES:
                while left and (data := connection.recv(left)):
                    left -= len(data)
                if left:
                    break
                connection.sendall(b"done")
else:
    with socket.create_connection((sys.argv[2], PORT)) as connection:
        for _ in range(int(sys.argv[3])):
            connection.sendall(b"x" * BYTES)
            connection.recv(4)
