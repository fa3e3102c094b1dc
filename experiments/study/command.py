"""The command line of an experiment."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import figures
from .capture import RPCPROBE, Capture
from .machine import machine
from .results import Results
from .text import Document


class Study:
    """What `measure` is given.

    `quick` asks for less of everything; `scratch` is gone afterwards; `kept` stays (not in git)."""

    def __init__(self, folder: Path, scratch: Path, quick: bool):
        self.results = Results(folder)
        self.scratch, self.quick = scratch, quick
        self.kept = folder / ".cache"

    def often(self, usually: int, quick: int) -> int:
        return quick if self.quick else usually

    def keep(self, capture: Capture):
        """The capture whose page `make experiment-page` makes."""
        target = self.kept / "capture"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(capture.path, target)

    def progress(self, what: str):
        print(f"  {what}", file=sys.stderr, flush=True)


def give_back(folder: Path):
    """What root wrote there is the user's who called sudo."""
    ids = [int(os.environ.get(name, -1)) for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or min(ids) < 0:
        return
    for written in (folder, *folder.rglob("*")):
        if written.lstat().st_uid == 0:
            os.chown(written, *ids, follow_symlinks=False)


def main(measure: Callable[[Study], None], tell: Callable[[Results], Document]):
    """Measures, unless --tell, and writes results/, figures/, figures.html and RESULTS.md."""
    own = Path(sys.argv[0]).resolve().parent
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="less of everything; to see that it works"
    )
    parser.add_argument(
        "--tell", action="store_true", help="RESULTS.md anew, of the results there are"
    )
    parser.add_argument("--to", type=Path, default=own, metavar="DIR", help="write there, not here")
    options = parser.parse_args()
    folder = options.to.resolve()
    if not options.tell:
        if os.geteuid() != 0:
            sys.exit(f"{own.name}: captures need root")
        if not Path(RPCPROBE).exists():
            sys.exit(f"{own.name}: there is no {RPCPROBE}: run make build")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            study = Study(folder, Path(scratch), options.quick)
            study.results.write("machine", [machine(options.quick)])
            measure(study)
    results = Results(folder)
    if not results.path("machine").exists():
        sys.exit(f"{own.name}: no results in {folder}: run without --tell first")
    document = tell(results)
    figures.write(document.figures, folder, own.name)
    document.write(folder / "RESULTS.md")
    give_back(folder)
    print(folder / "RESULTS.md")
