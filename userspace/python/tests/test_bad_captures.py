"""A damaged capture, or a directory that is no capture, always raises `rpcprobe.Error`, with what and where."""

import json
import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import made_up
import pytest

import rpcprobe


def use(directory: Path) -> None:
    """Calls everything that reads a capture."""
    cap = rpcprobe.open(directory)
    for work in (
        lambda: (cap.requests, cap.segments),
        lambda: cap.sql("select * from requests join segments using (request_id)"),
        lambda: cap.report(),
        lambda: cap.figure("breakdown"),
        lambda: rpcprobe.diff(cap, cap),
    ):
        work()


def half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garbled(file: Path) -> None:
    """Damages the middle of the file and leaves both ends intact."""
    data = bytearray(file.read_bytes())
    data[8 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 8)
    file.write_bytes(data)


def swapped(directory: Path) -> None:
    shutil.copy(directory / "requests.parquet", directory / "segments.parquet")


def version(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda d: shutil.rmtree(d), "there is no capture .*: no such directory"),
    "a file": (lambda d: (shutil.rmtree(d), d.write_text("x")), "is no directory"),
    "empty directory": (lambda d: (shutil.rmtree(d), d.mkdir()), "not a finished capture"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "has no manifest.json"),
    "empty manifest": (lambda d: (d / "manifest.json").write_text(""), "manifest.json is damaged"),
    "half a manifest": (lambda d: half(d / "manifest.json"), "manifest.json is damaged"),
    "binary manifest": (lambda d: (d / "manifest.json").write_bytes(b"\xff\xfe"), "no capture"),
    "a list for a manifest": (lambda d: (d / "manifest.json").write_text("[1]"), "is damaged"),
    "deep manifest": (lambda d: (d / "manifest.json").write_text("[" * 10**5), "is damaged"),
    "little manifest": (
        lambda d: (d / "manifest.json").write_text('{"format_version": 1, "counts": null}'),
        "manifest.json is damaged",
    ),
    "manifest is a directory": (
        lambda d: ((d / "manifest.json").unlink(), (d / "manifest.json").mkdir()),
        "cannot read .*manifest.json",
    ),
    "of another version": (version, "format version 99, this package reads 1"),
    "not attributed": (
        lambda d: (d / "segments.parquet").unlink(),
        "`rpcprobe attribute .*` makes it",
    ),
    "half of requests": (lambda d: half(d / "requests.parquet"), "requests.parquet is damaged"),
    "half of segments": (lambda d: half(d / "segments.parquet"), "segments.parquet is damaged"),
    "empty segments": (lambda d: (d / "segments.parquet").write_bytes(b""), "segments.parquet"),
    "foreign segments": (
        lambda d: (d / "segments.parquet").write_text("x" * 99),
        "segments.parquet",
    ),
    "garbled segments": (lambda d: garbled(d / "segments.parquet"), "segments.parquet|damaged"),
    "garbled requests": (lambda d: garbled(d / "requests.parquet"), "requests.parquet|damaged"),
    "another table": (swapped, "segments.parquet is no table of segments: it has no column"),
}


@pytest.mark.parametrize("name", BAD)
def test_is_one_kind_of_error(tmp_path: Path, name: str) -> None:
    directory = made_up.make(tmp_path / "capture", 60)
    spoil, said = BAD[name]
    spoil(directory)
    with pytest.raises(rpcprobe.Error, match=said) as raised:
        use(directory)
    assert str(tmp_path) in str(raised.value)
    # No chained exception above it: no "During handling of the above exception".
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("Traceback (most recent call last)") == 1, shown


def test_damage_in_the_middle_is_said_by_every_way_to_read(tmp_path: Path) -> None:
    directory = made_up.make(tmp_path / "capture", 400)
    garbled(directory / "segments.parquet")
    cap = rpcprobe.open(directory)
    for read in (
        lambda: cap.segments,
        lambda: cap.sql("select sum(duration_ns) from segments"),
        cap.report,
        lambda: cap.figure("breakdown"),
    ):
        with pytest.raises(rpcprobe.Error):
            read()


def test_without_what_only_some_captures_have(tmp_path: Path) -> None:
    cap = rpcprobe.open(made_up.make(tmp_path / "capture", 10))
    with pytest.raises(rpcprobe.Error, match="taken without `--stacks`"):
        cap.stacks  # noqa: B018 - reading it is what fails
    (cap.path / "threads.parquet").unlink()
    with pytest.raises(rpcprobe.Error, match=r"cannot read .*threads.parquet: No such file"):
        cap.threads  # noqa: B018
    assert cap.sql("select count(*)::int as n from requests").rows() == [{"n": 10}]


def test_no_requests_and_one(tmp_path: Path) -> None:
    none = rpcprobe.open(made_up.make(tmp_path / "none", 0))
    assert (len(none.requests), len(none.segments), none.report()["kinds"]) == (0, 0, [])
    assert "no requests" in repr(none)
    with pytest.raises(rpcprobe.Error, match="there are no complete requests"):
        none.figure("latency")
    one = rpcprobe.open(made_up.make(tmp_path / "one", 1))
    for name in ("latency", "breakdown", "requests", "overtime", "cpu", "tree", "timeline"):
        assert one.figure(name).layout.height > 0


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(rpcprobe.Error, match=r"cannot read .*manifest.json: Permission denied"):
        rpcprobe.open(tmp_path / "capture")


def test_the_directory_of_an_ab(tmp_path: Path) -> None:
    (tmp_path / "ab.json").write_text("{}")
    with pytest.raises(rpcprobe.Error, match=r"`rpcprobe ab` wrote: rpcprobe.diff\("):
        rpcprobe.open(tmp_path)


@pytest.mark.parametrize("given", [None, 7, ["a"], b"\0", "a\0b"])
def test_no_path(given: object) -> None:
    with pytest.raises(rpcprobe.Error):
        rpcprobe.open(given)
