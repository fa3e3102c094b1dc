"""HTTP requests whose connections end in different ways. The client prints how long it had to do with each:
"PATH MICROSECONDS"."""

import os
import socket
import struct
import threading
import time

import ends

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PATHS = ["/plain", "/gives-up", "/drops", "/shuts-down", "/resets", "/half", "/passes-on"]


def answer(path, connection):
    if path == "/drops":
        time.sleep(0.05)
    elif path == "/shuts-down":
        time.sleep(0.05)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    elif path == "/resets":
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif path == "/passes-on":
        if os.fork() == 0:
            time.sleep(0.25)
            connection.sendall(ANSWER)
            os._exit(0)
    else:
        time.sleep(0.002 if path == "/plain" else 0.25)
        connection.sendall(ANSWER)


def serve_one(connection):
    with connection:
        if head := connection.recv(4096):
            answer(head.split()[1].decode(), connection)


def serve(tell, stopped):
    listener = socket.create_server(("127.0.0.1", 0))
    os.write(tell, b"%d\n" % listener.getsockname()[1])

    def accept():
        while True:
            threading.Thread(target=serve_one, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    os.read(stopped, 1)


def ask(port):
    for path in PATHS:
        with socket.create_connection(("127.0.0.1", int(port))) as connection:
            begin = time.monotonic()
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            if path == "/half":
                connection.shutdown(socket.SHUT_WR)
            if path == "/gives-up":
                connection.settimeout(0.06)
            try:
                connection.recv(4096)
            except OSError:
                pass
        print(path, round(1e6 * (time.monotonic() - begin)), flush=True)
    time.sleep(0.4)  # until the server has answered what was given up


ends.run(serve, ask)
