"""The package's types are correct, and a type checker reports wrong uses of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytest.importorskip("mypy")

PROGRAM = """
from pathlib import Path
import rpcprobe

cap = rpcprobe.open(Path("rpcprobe.out"))
rows: list[dict[str, object]] = list(cap.requests.rows())
names: list[str] = cap.segments.columns
slow = cap.sql("select request_id from requests where latency_ns > $ns", {"ns": 1000})
cap.figure("breakdown", by="method", requests=slow, kind="http1", min_ns=5_000)
print(cap.report(kind="resp")["kinds"], len(cap.requests), rpcprobe.diff("a", "b", kind="http1"))
rpcprobe.run(["./server", "--once"], sudo=True)
"""

WRONG = """
import rpcprobe

rpcprobe.open(7)
rpcprobe.open("a").report(kynd="http1")
rpcprobe.open("a").requests.rows().pandas()
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def checked(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache), *arguments],
        env=os.environ | {"MYPYPATH": str(ROOT / "userspace/python")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_passes_strictly(cache: Path) -> None:
    done = checked(cache, "--strict", "userspace/python/rpcprobe")
    assert done.returncode == 0, done.stdout + done.stderr


def test_who_uses_it_is_told_what_is_wrong(cache: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM)
    wrong.write_text(WRONG)
    done = checked(cache, "--strict", str(right))
    assert done.returncode == 0, done.stdout + done.stderr
    done = checked(cache, "--strict", str(wrong))
    lines = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {"4", "5", "6"}, done.stdout
