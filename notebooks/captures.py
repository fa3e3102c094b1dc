"""Small captures for the notebooks, taken when a notebook runs; or the captures that it is given.

`RPCPROBE_CAPTURE=DIR[:DIR...]`, or `-- --capture DIR[:DIR...]` after marimo's command, names
captures to use instead. Taking a capture needs root: other users need `sudo` without a password."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rpcprobe

TARGETS = Path(__file__).resolve().parents[1] / "targets"
IS_ROOT = os.geteuid() == 0


def given(arguments: Mapping[str, Any], least: int = 1) -> list[rpcprobe.Capture]:
    """The named captures, at least `least`; an empty list if none is named."""
    named = str(arguments.get("capture") or os.environ.get("RPCPROBE_CAPTURE") or "")
    found = [rpcprobe.open(one) for one in named.split(os.pathsep) if one]
    if found and len(found) < least:
        raise rpcprobe.Error(f"this notebook compares {least} captures, and {len(found)} is named")
    return found


def asked(capture: rpcprobe.Capture) -> dict[str, Any]:
    """The report on the most frequent kind of request; whole programs only if there is no other
    kind."""
    kinds = capture.report()["kinds"]
    if not kinds:
        raise rpcprobe.Error(f"{capture.path} has no requests")
    programs = ("exec", "process", "stdio")
    return max(kinds, key=lambda kind: (kind["kind"] not in programs, kind["requests"]))


def frpc(mode: int, times: int = 1, beside: int = 0) -> rpcprobe.Capture:
    """The evaluator of expressions: 300 round trips, `times` over, beside `beside` programs that
    only compute.

    Modes: 3 two pipes, 5 shared memory, 6 a Unix socket."""
    script = f"""
    for i in $(seq {beside}); do sh -c 'printf neighbour > /proc/$$/comm; while :; do :; done' & done
    trap 'kill $(jobs -p) 2> /dev/null' EXIT
    for i in $(seq {times}); do cat expressions.txt; done | ./frpc -m {mode} > /dev/null
    """
    return _taken(["bash", "-c", script], cwd=TARGETS / "frpc")


def files(on_disk: bool, expressions: int = 60) -> rpcprobe.Capture:
    """The evaluator as a new process for each expression, which reads one file and writes another:
    in memory (tmpfs), or on a separate ext4 if there are loop devices (else on the disk of the
    temporary directory)."""
    system = "ext4" if on_disk else "tmpfs"
    # No other process sees the mounts of a separate namespace.
    return _taken(
        ["unshare", "--mount", "sh", "../../notebooks/evaluate_on.sh", system, str(expressions)],
        cwd=TARGETS / "frpc",
        user=None if IS_ROOT else "root",
    )


def stockbazaar(transport: str, requests: int = 100) -> rpcprobe.Capture:
    """Prices of stocks by `socket` or by `grpc`, with the same server and client in Python, both
    traced."""
    python = TARGETS / "stockbazaar/.venv/bin/python"
    if transport == "grpc" and not python.exists():
        raise rpcprobe.Error("gRPC is not there yet: make -C targets/stockbazaar")
    script = f"""
    export PYTHONDONTWRITEBYTECODE=1
    said=$(mktemp); "{python if python.exists() else "python3"}" server.py --transport {transport} --port 0 > $said &
    server=$!; trap 'kill $server; rm -f $said' EXIT
    for i in $(seq 200); do grep -qs ready $said && break; sleep 0.05; done
    port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' $said)
    "{python if python.exists() else "python3"}" client.py --transport {transport} --port $port --requests {requests} > /dev/null
    """
    return _taken(["sh", "-c", script], cwd=TARGETS / "stockbazaar")


def flexcache(requests: int = 40) -> tuple[rpcprobe.Capture, dict[str, list[int]]]:
    """Remote objects and copies of them, by ONC RPC: `requests` of each operation, one after
    another.

    Also returns each operation's times by the client's own log, in ns: an operation without a
    message is not a request."""
    programs = TARGETS / "flexcache"
    with tempfile.TemporaryDirectory() as folder:
        if not IS_ROOT:
            os.chmod(folder, 0o777)
        script = f"""
        p={programs}; mkdir node0 node1; nodes=127.0.0.1:7302,127.0.0.1:7303
        pids=; trap 'kill $pids' EXIT
        until_said() {{ for i in $(seq 100); do grep -qs "$2" $1 && return; sleep 0.05; done; exit 3; }}
        $p/objserver > objects & pids=$!
        $p/consistency_cacher --dir node0 --port 7302 > away & pids="$pids $!"
        $p/consistency_cacher --dir node1 --port 7303 > home & pids="$pids $!"
        until_said objects ready; until_said away ready; until_said home ready
        $p/flexclient --method create --requests 1 --node 1 --dir node1 --nodes $nodes --hold > held &
        pids="$pids $!"; until_said held 'is done'
        $p/flexclient --method null --requests {requests} --log null.csv
        $p/flexclient --method invoke --requests {requests} --log invoke.csv
        for method in validate cache read; do
            $p/flexclient --method $method --requests {requests} --object 1.1.0 --dir node0 --nodes $nodes --log $method.csv
        done
        """
        capture = _taken(["sh", "-ec", script], cwd=folder)
        if not list(Path(folder).glob("read.csv")):
            raise rpcprobe.Error("flexcache did not run: is another one on the ports 7301 to 7303?")
        return capture, {file.stem: _latencies(file) for file in sorted(Path(folder).glob("*.csv"))}


def _latencies(log: Path) -> list[int]:
    header, *rows = (line.split(",") for line in log.read_text().splitlines())
    begin, end, method = (header.index(name) for name in ("begin_ns", "end_ns", "method"))
    return [int(row[end]) - int(row[begin]) for row in rows if row[method] == log.stem]


def _taken(command: list[str], cwd: str | Path, user: str | None = None) -> rpcprobe.Capture:
    return rpcprobe.run(command, cwd=cwd, user=user, sudo=not IS_ROOT, stdout=subprocess.DEVNULL)
