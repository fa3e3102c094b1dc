#!/usr/bin/env python3
"""The Python package: the wheel's size, what an installation takes, how long an import and a first figure take.

Installs it with pip in a fresh virtual environment, reusing what is already compiled. Needs no
root. The figure is of the given capture, or left out. Fails if an import takes more than half a
second."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_IMPORT_S = 0.5
FIGURE = """
import sys, rpcprobe
rpcprobe.open(sys.argv[1]).figure("breakdown")
"""


def seconds(command, times, environment):
    """The duration of each of `times` runs, after one run that fills the caches."""
    taken = []
    for _ in range(times + 1):
        begin = time.monotonic()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        taken.append(time.monotonic() - begin)
    return taken[1:]


def measured(folder, capture, times):
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "userspace/target")}
    for name in ("PYTHONPATH", "RPCPROBE"):
        environment.pop(name, None)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv/bin/python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    begin = time.monotonic()
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True, env=environment)
    built = time.monotonic()
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", wheel], check=True, env=environment)
    installed = time.monotonic()
    with zipfile.ZipFile(wheel) as opened:
        program = max(opened.infolist(), key=lambda of: of.file_size)
    nothing = statistics.median(seconds([python, "-c", "pass"], times, environment))
    imports = seconds([python, "-c", "import rpcprobe"], times, environment)
    result = {
        "wheel_bytes": wheel.stat().st_size,
        "program_bytes": program.file_size,
        "build_s": round(built - begin, 1),
        "install_s": round(installed - built, 1),
        "import_ms": round((statistics.median(imports) - nothing) * 1000),
        "import_most_ms": round((max(imports) - nothing) * 1000),
    }
    if capture:
        figures = seconds([python, "-c", FIGURE, capture], times, environment)
        result["figure_ms"] = round((statistics.median(figures) - nothing) * 1000)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capture", type=Path)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = options.capture and options.capture.absolute()
        result = measured(Path(folder), capture, options.times)
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"wheel {result['wheel_bytes'] / 1e6:.1f} MB (the program in it: {result['program_bytes'] / 1e6:.1f} MB),"
            f" built in {result['build_s']} s, installed with what it needs in {result['install_s']} s"
        )
        print(f"import: {result['import_ms']} ms, at most {result['import_most_ms']} ms")
        if "figure_ms" in result:
            print(f"import, open and a first figure: {result['figure_ms']} ms")
    if result["import_ms"] > MOST_IMPORT_S * 1000:
        sys.exit(f"an import takes more than {MOST_IMPORT_S} s")


if __name__ == "__main__":
    main()
