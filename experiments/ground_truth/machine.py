"""Prepares the machine for the target: file systems, and CPUs that do not go idle."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

DIRTY_BYTES = 1 << 20


class GivenUp(SystemExit):
    """A case cannot be run, with the reason. If not caught, ends the program with status 2."""

    def __init__(self, why: str):
        super().__init__(2)
        self.why = why


def give_up(message: str):
    print(f"run.py: {message}", file=sys.stderr)
    raise GivenUp(message)


def tool(*argv: str | Path) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode != 0:
        give_up(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def mounted(scratch: Path, kind: str):
    """Mounts a file system of the kind; unmounts and removes it at the end, also after an error."""
    if kind == "disk":
        yield scratch
        return
    place = scratch / "mnt"
    place.mkdir()
    image = scratch / "image"
    device = None
    try:
        if kind in ("ext4", "slow"):
            with image.open("wb") as file:
                file.truncate(96 << 20)
            # With a small journal, changes of metadata soon wait for a commit.
            tool("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", image)
            tool("mount", "-o", "loop,commit=1", image, place)
            # Direct I/O bypasses the lower page cache, so that a commit takes a device's time.
            loops = tool("losetup", "--noheadings", "--output", "NAME", "--associated", image)
            tool("losetup", "--direct-io=on", loops.strip())
            if kind == "slow":
                device = Path(loops.strip())
                limit_dirty_pages(device, strict=1, max_bytes=DIRTY_BYTES)
        else:
            tool("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place)
        yield place
    finally:
        if device:
            # Reset the limit, because the loop device remains for other users.
            limit_dirty_pages(device, strict=0, max_ratio=100)
        # umount reports processes that still use the file system.
        if os.path.ismount(place):
            done = subprocess.run(["umount", str(place)], capture_output=True)
            if done.returncode != 0:
                subprocess.run(["umount", "--lazy", str(place)])
        image.unlink(missing_ok=True)
        place.rmdir()


def limit_dirty_pages(device: Path, strict: int, **limit: int):
    """Limits the device's dirty pages: beyond it, writers wait (`strict`: despite free memory)."""
    number = Path("/sys/block", device.name, "dev").read_text().strip()
    limits = Path("/sys/class/bdi", number)
    for name, value in ({"strict_limit": strict} | limit).items():
        try:
            (limits / name).write_text(str(value))
        except OSError as error:
            give_up(f"{limits / name}: {error.strerror}")


@contextmanager
def cpus_awake():
    """Keeps every CPU from going idle, with processes that yield to any other at once.

    Waking an idle CPU takes long, above all a virtual CPU, and is not the cause under test. The
    kernel's own accounting, which is the truth of some cases, counts this time as sleep.
    """
    pids = []
    try:
        for cpu in os.sched_getaffinity(0):
            pid = os.fork()
            if pid == 0:
                os.sched_setaffinity(0, {cpu})
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                parent = os.getppid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                while os.getppid() == parent:
                    for _ in range(100_000):
                        pass
                os._exit(0)
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
