"""The program `rpcprobe`, which computes every statistic and figure."""

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from ._error import Error

NAME = "rpcprobe"
# Its exit status for what its command line does not take.
WRONG_USAGE = 2
# What the command line adds to each of its errors.
HINT = "For more information, try '--help'."


def path() -> str:
    """Where the program is: what `$RPCPROBE` names, else beside this Python, else on the PATH.

    Raises:
        Error: nowhere.
    """
    named = os.environ.get("RPCPROBE")
    if named:
        found = shutil.which(named)
        if found is None:
            raise Error(f"$RPCPROBE is {named!r}, which is no program that can be run")
        return os.path.abspath(found)
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    # Of `pip install --user` and `--target`: beside the package.
    folders += [str(folder / "bin") for folder in Path(__file__).resolve().parents[1:5:3]]
    for folder in [*folders, None]:
        found = shutil.which(NAME, path=folder)
        if found is not None:
            return os.path.abspath(found)
    raise Error(
        f"the program {NAME} is neither in {folders[0]} nor on the PATH; install the package again"
    )


def answer(*arguments: str, given: str | None = None) -> tuple[str, str]:
    """What the program prints to standard output, and what it says beside that.

    Args:
        arguments: of the command line.
        given: what it reads from standard input.

    Raises:
        Error: with what it says, if it fails.
    """
    program = path()
    try:
        done = subprocess.run(
            [program, *arguments],
            input=(given or "").encode(),
            capture_output=True,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise Error(f"cannot run {NAME}: {error}") from None
    said = told(done.stderr)
    if done.returncode != 0:
        said = said or f"`{NAME} {arguments[0]}` failed with status {done.returncode}"
        # It may be one of another version.
        raise Error(f"{said}\n(said by {program})" if done.returncode == WRONG_USAGE else said)
    return done.stdout.decode("utf-8", "replace"), said


def ask(*arguments: str) -> str:
    """What the program prints; what it says beside that becomes a warning.

    Raises:
        Error: as `answer`.
    """
    printed, said = answer(*arguments)
    if said:
        warnings.warn(said, stacklevel=_outside())
    return printed


def from_json(text: str) -> Any:
    """What the program printed as JSON.

    Raises:
        Error: it is none.
    """
    try:
        return json.loads(text)
    except ValueError:
        raise Error(f"`{NAME}` printed no JSON: is {path()} another program?") from None


@functools.cache
def figures() -> dict[str, str]:
    """The names of all figures, with what each shows."""
    lines = ask("figure").splitlines()
    return {name: shows for name, shows in (line.split(maxsplit=1) for line in lines)}


def told(stderr: bytes) -> str:
    """What the program said on standard error, without its name in front of each line."""
    text = stderr.decode("utf-8", "replace").replace(HINT, "").strip()
    lines = text.splitlines()
    return "\n".join(line.removeprefix(f"{NAME}: ").removeprefix("error: ") for line in lines)


def _outside() -> int:
    """The number of frames up to the one that called this package."""
    depth = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        depth, frame = depth + 1, frame.f_back
    return depth
