"""An HTTP server whose requests say what they are to do, and that notes what they did.

    server.py threads|asyncio PORT LOG    until SIGTERM

GET /w/ID/OP=MS,...: `sleep`, `burn` (CPU time), `lock` (sleeps with a lock that all requests share). A line of LOG for each:
ID,what,MS,begin,end in nanoseconds of CLOCK_MONOTONIC; `lockwait` for the wait before a lock.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NOTES = []
LOCK = threading.Lock()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def note(number, what, ms, begin_ns):
    now_ns = time.monotonic_ns()
    NOTES.append(f"{number},{what},{ms},{begin_ns},{now_ns}\n")
    return now_ns


def burn(ms):
    end_ns = time.monotonic_ns() + ms * 1_000_000
    while time.monotonic_ns() < end_ns:
        pass


def parsed(path):
    _, _, number, steps = path.split("/")
    return number, [(step.split("=")[0], int(step.split("=")[1])) for step in steps.split(",")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        number, steps = parsed(self.path)
        for step, ms in steps:
            begin_ns = time.monotonic_ns()
            if step == "burn":
                burn(ms)
            elif step == "sleep":
                time.sleep(ms / 1000)
            else:
                with LOCK:
                    begin_ns = note(number, "lockwait", 0, begin_ns)
                    time.sleep(ms / 1000)
            note(number, step, ms, begin_ns)
        self.wfile.write(ANSWER)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


async def serve(port):
    lock = asyncio.Lock()

    async def handle(reader, writer):
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            number, steps = parsed(head.split(b" ")[1].decode())
            for step, ms in steps:
                begin_ns = time.monotonic_ns()
                if step == "burn":
                    burn(ms)
                elif step == "sleep":
                    await asyncio.sleep(ms / 1000)
                else:
                    async with lock:
                        begin_ns = note(number, "lockwait", 0, begin_ns)
                        await asyncio.sleep(ms / 1000)
                note(number, step, ms, begin_ns)
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main():
    kind, port, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]

    def end(*_):
        with open(log, "w") as file:
            file.writelines(NOTES)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if kind == "threads":
        Server(("127.0.0.1", port), Handler).serve_forever()
    else:
        asyncio.run(serve(port))


main()
