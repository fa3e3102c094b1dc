"""The package's numbers equal those of the program and of SQL over the files."""

import json
import subprocess

import pytest

import rpcprobe
from rpcprobe import _program


def printed(*arguments: str) -> dict:
    done = subprocess.run([_program.path(), *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["http1", "resp"])
def test_report_agrees_with_sql_and_the_command(cap: rpcprobe.Capture, kind: str) -> None:
    told = cap.report()
    assert told == printed("report", "--json", str(cap.path))
    (of_kind,) = [of for of in told["kinds"] if of["kind"] == kind]
    where = f"where complete and kind = '{kind}'"
    (found,) = cap.sql(
        f"""select percentile_disc(0.5) within group (order by latency_ns) as p50_ns,
                   percentile_disc(0.9) within group (order by latency_ns) as p90_ns,
                   percentile_disc(0.99) within group (order by latency_ns) as p99_ns,
                   max(latency_ns) as max_ns, sum(latency_ns)::bigint as total_ns from requests {where}"""
    ).rows()
    assert {name: of_kind["latency"][name] for name in found} == found
    parts = cap.sql(
        f"""select category, side, sum(duration_ns)::bigint as ns from segments
            where request_id in (select request_id from requests {where}) group by all"""
    ).rows()
    assert {
        (part["category"], part["side"]): part["total_ns"]
        for part in of_kind["parts"]
        if part["total_ns"]
    } == {(part["category"], part["side"]): part["ns"] for part in parts}


@pytest.mark.parametrize("kind", ["http1", "resp"])
def test_a_breakdown_of_selected_requests_agrees_with_sql(cap: rpcprobe.Capture, kind: str) -> None:
    selected = cap.sql(
        f"""select request_id from requests where complete and kind = '{kind}' and latency_ns > 5000"""
    )
    assert len(selected) > 10
    figure = cap.figure("breakdown", kind=kind, requests=selected)
    told = {trace.meta["category"]: trace.customdata[0] for trace in figure.data}
    rows = cap.sql(
        """select category, sum(duration_ns)::bigint as ns from segments
           where request_id in (select unnest($ids)) group by 1""",
        {"ids": selected["request_id"].to_pylist()},
    ).rows()
    assert told == {row["category"]: row["ns"] for row in rows}
    # The same requests, given in other ways, give the same report.
    ids = selected["request_id"]
    for same in (
        ids,
        ids.to_pylist(),
        selected.pandas(),
        selected.polars()["request_id"],
        {*ids.to_pylist()},
    ):
        again = cap.figure("breakdown", kind=kind, requests=same)
        assert again.to_plotly_json()["data"] == figure.to_plotly_json()["data"]


def test_figures_are_the_program_s(cap: rpcprobe.Capture) -> None:
    for name in _program.figures():
        if name in ("shift", "waterfall"):
            continue
        figure = json.loads(cap.figure(name, kind="http1").to_json())
        theirs = printed("figure", name, str(cap.path), "--kind", "http1")
        assert figure["data"] == theirs["data"]
        assert figure["layout"].get("meta") == theirs["layout"].get("meta")
    by_method = json.loads(cap.figure("breakdown", by="method", kind="http1").to_json())
    assert (
        by_method["data"] == printed("figure", "methods", str(cap.path), "--kind", "http1")["data"]
    )


def test_filters_are_those_of_the_program(cap: rpcprobe.Capture) -> None:
    told = cap.report(method=["GET /a", "GET /b"], min_ns=5_000, from_ns=7_000, to_ns=2_000_000)
    (found,) = cap.sql(
        f"""select count(*)::int as n from requests where method in ('GET /a', 'GET /b') and complete
            and latency_ns >= 5000 and start_ns - {cap.manifest["start_ns"]} between 7000 and 1999999"""
    ).rows()
    assert sum(kind["requests"] - kind["incomplete"] for kind in told["kinds"]) == found["n"] > 0
    assert cap.report(kind="resp", status=0, by="status")["filter"]["statuses"] == ["0"]
