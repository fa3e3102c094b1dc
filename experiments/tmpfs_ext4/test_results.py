"""Recomputes the figures of RESULTS.md by SQL over the tables."""

import pytest
from conftest import Told
from study import ns, percent

SCENES = ("alone", "beside the writer")
RUNS = """
select scene, disk, round, median(elapsed_ns) as middle, max(elapsed_ns) as slowest from evaluations group by all
"""


@pytest.mark.parametrize("scene", SCENES)
def test_medians(told: Told, scene: str):
    ext4, tmpfs, gain = told.ask(
        f"""with run as ({RUNS}) select median(a.middle), median(b.middle), median(b.middle / a.middle - 1)
        from run as a join run as b using (scene, round) where scene = '{scene}' and a.disk = 'ext4' and b.disk = 'tmpfs'"""
    )[0]
    row = told.row(f"median on tmpfs, {scene}")
    assert f"| {ns(ext4)} to {ns(tmpfs)}: {percent(gain, sign=True)} (" in row
    assert f"the median changes by {percent(gain, sign=True)} (" in told.text


@pytest.mark.parametrize("scene", SCENES)
def test_what_ab_found(told: Told, scene: str):
    parts = f"from changes where scene = '{scene}' and statistic = 'p50'"
    total = told.ask(f"select change_ns {parts} and category is null")[0][0]
    row = told.row(f"median on tmpfs, {scene}")
    assert f", of {total / 1e3:+.1f} us under the probe |" in row
    shown = told.ask(f"select category, side, change_ns {parts} and category is not null and shown")
    assert ("nothing shown to change" in row) == (not shown)
    for category, side, change in shown:
        assert f"{category} ({side}) {change / 1e3:+.1f} us" in row


def test_parts_sum_to_their_total(told: Told):
    wrong = told.ask(
        """select scene, statistic from changes group by all
        having sum(change_ns) filter (category is null) <> sum(change_ns) filter (category is not null)"""
    )
    assert wrong == []


@pytest.mark.parametrize("scene", SCENES)
def test_slowest(told: Told, scene: str):
    row = told.row(f"slowest, {scene}")
    for disk, slowest, middle in told.ask(
        f"select disk, max(slowest), median(middle) from ({RUNS}) where scene = '{scene}' group by disk"
    ):
        assert f"{disk} {ns(slowest)} ({slowest / middle:.1f} medians)" in row
    queue = told.ask(
        """select sum(more_ns) filter (category like 'runqueue.%') / sum(more_ns) from outliers
        """
        + f"where more_ns > 0 and disk = 'ext4' and scene = '{scene}'"
    )[0][0]
    assert f"run queue {percent(queue, 0)}, journal" in row


@pytest.mark.parametrize("scene", SCENES)
def test_waits_for_a_commit(told: Told, scene: str):
    count, longest = told.ask(
        f"""select count(distinct (pair, request_id)), max(wait_ns) from waits
        where scene = '{scene}' and disk = 'ext4' and category = 'journal'"""
    )[0]
    captured = told.ask(
        f"select sum(requests) from whatif where scene = '{scene}' and disk = 'ext4'"
    )[0][0]
    row = told.row("`openat()` behind a commit of the journal")
    text = f"{scene}: {count} of {captured:,} evaluations"
    assert text + (f", longest {ns(longest)}" if count else "") in row


def test_calls(told: Told):
    rows = told.ask(
        """select "call", sum(total_ns) filter (disk = 'ext4') / sum(requests) filter (disk = 'ext4'),
        sum(total_ns) filter (disk = 'tmpfs') / sum(requests) filter (disk = 'tmpfs') from calls
        where scene = 'alone' and "call" like '% of the output' group by all"""
    )
    assert {name for name, _, _ in rows} >= {"openat of the output", "write of the output"}
    for name, ext4, tmpfs in rows:
        assert told.row(name).startswith(f"| {name} | {ext4 / 1e3:.1f} | {tmpfs / 1e3:.1f} |")


def test_placement(told: Told):
    shares = dict(
        told.ask(
            """select disk, sum(on_two_cpus) / sum(requests) from placement where scene = 'alone' group by disk"""
        )
    )
    assert f"{percent(shares['ext4'])} on ext4, {percent(shares['tmpfs'])} on tmpfs." in told.text
    gain = told.ask(
        f"""with run as ({RUNS}) select median(b.middle / a.middle - 1) from run as a join run as b using (scene, round)
        where scene = 'alone, on one CPU' and a.disk = 'ext4' and b.disk = 'tmpfs'"""
    )[0][0]
    assert f"without the probe) the median changes by {percent(gain, sign=True)} (" in told.text


def test_whatif(told: Told):
    row = told.row("foretold by `whatif --without journal,block_io`, median")
    for scene in SCENES:
        was, without, really = told.ask(
            f"""select median(was_p50_ns) filter (disk = 'ext4'), median(without_p50_ns) filter (disk = 'ext4'),
            median(was_p50_ns) filter (disk = 'tmpfs') from whatif where scene = '{scene}'"""
        )[0]
        assert f"{scene} {percent(without / was - 1, sign=True)}" in row
        assert f"under the probe: {percent(really / was - 1, sign=True)}" in row
        assert f"| p50, {scene} | {ns(was)} | {ns(without)} | {ns(really)} |" in told.text
