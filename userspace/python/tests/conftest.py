"""Fixtures that the tests share: made-up captures, and a check that real captures can be taken here."""

import os
import subprocess
from pathlib import Path

import made_up
import pytest

import rpcprobe
from rpcprobe import _program

ROOT = Path(__file__).resolve().parents[3]
# Test the program built here, not an installed one.
os.environ.setdefault("RPCPROBE", str(ROOT / "userspace/target/release/rpcprobe"))


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of 400 requests, which tests must not change."""
    return made_up.make(tmp_path_factory.mktemp("captures") / "capture")


@pytest.fixture(scope="session")
def cap(directory: Path) -> rpcprobe.Capture:
    return rpcprobe.open(directory)


@pytest.fixture(scope="session")
def kernel() -> None:
    """Skips tests that need captures where captures cannot be taken, or fails them where captures must work."""
    why = None
    if os.geteuid() != 0:
        why = "not root"
    else:
        doctor = subprocess.run([_program.path(), "doctor"], capture_output=True, check=False)
        if doctor.returncode != 0:
            why = "rpcprobe doctor finds fault"
    if why is None:
        return
    if os.environ.get("RPCPROBE_REQUIRE_KERNEL") == "1":
        pytest.fail(f"captures are required to work here, but: {why}")
    pytest.skip(why)
