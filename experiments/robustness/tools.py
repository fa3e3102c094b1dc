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
