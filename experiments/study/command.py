"""The command line of an experiment."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import plotly.io

from . import figures
from .capture import ROOT, RPCPROBE, Capture, Row
from .machine import machine
from .results import Results
from .text import Document

sys.path.append(str(ROOT / "userspace/python"))
os.environ.setdefault("RPCPROBE", RPCPROBE)
import rpcprobe  # noqa: E402


class Study:
    """The argument of `measure`.

    `quick` asks for less of everything. `scratch` is removed afterwards; `kept` stays (not in
    git)."""

    def __init__(self, folder: Path, scratch: Path, quick: bool):
        self.results = Results(folder)
        self.scratch, self.quick = scratch, quick
        self.kept = folder / ".cache"

    def often(self, usually: int, quick: int) -> int:
        return quick if self.quick else usually

    def keep(self, capture: Capture, kind: str):
        """Keeps the capture for the page of `make experiment-page`, and for the last figure of the
        text, which shows its requests of that kind."""
        target = self.kept / "capture"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(capture.path, target)
        self.results.write("kept", [kept_figure(target, kind)])

    def progress(self, what: str):
        print(f"  {what}", file=sys.stderr, flush=True)


def kept_figure(capture: Path, kind: str) -> Row:
    """The package's breakdown of a capture's requests of that kind, as plotly JSON."""
    drawn = rpcprobe.open(capture).figure("breakdown", kind=kind)
    return {"kind": kind, "plotly_json": drawn.to_json()}


def document_of(tell: Callable[[Results], Document], results: Results) -> Document:
    """`tell`'s document from the tables, with the package's own figure of the kept capture."""
    document = tell(results)
    (kept,) = results.read("kept")
    study = results.folder.name.split("_")[0]
    document.head("One captured run")
    document.say(
        f"""As `rpcprobe figure breakdown --kind {kept["kind"]}` draws it. `make experiment-page S={study}` makes the page of this
        capture, with the time lines of its requests."""
    )
    figure = plotly.io.from_json(kept["plotly_json"], skip_invalid=True)
    document.show(
        "captured", figure, "Requests of one run by percentile band: what they consist of"
    )
    return document


def give_back(folder: Path):
    """Gives the files that root wrote in the folder to the user who called sudo."""
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
    parser.add_argument("--quick", action="store_true", help="measure less, to see that it works")
    parser.add_argument(
        "--tell", action="store_true", help="only write RESULTS.md anew from the results"
    )
    parser.add_argument(
        "--to", type=Path, default=own, metavar="DIR", help="write to DIR, not to this folder"
    )
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
    document = document_of(tell, results)
    figures.write(document.figures, folder, own.name)
    document.write(folder / "RESULTS.md")
    give_back(folder)
    print(folder / "RESULTS.md")
