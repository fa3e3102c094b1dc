"""Recomputes the numbers of RESULTS.md from the tables, by SQL."""

import pytest
from study.text import ns, percent

STAGES = {"ten": "stage in ('first', 'new key')", "new": "stage = 'new key'"}
STAGES |= {"over": "stage = 'overwrites'", "first": "stage = 'first'", "all": "method = 'write'"}


@pytest.fixture
def text(told) -> str:
    return told.text


@pytest.fixture
def sql(told):
    return told.first


def of_runs(sql, column: str, stage: str, arm: str = "bare") -> tuple:
    return sql(
        f"""select median(m), min(m), max(m) from (select median({column}) m from rpcs
        where method = 'write' and {STAGES[stage]} and arm = '{arm}' group by round)"""
    )


def mean(sql, step: str, stage: str, parts: str = "true") -> float:
    where = STAGES[stage].replace("method = 'write'", "true")
    return sql(
        f"""with p as (from parts where step = '{step}' and {where}),
        counts as (select distinct round, stage, requests from p)
        select (select sum(total_ns) from p where {parts}) / (select sum(requests) from counts)"""
    )[0]


ROWS = {
    "send the 1 MB request": ("send_ns", "ten", "send"),
    "process it, under a new key": ("process_ns", "ten", "process"),
    "process it, overwriting": ("process_ns", "over", "process"),
    "send the answer": ("answer_ns", "ten", "answer"),
    "the answer's way, server's stamp to client's": ("response_ns", "ten", "response"),
    "client's gap between RPCs": ("gap_ns", "new", "gap"),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(sql, text, name):
    column, stage, step = ROWS[name]
    middle, least, most = of_runs(sql, column, stage)
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    assert f"| {ns(middle)} ({ns(least)} to {ns(most)}) |" in line
    assert f"| of {ns(mean(sql, step, stage))}: " in line
    where = STAGES[stage]
    largest, side, total, of = sql(
        f"""select category, side, sum(total_ns), any_value(whole) from parts,
        (select sum(total_ns) whole from parts where step = '{step}' and {where})
        where step = '{step}' and {where} group by category, side order by 3 desc limit 1"""
    )
    assert f"{largest} ({side})" in line
    assert f"({percent(total / of)})" in line


def test_parts_add_up(sql):
    """The time attributed to the three steps of RPCs is their whole time."""
    for stage in ("first", "new key", "overwrites"):
        steps = sql(
            f"""select sum(total_ns) filter (step in ('send', 'process', 'response')),
            sum(total_ns) filter (step = 'all') from parts where stage = '{stage}'"""
        )
        stamps = sql(f"select sum(all_ns) from rpcs where arm = 'probed' and stage = '{stage}'")
        assert steps == (stamps[0], stamps[0])


def test_first_row(sql, text):
    first, later = (of_runs(sql, "process_ns", stage)[0] for stage in ("first", "new"))
    more = sql(
        """with m as (select round, stage, sum(total_ns) filter (category like 'fault%') / any_value(requests) f,
        sum(total_ns) / any_value(requests) a from parts where step = 'process' group by round, stage)
        select median(x.f - y.f), median(x.a - y.a) from m x join m y using (round)
        where x.stage = 'first' and y.stage = 'new key'"""
    )
    (line,) = (line for line in text.splitlines() if line.startswith("| first 3 RPCs"))
    assert (
        f"| {ns(first - later)} | page faults {ns(more[0])} more, all of it {ns(more[1])} more"
        in line
    )
    assert f"take {ns(more[1])} more to process" in text
    held = sql(
        """select count(*) filter (not_sent_ns > 0 and stage = 'first'), count(*) filter (stage = 'first'),
        count(*) filter (not_sent_ns > 0 and stage <> 'first'), count(*) filter (stage <> 'first')
        from rpcs where arm = 'probed' and method = 'write'"""
    )
    assert f"{held[0]} of {held[1]} first writes and {held[2]} of {held[3]} later ones" in text


def test_clock_and_slop_rows(sql, text):
    middle, most, uncertainty = sql(
        """select median(abs(offset_ns - shift_ns)), max(abs(offset_ns - shift_ns)), median(uncertainty_ns)
        from runs where arm = 'bare'"""
    )
    (line,) = (line for line in text.splitlines() if line.startswith("| clocks' offset"))
    assert f"| {ns(middle)} in the median, {ns(most)} at most |" in line
    assert f"{ns(uncertainty)} in the median |" in line
    within, runs = sql(
        "select count(*) filter (abs(offset_ns - shift_ns) <= uncertainty_ns), count(*) from runs"
    )
    assert f"({within} of {runs})" in text
    slop, least, most = of_runs(sql, "post_slop_ns", "ten")
    (line,) = (line for line in text.splitlines() if line.startswith("| slop: not"))
    assert f"| {ns(slop)} ({ns(least)} to {ns(most)}) |" in line
    left = sql(
        """select coalesce(sum(total_ns) filter (category = 'unattributed'), 0)
        / (select count(*) from rpcs where arm = 'probed' and method = 'write') from parts where step = 'all'"""
    )[0]
    assert f"| {ns(left)} of a probed write" in line
    before = sql("select avg(post_slop_ns) from rpcs where arm = 'probed' and method = 'write'")[0]
    assert f"cannot explain {ns(before)} of a probed write" in text


def test_processing(sql, text):
    fault, user = (
        mean(sql, "process", "new", f"category = '{name}'") for name in ("fault", "user")
    )
    contradicts = "not copies: this contradicts the report" in text
    assert f"has {ns(fault)} of page faults ~" in text
    assert f"and {ns(user)} of user mode" in text
    new, over = (of_runs(sql, "process_ns", stage)[0] for stage in ("new", "over"))
    assert contradicts == (fault > user and new - over > over)
    assert f"{ns(new)} under a new key, {ns(over)} overwriting, so {ns(new - over)} is for" in text
    faults = of_runs(sql, "page_faults", "new", "probed")[0]
    assert f"; {faults:.0f} faults," in text


def test_copies(sql, text):
    for side, name in (
        ("client", "client's buffer to the kernel"),
        ("server", "kernel to the server's buffer"),
    ):
        moved, cpu, copy = sql(
            f"""select sum(bytes) / sum(requests), sum(cpu_ns) / sum(requests), sum(copy_ns) / sum(requests)
            from moved where side = '{side}' and arm = 'probed'"""
        )
        samples, copying = sql(
            f"select sum(samples), sum(copy_samples) from moved where side = '{side}' and arm = 'sampled'"
        )
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert f"| {moved:,.0f} bytes | {ns(cpu)} of CPU in the calls" in line
        assert f"copying: {ns(copy)} ~" in line
        assert f"{ns(cpu * float(copying) / float(samples))} by {samples} samples" in line


def test_link(sql, text):
    measured = of_runs(sql, "wire_ns", "ten", "probed")[0]
    by_rate = (1_000_000 * 9014 / 8948 - 16_000) * 8
    assert (
        f"take {ns(measured)} in the median; the bytes with their headers take {ns(by_rate)}"
        in " ".join(text.split())
    )
    assert f"a difference of {percent(measured / by_rate - 1, 2, sign=True)}" in text


def test_gap(sql, text):
    whole, user = mean(sql, "gap", "new"), mean(sql, "gap", "new", "category = 'user'")
    assert f"{percent(user / whole)} of the {ns(whole)} before later writes" in text
    samples, making = sql(
        """select sum(samples), sum(samples) filter (own_function like 'value_of%')
        from samples where step = 'gap' and category = 'user'"""
    )
    assert f"{percent(float(making) / float(samples))} of {samples} samples" in text
