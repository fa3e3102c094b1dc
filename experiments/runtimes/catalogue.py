"""The servers of the study: how each is started, what it needs, and which of its processes a capture is of."""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from attached import SECONDS, free_port, wait_for

HERE = Path(__file__).resolve().parent
SERVERS = HERE / "servers"
OWN_PYTHON = str(HERE / ".cache/venv/bin/python")
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


@dataclass(frozen=True)
class Running:
    """A server that runs: processes to capture, its port, and the file of its notes, which is whole when it has ended."""

    pids: list[int]
    port: int
    notes: Path


@dataclass(frozen=True)
class Server:
    name: str
    command: tuple[str, ...] = ()
    # Its process alone has no step of its own: it waits for the server behind it.
    only_asks: bool = False
    # Causes that it has and nobody logs: locks of the interpreter, or of the virtual machine, which stops its threads by them.
    besides: tuple[str, ...] = ()
    # Whether it has a collector that can be called.
    collects: bool = True
    # Whether it has a worker with a queue.
    hands: bool = True
    # Of `rpcprobe attach`.
    options: tuple[str, ...] = ()

    @property
    def is_sql(self):
        return self.name == "postgres"

    def lacks(self):
        """What it needs and is not there; empty if nothing."""
        if self.is_sql:
            return "" if POSTGRES and Path(OWN_PYTHON).exists() else "postgresql"
        if self.name.startswith("nginx") and not shutil.which("nginx"):
            return "nginx"
        program = self.command[0]
        return "" if shutil.which(program) or Path(program).exists() else program

    @contextlib.contextmanager
    def running(self, directory, backend):
        if self.is_sql:
            start = postgres(directory)
        elif self.name.startswith("nginx"):
            start = nginx(self, directory, backend)
        else:
            start = alone(self.command, directory, backend)
        with start as running:
            yield running


@contextlib.contextmanager
def process(words, **how):
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL, **how)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(SECONDS)


@contextlib.contextmanager
def alone(command, directory, backend):
    port, notes = free_port(), directory / "notes"
    with process([*command, str(port), str(notes), str(backend)]) as server:
        wait_for(port)
        yield Running([server.pid], port, notes)


@contextlib.contextmanager
def nginx(server, directory, backend):
    """The server behind it is captured, too, but for `only_asks`."""
    with alone(server.command, directory, backend) as behind:
        port, settings = free_port(), directory / "nginx.conf"
        text = (SERVERS / "nginx.conf").read_text()
        for name, value in (("directory", directory), ("behind", behind.port), ("port", port)):
            text = text.replace("{" + name + "}", str(value))
        settings.write_text(text)
        # Its worker is another user's.
        directory.chmod(0o755)
        with process(["nginx", "-c", settings, "-p", directory]) as front:
            wait_for(port)
            pids = [front.pid, *children(front.pid)]
            yield Running(pids if server.only_asks else pids + behind.pids, port, behind.notes)


@contextlib.contextmanager
def postgres(directory):
    """A cluster of its own, by the user that the package made, or else nobody."""
    try:
        user = pwd.getpwnam("postgres").pw_name
    except KeyError:
        user = "nobody"
    bin_, data, port = POSTGRES[-1].parent, directory / "data", free_port()
    directory.chmod(0o755)
    data.mkdir()
    shutil.chown(data, user)
    as_user = {"user": user, "env": {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = [bin_ / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run(words, check=True, cwd="/", **quiet, **as_user)
    words = [bin_ / "postgres", "-D", data, "-p", str(port), "-k", data]
    words += ["-c", "max_connections=200", "-c", "fsync=off"]
    with process(words, cwd="/", stderr=subprocess.DEVNULL, **as_user) as server:
        wait_for(port)
        psql = [bin_ / "psql", "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
        for _ in range(SECONDS * 10):
            made = subprocess.run([*psql, "-f", SERVERS / "step.sql"], **quiet)
            if made.returncode == 0:
                break
            time.sleep(0.1)
        yield Running([server.pid], port, directory / "asked.steps")


def children(pid):
    """Its processes, and theirs."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children(child)]
    return found


GO = (str(HERE / ".cache/server"),)
ASYNCIO = (sys.executable, str(SERVERS / "aio.py"))
NODE = ("node", "--expose-gc", str(SERVERS / "server.js"))
UVICORN = (OWN_PYTHON, str(SERVERS / "asgi.py"))
TOKIO = (str(HERE / ".cache/tokio/release/server"),)
# A name with `-tasks`: the runtime's tasks are followed.
TASKS = ("--tasks",)
CATALOGUE = [
    Server("threads", (sys.executable, str(SERVERS / "threads.py")), besides=("lock",)),
    Server("asyncio", ASYNCIO),
    Server("asyncio-tasks", ASYNCIO, options=TASKS),
    Server("uvicorn", UVICORN),
    Server("uvicorn-tasks", UVICORN, options=TASKS),
    Server("node", NODE, hands=False),
    Server("node-tasks", NODE, hands=False, options=TASKS),
    Server("go", GO),
    Server("go-tasks", GO, options=TASKS),
    Server("tokio", TOKIO, collects=False),
    Server("tokio-tasks", TOKIO, collects=False, options=TASKS),
    Server("java", ("java", "-Xmx256m", str(SERVERS / "Server.java")), besides=("lock",)),
    Server("nginx", GO),
    Server("nginx-tasks", GO, options=TASKS),
    Server("nginx-alone", GO, only_asks=True),
    Server("postgres", collects=False, hands=False),
]
