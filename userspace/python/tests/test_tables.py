"""Tables and SQL."""

from pathlib import Path

import duckdb
import made_up
import narwhals
import pyarrow as pa
import pytest

import rpcprobe


def test_every_row_and_type_is_that_of_the_file(cap: rpcprobe.Capture) -> None:
    for table, names in (("requests", made_up.OF_REQUESTS), ("segments", made_up.OF_SEGMENTS)):
        ours = getattr(cap, table)
        (count,) = duckdb.execute(f"select count(*) from '{cap.path}/{table}.parquet'").fetchone()
        assert len(ours) == count
        assert ours.arrow.schema.equals(made_up.schema(names), check_metadata=False)
    assert cap.threads["comm"].to_pylist() == ["server"]


def test_pandas_and_polars_keep_integers(cap: rpcprobe.Capture) -> None:
    # A column with nulls: floats would not hold its nanoseconds exactly.
    found = cap.requests["lock"].to_pylist()
    assert None in found
    pandas = cap.requests.pandas()
    assert pandas["lock"].dtype == "int64[pyarrow]"
    assert [
        None if value is pandas["lock"].dtype.na_value else value for value in pandas["lock"]
    ] == found
    assert cap.requests.polars()["lock"].to_list() == found


def test_whatever_takes_arrow_takes_a_table(cap: rpcprobe.Capture) -> None:
    assert pa.table(cap.requests).equals(cap.requests.arrow)
    assert narwhals.from_native(cap.requests.arrow).shape[0] == len(cap.requests)


def test_a_column_that_is_not_there(cap: rpcprobe.Capture) -> None:
    with pytest.raises(rpcprobe.Error, match="no column 'latency'; the columns are request_id, "):
        cap.requests["latency"]


def test_views_have_plain_names(cap: rpcprobe.Capture) -> None:
    for table in ("requests", "segments", "threads"):
        of_file = getattr(cap, table).columns
        of_view = cap.sql(f"select * from {table} limit 0").columns
        assert len(of_file) == len(of_view)
        # Each column can be named without quotes.
        named = cap.sql(f"select {', '.join(of_view)} from {table} limit 1")
        assert named.columns == of_view
        for file_name, view_name in zip(of_file, of_view, strict=True):
            ours, theirs = (
                cap.sql(f"select {view_name} from {table}"),
                getattr(cap, table)[file_name],
            )
            assert ours[view_name].to_pylist() == theirs.to_pylist()


def test_segments_add_up_to_latencies(cap: rpcprobe.Capture) -> None:
    wrong = cap.sql(
        """select r.request_id from requests r join segments s using (request_id) where r.complete
           group by r.request_id, r.latency_ns having sum(s.duration_ns) <> r.latency_ns"""
    )
    assert len(wrong) == 0


def test_parameters_and_mistakes(cap: rpcprobe.Capture) -> None:
    assert cap.sql("select kind from requests where request_id = ?", [1]).rows()[0]["kind"]
    assert cap.sql("select $n::int as n", {"n": 3}).rows() == [{"n": 3}]
    assert len(cap.sql("create or replace temp table t as select 1 as a")) <= 1
    for query in (
        "selec 1",
        "select nothing from requests",
        "select ?",
        "select * from requests; selec",
    ):
        with pytest.raises(rpcprobe.Error, match="^SQL: "):
            cap.sql(query)


def test_a_directory_with_a_name_like_a_pattern(tmp_path: Path) -> None:
    for name in ("a*[b]?{c}", "kind=x", "-o", 'it\'s "quoted" \n', "ümlaut"):
        capture = rpcprobe.open(made_up.make(tmp_path / name, 30))
        assert len(capture.requests) == 30
        assert "kind" in capture.requests.columns
        assert capture.sql("select count(*)::int as n from requests").rows() == [{"n": 30}]
        assert capture.report()["kinds"]
        assert capture.figure("latency").data
