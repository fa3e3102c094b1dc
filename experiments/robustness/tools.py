"""Running others, and giving up."""

import subprocess
import sys
from pathlib import Path


def give_up(message: str):
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def run(command: list, **options) -> str:
    """What it printed; whoever fails ends the study."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, **options)
    except OSError as error:
        give_up(str(error))
    if done.returncode != 0:
        give_up(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def size_of(folder: Path) -> int:
    """Bytes of the files in it; of one that is not there yet, 0."""
    return sum(file_sizes(folder).values())


def file_sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    try:
        for path in folder.iterdir():
            sizes[path.name] = path.stat().st_size
    except FileNotFoundError:
        pass  # renamed or removed meanwhile: the next look will tell
    return sizes


def own_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in children.read_text().split()]
