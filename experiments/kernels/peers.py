#!/usr/bin/env python3
"""A server and a client in Python, over one connection.

peers.py serve-http|serve-bytes ADDRESS PORT             serves one connection; says "ready" when it listens
peers.py ask-http|ask-bytes ADDRESS PORT REQUESTS        asks so many times, one after another
"""

import socket
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer

BYTES = 64


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 4096  # headers and content in one packet

    def do_GET(self):
        content = b"answer\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object):
        pass


def serve_http(address: str, port: int):
    server = HTTPServer((address, port), Answer)
    print("ready", flush=True)
    server.handle_request()


def ask_http(address: str, port: int, requests: int):
    connection = HTTPConnection(address, port)
    for _ in range(requests):
        connection.request("GET", "/asked")
        answer = connection.getresponse()
        if answer.status != 200 or answer.read() != b"answer\n":
            sys.exit("peers.py: a wrong answer")
    connection.close()


def receive(connection: socket.socket) -> bytes:
    """A message, or less than one at the end of the stream."""
    message = b""
    while len(message) < BYTES and (part := connection.recv(BYTES - len(message))):
        message += part
    return message


def serve_bytes(address: str, port: int):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        connection, _ = listener.accept()
        with connection:
            while len(message := receive(connection)) == BYTES:
                connection.sendall(message)


def ask_bytes(address: str, port: int, requests: int):
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in range(requests):
            message = bytes([request % 256]) * BYTES
            connection.sendall(message)
            if receive(connection) != message:
                sys.exit("peers.py: a wrong answer")


def main():
    what, address, port, *requests = sys.argv[1:]
    does = {
        "serve-http": serve_http,
        "serve-bytes": serve_bytes,
        "ask-http": ask_http,
        "ask-bytes": ask_bytes,
    }[what]
    does(address, int(port), *map(int, requests))


if __name__ == "__main__":
    main()
