"""Shared code of all labs: runs a script under rpcprobe, and reads the tables of its capture."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from study import capture as study_capture  # noqa: E402
from study.capture import NETLAB, TARGETS, Capture  # noqa: E402
from study.text import us  # noqa: E402

__all__ = ["NETLAB", "TARGETS", "Capture", "capture", "check", "main", "p50", "total", "us"]


def capture(rpcprobe: str, folder: Path, script: str, *options: str) -> Capture:
    """Runs a /bin/sh script under rpcprobe; the script's $0 is the folder in which it runs."""
    return study_capture(folder, script, *options, rpcprobe=rpcprobe)


def total(requests: list[dict], prefix: str) -> int:
    """The total of the categories that begin with `prefix`."""
    columns = [name for name in requests[0] if name.startswith(prefix)]
    return sum(request[name] or 0 for request in requests for name in columns)


def p50(values) -> float:
    values = list(values)
    return median(values) if values else 0


def check(what: str, holds: bool) -> bool:
    print(f"  {'pass' if holds else 'FAIL'}: {what}")
    return holds


def main(about: str, lab: Callable[[str, Path], bool]):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rpcprobe", default="rpcprobe", help="the program to test")
    rpcprobe = parser.parse_args().rpcprobe
    if os.geteuid() != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: needs root")
    if "/" in rpcprobe:
        rpcprobe = str(Path(rpcprobe).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(0 if lab(rpcprobe, Path(scratch)) else 1)
