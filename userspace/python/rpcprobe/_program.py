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
# Its exit status after a usage error.
WRONG_USAGE = 2
# The text that the command line appends to each usage error.
HINT = "For more information, try '--help'."


def path() -> str:
    """The program's path: `$RPCPROBE`, else beside this Python or this package, else on the PATH.

    Raises:
        Error: it is in none of these places.
    """
    named = os.environ.get("RPCPROBE")
    if named:
        found = shutil.which(named)
        if found is None:
            raise Error(f"$RPCPROBE is {named!r}, which is no program that can be run")
        return os.path.abspath(found)
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    # `pip install --user` and `--target` put the program into a `bin` above the package.
    folders += [str(folder / "bin") for folder in Path(__file__).resolve().parents[1:5:3]]
    for folder in [*folders, None]:
        found = shutil.which(NAME, path=folder)
        if found is not None:
            return os.path.abspath(found)
    raise Error(
        f"the program {NAME} is neither in {folders[0]} nor on the PATH; install the package again"
    )


def answer(*arguments: str, given: str | None = None) -> tuple[str, str]:
    """Runs the program and returns its standard output and its messages on standard error.

    Args:
        arguments: of the command line.
        given: the program's standard input.

    Raises:
        Error: the program cannot be run or fails; the message is the program's.
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
        # The program may be of another version.
        raise Error(f"{said}\n(said by {program})" if done.returncode == WRONG_USAGE else said)
    return done.stdout.decode("utf-8", "replace"), said


def ask(*arguments: str) -> str:
    """Runs the program and returns its standard output. Its messages on standard error become a warning.

    Raises:
        Error: as `answer`.
    """
    printed, said = answer(*arguments)
    if said:
        warnings.warn(said, stacklevel=_outside())
    return printed


def from_json(text: str) -> Any:
    """Parses the JSON that the program printed.

    Raises:
        Error: it is not JSON.
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
    """The program's messages on standard error, without its name in front of each line."""
    text = stderr.decode("utf-8", "replace").replace(HINT, "").strip()
    lines = text.splitlines()
    return "\n".join(line.removeprefix(f"{NAME}: ").removeprefix("error: ") for line in lines)


def _outside() -> int:
    """The number of stack frames up to the caller of this package."""
    depth = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        depth, frame = depth + 1, frame.f_back
    return depth
