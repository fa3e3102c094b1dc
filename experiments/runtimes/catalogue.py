"""The servers of the study: how each is started, its requirements, and which processes to
capture."""

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
from cpu_clock import ran

HERE = Path(__file__).resolve().parent
SERVERS = HERE / "servers"
OWN_PYTHON = str(HERE / ".cache/venv/bin/python")
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


# CPU time in 0.2 s of a server that does nothing.
IDLE_NS = 5_000_000


@dataclass(frozen=True)
class Running:
    """A running server: processes to capture, its port, and the file of its notes, complete once it
    has ended."""

    pids: list[int]
    port: int
    notes: Path


@dataclass(frozen=True)
class Server:
    name: str
    command: tuple[str, ...] = ()
    # The captured process makes no steps itself: it waits for the server behind it.
    only_asks: bool = False
    # Causes that occur but are not logged: locks of the interpreter, or of the virtual machine,
    # which stops its threads with them.
    besides: tuple[str, ...] = ()
    # Whether it has a garbage collector that can be called.
    collects: bool = True
    # Whether it has a worker with a queue.
    hands: bool = True
    # Options of `rpcprobe attach`.
    options: tuple[str, ...] = ()
    # The archives that a program in Java needs, which has to be compiled.
    archives: tuple[str, ...] | None = None
    # Its timers count whole milliseconds of CLOCK_MONOTONIC (uv_timer_start() of libuv).
    timers_in_ms: bool = False
    # What it needs other than the command's first word: a program, or a file.
    needs: str = ""

    @property
    def is_sql(self):
        return self.name == "postgres"

    def lacks(self):
        """The missing requirement, or an empty string."""
        if self.is_sql:
            return "" if POSTGRES and Path(OWN_PYTHON).exists() else "postgresql"
        if self.name.startswith("nginx") and not shutil.which("nginx"):
            return "nginx"
        program = self.needs or self.command[0]
        missing = [path for path in self.archives or () if not Path(path).exists()]
        if missing:
            return missing[0]
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
        wait_until_idle(server.pid)
        yield Running([server.pid], port, notes)


def wait_until_idle(pid):
    """Virtual machines compile for seconds after they have begun."""
    for _ in range(SECONDS * 5):
        before_ns = ran([pid])
        time.sleep(0.2)
        if sum(ran([pid]).values()) - sum(before_ns.values()) < IDLE_NS:
            break


@contextlib.contextmanager
def nginx(server, directory, backend):
    """nginx before a server, which is captured, too, except with `only_asks`."""
    with alone(server.command, directory, backend) as behind:
        port, settings = free_port(), directory / "nginx.conf"
        text = (SERVERS / "nginx.conf").read_text()
        for name, value in (("directory", directory), ("behind", behind.port), ("port", port)):
            text = text.replace("{" + name + "}", str(value))
        settings.write_text(text)
        # nginx's worker runs as another user.
        directory.chmod(0o755)
        with process(["nginx", "-c", settings, "-p", directory]) as front:
            wait_for(port)
            pids = [front.pid, *children(front.pid)]
            yield Running(pids if server.only_asks else pids + behind.pids, port, behind.notes)


@contextlib.contextmanager
def postgres(directory):
    """A separate cluster, run by the package's user or else by nobody."""
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
    """All descendants of a process."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children(child)]
    return found


def java(name, program, *archives):
    archives = tuple(f"/usr/share/java/{archive}.jar" for archive in archives)
    command = ("java", "-Xmx256m", "-cp", ":".join((str(JAVA), *archives)), program)
    return Server(name, command, besides=("lock",), archives=archives, needs="javac")


JAVA = HERE / ".cache/java"
GO = (str(HERE / ".cache/server"),)
JETTY = ["servlet-api", *(f"jetty9-{part}" for part in ("server", "io", "util", "http"))]
TOMCAT = [
    f"tomcat10-{part}"
    for part in (
        *("annotations-api", "api", "catalina", "coyote", "el-api", "jaspic-api", "jni", "juli"),
        *("servlet-api", "util", "util-scan"),
    )
]
ASYNCIO = (sys.executable, str(SERVERS / "aio.py"))
NODE = ("node", "--expose-gc", str(SERVERS / "server.js"))
UVICORN = ("env", "LOOP=asyncio", OWN_PYTHON, str(SERVERS / "asgi.py"))
UVLOOP = ("env", "LOOP=uvloop", OWN_PYTHON, str(SERVERS / "asgi.py"))
TOKIO = (str(HERE / ".cache/tokio/release/server"),)
# Servers named `-tasks` have the runtime's tasks followed.
TASKS = ("--tasks",)
CATALOGUE = [
    Server("threads", (sys.executable, str(SERVERS / "threads.py")), besides=("lock",)),
    Server("gunicorn", (OWN_PYTHON, str(SERVERS / "wsgi.py")), besides=("lock",)),
    Server(
        "uwsgi",
        (sys.executable, str(SERVERS / "uwsgi.py")),
        besides=("lock",),
        needs="/usr/lib/uwsgi/plugins/python3_plugin.so",
    ),
    Server("asyncio", ASYNCIO),
    Server("asyncio-tasks", ASYNCIO, options=TASKS),
    Server("uvicorn", UVICORN, needs=OWN_PYTHON),
    Server("uvicorn-tasks", UVICORN, options=TASKS, needs=OWN_PYTHON),
    Server("uvloop", UVLOOP, timers_in_ms=True, needs=OWN_PYTHON),
    Server("uvloop-tasks", UVLOOP, options=TASKS, timers_in_ms=True, needs=OWN_PYTHON),
    Server("node", NODE, hands=False),
    Server("node-tasks", NODE, hands=False, options=TASKS),
    Server("go", GO),
    Server("go-tasks", GO, options=TASKS),
    Server("tokio", TOKIO, collects=False),
    Server("tokio-tasks", TOKIO, collects=False, options=TASKS),
    java("java", "Jdk"),
    java("jetty", "Jetty", *JETTY),
    java("tomcat", "Tomcat", *TOMCAT),
    Server("puma", ("ruby", str(SERVERS / "puma.rb")), besides=("lock",)),
    Server("nginx", GO),
    Server("nginx-tasks", GO, options=TASKS),
    Server("nginx-alone", GO, only_asks=True),
    Server("postgres", collects=False, hands=False),
]
