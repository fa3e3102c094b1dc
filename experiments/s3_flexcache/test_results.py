"""Recomputes the numbers of RESULTS.md from the tables, by SQL."""

import pytest
from study.text import ns, percent

NAMES = {
    "null_udp": "null RPC, UDP",
    "null_tcp": "null RPC, TCP",
    "invoke_udp": "null proxy invocation, UDP",
    "invoke_tcp": "null proxy invocation, TCP",
    "read": "invocation on a cached object",
    "create": "create a cacheable object",
    "validate": "validate an object copy",
    "cache": "cache an object copy",
    "invalidate": "invalidation",
}
BY = {"udp": "over UDP", "tcp": "over TCP", "unix": "by IPC"}


@pytest.fixture
def text(told) -> str:
    return told.text


@pytest.fixture
def sql(told):
    return told.first


def of_runs(sql, operation: str, line: str = "quiet", arm: str = "bare") -> tuple:
    return sql(
        f"""select median(m), min(m), max(m) from (select median(took_ns) m from requests
        where operation = '{operation}' and line like '{line}' and arm = '{arm}' group by round)"""
    )


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start} |")]


@pytest.mark.parametrize("operation", NAMES)
def test_row(sql, text, operation):
    middle, least, most = of_runs(sql, operation)
    line = lines(text, NAMES[operation])[0]
    assert f"| {ns(middle)} ({ns(least)} to {ns(most)}) |" in line
    requests, whole = sql(
        f"""select sum(requests) filter (transport = ''), sum(total_ns) from parts
        where operation = '{operation}' and line = 'quiet'"""
    )
    if operation in ("read", "invalidate"):
        assert sql(f"select count(*) from calls where operation = '{operation}'") == (0,)
        assert line.endswith("| no request: nothing but the program's own code |")
        return
    assert f"| of {ns(float(whole) / float(requests))}: " in line
    for transport, name in BY.items():
        of = sql(
            f"""select sum(total_ns) from parts where operation = '{operation}' and line = 'quiet'
            and transport = '{transport}'"""
        )[0]
        assert (f"{name} {percent(float(of) / float(whole))}" in line) if of else name not in line
    largest, side, total = sql(
        f"""select category, side, sum(total_ns) from parts where operation = '{operation}' and line = 'quiet'
        group by category, side order by 3 desc limit 1"""
    )
    found = f"{ns(float(total) / float(requests))} ({percent(float(total) / float(whole))})"
    # Time in no request has no side.
    named = f"{largest} ({side})" if side else largest
    assert f"{named} {found}" in line.replace(" ~", "")


def test_create_against_invocation(sql, text):
    create, invoke = of_runs(sql, "create")[0], of_runs(sql, "invoke_udp")[0]
    assert ("cheaper than a remote invocation, which contradicts" in text) == (create < invoke)
    assert f"here it is {create / invoke:.2f} times ({ns(create)} and {ns(invoke)}" in text
    ipc, whole = sql(
        """select sum(total_ns) filter (transport = 'unix'), sum(total_ns) from parts
        where operation = 'create' and line = 'quiet'"""
    )
    assert f": {percent(float(ipc) / float(whole))} of it lies in that request" in text
    assert ("dominates it holds" in text) == (ipc > whole / 2)


def difference(sql, less: str, more: str, line: str) -> float:
    return sql(
        f"""with m as (select round, operation, median(took_ns) t from requests
        where arm = 'bare' and line like '{line}' group by all)
        select median(y.t - x.t) from m x join m y using (round)
        where x.operation = '{less}' and y.operation = '{more}'"""
    )[0]


def test_differences(sql, text):
    assert f"{ns(difference(sql, 'validate', 'cache', 'quiet'))} more without the probe" in text
    for by in ("udp", "tcp"):
        more = difference(sql, f"null_{by}", f"invoke_{by}", "%")
        base = of_runs(sql, f"null_{by}", "%")[0]
        assert f"{by.upper()} {ns(more)} ({percent(more / base, sign=True)}; 95 %" in text
    more = difference(sql, "null_udp", "null_tcp", "%")
    assert f"a null RPC over TCP takes {ns(more)} more" in text


def test_messages(sql, text):
    right, operations = sql('select sum("right"), sum(operations) from messages')
    assert f"in {right:,} of {operations:,} operations" in text
    assert right >= 0.99 * float(operations)


@pytest.mark.parametrize(
    "operation", ["null_udp", "null_tcp", "invoke_udp", "invoke_tcp", "validate", "cache"]
)
def test_wire(sql, text, operation):
    request, answer = sql(
        f"""select request_frame_bytes, response_frame_bytes from calls
        where operation = '{operation}' and transport in ('udp', 'tcp') limit 1"""
    )
    line_ns = (request + answer) * 8 / 10e6 * 1e9 * 2
    measured = of_runs(sql, operation)[0]
    row = f"| {NAMES[operation]} | {request:.0f} + {answer:.0f} | {ns(line_ns)} | {ns(measured)} |"
    assert f"{row} {percent(line_ns / (line_ns + measured))} |" in text


def test_busy_line(sql, text):
    busy = of_runs(sql, "validate", "busy")[0]
    assert f"Back to back, a `validate` takes {ns(busy)} without the probe" in text
    waited, requests = sql(
        """select sum(total_ns) filter (category in ('wire.qdisc', 'wire.link')), sum(requests) filter (transport = '')
        from parts where operation = 'validate' and line = 'busy'"""
    )
    assert f"`wire.qdisc`: {ns(float(waited) / float(requests))} of" in text


def test_cached(sql, text):
    read, invoke = of_runs(sql, "read", "%")[0], of_runs(sql, "invoke_udp", "%")[0]
    assert f"It takes {ns(read)} by the" in text
    assert f"the remote one {invoke / read:,.0f} times as long" in text


@pytest.mark.parametrize("operation", NAMES)
def test_probe(sql, text, operation):
    bare, probed = of_runs(sql, operation)[0], of_runs(sql, operation, arm="probed")[0]
    assert any(f"| {ns(bare)} | {ns(probed)} |" in line for line in lines(text, NAMES[operation]))
