"""The statistics of a report as plain SQL over a capture's Parquet files: one text for each.

Every query reads `chosen`, the requests that pass a filter, and `segments`. Percentiles are by nearest
rank, which is what percentile_disc gives.
"""

KINDS = """
select kind, count(*) as requests, count(*) filter (not complete) as incomplete,
  percentile_disc(0.5) within group (order by latency_ns) filter (complete) as p50_ns,
  percentile_disc(0.9) within group (order by latency_ns) filter (complete) as p90_ns,
  percentile_disc(0.99) within group (order by latency_ns) filter (complete) as p99_ns,
  max(latency_ns) filter (complete) as max_ns,
  avg(latency_ns) filter (complete) as mean_ns,
  coalesce(sum(latency_ns) filter (complete), 0)::bigint as total_ns,
  count(*) filter (client_tid is not null and server_tid is not null) as both_ends,
  count(*) filter (client_tid is not null and server_tid is null) as client_only,
  count(*) filter (client_tid is null and server_tid is not null) as server_only
from chosen group by kind
"""

# One row for each complete request and each part of its kind, 0 where it has none of it.
PARTS = """
with sums as (
  select kind, request_id, category, side, sum(duration_ns) as ns
  from chosen join segments using (request_id) where complete group by all
), keys as (select distinct kind, category, side from sums),
filled as (
  select c.kind, category, side, coalesce(ns, 0) as ns
  from chosen c join keys using (kind) left join sums using (kind, request_id, category, side)
  where complete
)
select kind, category, side,
  percentile_disc(0.5) within group (order by ns)::bigint as p50_ns,
  percentile_disc(0.9) within group (order by ns)::bigint as p90_ns,
  percentile_disc(0.99) within group (order by ns)::bigint as p99_ns,
  max(ns)::bigint as max_ns, avg(ns) as mean_ns, sum(ns)::bigint as total_ns
from filled group by all
"""

# Time of waiting for a CPU that one of the capturing program's threads had.
BEHIND_PROBE = """
select kind, sum(duration_ns)::bigint as ns from chosen join segments using (request_id)
where complete and category in ('runqueue.wakeup', 'runqueue.preempted')
  and list_contains({tids}, try_cast(regexp_extract("by", '/([0-9]+)$', 1) as bigint))
group by kind
"""

# What puts requests into one group.
GROUP_NAMES = {
    "method": "method",
    "status": """case when kind not in ('exec', 'process') then status::varchar
        when status & 127 = 0 then 'exit ' || ((status >> 8) & 255)
        else 'signal ' || (status & 127) end""",
    "client": "client_comm",
    "server": "server_comm",
    "thread": "coalesce(server_comm || '/' || server_tid, client_comm || '/' || client_tid)",
}

GROUPS = """
select kind, {name} as name, count(*) as requests, count(*) filter (not complete) as incomplete,
  percentile_disc(0.5) within group (order by latency_ns) filter (complete) as p50_ns,
  percentile_disc(0.99) within group (order by latency_ns) filter (complete) as p99_ns,
  max(latency_ns) filter (complete) as max_ns,
  coalesce(sum(latency_ns) filter (complete), 0)::bigint as total_ns
from chosen group by all
"""

GROUP_PARTS = """
select kind, {name} as name, category, side, sum(duration_ns)::bigint as total_ns
from chosen join segments using (request_id) where complete group by all
"""

BOUNDS = """
select kind, count(*) as requests,
  percentile_disc(0.4) within group (order by latency_ns) as typical_from,
  percentile_disc(0.6) within group (order by latency_ns) as typical_to,
  percentile_disc(0.99) within group (order by latency_ns) as tail_from
from chosen where complete group by kind having count(*) >= 100
"""

# Means per request in whole nanoseconds that add up to the mean latency: the largest remainders are
# rounded up, of equal ones the first in the order of categories and sides.
TAIL = f"""
with bounds as ({BOUNDS}),
bands as (
  select chosen.kind, request_id, latency_ns, 'typical' as band from chosen join bounds using (kind)
  where complete and latency_ns between typical_from and typical_to
  union all
  select kind, request_id, latency_ns, 'tail' from chosen join bounds using (kind)
  where complete and latency_ns >= tail_from
), means as (
  select kind, band, count(*) as requests, sum(latency_ns)::hugeint as whole,
    ((sum(latency_ns)::hugeint + count(*) // 2) // count(*)) as mean_ns
  from bands group by all
), sums as (
  select kind, band, category, side, sum(duration_ns)::hugeint as ns
  from bands join segments using (request_id) group by all
), scaled as (
  select *, (ns * mean_ns) // whole as floor_ns, (ns * mean_ns) % whole as remainder
  from sums join means using (kind, band)
), ranked as (
  select *, row_number() over (
      partition by kind, band
      order by remainder desc, list_position({{categories}}, category),
        list_position(['client', 'server', 'middle', 'kernel', 'device', 'network'], side)
    ) as rank,
    mean_ns - sum(floor_ns) over (partition by kind, band) as missing
  from scaled
)
select kind, band, requests, mean_ns::bigint as mean_ns, category, side,
  (floor_ns + (rank <= missing)::int)::bigint as ns
from ranked
"""

# The options of a filter, and the same in SQL. {start} is the start of the capture.
FILTERS = [
    ([], "true"),
    (["--kind", "http1", "--kind", "exec"], "kind in ('http1', 'exec')"),
    (["--method", "GET /a*"], "method like 'GET /a%'"),
    (["--method", "GET /a1", "--method", "*/bin/*"], "method = 'GET /a1' or method like '%/bin/%'"),
    (
        ["--status", "5xx"],
        "kind in ('http1', 'http2') and status between 500 and 599",
    ),
    (["--status", "404"], "kind not in ('exec', 'process') and status = 404"),
    (["--status", "exit 1"], "kind in ('exec', 'process') and status = 256"),
    (["--status", "signal 9"], "kind in ('exec', 'process') and status = 9"),
    (["--client", "cli*"], "client_comm like 'cli%'"),
    (["--server", "worker/202"], "server_comm = 'worker' and server_tid = 202"),
    (["--server", "200"], "server_pid = 200 or server_tid = 200"),
    (
        ["--from", "1ms", "--to", "2.5ms"],
        "start_ns >= {start} + 1000000 and start_ns < {start} + 2500000",
    ),
    # Of an incomplete request's latency a lower bound is known: what is not excluded passes.
    (["--min", "100us"], "not complete or latency_ns >= 100000"),
    (["--max", "100us"], "latency_ns <= 100000"),
    (
        ["--kind", "http1", "--min", "50us", "--max", "1ms"],
        "kind = 'http1' and (not complete or latency_ns >= 50000) and latency_ns <= 1000000",
    ),
]
