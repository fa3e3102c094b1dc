"""Running a program and capturing what it does."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from . import _program
from ._capture import Capture, open_capture
from ._error import Error

# Number of lines of standard error that an error repeats.
LAST_LINES = 8


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    directory: str | os.PathLike[str] | None = None,
    user: str | None = None,
    stacks: bool | int = False,
    labels: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    sudo: bool = False,
) -> Capture:
    """Runs a program under rpcprobe, waits for its end, and returns the capture. Needs root.

    The program's wait status, as in wait(2), is in `capture.manifest["command"]["wait_status"]`. A program that fails
    is not an error here.

    Args:
        command: the program and its arguments.
        directory: the capture's new directory, which must not exist. By default a temporary directory, which is
            removed when the capture is no longer used.
        user: the user to run the program as; by default the user of this process.
        stacks: take stacks; a number is the samples per second on each CPU.
        labels: stored with the capture.
        cwd: directory to run in.
        stdin, stdout: the program's, as in `subprocess`. Its standard error is printed to `sys.stderr`.
        sudo: become root by `sudo`, which must not ask for a password.

    Raises:
        Error: this process is not root, the program cannot be run, or the kernel refuses. The message repeats the last
            lines of standard error.
    """
    words = [os.fsdecode(word) for word in ([command] if isinstance(command, str) else command)]
    if not words:
        raise Error("there is no program to run")
    if directory is not None and os.path.lexists(directory):
        raise Error(
            f"{os.path.abspath(os.fsdecode(directory))} exists: a capture goes to a new directory"
        )
    options = ["-q"]
    if user is not None:
        options += ["-u", user]
    elif sudo and os.geteuid() != 0:
        options += ["-u", pwd.getpwuid(os.geteuid()).pw_name]
    if stacks:
        options.append("--stacks" if stacks is True else f"--stacks={stacks}")
    options += [f"--label={key}={value}" for key, value in (labels or {}).items()]
    before: list[str] = []
    if os.geteuid() != 0:
        place = [] if directory is None else ["-o", os.path.abspath(os.fsdecode(directory))]
        before = _sudo([_program.path(), "run", *options, *place, "--", *words], sudo)
    scratch = None
    if directory is None:
        scratch = tempfile.mkdtemp(prefix="rpcprobe-")
        directory = Path(scratch) / "capture"
    target = os.path.abspath(os.fsdecode(directory))
    try:
        whole = [*before, _program.path(), "run", *options, "-o", target, "--", *words]
        said, status = _done(whole, cwd, stdin, stdout)
        capture = _opened(target, said, status)
        if said:
            print(said, file=sys.stderr)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    if scratch is not None:
        weakref.finalize(capture, shutil.rmtree, scratch, ignore_errors=True)
    return capture


def _sudo(whole: list[str], sudo: bool) -> list[str]:
    """The words to put before a command to run it as root.

    Raises:
        Error: `sudo` is false, or sudo asks for a password; the message gives the command to type.
    """
    typed = (
        f"type\n  sudo {shlex.join(whole)}\nin a terminal, and then rpcprobe.open() its directory"
    )
    if not sudo:
        raise Error(f"rpcprobe.run needs root: run Python as root, pass sudo=True, or {typed}")
    allowed = shutil.which("sudo") and subprocess.run(
        ["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if not allowed or allowed.returncode != 0:
        raise Error(f"sudo asks for a password, or there is none; {typed}")
    return ["sudo", "-n", "--"]


def _done(
    whole: list[str],
    cwd: str | os.PathLike[str] | None,
    stdin: int | IO[bytes] | None,
    stdout: int | IO[bytes] | None,
) -> tuple[str, int]:
    """Runs the command; returns the standard error of the program and of rpcprobe, and the exit status."""
    with tempfile.TemporaryFile() as said:
        try:
            status = subprocess.run(
                whole, cwd=cwd, stdin=stdin, stdout=stdout, stderr=said, check=False
            ).returncode
        except (OSError, ValueError) as error:
            raise Error(f"cannot run {whole[0]}: {error}") from None
        said.seek(0)
        return _program.told(said.read()), status


def _opened(target: str, said: str, status: int) -> Capture:
    try:
        return open_capture(target)
    except Error as error:
        last = "\n".join(said.splitlines()[-LAST_LINES:])
        raise Error(last or f"no capture was taken (status {status}): {error}") from None
