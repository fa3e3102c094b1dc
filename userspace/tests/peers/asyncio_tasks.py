"""A server whose tasks wait for different things, as goroutines.go: it says its port, and serves until its standard input
ends. asyncio_tasks.py [uvloop]: on asyncio's own event loop, or on uvloop."""

import asyncio
import sys
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


async def work():
    """What a handler hands to another task."""
    end = time.monotonic() + 0.001
    while time.monotonic() < end:
        pass


async def main():
    lock = asyncio.Lock()

    async def answer(reader, writer):
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            if b"/sleep" in line:
                await asyncio.sleep(0.003)
            elif b"/lock" in line:
                async with lock:
                    await asyncio.sleep(0.001)
            else:
                await asyncio.create_task(work())
            writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if sys.argv[1:] == ["uvloop"]:
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
