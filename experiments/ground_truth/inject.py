"""Runs a case of ./inject on the file system that the case needs."""

import os
import signal
import subprocess
from pathlib import Path

from cases import Case
from machine import mounted

INJECT = Path(__file__).resolve().parent / "inject"


def run_target(argv: list, timeout_s: float) -> str | None:
    """Runs the target; returns the reason of a failure, or None."""
    # In its own process group, so that all its processes can be ended.
    child = subprocess.Popen([str(a) for a in argv], start_new_session=True)
    try:
        status = child.wait(timeout=timeout_s)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return "took too long"
        raise
    return f"ended with status {status}" if status != 0 else None


def inject(
    case: Case,
    transport: str,
    requests: int,
    folder: Path,
    log: Path,
    timeout_s: float,
    program: list = (INJECT,),
) -> str | None:
    """Runs `program` on a file system in `folder`; returns the reason of a failure, or None."""
    with mounted(folder, case.where) as place:
        argv = [*program, "-n", requests, "-t", transport, "-d", place, "-l", log, case.name]
        return run_target(argv, timeout_s)
