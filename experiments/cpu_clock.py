"""The kernel's own account of the CPU time of processes, which the ledger is compared with."""

import contextlib
import time

# clock_gettime(2): the clock of a process's CPU time is its number, inverted, and this
# (CPUCLOCK_SCHED in include/linux/posix-timers_types.h). It includes threads that have ended.
_SCHED = 2


def ran(pids):
    """CPU time until now, in nanoseconds, of each of these processes that exists."""
    ran_ns = {}
    for pid in pids:
        # The process may have ended since.
        with contextlib.suppress(OSError):
            ran_ns[pid] = time.clock_gettime_ns(~pid << 3 | _SCHED)
    return ran_ns
