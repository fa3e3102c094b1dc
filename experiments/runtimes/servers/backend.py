"""The back end of `call`: backend.py PORT LOG, until SIGTERM. Answers /b/ID/MS after MS
milliseconds. Its notes have the format of steps.py: a server waits from the arrival of the question
here until the answer is sent.
"""

import asyncio
import os
import signal
import sys
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NOTES = []


async def handle(reader, writer):
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        begin_ns = time.monotonic_ns()
        _, _, number, ms = head.split(b" ")[1].decode().split("/")
        await asyncio.sleep(int(ms) / 1000)
        NOTES.append(f"{number},call,{ms},{begin_ns},{time.monotonic_ns()}\n")
        writer.write(ANSWER)
    writer.close()


async def serve(port):
    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def end(*_):
    with open(sys.argv[2], "w") as file:
        file.writelines(NOTES)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
asyncio.run(serve(int(sys.argv[1])))
