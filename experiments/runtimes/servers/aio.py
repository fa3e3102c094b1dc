"""CPython's asyncio, with its own streams: aio.py PORT LOG BACKEND, until SIGTERM. See steps.py."""

import asyncio

from steps import ANSWER, PORT, EventLoop, write_notes_at_end


async def serve():
    loop = EventLoop()

    async def handle(reader, writer):
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            await loop.carry_out(head.split(b" ")[1].decode())
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", PORT, backlog=1024)
    await server.serve_forever()


write_notes_at_end()
asyncio.run(serve())
