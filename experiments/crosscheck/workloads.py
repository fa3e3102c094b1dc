"""The observed workloads: shell scripts whose child processes' threads are compared."""

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).resolve().parents[2] / "targets"
DISK_BYTES = 256 << 20
WORK_BYTES = 64 << 20
PORT = 6405

# 20,000 GETs on 50 connections.
REDIS = """
redis-server --port {port} --save '' --dir {folder} --loglevel warning > /dev/null & server=$!
until redis-cli -p {port} ping > /dev/null 2>&1; do sleep 0.2; done
redis-benchmark -p {port} -t get -c 50 -n {requests} --csv > /dev/null; status=$?
kill $server; wait $server; exit $status
"""
# Two writers that write and sync at the same time, and a program that creates files between them.
DISK = """
for i in 1 2; do
    dd if=/dev/zero of={disk}/$i bs=16k count={writes} oflag=dsync 2> /dev/null & writers="$writers $!"
done
{measure} -m 2 -e {folder}/expressions --dir {disk} --results /dev/null --errors /dev/null 2> /dev/null
status=$?
wait $writers || status=1
exit $status
"""
# Three processes that only calculate, on any CPUs.
WORK = """
for i in 1 2 3; do sha256sum {file} {file} {file} > /dev/null & workers="$workers $!"; done
wait $workers
"""


@dataclass(frozen=True)
class Workload:
    """`script` gets the folder it may write into, and the divisor of the amount of work."""

    name: str
    script: Callable[[Path, int], str]
    needs: tuple = ()

    def missing(self):
        absent = [program for program in self.needs if not shutil.which(program)]
        return f"{', '.join(absent)} not installed" if absent else None


def expressions(path, count):
    lines = (TARGETS / "frpc/expressions.txt").read_text().splitlines()
    whole = lines * (count // len(lines) + 1)
    path.write_text("\n".join(whole[:count]) + "\n")
    return path


def pipe(folder, part):
    """10,000 round trips over two pipes, one client."""
    questions = expressions(folder / "expressions", 10_000 // part)
    return f"{TARGETS}/frpc/frpc -m 3 < {shlex.quote(str(questions))} > /dev/null; exit $?"


def work(folder, part):
    file = folder / "zeros"
    with file.open("wb") as zeros:
        zeros.truncate(WORK_BYTES // part)
    return WORK.format(file=shlex.quote(str(file)))


def redis(folder, part):
    return REDIS.format(port=PORT, folder=shlex.quote(str(folder)), requests=20_000 // part)


def disk(folder, part):
    expressions(folder / "expressions", 40 // part)
    return DISK.format(
        disk=shlex.quote(str(folder / "disk")),
        folder=shlex.quote(str(folder)),
        measure=f"{TARGETS}/frpc/measure",
        writes=300 // part,
    )


@contextlib.contextmanager
def ext4(folder):
    """Mounts a separate file system on a loop device."""
    image, where = folder / "image", folder / "disk"
    where.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)


WORKLOADS = {
    one.name: one
    for one in (
        Workload("work", work, ("sha256sum",)),
        Workload("pipe", pipe),
        Workload("redis", redis, ("redis-server", "redis-benchmark", "redis-cli")),
        Workload("disk", disk, ("mkfs.ext4",)),
    )
}


@contextlib.contextmanager
def prepared(workload, folder, part):
    """The script, with its requirements in place for the duration of the block."""
    with ext4(folder) if workload.name == "disk" else contextlib.nullcontext():
        yield workload.script(folder, part)
