"""Threads' states, calls and wake-ups, commits and block requests, from the records in events.bin.

The layouts are those of userspace/crates/capture/src/format.rs and bpf/records.h. Only the compared
fields are read.
"""

import struct
from pathlib import Path

import lz4.block

from account import OFF_CPU, RUN_QUEUE, Account

VERSION = 5
FILE_HEADER = struct.Struct("<8sIIQ")
BLOCK_HEADER = struct.Struct("<IIQQIIII")
CPU_END = 0xFFFF_FFFF
RECORD_HEADER = struct.Struct("<QIBBH")
LOST, SWITCH, SWITCH_SYS, WAKING, FORK, EXIT = 1, 2, 3, 4, 5, 7
SYSCALLS = (9, 10, 11, 19, 31)
BLOCK, JOURNAL, STEAL, UNSEEN_SWITCH = 15, 16, 40, 41
SYSCALL_UNFINISHED = 1
JOURNAL_START, JOURNAL_END = 1, 5
TASK_STATE, TASK_DEAD = 0xFF, 0x80
SWITCH_PREEMPT = 1
NEXT = struct.Struct("<I")
CHILD = struct.Struct("<II")
ENTER = struct.Struct("<Q")
BLOCK_BODY = struct.Struct("<QQQII")
COMMIT = struct.Struct("<II")
STEAL_BODY = struct.Struct("<QQQ")
UNSEEN = struct.Struct("<QQI")


def records(path):
    """(CPU, bytes) of each record, in order within each CPU."""
    data = Path(path).read_bytes()
    magic, version, _, _ = FILE_HEADER.unpack_from(data)
    if magic != b"rpcprobe" or version != VERSION:
        raise ValueError(f"{path}: version {version} of events; this reads {VERSION}")
    at = FILE_HEADER.size
    while True:
        _, cpu, _, _, raw_bytes, stored_bytes, _, _ = BLOCK_HEADER.unpack_from(data, at)
        at += BLOCK_HEADER.size
        if cpu == CPU_END:
            return
        raw = lz4.block.decompress(data[at : at + stored_bytes], uncompressed_size=raw_bytes)
        at += stored_bytes
        inside = 0
        while inside < len(raw):
            size = int.from_bytes(raw[inside : inside + 2], "little")
            yield cpu, raw[inside + 2 : inside + 2 + size]
            inside += 2 + size


class Reader:
    """Turns records, in time order, into an Account."""

    def __init__(self):
        self.account = Account("rpcprobe's records")
        self.running = {}
        self.commits = {}

    def read(self, path):
        of_run = [(RECORD_HEADER.unpack_from(record), record) for _, record in records(path)]
        of_run.sort(key=lambda one: one[0][0])
        for (ts_ns, tid, kind, flags, aux), record in of_run:
            body = RECORD_HEADER.size
            if kind in (SWITCH, SWITCH_SYS):
                (next_tid,) = NEXT.unpack_from(record, body)
                self.switch(ts_ns, tid, next_tid, flags, aux)
            elif kind == WAKING:
                (wakee,) = NEXT.unpack_from(record, body)
                self.waking(ts_ns, tid, wakee)
            elif kind in SYSCALLS:
                (enter_ns,) = ENTER.unpack_from(record, body)
                self.call(ts_ns, tid, flags, aux, enter_ns)
            elif kind == FORK:
                (child, _) = CHILD.unpack_from(record, body)
                self.running[child] = self.account.born(child, ts_ns)
            elif kind == BLOCK:
                _, issued_ns, sector, size_bytes, dev = BLOCK_BODY.unpack_from(record, body)
                if size_bytes:
                    self.account.blocks[dev, sector].append((issued_ns, ts_ns))
            elif kind == JOURNAL:
                transaction, dev = COMMIT.unpack_from(record, body)
                self.commit(ts_ns, aux, dev, transaction)
            elif kind == STEAL:
                self.account.steals.append((ts_ns, STEAL_BODY.unpack_from(record, body)[2]))
            elif kind == UNSEEN_SWITCH:
                self.unseen(tid, *UNSEEN.unpack_from(record, body))
            elif kind == LOST:
                self.account.lost += ENTER.unpack_from(record, body)[0]
        return self.account

    def switch(self, ts_ns, prev, next_tid, flags, state):
        if thread := self.running.get(prev):
            preempted = flags & SWITCH_PREEMPT or not state & TASK_STATE
            thread.leave_cpu(RUN_QUEUE if preempted else OFF_CPU, ts_ns)
            if not preempted and state & TASK_DEAD:
                thread.gone_ns = ts_ns
                del self.running[prev]
        if next_tid and (thread := self.running.get(next_tid)):
            thread.come_on_cpu(ts_ns)

    def unseen(self, tid, _since_ns, _arrived_ns, last_tid):
        """A switch without a record, detected by the probe; at least these threads took part."""
        for who in {tid, last_tid}:
            if thread := self.running.get(who):
                thread.missed += 1

    def waking(self, ts_ns, waker, wakee):
        if thread := self.running.get(wakee):
            thread.woken[waker] += 1
            if thread.state == OFF_CPU:
                thread.become(RUN_QUEUE, ts_ns)

    def call(self, ts_ns, tid, flags, number, enter_ns):
        thread = self.running.get(tid)
        # A new thread's first return is from its parent's call.
        if thread and not flags & SYSCALL_UNFINISHED and enter_ns > thread.born_ns:
            thread.calls[number].append((enter_ns, ts_ns))

    def commit(self, ts_ns, phase, dev, transaction):
        if phase == JOURNAL_START:
            self.commits[dev, transaction] = ts_ns
        elif phase == JOURNAL_END and (dev, transaction) in self.commits:
            start_ns = self.commits.pop((dev, transaction))
            self.account.commits[dev, transaction].append((start_ns, ts_ns))


def read(path):
    return Reader().read(path)
