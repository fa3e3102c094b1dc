"""File systems for an experiment to work in, and a program that makes one of them busy."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE_BYTES = 256 << 20
# Each round dirties data and metadata, and waits until both are in the journal.
WRITER = """
import os
out = os.open("written", os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(out, b"x" * 65536, 0)
    os.fsync(out)
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY))
    os.unlink("made")
"""


@contextlib.contextmanager
def mounted(kind: str, directory: Path) -> Iterator[Path]:
    """An empty file system: a `tmpfs`, or an `ext4` with a journal in a file behind a loop device."""
    directory.mkdir(parents=True)
    command: list[str | Path] = ["mount", "-t", "tmpfs", "tmpfs", directory]
    if kind == "ext4":
        image = directory.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        command = ["mount", "-o", "loop", image, directory]
    subprocess.run(command, check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@contextlib.contextmanager
def writer(directory: Path) -> Iterator[None]:
    """Runs a process that writes there, creates and removes a file, and calls fsync, without
    pauses."""
    running = subprocess.Popen([sys.executable, "-c", WRITER], cwd=directory)
    try:
        yield
    finally:
        running.kill()
        running.wait()
