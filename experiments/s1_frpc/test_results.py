"""Recomputes the figures of RESULTS.md by SQL over the tables."""

import pytest
from conftest import Told
from study import ns, percent

RUNS = """
select mode, linked, probed, round, median(elapsed_ns) as middle, max(elapsed_ns) as slowest, var_samp(elapsed_ns) as variance,
    (quantile_cont(elapsed_ns, 0.75) - quantile_cont(elapsed_ns, 0.25)) / median(elapsed_ns) as iqr
from evaluations group by all
"""
# The mean of each category in each run, for the middle half of modes 1 to 3, dynamically linked.
PARTS = """
select mode, round, phase, category, side, total_ns / requests as mean_ns from breakdown
where requests_of = 'middle half' and linked = 'dynamic'
"""
# The same over all runs.
MEANS = """
select mode, phase, category, side, sum(total_ns) / any_value(run.requests) as mean_ns from breakdown join (
    select mode, sum(requests) as requests from (
        select distinct mode, round, requests from breakdown where requests_of = 'middle half' and linked = 'dynamic'
    ) group by mode
) as run using (mode) where requests_of = 'middle half' and linked = 'dynamic' group by all
"""


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_medians(told: Told, mode: int):
    middle, least, most = told.ask(
        f"""select median(middle), min(middle), max(middle) from ({RUNS})
        where mode = {mode} and linked = 'dynamic' and not probed"""
    )[0]
    assert f"| {ns(middle)} ({ns(least)} to {ns(most)})" in told.row(f"median, mode {mode}")


@pytest.mark.parametrize("mode", [2, 3])
def test_differences_from_mode_1(told: Told, mode: int):
    share = told.one(
        f"""with run as ({RUNS}) select median(b.middle / a.middle - 1) from run as a join run as b using (round, linked, probed)
        where a.mode = 1 and b.mode = {mode} and linked = 'dynamic' and not probed"""
    )
    assert f", {percent(share, sign=True)} (" in told.row(f"median, mode {mode}")
    assert f"paired by round: {percent(share, sign=True)} (" in told.text


def evaluating(told: Told) -> tuple[float, float]:
    """Nanoseconds of parse + evaluate in a new process, and of the whole evaluation."""
    inner = told.one(
        """select sum(total_ns) / (select sum(requests) from (select distinct round, requests from evaluating
            where mode = 1 and linked = 'dynamic')) from evaluating where mode = 1 and linked = 'dynamic'"""
    )
    return inner, told.one(f"select sum(mean_ns) from ({MEANS}) where mode = 1")


def test_evaluator_work(told: Told):
    inner, total = evaluating(told)
    assert f"{ns(inner)}, {percent(inner / total)} of mode 1" in told.row('"evaluator work"')
    assert f"{percent(inner / total)} of the {ns(total)} of an evaluation" in told.text


def test_an_expression_alone(told: Told):
    alone = told.one(
        """select median((b.elapsed_ns - a.elapsed_ns) / (b.expressions - a.expressions))
        from alone as a join alone as b using (round) where a.expressions < b.expressions"""
    )
    inner, _ = evaluating(told)
    assert f"| {ns(alone)} in a process that runs already, {ns(inner)} in a new one |" in told.row(
        "parse + evaluate"
    )


@pytest.mark.parametrize(("mode", "name"), [(2, "files"), (3, "pipes")])
def test_what_they_have_more(told: Told, mode: int, name: str):
    more_ns = told.one(
        f"""with run as (select mode, round, sum(mean_ns) as mean_ns from ({PARTS}) group by all)
        select median(b.mean_ns - a.mean_ns) from run as a join run as b using (round) where a.mode = 1 and b.mode = {mode}"""
    )
    assert f"| {more_ns / 1e3:+.1f} (" in told.row(f"{name} instead of streams")


def test_mode_3_starts_a_process(told: Told):
    sums = {
        name: told.one(
            f"""with run as (select mode, round, sum(mean_ns) as mean_ns from ({PARTS}) where category in {of} group by all)
            select median(b.mean_ns - coalesce(a.mean_ns, 0)) from (select * from run where mode = 3) as b
            left join (select * from run where mode = 1) as a using (round)"""
        )
        for name, of in {
            "fork, exec, exit, wait, memory, page faults": ("kernel.exec", "kernel.mm", "fault"),
            "pipes: calls, copies, bytes not yet read": ("kernel.pipe", "copy", "queue.pipe"),
        }.items()
    }
    for name, more_ns in sums.items():
        assert f"{name}: {more_ns / 1e3:+.1f} (" in told.row("pipes instead of streams")
    process, pipes = sums.values()
    if process < pipes:
        assert "starts a second process.**" not in told.text


def test_spread(told: Told):
    rows = dict(
        told.ask(
            f"select mode, median(iqr) from ({RUNS}) where linked = 'dynamic' and not probed group by mode"
        )
    )
    text = "; ".join(f"mode {mode} {percent(rows[mode])}" for mode in (1, 2, 3))
    assert text in told.row("IQR of a run")
    ratio = told.one(
        f"""with run as ({RUNS}) select median(b.variance / a.variance) from run as a join run as b using (round, linked, probed)
        where a.mode = 1 and b.mode = 2 and linked = 'dynamic' and not probed"""
    )
    assert f"| {ratio:.2f} (" in told.row("variance, mode 2 to mode 1")


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_slowest(told: Told, mode: int):
    slowest, middle = told.ask(
        f"""select max(slowest), median(middle) from ({RUNS})
        where mode = {mode} and linked = 'dynamic' and not probed"""
    )[0]
    row = told.row(f"slowest, mode {mode}")
    assert f"| {ns(slowest)}, {slowest / middle:.1f} medians |" in row
    part = "select latency_ns, category from outliers " + (
        f"where mode = {mode} order by latency_ns desc, more_ns desc limit 1"
    )
    latency, category = told.ask(part)[0]
    assert f"under the probe: {ns(latency)}: {category} +" in row


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_slope(told: Told, mode: int):
    slope = told.one(
        """with size as (select round, tokens, median(elapsed_ns) as middle from evaluations
        """
        + f"where mode = {mode} and linked = 'dynamic' and not probed group by all) "
        + "select median(slope) from (select regr_slope(middle, tokens) as slope from size group by round)"
    )
    assert f"mode {mode} {slope:+,.0f} ns" in told.row("an extra token")


def test_phases(told: Told):
    total = told.one(f"select sum(mean_ns) from ({MEANS}) where mode = 1")
    rows = told.ask(f"select phase, sum(mean_ns) from ({MEANS}) where mode = 1 group by phase")
    assert abs(sum(mean for _, mean in rows) - total) < 1
    for phase, mean in rows:
        line = told.row(phase)
        assert f"| {ns(mean)} | {percent(mean / total)} |" in line
    largest = max(rows, key=lambda row: row[1])
    assert f"{largest[0]} is the largest phase with {percent(largest[1] / total)}" in told.text


def test_dynamic_linking(told: Told):
    stretch = told.one("select median(user_ns) from stretch where mode = 1 and linked = 'dynamic'")
    assert f"user time of {ns(stretch)} (" in told.text
    price = told.one("select median(cpuid_ns) from instruction")
    assert f"One CPUID takes {ns(price)} here" in told.text
    known = told.one(
        "select sum(samples) from samples where phase = 'dynamic linking' and function <> 'kernel'"
    )
    assert f"of {known:.0f} samples of user time in this phase" in told.text
    middle, least, most = told.ask(
        f"""select median(middle), min(middle), max(middle) from ({RUNS}) where linked = 'static' and not probed"""
    )[0]
    assert f"{ns(middle)} ({ns(least)} to {ns(most)}): " in told.text


def test_outliers(told: Told):
    queue, preempted = told.ask(
        """select sum(more_ns) filter (category like 'runqueue.%') / sum(more_ns),
        coalesce(sum(more_ns) filter (category = 'runqueue.preempted'), 0) / sum(more_ns) from outliers where more_ns > 0"""
    )[0]
    assert f"{percent(queue)} is the run queue ({percent(preempted)} after the CPU was" in told.text
    counts = told.ask(
        """with request as (select mode, sum(more_ns) filter (category like 'runqueue.%') > sum(more_ns) / 2 as waited
            from outliers where more_ns > 0 group by mode, rank)
        select count(*) filter (waited), count(*), count(*) filter (waited and mode = 2), count(*) filter (mode = 2) from request"""
    )[0]
    waited, slowest, waited_2, slowest_2 = counts
    if waited > slowest / 2:
        assert f"**Of the {slowest} slowest evaluations {waited} waited for a CPU.**" in told.text
    else:
        assert "**The slowest evaluations are not mainly waits for a CPU.**" in told.text
    if "waited for a commit of the journal; " in told.text:
        assert f"None of the {slowest_2} slowest evaluations on files" in told.text
        assert f"commit of the journal; {waited_2} of them waited for a CPU." in told.text


@pytest.mark.parametrize("mode", [3, 4, 5, 6])
def test_round_trips(told: Told, mode: int):
    plain, probed = (
        told.one(
            "select median(median_ns) from trips "
            + f"where mode = {mode} and probed = {probed} and cpus = 'any CPU'"
        )
        for probed in (False, True)
    )
    line = next(
        x for x in told.text.splitlines() if x.startswith(f"| mode {mode}, ") and x.count("|") == 7
    )
    assert f"| {plain:,.0f} |" in line
    assert f"| {probed:,.0f} |" in line


def test_every_latency_is_the_sum_of_its_categories(told: Told):
    """For all evaluations, their own stamps hardly exceed the sum of the categories."""
    total = told.one("select sum(total_ns) from breakdown where requests_of = 'all'")
    assert total == told.one("select sum(latency_ns) from evaluations where probed")
