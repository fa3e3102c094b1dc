"""A front end in one event loop that asks the back end on few connections, which lie in a queue. Notes how long each
request waited for one: its path and nanoseconds. Arguments: its port, the back end's, number of connections, file."""

import asyncio
import sys
import time

port, behind, size = map(int, sys.argv[1:4])
notes = open(sys.argv[4], "w")


async def hear(reader):
    """Reads an answer that has a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    await reader.readexactly(int(length.split(b":")[1]))


async def main():
    pool = asyncio.LifoQueue()
    for _ in range(size):
        pool.put_nowait(await asyncio.open_connection("127.0.0.1", behind))

    async def serve(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split()[1].decode()
            begun_ns = time.monotonic_ns()
            connection = await pool.get()
            waited_ns = time.monotonic_ns() - begun_ns
            answers, questions = connection
            questions.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await hear(answers)
            pool.put_nowait(connection)
            notes.write(f"{path} {waited_ns}\n")
            notes.flush()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def answer(reader, writer):
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


asyncio.run(main())
