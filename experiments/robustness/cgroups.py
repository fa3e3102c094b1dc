"""Control groups, of version 1 or 2, with a limit on memory."""

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import give_up

ROOT = Path("/sys/fs/cgroup")


@dataclass
class Group:
    """A control group below this process's group."""

    path: Path
    version: int

    @property
    def procs(self) -> Path:
        return self.path / "cgroup.procs"

    def limit_memory(self, limit_bytes: int):
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.path / name).write_text(str(limit_bytes))

    def peak_bytes(self) -> int | None:
        """Peak memory, including the page cache, which may grow up to the limit."""
        name = "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        try:
            return int((self.path / name).read_text())
        except OSError:
            return None  # Linux before 5.19

    def killed(self) -> int:
        """The number of processes that the OOM killer has killed."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        lines = (self.path / name).read_text().split("\n")
        counts = dict(line.split() for line in lines if line)
        return int(counts.get("oom_kill", 0))

    def join(self):
        """Moves the calling process into the group."""
        self.procs.write_text(str(os.getpid()))


def own(controller: str) -> Path:
    """The path of this process's group in the hierarchy of that controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path(path.lstrip("/"))
    give_up(f"no cgroup of {controller or 'version 2'}")


def unified() -> Path | None:
    """Where version 2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


@contextmanager
def memory_group(name: str):
    """A new group whose memory can be limited; removed at the end."""
    if (ROOT / "memory").is_dir():
        group = Group(ROOT / "memory" / own("memory") / name, 1)
    else:
        parent = unified() or give_up("no control groups here")
        if "memory" not in (parent / "cgroup.controllers").read_text().split():
            give_up("no control group here can limit memory")
        (parent / "cgroup.subtree_control").write_text("+memory")
        group = Group(parent / name, 2)
    with made(group):
        yield group


@contextmanager
def made(group: Group):
    group.path.mkdir()
    try:
        yield group
    finally:
        # Processes of the group may still be exiting.
        for _ in range(100):
            try:
                group.path.rmdir()
                break
            except OSError:
                time.sleep(0.05)
