"""Describes the machine of an experiment, without its name."""

import os
import platform
from pathlib import Path
from typing import Any


def machine(quick: bool) -> dict[str, Any]:
    """One row: `kernel`, `cpus`, `cpu`, `memory_bytes`, `virtual`, `quick`."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return {
        "kernel": platform.release(),
        "cpus": os.cpu_count() or 0,
        "cpu": names[0] if names else platform.machine(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "virtual": any("hypervisor" in line for line in info if line.startswith("flags")),
        "quick": quick,
    }


def told(row: dict[str, Any]) -> str:
    """The description for the end of a text."""
    kind = "a virtual machine" if row["virtual"] else "a machine"
    less = "; a quick run, with less of everything" if row["quick"] else ""
    return (
        f"{kind} with {row['cpus']} CPUs, {row['memory_bytes'] / 2**30:.0f} GiB of memory, "
        f"Linux {row['kernel'].split('-')[0]}{less}"
    )
