"""`pip install .` in a fresh virtual environment installs the program and the package, and needs nothing else."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "a venv"
    venv.create(folder, with_pip=True)
    # Reuse what is already compiled.
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "userspace/target")}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [folder / "bin/python", "-m", "pip", "install", "--quiet", str(ROOT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin/python"


def said(python: Path, code: str, *arguments: str) -> str:
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "RPCPROBE")
    }
    done = subprocess.run(
        [python, "-c", code, *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_is_beside_python(python: Path) -> None:
    program = python.parent / "rpcprobe"
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout
    metadata = said(
        python, "import importlib.metadata as m; print('rpcprobe', m.version('rpcprobe'))"
    )
    assert version == metadata
    # The package uses this program, whatever is on the PATH.
    assert said(python, "from rpcprobe import _program; print(_program.path())").strip() == str(
        program
    )


def test_the_package_is_typed_and_reads_a_capture(python: Path, directory: Path) -> None:
    code = """
import pathlib, sys, rpcprobe
assert (pathlib.Path(rpcprobe.__file__).parent / "py.typed").exists()
cap = rpcprobe.open(sys.argv[1])
print(len(cap.requests), type(cap.figure("breakdown", by="method")).__name__, len(cap.report()["kinds"]))
try:
    cap.sql("select 1")
except rpcprobe.Error as error:
    print(error)
"""
    first, second = said(python, code, str(directory)).splitlines()
    assert first == "400 Figure 2"
    assert second == "Capture.sql() needs duckdb: pip install duckdb, or 'rpcprobe[sql]'"


def test_extras_are_those_that_messages_name(python: Path) -> None:
    extras = said(
        python,
        "import importlib.metadata as m; print(*m.metadata('rpcprobe').get_all('Provides-Extra'))",
    )
    assert sorted(extras.split()) == ["pandas", "polars", "sql"]
    assert sys.version_info >= (3, 11)


def test_what_the_system_lacks_is_named_before_anything_is_compiled(tmp_path: Path) -> None:
    """The PATH has everything that is needed except clang."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "make", "gcc", "pkg-config", "cargo", "rustc", "bpftool"):
        found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert found, name
        (tools / name).symlink_to(found)
    venv.create(tmp_path / "venv", with_pip=True)
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-m", "pip", "install", str(ROOT)],
        env={"PATH": str(tools)} | {k: v for k, v in os.environ.items() if k.startswith("PIP_")},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "the system lacks: clang-19\n" in said, said
    assert "apt-get install --no-install-recommends clang-19" in said
    assert "Compiling" not in said
