"""uvicorn, as pip installs it: asgi.py PORT LOG BACKEND, until SIGTERM. See steps.py. $LOOP is its
event loop: asyncio or uvloop."""

import os
import signal

import uvicorn
from steps import PORT, EventLoop, write_notes

HEADERS = [(b"content-length", b"2")]
loop = None


async def app(scope, receive, send):
    global loop
    if scope["type"] != "http":
        return
    loop = loop or EventLoop()
    await loop.carry_out(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b"ok"})


class Server(uvicorn.Server):
    def install_signal_handlers(self):
        pass

    def handle_exit(self, number, frame):
        if number == signal.SIGTERM:
            write_notes()


settings = uvicorn.Config(
    app,
    host="127.0.0.1",
    port=PORT,
    loop=os.environ["LOOP"],
    log_level="critical",
    lifespan="off",
    backlog=1024,
)
Server(settings).run()
