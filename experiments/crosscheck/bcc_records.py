"""Reads the file that collect.py wrote."""

import struct
from pathlib import Path

from account import OFF_CPU, ON_CPU, RUN_QUEUE, Account

RECORD = struct.Struct("<IIQQQ")
# `enum kind` of tracepoints.c.
STATES = {1: ON_CPU, 2: RUN_QUEUE, 3: OFF_CPU}
CALL, WAKE_UP, BORN, GONE, NAMED, COMMIT, BLOCK, MISSED, RUNTIME = range(4, 13)


def read(path, lost):
    """Reads the account. `lost`: number of records lost because the ring was full."""
    account = Account("bcc", lost=lost)
    living = {}
    root = None
    # In the ring's order, because thread numbers are reused.
    for kind, tid, a_ns, b_ns, number in RECORD.iter_unpack(Path(path).read_bytes()):
        if kind == BORN:
            living[tid] = account.born(tid, b_ns)
        elif kind == NAMED:
            root = tid
            account.window = (b_ns, 0)
        elif kind == COMMIT:
            account.commits[tid, number].append((a_ns, b_ns))
        elif kind == BLOCK:
            account.blocks[tid, number].append((a_ns, b_ns))
        elif kind == GONE and tid == root:
            account.window = (account.window[0], b_ns)
        elif kind == WAKE_UP:
            if thread := living.get(number):
                thread.woken[tid] += 1
        elif thread := living.get(tid):
            if kind in STATES:
                thread.intervals[STATES[kind]].append((a_ns, b_ns))
            elif kind == CALL:
                thread.calls[number].append((a_ns, b_ns))
            elif kind == MISSED:
                thread.missed += 1
            elif kind == RUNTIME:
                thread.runtime_ns += number
            elif kind == GONE:
                thread.gone_ns = b_ns
                del living[tid]
    return account
