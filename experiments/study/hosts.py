"""The two hosts of a netlab on one machine."""

import os


def apart() -> str:
    """A script's first line: what `$here` and `$there` begin with has a CPU of its host's own, as two machines have.

    On a machine with one CPU both have that."""
    cpus = sorted(os.sched_getaffinity(0))
    return f"here='taskset -c {cpus[0]}' there='taskset -c {cpus[min(1, len(cpus) - 1)]}'\n"
