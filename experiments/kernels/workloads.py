#!/usr/bin/env python3
"""Runs small workloads one after another, and records when each ran and how many requests it made.

workloads.py FOLDER [NAME...]

FOLDER/windows.json gets a list of {name, begin_ns, end_ns, requests} by CLOCK_MONOTONIC. A workload
that cannot run here has the reason in `skipped` instead, a failed workload in `failed`. Does not
use rpcprobe; needs root for file systems and network namespaces. Runs in guests, so it needs only
Python's own modules.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
TARGETS = TOP / "targets"
GROUND_TRUTH = TOP / "experiments" / "ground_truth"
INJECT = GROUND_TRUTH / "inject"
PORT = 18310
PATIENCE_S = 120
NETEM_DELAY_MS = 5
NETEM_LOSS_PERCENT = 5
SLEEP_MS = 20


class Skipped(Exception):
    """A requirement of the workload is missing."""


def run(*argv: object, **more: object) -> str:
    """Runs a program; returns its output, through a file: a pipe would be one more channel under
    the probe."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        more.setdefault("timeout", PATIENCE_S)
        done = subprocess.run([str(a) for a in argv], stdout=out, stderr=errors, **more)
        out.seek(0)
        errors.seek(0)
        if done.returncode != 0:
            why = errors.read().strip()
            raise RuntimeError(f"{argv[0]} ended with status {done.returncode}: {why}")
        return out.read()


def processor_of(program: str | Path) -> bytes:
    """The processor that an ELF file is built for (e_machine, elf(5))."""
    with open(program, "rb") as file:
        return file.read(20)[18:]


def present(*programs: str | Path):
    """Skips the workload if a program is not installed, or not built for the kernel's processor."""
    for program in programs:
        found = shutil.which(str(program))
        if not found:
            raise Skipped(f"{Path(program).name} is not there")
        if processor_of(found) != processor_of("/proc/self/exe"):
            raise Skipped(f"{Path(program).name} is not built for this processor")


@contextmanager
def served(*argv: object, ready: str, stop: int = signal.SIGTERM) -> Iterator[int]:
    """Runs a server; yields its process number once it has printed `ready` to standard output or
    error."""
    server = subprocess.Popen(
        [str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in server.stdout:
            if ready in line:
                break
        else:
            raise RuntimeError(f"{argv[0]} did not become ready")
        yield server.pid
    finally:
        server.send_signal(stop)
        server.stdout.close()
        server.wait(PATIENCE_S)


def frpc(mode: int) -> Callable[[Path], int]:
    def of(folder: Path) -> int:
        program, questions = TARGETS / "frpc" / "frpc", TARGETS / "frpc" / "expressions.txt"
        present(program)
        with questions.open() as lines:
            answers = run(program, "-m", mode, stdin=lines)
        if answers.count("ANSWER") != 300:
            raise RuntimeError(f"{answers.count('ANSWER')} answers instead of 300")
        return 300

    return of


def echo(*options: object, requests: int = 100) -> Callable[[Path], int]:
    def of(folder: Path) -> int:
        program = TARGETS / "echo" / "echo"
        present(program)
        run(program, *options, "-n", requests)
        return requests

    return of


def injected(case: str, transport: str, requests: int = 60) -> Callable[[Path], int]:
    """A server that spends a known time on a known cause; its log is FOLDER/CASE.csv."""

    def of(folder: Path) -> int:
        present(INJECT)
        log = folder / f"{case}.csv"
        run(INJECT, "-n", requests, "-t", transport, "-d", folder, "-l", log, case)
        return requests

    return of


@contextmanager
def loop_device() -> Iterator[str]:
    """A loop device on the guest's slow disk, else on a file; with direct I/O if possible."""
    image = Path("/tmp/rpcprobe-kernels.image")
    slow = Path("/dev/vda")
    if slow.exists() and "VMTEST" in os.environ:
        backing = slow
    else:
        backing = image
        with image.open("wb") as file:
            file.truncate(64 << 20)
    try:
        device = run("losetup", "--find", "--show", "--direct-io=on", backing).strip()
        try:
            yield device
        finally:
            run("losetup", "--detach", device)
    finally:
        image.unlink(missing_ok=True)


def journal(folder: Path) -> int:
    """Appends with fsync() on a separate ext4, so that each request waits for a commit."""
    present(INJECT, "mkfs.ext4")
    place = Path("/tmp/rpcprobe-kernels")
    place.mkdir(exist_ok=True)
    try:
        with loop_device() as device:
            run("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", device)
            run("mount", "-t", "ext4", device, place)
            try:
                run(INJECT, "-n", 60, "-d", place, "-l", folder / "fsync.csv", "fsync")
            finally:
                run("umount", place)
    finally:
        place.rmdir()
    return 60


def ground_truth(folder: Path) -> int:
    """Runs the cases of ../ground_truth, those of $TRUTHS or all, which leave logs."""
    present(INJECT, "mkfs.ext4")
    names = os.environ.get("TRUTHS", "").split()
    injects = (GROUND_TRUTH / "reduced.py", "inject", folder / "ground_truth", *names)
    run(sys.executable, *injects, timeout=600)
    return 0


def http1(folder: Path) -> int:
    peers = HERE / "peers.py"
    with served(sys.executable, peers, "serve-http", "127.0.0.1", PORT, ready="ready"):
        run(sys.executable, peers, "ask-http", "127.0.0.1", PORT, 50)
    return 50


def sendfile(folder: Path) -> int:
    """HTTP/1 with a file as the answer, which is larger than a socket's buffer."""
    peers, content = HERE / "peers.py", folder / "content"
    content.write_bytes(bytes(300_000))
    with served(sys.executable, peers, "serve-http", "127.0.0.1", PORT, content, ready="ready"):
        run(sys.executable, peers, "ask-http", "127.0.0.1", PORT, 20)
    return 20


def sleep(folder: Path) -> int:
    """A server that sleeps before each answer."""
    peers = HERE / "peers.py"
    options = ("serve-bytes", "127.0.0.1", PORT, SLEEP_MS)
    with served(sys.executable, peers, *options, ready="ready"):
        run(sys.executable, peers, "ask-bytes", "127.0.0.1", PORT, 50)
    return 50


def growing(folder: Path) -> int:
    """A server with two threads that doubles its table of descriptors before each answer."""
    peers = HERE / "peers.py"
    options = ("serve-growing", "127.0.0.1", PORT, folder / "growing.csv")
    with served(sys.executable, peers, *options, ready="ready"):
        run(sys.executable, peers, "ask-bytes", "127.0.0.1", PORT, 8)
    return 8


def grpc(folder: Path) -> int:
    server, client = TARGETS / "greeter" / "greeter_server", TARGETS / "greeter" / "greeter_client"
    present(server, client)
    with served(server, "--port", PORT, ready="ready"):
        run(client, "--server", f"127.0.0.1:{PORT}", "--requests", 49)
    return 50  # the first call, with the connection's setup, and the others


def oncrpc(transport: str) -> Callable[[Path], int]:
    def of(folder: Path) -> int:
        server, client = TARGETS / "flexcache" / "objserver", TARGETS / "flexcache" / "flexclient"
        present(server, client)
        with served(server, "--port", PORT, ready="ready"):
            options = ("--method", "null", "--transport", transport, "--requests", 50)
            run(client, "--server", f"127.0.0.1:{PORT}", *options)
        return 50

    return of


def redis(folder: Path) -> int:
    present("redis-server", "redis-benchmark")
    options = ("--port", PORT, "--save", "", "--daemonize", "no")
    with served("redis-server", *options, ready="Ready to accept connections"):
        run("redis-benchmark", "-p", PORT, "-c", 1, "-n", 50, "-t", "get")
    return 52  # the client first reads two settings


def within(namespace: str, *argv: object) -> list[object]:
    return ["nsenter", f"--net=/run/netns/{namespace}", "--", *argv]


LEFT, RIGHT, RIGHT_ADDRESS = "rpk-left", "rpk-right", "10.78.0.2"


@contextmanager
def two_namespaces(*of_netem: str) -> Iterator[None]:
    """Two network namespaces, joined by a link with netem (with these options) at both ends."""
    present("ip", "tc", "nsenter")
    left, right = LEFT, RIGHT
    try:
        for name in (left, right):
            run("ip", "netns", "add", name)
        run("ip", "-n", left, "link", "add", "v0", "type", "veth", "peer", "v1", "netns", right)
        for name, device, address in ((left, "v0", "10.78.0.1"), (right, "v1", "10.78.0.2")):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
            try:
                run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "netem", *of_netem)
            except RuntimeError as why:
                raise Skipped(f"no netem: {why}") from why
        yield
    finally:
        for name in (left, right):
            if Path("/run/netns", name).exists():
                run("ip", "netns", "delete", name)


def between_namespaces(what: str, *options: object):
    """Runs peers.py serve-WHAT in one namespace, ask-WHAT in the other."""
    peers = (sys.executable, HERE / "peers.py")
    with served(*within(RIGHT, *peers, f"serve-{what}", RIGHT_ADDRESS, PORT), ready="ready"):
        run(*within(LEFT, *peers, f"ask-{what}", RIGHT_ADDRESS, PORT, *options))


def delayed(folder: Path) -> int:
    """Each message waits 5 ms in its sender's queue, in both directions."""
    with two_namespaces("delay", f"{NETEM_DELAY_MS}ms"):
        between_namespaces("bytes", 50)
    return 50


def lossy(folder: Path) -> int:
    """The sender's queue drops one in twenty messages, in both directions."""
    with two_namespaces("loss", f"{NETEM_LOSS_PERCENT}%"):
        between_namespaces("counting", 150, folder / "loss.csv")
        dropped = {}
        for name, device in ((LEFT, "v0"), (RIGHT, "v1")):
            shown = json.loads(run("tc", "-n", name, "-s", "-j", "qdisc", "show", "dev", device))
            dropped[name] = shown[0]["drops"]
        (folder / "dropped.json").write_text(json.dumps(dropped))
    return 151


WORKLOADS: dict[str, Callable[[Path], int]] = {
    "frpc, pipes": frpc(3),
    "frpc, futex": frpc(5),
    "frpc, Unix socket": frpc(6),
    "echo, TCP": echo("-t", "tcp"),
    "echo, TCP, epoll": echo("-t", "tcp", "-e"),
    "echo, TCP, a connection each": echo("-t", "tcp", "-p", requests=30),
    "echo, IPv6": echo("-t", "tcp6"),
    "echo, TCP, 1 MB": echo("-t", "tcp", "-b", 1_000_000, requests=5),
    "echo, Unix": echo("-t", "unix"),
    "echo, Unix, 1 MB": echo("-t", "unix", "-b", 1_000_000, requests=20),
    "echo, socket pair": echo("-t", "pair"),
    "echo, UDP": echo("-t", "udp"),
    "echo, UDP, IPv6": echo("-t", "udp6"),
    "echo, Unix datagrams": echo("-t", "unixgram"),
    "echo, Unix, SEQPACKET": echo("-t", "seqpacket"),
    "HTTP/1": http1,
    "HTTP/1, sendfile": sendfile,
    "gRPC": grpc,
    "ONC RPC, UDP": oncrpc("udp"),
    "ONC RPC, TCP": oncrpc("tcp"),
    "Redis": redis,
    "computing": injected("user_spin", "unix"),
    "a sleep, 20 ms": sleep,
    "a mutex": injected("mutex", "pipe"),
    "fsync, ext4": journal,
    "more descriptors": growing,
    "netem, 5 ms": delayed,
    "netem, loss": lossy,
    "ground truth": ground_truth,
}


def main() -> int:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(WORKLOADS)
    windows = []
    for name in names:
        window: dict[str, object] = {"name": name, "begin_ns": time.monotonic_ns()}
        try:
            window["requests"] = WORKLOADS[name](folder)
        except Skipped as why:
            window["skipped"] = str(why)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as why:
            window["failed"] = str(why)
        window["end_ns"] = time.monotonic_ns()
        windows.append(window)
    (folder / "windows.json").write_text(json.dumps(windows))
    return 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("workloads.py: needs root")
    sys.exit(main())
