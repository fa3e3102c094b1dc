"""Shared code of studies that capture a server alone (attach), under HTTP/1 load on several
connections at once."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
# Longest wait for a server.
SECONDS = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(SECONDS * 10):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"nobody listens on port {port}")


@contextlib.contextmanager
def running(words, end=signal.SIGTERM, **options):
    """Runs a server for the duration of the block: its pid."""
    process = subprocess.Popen(words, **options)
    try:
        yield process.pid
    finally:
        process.send_signal(end)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def ask(port, paths):
    """Requests one path after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in paths:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in head.lower():
            while await reader.readuntil(b"\r\n") != b"0\r\n":
                pass
            await reader.readuntil(b"\r\n")
        else:
            await reader.readexactly(2)
    writer.close()


def load(port, connections):
    """Requests each connection's paths, on all connections at once."""

    async def all_of_them():
        await asyncio.gather(*(ask(port, paths) for paths in connections))

    asyncio.run(all_of_them())


@contextlib.contextmanager
def attached(pids, directory, *options, rpcprobe=RPCPROBE):
    """Captures these processes into `directory`/capture for the duration of the block."""
    words = [rpcprobe, "attach", *options, "-o", directory / "capture"]
    words += [word for pid in pids for word in ("-p", str(pid))]
    with open(directory / "said", "w") as said:
        probe = subprocess.Popen(words, stderr=said, stdout=subprocess.DEVNULL)
    try:
        for _ in range(SECONDS * 10):
            if "attached" in (directory / "said").read_text() or probe.poll() is not None:
                break
            time.sleep(0.1)
        yield
        time.sleep(0.2)
    finally:
        probe.send_signal(signal.SIGTERM)
        status = probe.wait(SECONDS * 5)
    if status != 0:
        sys.exit((directory / "said").read_text())


def build_go(sources, program):
    """Builds the program if Go is installed."""
    if shutil.which("go"):
        program.parent.mkdir(exist_ok=True)
        subprocess.run(["go", "build", "-o", program, "."], cwd=sources, check=True)


def build_rust(sources, target):
    """Builds the program into `target`/release if cargo is installed."""
    if shutil.which("cargo"):
        words = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target]
        subprocess.run(words, cwd=sources, check=True)


def build_java(sources, target, classes):
    """Compiles programs into the folder `target` if javac is installed."""
    if shutil.which("javac"):
        words = ["javac", "-nowarn", "-d", target, "-cp", classes, *sources]
        subprocess.run(words, check=True)
