"""CPython with a thread for each connection: threads.py PORT LOG BACKEND, until SIGTERM. See steps.py."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from steps import ANSWER, PORT, Threads, write_notes_at_end

STEPS = Threads()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        STEPS.carry_out(self.path)
        self.wfile.write(ANSWER)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


write_notes_at_end()
Server(("127.0.0.1", PORT), Handler).serve_forever()
