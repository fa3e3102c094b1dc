"""HTTP servers that ask another server, and that other server.

    front.py back PORT                                  the other server: answers after 0 to 5 ms
    front.py threads|asyncio proxy|calls PORT BEHIND    a server that asks the one at port BEHIND

All run until they are killed. `proxy` passes GET /r/N/... on unchanged. `calls` carries out the
steps of GET /r/N/STEPS: `sMS` sleeps, `c` asks the server behind for /b/N/CHILD, `p` asks it twice
at once (`threads`: one after the other). Both keep their connections to the server behind, and use
any that is free.
"""

import asyncio
import http.client
import queue
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def children(path):
    """The steps of a request: ('s', seconds), or ('c', paths to request at once)."""
    _, _, number, steps = path.split("/")
    child = 0
    for step in steps.split(","):
        if step[0] == "s":
            yield "s", int(step[1:]) / 1000
            continue
        count = 2 if step[0] == "p" else 1
        yield "c", [f"/b/{number}/{child + one}" for one in range(count)]
        child += count


def threads(kind, port, behind):
    idle = queue.LifoQueue()

    def ask(path):
        try:
            connection = idle.get_nowait()
        except queue.Empty:
            connection = http.client.HTTPConnection("127.0.0.1", behind)
        connection.request("GET", path)
        connection.getresponse().read()
        idle.put(connection)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            if kind == "proxy":
                ask(self.path)
            else:
                for step, what in children(self.path):
                    if step == "s":
                        time.sleep(what)
                    else:
                        for path in what:
                            ask(path)
            self.wfile.write(ANSWER)

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024
        daemon_threads = True

    Server(("127.0.0.1", port), Handler).serve_forever()


async def heads(reader):
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield head.split(b" ")[1].decode()


async def looped(kind, port, behind):
    idle = []

    async def ask(path):
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", behind)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        idle.append((reader, writer))

    async def handle(reader, writer):
        async for path in heads(reader):
            if kind == "proxy":
                await ask(path)
            else:
                for step, what in children(path):
                    if step == "s":
                        await asyncio.sleep(what)
                    else:
                        await asyncio.gather(*map(ask, what))
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def back(port):
    async def handle(reader, writer):
        async for path in heads(reader):
            await asyncio.sleep(hash(path) % 5000 / 1e6)
            writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main():
    match sys.argv[1:]:
        case ["back", port]:
            asyncio.run(back(int(port)))
        case ["threads", kind, port, behind]:
            threads(kind, int(port), int(behind))
        case ["asyncio", kind, port, behind]:
            asyncio.run(looped(kind, int(port), int(behind)))
        case _:
            sys.exit(__doc__)


main()
