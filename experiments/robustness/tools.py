"""Runs commands, and ends the study if they fail."""

import subprocess
import sys
from pathlib import Path


def give_up(message: str):
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def run(command: list, **options) -> str:
    """Runs a command and returns its output. A failure ends the study."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, **options)
    except OSError as error:
        give_up(str(error))
    if done.returncode != 0:
        give_up(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def size_of(folder: Path) -> int:
    """Total size of the files in the folder; 0 if it does not exist yet."""
    return sum(file_sizes(folder).values())


def file_sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    try:
        for path in folder.iterdir():
            sizes[path.name] = path.stat().st_size
    except FileNotFoundError:
        pass  # renamed or removed meanwhile: the next call will see it
    return sizes


def own_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in children.read_text().split()]
