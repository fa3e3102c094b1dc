"""Runs ./inject in a case, on the file system that the case asks for."""

import os
import signal
import subprocess
from pathlib import Path

from cases import Case
from machine import mounted

INJECT = Path(__file__).resolve().parent / "inject"


def run_target(argv: list, timeout_s: float) -> str | None:
    """Why it failed, if it did."""
    # In a group of its own, so that all of it can be ended.
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
    """`folder`: where its file system may lie; `program`: what runs. Why it failed, if it did."""
    with mounted(folder, case.where) as place:
        argv = [*program, "-n", requests, "-t", transport, "-d", place, "-l", log, case.name]
        return run_target(argv, timeout_s)
