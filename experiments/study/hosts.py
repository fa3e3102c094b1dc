"""The two hosts of a netlab on one machine."""

import os


def apart() -> str:
    """A script's first line: `$here` and `$there` run commands on separate CPUs, one for each host,
    as on two machines.

    On a machine with one CPU, both hosts share it."""
    cpus = sorted(os.sched_getaffinity(0))
    return f"here='taskset -c {cpus[0]}' there='taskset -c {cpus[min(1, len(cpus) - 1)]}'\n"
