"""A front end with a thread per connection that asks the back end on few connections, which lie in a queue. Notes how
long each request waited for one: its path and nanoseconds. Arguments: its port, the back end's, number of connections,
file."""

import http.client
import http.server
import queue
import sys
import time

port, behind, size = map(int, sys.argv[1:4])
notes = open(sys.argv[4], "w")
pool = queue.LifoQueue()
for _ in range(size):
    pool.put(http.client.HTTPConnection("127.0.0.1", behind))


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        begun_ns = time.monotonic_ns()
        connection = pool.get()
        waited_ns = time.monotonic_ns() - begun_ns
        try:
            connection.request("GET", self.path)
            connection.getresponse().read()
        finally:
            pool.put(connection)
        notes.write(f"{self.path} {waited_ns}\n")
        notes.flush()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


Server(("127.0.0.1", port), Front).serve_forever()
