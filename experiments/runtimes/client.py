"""The clients of an HTTP server: client.py PORT LOG CONNECTIONS REQUESTS STEPS...

Each connection makes its next request as soon as the previous one is answered; request n of
connection c asks for STEPS[(n + c) % ...]. Begins at the first line of its standard input, prints
`done` when all requests are answered, and ends at the next line, so that it can be captured as
well. LOG has a line for each request: ID,tid,begin,end in nanoseconds of CLOCK_MONOTONIC.
"""

import asyncio
import os
import sys
import time

PORT, LOG = int(sys.argv[1]), sys.argv[2]
CONNECTIONS, REQUESTS = map(int, sys.argv[3:5])
STEPS = sys.argv[5:]
NOTES = []


async def ask(connection):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    for number in range(REQUESTS):
        steps = STEPS[(number + connection) % len(STEPS)]
        begin_ns = time.monotonic_ns()
        writer.write(f"GET /w/{connection}_{number}/{steps} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"chunked" in head:
            while await reader.readuntil(b"\r\n") != b"0\r\n":
                pass
            await reader.readuntil(b"\r\n")
        else:
            await reader.readexactly(2)
        now_ns = time.monotonic_ns()
        NOTES.append(f"{connection}_{number},{os.getpid()},{begin_ns},{now_ns}\n")
    return writer


async def ask_on_all():
    kept = await asyncio.gather(*map(ask, range(CONNECTIONS)))
    print("done", flush=True)
    sys.stdin.readline()
    for writer in kept:
        writer.close()


print("ready", flush=True)
sys.stdin.readline()
asyncio.run(ask_on_all())
with open(LOG, "w") as file:
    file.writelines(NOTES)
