"""Reads rpcprobe's tables: the ledger of threads, and the windows in which a thread had a state
for requests."""

from collections import defaultdict
from dataclasses import dataclass

import duckdb

from account import OFF_CPU, ON_CPU, RUN_QUEUE

LEDGER = "select pid, tid, comm, start_ns, cpu_ns, own_ns, shared_ns, none_ns from read_parquet($1)"
# Categories that imply the state of the segment's thread; waiting in queues implies none. The
# ledger includes a packet's path through the stack if the thread itself carries it; otherwise bcc
# does not see the thread on a CPU.
WINDOWS = """
select tid, start_ns, start_ns + duration_ns,
       case when category like 'runqueue.%' then 'run queue'
            when category in ('lock', 'journal', 'block_io', 'writeback', 'sleep', 'idle.peer') then 'off-CPU'
            else 'on-CPU' end
from read_parquet($1)
where tid is not null and (category not like 'queue.%' and category not in ('wire.qdisc', 'wire.link', 'steal',
      'unattributed'))
order by start_ns
"""


@dataclass
class Ledger:
    """A row of threads.parquet."""

    pid: int
    tid: int
    comm: str
    start_ns: int
    cpu_ns: int
    own_ns: int
    shared_ns: int
    none_ns: int


def ledgers(capture):
    rows = duckdb.execute(LEDGER, [str(capture / "threads.parquet")]).fetchall()
    return [Ledger(*row) for row in rows]


def windows(capture):
    """The segments' (begin, end) by thread and state, merged if several requests share them."""
    merged = defaultdict(lambda: {ON_CPU: [], RUN_QUEUE: [], OFF_CPU: []})
    rows = duckdb.execute(WINDOWS, [str(capture / "segments.parquet")]).fetchall()
    for tid, start_ns, end_ns, state in rows:
        of_state = merged[tid][state]
        if of_state and start_ns <= of_state[-1][1]:
            of_state[-1] = (of_state[-1][0], max(end_ns, of_state[-1][1]))
        else:
            of_state.append((start_ns, end_ns))
    return merged
