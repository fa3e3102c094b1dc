"""An HTTP/1.1 server and its client, each a process, both of Python's library.

    http1_pair.py ROUNDS

Each round, on one connection, has answers with a body of known length, chunked, without any, the answer
to HEAD, and requests with bodies. At the end come an answer that ends with its connection, and twenty
requests sent at once. The client prints how many requests of each kind had their answer.
"""

import collections
import http.client
import http.server
import os
import signal
import socket
import sys

PIPELINED = 20


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, length):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self):
        if self.path.startswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(5):
                self.wfile.write(b"%x\r\n%s\r\n" % (1000, b"y" * 1000))
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/nothing":
            self.send_response(204)
            self.end_headers()
        elif self.path == "/close":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"z" * 5000)
            self.close_connection = True
        else:
            length = 1_000_000 if self.path == "/large" else 100
            self.answer(200, length)
            self.wfile.write(b"x" * length)

    def do_HEAD(self):
        self.answer(200, 5000)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(404 if self.path == "/missing" else 201, len(body))
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def ask(port, rounds):
    answered = collections.Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def request(method, path, body=None):
        connection.request(method, path, body)
        connection.getresponse().read()
        answered[method + " " + path.split("?")[0]] += 1

    for number in range(rounds):
        request("GET", "/known?secret=%d" % number)
        request("HEAD", "/known")
        request("GET", "/chunked")
        request("GET", "/nothing")
        request("POST", "/missing", b"q" * 2000)
        request("POST", "/body", b"q" * 200_000)
        if number % 8 == 0:
            request("GET", "/large")
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    request("GET", "/close")
    connection.close()

    at_once = socket.create_connection(("127.0.0.1", port))
    at_once.sendall(b"GET /known HTTP/1.1\r\nHost: here\r\n\r\n" * PIPELINED)
    got = b""
    while got.count(b"x" * 100) < PIPELINED:
        got += at_once.recv(1 << 16)
    answered["GET /known"] += PIPELINED
    at_once.close()
    for method, count in sorted(answered.items()):
        print(method, count)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        server.serve_forever()
    ask(server.server_address[1], int(sys.argv[1]))
    os.kill(process, signal.SIGTERM)
    os.waitpid(process, 0)


main()
