"""Comparisons."""

import json
from pathlib import Path

import made_up
import pytest

import rpcprobe


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sides")
    return made_up.make(folder / "a"), made_up.make(folder / "b", seed=2)


def test_of_two_captures(sides: tuple[Path, Path]) -> None:
    a, b = sides
    comparison = rpcprobe.diff(rpcprobe.open(a), b)
    assert [kind["kind"] for kind in comparison.data["kinds"]] == ["http1", "resp"]
    assert "one capture a side" in str(comparison)
    for name in ("shift", "waterfall"):
        assert comparison.figure(name).data
    # The waterfall's categories sum to the difference of the means.
    (mean,) = [of for of in comparison.data["kinds"][0]["statistics"] if of["statistic"] == "mean"]
    (change,) = (
        rpcprobe.open(b)
        .sql(
            f"""select round(avg(b.latency_ns) - (select avg(latency_ns) from '{a}/requests.parquet'
            where complete and kind = 'http1'))::bigint as ns from requests b where complete and kind = 'http1'"""
        )
        .rows()
    )
    assert abs(mean["total"]["change_ns"] - change["ns"]) <= 1
    assert sum(part["change_ns"] for part in mean["parts"]) == mean["total"]["change_ns"]
    assert json.dumps(comparison.data)
    filtered = rpcprobe.diff(a, b, kind="resp")
    assert [kind["kind"] for kind in filtered.data["kinds"]] == ["resp"]


def test_of_lists(sides: tuple[Path, Path]) -> None:
    comparison = rpcprobe.diff([sides[0], sides[1]], [rpcprobe.open(sides[1]), sides[0]])
    assert comparison.data["kinds"]
    with pytest.raises(rpcprobe.Error, match="only two captures"):
        comparison.figure("shift")


def test_of_what_cannot_be_compared(sides: tuple[Path, Path], tmp_path: Path) -> None:
    for a, b, why in (
        (sides[0], None, "is one capture, or none"),
        ([], sides[0], "one side has no capture"),
        (list(sides), None, "without b"),
        (sides[0], tmp_path / "nowhere", "nowhere"),
        (sides[0], made_up.make(tmp_path / "empty", 0), "no kind"),
    ):
        with pytest.raises(rpcprobe.Error, match=why):
            comparison = rpcprobe.diff(a, b)
            comparison.figure("shift")
    comparison = rpcprobe.diff(*sides)
    with pytest.raises(rpcprobe.Error, match="there is no figure 'nothing'"):
        comparison.figure("nothing")
    with pytest.raises(rpcprobe.Error, match="'latency' is one of a capture"):
        comparison.figure("latency")
