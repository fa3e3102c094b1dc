"""Recomputes the figures in RESULTS.md of S4 from the tables, by SQL."""

import re

import pytest


@pytest.fixture
def text(told) -> str:
    return told.words


@pytest.fixture
def sql(told):
    return told.ask


def spread(row, decimals: int, name: str = "") -> str:
    middle, low, high = (f"{value:,.{decimals}f}" for value in row)
    return f"{middle}{' ' + name if name else ''} ({low} to {high})"


NAMES = {1: "1 client", 2: "2 clients"}


def test_first_call(text, sql):
    (row,) = sql(
        """select median(first_ns) / 1e6, min(first_ns) / 1e6, max(first_ns) / 1e6 from clients
           where clients = 1 and not probe and unit_ns = 1"""
    )
    assert f"| first call | 3 to 5 ms | {spread(row, 2, 'ms')} |" in text
    within = 3 <= row[0] <= 5
    said = re.search(r"\*\*The first call takes ([\d.]+) ms, (.*?)\*\*", text)
    assert said.group(1) == f"{row[0]:.2f}"
    assert (said.group(2) == "as the report has it") == within


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("p", [50, 90, 99])
def test_percentiles(text, sql, clients, p):
    (row,) = sql(
        f"""select median(p{p}_ns) / 1e3, min(p{p}_ns) / 1e3, max(p{p}_ns) / 1e3 from runs
            where clients = {clients} and not probe"""
    )
    assert f"| later calls, {NAMES[clients]}, p{p} | - | {spread(row, 1, 'us')} |" in text


@pytest.mark.parametrize("clients", [1, 2])
def test_throughput(text, sql, clients):
    (row,) = sql(
        f"""select median(calls / whole_ns) * 1e6, min(calls / whole_ns) * 1e6, max(calls / whole_ns) * 1e6
            from runs where clients = {clients} and not probe"""
    )
    assert f"| throughput, {NAMES[clients]}, calls/ms | - | {spread(row, 2)} |" in text


@pytest.mark.parametrize("clients, reported", [(1, "19.6"), (2, "42.77")])
def test_truncation(text, sql, clients, reported):
    figures = [
        row[0]
        for row in sql(
            f"""select sum(case when truncated_ns = 0 then 'inf'::double else calls * 1e6 / truncated_ns end)
                from clients where clients = {clients} and not probe and unit_ns = 1000000
                group by round"""
        )
    ]
    finite = [value for value in figures if value != float("inf")]
    said = [f"{min(finite):,.1f} to {max(finite):,.1f}"] if finite else []
    if len(finite) < len(figures):
        said.append(f"infinite in {len(figures) - len(finite)} of {len(figures)} runs")
    row = f"truncated to whole ms, {NAMES[clients]} | {reported} | {', '.join(said)} |"
    assert row in text
    # The figures that the client itself printed.
    printed = sql(
        f"select printed_truncated_per_ms from runs where clients = {clients} and not probe order by 1"
    )
    assert sorted(figures) == pytest.approx([row[0] for row in printed], abs=0.001)
    assert "is the same in each run" in text


def test_a_second_client(text, sql):
    ((ratio,),) = sql(
        """select median(calls / whole_ns) filter (clients = 2) / median(calls / whole_ns) filter (clients = 1)
           from runs where not probe"""
    )
    assert f"**A second client gives {ratio:.2f} times the throughput**" in text
    assert ("That contradicts the report" in text) == (ratio < 0.9 * 42.77 / 19.6)


@pytest.mark.parametrize("clients", [1, 2])
def test_cpu_time_of_a_call(text, sql, clients):
    ((cpu_us,),) = sql(
        f"""with start as (select median(server_cpu_ns) s, median(client_cpu_ns) c, any_value(calls) n
                           from starts where clients = {clients})
            select (median((r.server_cpu_ns - s) / (r.calls + {clients} - n))
                    + median((r.client_cpu_ns - c) / (r.calls + {clients} - n))) / 1e3
            from runs r, start where clients = {clients} and not probe"""
    )
    assert f"{cpu_us:,.1f} us of CPU a call" in text


def test_the_first_calls_parts_add_up(text, sql):
    ((off,),) = sql(
        """with parts as (select round, sum(total_ns) ns from first where kind <> '(server''s)' group by round)
           select max(abs(parts.ns - c.first_ns)) from parts join clients c using (round)
           where c.clients = 1 and c.probe and c.unit_ns = 1"""
    )
    assert off == 0
    for kind, share in sql(
        """select kind, sum(total_ns) / sum(sum(total_ns)) over () from first
           where kind <> '(server''s)' group by kind order by 2 desc limit 4"""
    ):
        assert f"{share * 100:.0f} % {kind}" in text


def test_steady_calls(text, sql):
    for clients in (1, 2):
        rows = sql(
            f"""select category, side, sum(total_ns) / sum(sum(total_ns)) over () from parts
                where clients = {clients} group by all order by 3 desc limit 3"""
        )
        said = ", ".join(f"{share * 100:.0f} % {name} ({side})" for name, side, share in rows)
        assert f"| {said} |" in text
    ((off,),) = sql(
        """with p as (select clients, round, sum(total_ns) ns from parts group by all)
           select max(abs(p.ns + before_ns + after_ns - r.total_ns)) from p join runs r using (clients, round)
           where r.probe"""
    )
    assert off == 0
