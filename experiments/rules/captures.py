#!/usr/bin/env python3
"""Take the captures that rules.rs studies, one for each case, into a directory.

A case is a script that starts its server and its client, both traced, or, for captures of one end,
a server to which rpcprobe attaches and a client beside it. Cases whose programs are missing are
skipped, with a message. Needs root. Usage: captures.py DIRECTORY [CASE...]; rpcprobe from $RPCPROBE
or PATH. Prints the captures taken. Exit status: 0 if every case was taken or skipped, else 1.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RPCPROBE = os.environ.get("RPCPROBE") or "rpcprobe"
HERE = Path(__file__).resolve().parent
TARGETS = HERE.parents[1] / "targets"
# Longest time for one case.
MOST_SECONDS = 180
READY = """
ready() {
    for _ in $(seq 200); do
        (exec 3<>/dev/tcp/${2:-127.0.0.1}/$1) 2> /dev/null && return
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2; exit 1
}
"""


@dataclass(frozen=True)
class Case:
    """`script` runs in a separate folder, with $HERE, $TARGETS and $RUNTIMES (servers that sleep)
    set. With `server`, rpcprobe attaches to that server by its port, and `script` is its client."""

    script: str
    needs: tuple[str, ...] = ()
    server: str = ""
    port: int = 0


REDIS = "redis-server --port 7701 --save '' --loglevel warning"
REDIS_LOAD = "redis-benchmark -p 7701 -t get -n 6000 -c 50 --csv"
NGINX = 'nginx -p "$PWD" -c "$PWD/nginx.conf"'
SLEEPS = "h2load --h1 -t 1 -n 400 -c 8 http://127.0.0.1:{port}/w/0/{steps}"
PROXY_LOAD = "ab -q -k -n 300 -c 4 http://127.0.0.1:7702/behind/"
ASYNCIO = f"{sys.executable} $RUNTIMES/aio.py 7706 $PWD/notes 0"
SLEEPS_GO = "$HERE/.cache/server_go 7707 $PWD/notes 0"
THREADED = 'python3 -m http.server 7703 --bind 127.0.0.1 --directory "$PWD"'


def both(server: str, port: int, client: str) -> str:
    return f"{server} > /dev/null 2>&1 & server=$!; ready {port}; {client}; kill $server; wait $server; true"


CASES = {
    "pipe": Case(
        'head -300 "$TARGETS/frpc/expressions.txt" | "$TARGETS/frpc/frpc" -m 3',
        ("$TARGETS/frpc/frpc",),
    ),
    "futex": Case(
        'head -300 "$TARGETS/frpc/expressions.txt" | "$TARGETS/frpc/frpc" -m 5',
        ("$TARGETS/frpc/frpc",),
    ),
    "redis": Case(both(REDIS, 7701, REDIS_LOAD), ("redis-server", "redis-benchmark")),
    "redis-server": Case(REDIS_LOAD, ("redis-server", "redis-benchmark"), REDIS, 7701),
    "redis-fsync": Case(
        both(
            f"{REDIS} --appendonly yes --appendfsync always",
            7701,
            "redis-benchmark -p 7701 -t set -n 600 -c 4 --csv",
        ),
        ("redis-server", "redis-benchmark"),
    ),
    "nginx": Case(
        both(NGINX, 7702, "h2load --h1 -t 1 -n 4000 -c 20 http://127.0.0.1:7702/"),
        ("nginx", "h2load"),
    ),
    "nginx-server": Case(
        "h2load --h1 -t 1 -n 4000 -c 20 http://127.0.0.1:7702/", ("nginx", "h2load"), NGINX, 7702
    ),
    "threads": Case(both(THREADED, 7703, "ab -q -n 300 -c 8 http://127.0.0.1:7703/"), ("ab",)),
    "proxy": Case(
        both(
            THREADED,
            7703,
            f"({both(NGINX, 7702, PROXY_LOAD)})",
        ),
        ("nginx", "ab"),
    ),
    "greeter": Case(
        both(
            '"$TARGETS/greeter/greeter_server" --port 7704',
            7704,
            '"$TARGETS/greeter/greeter_client" --server 127.0.0.1:7704 --clients 4 --requests 250',
        ),
        ("$TARGETS/greeter/greeter_server", "$TARGETS/greeter/greeter_client"),
    ),
    "streams": Case(
        both(
            '"$TARGETS/greeter/greeter_server" --port 7704',
            7704,
            r"printf '\000\000\000\000\006\n\004load' > message; "
            "h2load -t 1 -n 1500 -c 4 -m 10 -d message -H 'content-type: application/grpc' "
            "-H 'te: trailers' http://127.0.0.1:7704/greeter.Greeter/SayHello",
        ),
        ("$TARGETS/greeter/greeter_server", "h2load"),
    ),
    "go": Case(
        both(
            '"$HERE/.cache/pair_go" serve 7705',
            7705,
            '"$HERE/.cache/pair_go" ask 7705 4 300',
        ),
        ("$HERE/.cache/pair_go",),
    ),
    "sleeps": Case(SLEEPS.format(port=7706, steps="sleep=8"), ("h2load",), ASYNCIO, 7706),
    "sleeps-go": Case(
        SLEEPS.format(port=7707, steps="sleep=8,burn=1"),
        ("h2load", "$HERE/.cache/server_go"),
        SLEEPS_GO,
        7707,
    ),
    "one-cpu": Case('taskset -c 1 python3 "$HERE/pool.py" 400 1'),
    "pool": Case('python3 "$HERE/pool.py" 600 4'),
    "exec": Case(
        "for i in $(seq 60); do true | cat; /bin/true; done; "
        "for i in $(seq 30); do sleep 0.001 & /bin/true & /bin/true; sleep 0.005; wait; done"
    ),
    "make": Case('make -s -j4 -f "$HERE/programs.mk"', ("make",)),
    "exit": Case(
        'for i in $(seq 20); do "$HERE/.cache/leave"; done; true', ("$HERE/.cache/leave",)
    ),
    "terminal": Case('python3 "$HERE/terminal.py" 100'),
    "fsync": Case(
        "for i in $(seq 40); do dd if=/dev/zero of=file bs=16k count=4 conv=fsync status=none; done"
    ),
    "link": Case(
        '"$TARGETS/netlab/netlab" link -- bash -c \'"$TARGETS/netlab/netlab" in server '
        'python3 "$HERE/transfer.py" serve & sleep 1; '
        'python3 "$HERE/transfer.py" ask "$NETLAB_SERVER" 40\'',
        ("tc", "ip"),
    ),
}
NGINX_CONF = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1000; }}
http {{ access_log off; keepalive_requests 100000; client_body_temp_path {folder}; proxy_temp_path {folder};
server {{ listen 127.0.0.1:7702; root {folder}; location /behind/ {{ proxy_pass http://127.0.0.1:7703/; }} }} }}
"""
KNOWN = {
    "HERE": str(HERE),
    "TARGETS": str(TARGETS),
    "RUNTIMES": str(HERE.parent / "runtimes/servers"),
}


def missing(case: Case) -> list[str]:
    named = [os.path.expandvars(name) for name in case.needs]
    return [name for name in named if not shutil.which(name)]


def take(case: Case, out: Path) -> None:
    """Captures the case."""
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        # Servers that drop their privileges read these files.
        os.chmod(folder, 0o755)
        (Path(folder) / "index.html").write_text("x" * 1000)
        (Path(folder) / "nginx.conf").write_text(NGINX_CONF.format(folder=folder))
        script = ["bash", "-c", READY + case.script]
        if not case.server:
            run([RPCPROBE, "run", "-q", "-o", str(out), "--", *script], folder)
            return
        server = subprocess.Popen(
            shlex.split(os.path.expandvars(case.server.replace("$PWD", folder))),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            run(["bash", "-c", READY + f"ready {case.port}"], folder)
            command = [RPCPROBE, "attach", "-o", str(out), "--port", str(case.port)]
            attached = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            try:
                line = attached.stderr.readline()
                if "attached" not in line:
                    raise RuntimeError(f"attach: {line.strip()}")
                run(script, folder)
            finally:
                attached.send_signal(signal.SIGINT)
                attached.wait(MOST_SECONDS)
        finally:
            server.terminate()
            server.wait(MOST_SECONDS)


def run(command: list[str], folder: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode}: {done.stderr.strip()[-300:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    for name in options.cases:
        if name not in CASES:
            parser.error(f"no case {name}: {', '.join(CASES)}")
    if os.geteuid() != 0:
        sys.exit("captures.py needs root")
    if not shutil.which(RPCPROBE):
        sys.exit(f"{RPCPROBE} is not there: make build")
    os.environ.update(KNOWN)
    options.directory.mkdir(parents=True, exist_ok=True)
    good = True
    for name in options.cases or CASES:
        case = CASES[name]
        lacks = missing(case)
        if lacks:
            print(f"{name}: skipped, no {', '.join(lacks)}", flush=True)
            continue
        out = options.directory.resolve() / name
        shutil.rmtree(out, ignore_errors=True)
        try:
            take(case, out)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            shutil.rmtree(out, ignore_errors=True)
            good = False
            print(f"{name}: failed, {error}", flush=True)
            continue
        print(f"{name}: taken", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
