"""Captures taken from Python."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rpcprobe


def test_without_root_the_command_to_type_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(rpcprobe.Error, match="needs root") as raised:
        rpcprobe.run(["sleep", "a b"], directory="/nowhere/capture")
    assert f"sudo {rpcprobe._program.path()} run -q -o /nowhere/capture -- sleep 'a b'" in str(
        raised.value
    )
    # The command to type does not name a temporary directory, which would be gone by then.
    with pytest.raises(rpcprobe.Error, match="run -q -- true\n"):
        rpcprobe.run(["true"])
    monkeypatch.setattr(rpcprobe._run.shutil, "which", lambda _: None)
    monkeypatch.setattr(rpcprobe._program, "path", lambda: "/bin/rpcprobe")
    with pytest.raises(rpcprobe.Error, match="sudo asks for a password, or there is none"):
        rpcprobe.run(["true"], directory="/nowhere/capture", sudo=True, user="nobody")


def test_a_directory_that_exists_is_kept(directory: Path) -> None:
    with pytest.raises(rpcprobe.Error, match="exists: a capture goes to a new directory"):
        rpcprobe.run(["true"], directory=directory)
    assert len(rpcprobe.open(directory).requests) == 400


def test_nothing_to_run() -> None:
    with pytest.raises(rpcprobe.Error, match="there is no program to run"):
        rpcprobe.run([])


@pytest.mark.root
@pytest.mark.usefixtures("kernel")
def test_a_capture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "for i in 1 2 3; do /bin/true; done; echo out; echo err >&2; exit 3"
    with (tmp_path / "out").open("wb") as out:
        cap = rpcprobe.run(
            ["sh", "-c", script], directory=tmp_path / "capture", stdout=out, labels={"a": "b"}
        )
    assert os.waitstatus_to_exitcode(cap.manifest["command"]["wait_status"]) == 3
    assert cap.manifest["labels"] == {"a": "b"}
    (row,) = cap.sql(
        "select count(*)::int as n from requests where kind = 'exec' and complete"
    ).rows()
    assert row["n"] >= 3
    assert (tmp_path / "out").read_text() == "out\n"
    assert "err" in capfd.readouterr().err
    assert cap.report()["kinds"][0]["requests"] == len(
        cap.sql("select 1 from requests where kind = 'exec'")
    )
    assert cap.figure("breakdown").data


@pytest.mark.root
@pytest.mark.usefixtures("kernel")
def test_a_temporary_capture_is_removed() -> None:
    cap = rpcprobe.run(["true"])
    path = cap.path
    assert path.is_dir()
    del cap
    gc.collect()
    assert not path.parent.exists()


@pytest.mark.root
@pytest.mark.usefixtures("kernel")
def test_what_cannot_be_run(tmp_path: Path) -> None:
    for command, said in (
        (["/nowhere/program"], "/nowhere/program"),
        ([str(tmp_path)], str(tmp_path)),
    ):
        with pytest.raises(rpcprobe.Error, match=said):
            rpcprobe.run(command, directory=tmp_path / "capture")
        assert not (tmp_path / "capture").exists()
    with pytest.raises(rpcprobe.Error, match="cannot run"):
        rpcprobe.run(["true"], cwd=tmp_path / "nowhere")
    with pytest.raises(rpcprobe.Error, match="nobody_of_that_name"):
        rpcprobe.run(["true"], user="nobody_of_that_name")


@pytest.mark.root
@pytest.mark.usefixtures("kernel")
def test_by_sudo(tmp_path: Path) -> None:
    """As a user who may become root without a password, the program runs with this user's rights."""
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("sudo is not to be had")
    # Root by sudo is also root; the difference is that rpcprobe sees the calling user.
    code = f"import os; os.geteuid = lambda: 1; import rpcprobe; print(len(rpcprobe.run(['id', '-u'], directory={str(tmp_path / 'capture')!r}, user='nobody', sudo=True).requests))"
    folder = str(Path(rpcprobe.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": folder},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "65534"
