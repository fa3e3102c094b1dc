"""CPython with a thread for each connection: threads.py PORT LOG BACKEND, until SIGTERM. See steps.py."""

import http.client
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from steps import ANSWER, BACKEND, PORT, burn, collect, note, parsed, write_notes_at_end

LOCK = threading.Lock()
HANDED = queue.SimpleQueue()


def work():
    """Does the requests' jobs one after the other."""
    while True:
        number, amount, begin_ns, done = HANDED.get()
        begin_ns = note(number, "handwait", 0, begin_ns)
        burn(amount)
        note(number, "hand", amount, begin_ns)
        done.put(None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend = None

    def log_message(self, *_):
        pass

    def call(self, number, ms):
        if self.backend is None:
            self.backend = http.client.HTTPConnection("127.0.0.1", BACKEND)
        self.backend.request("GET", f"/b/{number}/{ms}")
        self.backend.getresponse().read()

    def do_GET(self):
        number, steps = parsed(self.path)
        for step, amount in steps:
            begin_ns = time.monotonic_ns()
            if step == "burn":
                burn(amount)
            elif step == "collect":
                collect(amount)
            elif step == "sleep":
                time.sleep(amount / 1000)
            elif step == "call":
                self.call(number, amount)
            elif step == "hand":
                done = queue.SimpleQueue()
                HANDED.put((number, amount, begin_ns, done))
                done.get()
                continue
            else:
                with LOCK:
                    begin_ns = note(number, "lockwait", 0, begin_ns)
                    time.sleep(amount / 1000)
            note(number, step, amount, begin_ns)
        self.wfile.write(ANSWER)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


write_notes_at_end()
threading.Thread(target=work, daemon=True).start()
Server(("127.0.0.1", PORT), Handler).serve_forever()
