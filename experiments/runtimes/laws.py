"""Checks law 6 and the ledger of a capture."""

import duckdb

ON_CPU = "(category = 'user' or category like 'kernel.%' or category in ('copy', 'fault'))"
# The requests' exclusive work: the sum over requests, and the time of their union. The two differ
# only if two requests have the same work.
TWICE = f"""
with spans as (
    select tid, request_id, start_ns, start_ns + duration_ns as end_ns
    from read_parquet($segments)
    where list_contains($requests, request_id) and shared = 1 and {ON_CPU}
), reached as (
    select start_ns, end_ns,
           max(end_ns) over (partition by tid order by start_ns, end_ns
                             rows between unbounded preceding and 1 preceding) as before_ns,
           max(end_ns) over (partition by tid, request_id order by start_ns, end_ns
                             rows between unbounded preceding and 1 preceding) as own_before_ns
    from spans
)
select coalesce(sum(greatest(0, end_ns - greatest(start_ns, coalesce(own_before_ns, 0)))), 0),
       coalesce(sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, 0)))), 0)
from reached
"""
LEDGER = "select pid, cpu_ns, cpu_ns - own_ns - shared_ns - none_ns from read_parquet($threads)"


def twice(directory, requests):
    """Share of threads' on-CPU time that more than one of these requests has for its own. No
    request may be made for another one."""
    named = {"segments": str(directory / "segments.parquet"), "requests": list(requests)}
    each_ns, once_ns = map(int, duckdb.execute(TWICE, named).fetchone())
    return (each_ns - once_ns) / max(once_ns, 1)


def ledger(directory, before_ns, after_ns):
    """Returns whether every account adds up, and the accounts' CPU time as a share of the
    kernel's, of the processes of which that is known."""
    accounts = duckdb.execute(LEDGER, {"threads": str(directory / "threads.parquet")}).fetchall()
    in_them = sum(cpu_ns for pid, cpu_ns, _ in accounts if pid in after_ns)
    by_kernel = sum(ns - before_ns.get(pid, 0) for pid, ns in after_ns.items())
    return not any(rest for *_, rest in accounts), in_them / max(by_kernel, 1)
