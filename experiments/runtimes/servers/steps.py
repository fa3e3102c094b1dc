"""Shared code of the Python servers: the steps that a request asks for, and notes of each step's
begin and end.

GET /w/ID/STEP=N,...: `sleep` N ms, `burn` N ms of CPU time, `lock` (sleeps N ms while holding a
lock that all requests share), `call` (asks the back end for /b/ID/N, which answers after N ms),
`collect` (N garbage collections), `hand` (a worker with a queue, which does one job after the
other, spends N ms of CPU time). LOG has a line for each step: ID,what,N,begin,end in nanoseconds of
CLOCK_MONOTONIC; `lockwait` is the wait for the lock, `handwait` the time in the worker's queue.
"""

import asyncio
import gc
import http.client
import os
import queue
import signal
import sys
import threading
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# Objects for a collection to scan, which takes some milliseconds.
KEPT = [[number] for number in range(50_000)]
# Collections run only when a request asks for one.
gc.disable()

PORT, LOG, BACKEND = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
NOTES = []


def note(number, what, amount, begin_ns):
    now_ns = time.monotonic_ns()
    NOTES.append(f"{number},{what},{amount},{begin_ns},{now_ns}\n")
    return now_ns


def burn(ms):
    end_ns = time.monotonic_ns() + ms * 1_000_000
    while time.monotonic_ns() < end_ns:
        pass


def collect(times):
    for _ in range(times):
        gc.collect()


def parsed(path):
    _, _, number, steps = path.split("/")
    return number, [(step.split("=")[0], int(step.split("=")[1])) for step in steps.split(",")]


def question(number, ms):
    return f"GET /b/{number}/{ms} HTTP/1.1\r\nHost: b\r\n\r\n".encode()


def write_notes(*_):
    with open(LOG, "w") as file:
        file.writelines(NOTES)
    os._exit(0)


def write_notes_at_end():
    signal.signal(signal.SIGTERM, write_notes)


class Threads:
    """Runs the steps in the thread that calls."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kept = threading.local()
        self.queue = queue.SimpleQueue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        """Does the requests' jobs one after the other."""
        while True:
            number, amount, begin_ns, done = self.queue.get()
            begin_ns = note(number, "handwait", 0, begin_ns)
            burn(amount)
            note(number, "hand", amount, begin_ns)
            done.put(None)

    def hand(self, number, amount, begin_ns):
        done = queue.SimpleQueue()
        self.queue.put((number, amount, begin_ns, done))
        done.get()

    def call(self, number, ms):
        if not hasattr(self.kept, "backend"):
            self.kept.backend = http.client.HTTPConnection("127.0.0.1", BACKEND)
        self.kept.backend.request("GET", f"/b/{number}/{ms}")
        self.kept.backend.getresponse().read()

    def carry_out(self, path):
        number, steps = parsed(path)
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
                self.hand(number, amount, begin_ns)
                continue
            else:
                with self.lock:
                    begin_ns = note(number, "lockwait", 0, begin_ns)
                    time.sleep(amount / 1000)
            note(number, step, amount, begin_ns)


class EventLoop:
    """Runs the steps in an event loop."""

    def __init__(self):
        self.lock = asyncio.Lock()
        self.kept = []
        self.queue = asyncio.Queue()
        self.worker = asyncio.get_running_loop().create_task(self.work())

    async def work(self):
        """Does the requests' jobs one after the other."""
        while True:
            number, amount, begin_ns, done = await self.queue.get()
            begin_ns = note(number, "handwait", 0, begin_ns)
            burn(amount)
            note(number, "hand", amount, begin_ns)
            done.set_result(None)

    async def hand(self, number, amount, begin_ns):
        done = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((number, amount, begin_ns, done))
        await done

    async def call(self, number, ms):
        reader, writer = (
            self.kept.pop() if self.kept else await asyncio.open_connection("127.0.0.1", BACKEND)
        )
        writer.write(question(number, ms))
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        self.kept.append((reader, writer))

    async def carry_out(self, path):
        number, steps = parsed(path)
        for step, amount in steps:
            begin_ns = time.monotonic_ns()
            if step == "burn":
                burn(amount)
            elif step == "collect":
                collect(amount)
            elif step == "sleep":
                await asyncio.sleep(amount / 1000)
            elif step == "call":
                await self.call(number, amount)
            elif step == "hand":
                await self.hand(number, amount, begin_ns)
                continue
            else:
                async with self.lock:
                    begin_ns = note(number, "lockwait", 0, begin_ns)
                    await asyncio.sleep(amount / 1000)
            note(number, step, amount, begin_ns)
