"""Threads' states from the events of `perf sched record`, as `perf script` prints them."""

import re
import subprocess
from contextlib import contextmanager

from account import OFF_CPU, RUN_QUEUE, Account

EVENT = re.compile(r"\s*(-?\d+)\s+(\d+)\.(\d{9}):\s+sched:(\w+):\s+(.*)")
SWITCH = re.compile(r".*prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> .*next_pid=(\d+) ")
FORK = re.compile(r".*child_pid=(\d+)")
WOKEN = re.compile(r".* pid=(\d+) ")
WAKE_UPS = ("sched_waking", "sched_wakeup_new")
DEAD = ("X", "Z")


def record_command(out):
    """The words before a command: buffers large enough for a busy machine, and rpcprobe's clock."""
    return ["perf", "sched", "record", "-m", "64M", "-k", "CLOCK_MONOTONIC", "-o", out, "--"]


@contextmanager
def printed(path):
    command = ["perf", "script", "--ns", "-F", "tid,time,event,trace", "-i", path]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    )
    try:
        yield child.stdout
    finally:
        child.stdout.close()
        child.wait()


def lost(path):
    """The number of events for which perf's buffers had no room."""
    command = ["perf", "report", "--stats", "-i", path]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    counts = re.findall(r"LOST(?:_SAMPLES)? events:\s+(\d+)", done.stdout)
    return sum(map(int, counts))


def read(path, tids):
    """The account of the threads with these numbers."""
    account = Account("perf", lost=lost(path))
    living = {}
    with printed(path) as lines:
        for line in lines:
            if not (match := EVENT.match(line)):
                continue
            now_ns = int(match[2]) * 10**9 + int(match[3])
            kind, text = match[4], match[5]
            if kind == "sched_switch" and (switch := SWITCH.match(text)):
                leave(living, int(switch[1]), switch[2], now_ns)
                if thread := living.get(int(switch[3])):
                    thread.come_on_cpu(now_ns)
            elif kind == "sched_process_fork" and (fork := FORK.match(text)):
                if (tid := int(fork[1])) in tids:
                    living[tid] = account.born(tid, now_ns)
            elif kind in WAKE_UPS and (woken := WOKEN.match(text)):
                if thread := living.get(int(woken[1])):
                    thread.woken[int(match[1])] += 1
                    if thread.state == OFF_CPU:
                        thread.become(RUN_QUEUE, now_ns)
    return account


def leave(living, tid, state, now_ns):
    if thread := living.get(tid):
        thread.leave_cpu(RUN_QUEUE if state.startswith("R") else OFF_CPU, now_ns)
        if state.startswith(DEAD):
            thread.gone_ns = now_ns
            del living[tid]
