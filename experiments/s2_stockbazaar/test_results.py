"""Recomputes the figures in RESULTS.md of S2 from the tables, by SQL."""

import re
from statistics import median

import pytest

REPORTED = {
    "sockets, pool of 2, Lookup": (0.59954, 0.5592, 0.596, 0.629, 1.225),
    "sockets, pool of 6, Lookup": (0.5988, 0.51022, 0.5368, 0.544, 1.2163),
    "gRPC, Lookup": (4.33, 4.34, 4.37, 4.45, 4.49),
    "gRPC, Trade": (4.40, 4.46, 4.55, 4.56, 4.56),
}
TWO, SIX, LOOKUP, TRADE = REPORTED
BARE = "not probe and not short_backlog"
PROBED = "probe and not short_backlog"


@pytest.fixture
def text(told) -> str:
    return told.words


@pytest.fixture
def sql(told):
    return told.ask


@pytest.fixture
def most(sql) -> int:
    return sql(f"select max(clients) from runs where {BARE}")[0][0]


def mean_ms(sql, system: str, clients: int) -> float:
    return sql(
        f"""select median(total_ns / requests) / 1e6 from runs
            where system = '{system}' and clients = {clients} and {BARE}"""
    )[0][0]


@pytest.mark.parametrize("system", REPORTED)
def test_response_times(text, sql, system):
    rows = sql(
        f"""select clients, median(total_ns / requests) / 1e6, min(total_ns / requests) / 1e6,
                   max(total_ns / requests) / 1e6 from runs
            where system = '{system}' and {BARE} group by clients"""
    )
    assert len(rows) >= 3
    for clients, middle, low, high in rows:
        name = f"{clients} client{'s' * (clients > 1)}"
        ours = f"{middle:,.3f} ms ({low:,.3f} to {high:,.3f})"
        assert f"| {system}, {name} | {REPORTED[system][clients - 1]:g} ms | {ours} |" in text


@pytest.mark.parametrize("system", REPORTED)
def test_what_they_are_attributed_to(text, sql, system):
    for (clients,) in sql(f"select distinct clients from parts where system = '{system}'"):
        parts = sql(
            f"""with whole as (select sum(later_total_ns) ns from runs
                               where system = '{system}' and clients = {clients} and {PROBED})
                select category, side, sum(total_ns) / any_value(whole.ns) from parts, whole
                where system = '{system}' and clients = {clients} group by all order by 3 desc limit 3"""
        )
        said = ", ".join(f"{share * 100:.0f} % {name} ({side})" for name, side, share in parts)
        row = re.search(
            rf"\| {re.escape(system)}, {clients} clients? \|[^|]*\|[^|]*\| ([^|]*) \|", text
        )
        assert row.group(1) == said


def test_parts_add_up_to_the_clients_stamps(sql):
    rows = sql(
        f"""with p as (select system, clients, round, sum(total_ns) ns from parts group by all)
            select max(abs(p.ns + before_ns + after_ns - later_total_ns)), count(*)
            from p join runs r using (system, clients, round) where {PROBED}"""
    )
    assert rows[0][0] == 0
    assert rows[0][1] == sql(f"select count(*) from runs where {PROBED}")[0][0]


def test_sockets_against_grpc(text, sql):
    sockets, grpc = mean_ms(sql, SIX, 1), mean_ms(sql, LOOKUP, 1)
    assert (
        f"a Lookup by gRPC takes {grpc - sockets:.2f} ms more than by sockets "
        f"({grpc:.2f} against {sockets:.2f} ms, {grpc / sockets:.1f} times)" in text
    )
    assert ("That much does not occur here" in text) == (grpc - sockets < 0.5 * 3.7312)
    ((probed,),) = sql(
        f"""select sum(later_total_ns) filter (system = '{LOOKUP}') / sum(later_requests) filter (system = '{LOOKUP}')
                   - sum(later_total_ns) filter (system = '{SIX}') / sum(later_requests) filter (system = '{SIX}')
            from runs where clients = 1 and {PROBED}"""
    )
    assert f"With the probe it is {probed / 1e3:,.1f} us more" in text
    ((user,),) = sql(
        f"""with n as (select system, sum(later_requests) n from runs where clients = 1 and {PROBED} group by 1),
                 u as (select system, sum(total_ns) ns from parts
                       where clients = 1 and category in ('user', 'fault') group by 1)
            select sum(ns / n) filter (system = '{LOOKUP}') - sum(ns / n) filter (system = '{SIX}')
            from n join u using (system)"""
    )
    groups = text.split("more, and they are: ")[1].split(". The network")[0]
    if "user code" in groups:
        assert f"user code {user / 1e3:,.1f} us ({user / probed * 100:.0f} %)" in groups


@pytest.mark.parametrize("system", [SIX, LOOKUP])
def test_load(text, sql, most, system):
    ratio = mean_ms(sql, system, most) / mean_ms(sql, system, 1)
    name = "sockets (pool of 6)" if system == SIX else "gRPC"
    reported = REPORTED[system][most - 1] / REPORTED[system][0]
    said = re.search(
        rf"{re.escape(name)}: ([\d.]+) times with {most} clients \(report: ([\d.]+) times(.*?)\);",
        text,
    )
    assert said.group(1, 2) == (f"{ratio:.1f}", f"{reported:.2f}")
    assert ("contradicts" in said.group(3)) == (not 0.67 < ratio / reported < 1.5)
    for clients in (1, most):
        ((rate,),) = sql(
            f"""select median(requests / whole_ns) * 1e9 from runs
                where system = '{system}' and clients = {clients} and {BARE}"""
        )
        assert f"{rate:,.0f}" in text


def test_jump(text, sql):
    ratios = [mean_ms(sql, system, 5) / mean_ms(sql, system, 4) for system in (TWO, SIX)]
    occurs = max(ratios) >= 1.5
    assert f"**The jump at five clients {'occurs' if occurs else 'does not occur'} here.**" in text
    assert f"rises to {ratios[0]:.2f} times and {ratios[1]:.2f} times (pools of 2 and 6)" in text
    if sql("select count(*) from runs where clients = 3")[0][0]:
        before = [mean_ms(sql, system, 4) / mean_ms(sql, system, 3) for system in (TWO, SIX)]
        assert f"From three to four it rises to {before[0]:.2f} and {before[1]:.2f} times" in text
    lost = dict(
        sql(
            """select clients, sum(lost_syns)::int from runs
               where short_backlog and not probe group by clients"""
        )
    )
    runs = sql("select count(*) from runs where short_backlog and not probe and clients = 5")[0][0]
    if lost[5] > 0 and lost[4] == 0:
        assert (
            f"{lost[5]} request(s) in {runs} run(s) of five clients had their SYN dropped" in text
        )
    else:
        assert f"{lost[4]} requests of four clients and {lost[5]} of five had their SYN" in text


def test_lock(text, sql, most):
    ((lock_ns,), (latency_ms,)) = (
        sql(
            f"""select sum(lock_wait_ns) / sum(served) from runs
                where system = '{TRADE}' and clients = {most} and {BARE}"""
        )[0],
        (mean_ms(sql, TRADE, most),),
    )
    share = lock_ns / 1e6 / latency_ms
    assert f"The market's lock costs {lock_ns / 1e3:,.2f} us a Trade with {most} clients" in text
    assert f"{share * 100:.2f} % of its response time" in text
    assert ("the lock is not the reason" in text) == (share < 0.01)
    pairs = sql(
        f"""select t.total_ns / t.requests - l.total_ns / l.requests
            from runs t join runs l using (clients, round)
            where t.system = '{TRADE}' and l.system = '{LOOKUP}'
              and not t.probe and not l.probe and not t.short_backlog and not l.short_backlog"""
    )
    middle = median([row[0] for row in pairs])
    more = f"{abs(middle) / 1e3:,.0f} us {'less' if middle < 0 else 'more'}"
    assert (
        f"In response time a Trade takes {more} than a Lookup (median of {len(pairs)} pairs" in text
    )


def test_pool(text, sql, most):
    ((wait, busy, latency),) = sql(
        f"""select sum(wait_ns) / sum(served) / 1e3, sum(pool_busy_ns) / sum(served) / 1e3,
                   sum(total_ns) / sum(requests) / 1e3
            from runs where system = '{TWO}' and clients = {most} and {BARE}"""
    )
    assert f"a request waits {wait:,.1f} us from its arrival (accepted) to its begin" in text
    assert f"in {busy:,.1f} us of that, {busy / latency * 100:.0f} % of the response time" in text
    ((six,),) = sql(
        f"""select sum(wait_ns) / sum(served) / 1e3 from runs
            where system = '{SIX}' and clients = {most} and {BARE}"""
    )
    assert f"it still waits {six:,.1f} us" in text
    little = busy < 0.25 * latency
    assert f"**More clients than threads: {'little' if little else 'much'} of it" in text


@pytest.mark.parametrize("system", REPORTED)
def test_modelled(text, sql, most, system):
    for clients in (1, most):
        ((share,),) = sql(
            f"""select sum(modelled_ns) / sum(total_ns) from parts
                where system = '{system}' and clients = {clients}"""
        )
        said = text.split("**How much is inferred.**")[1].split(f"{system}: ")[1].split(";")[0]
        assert f"{share * 100:.1f} % with {clients}" in said
