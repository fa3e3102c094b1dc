"""The clients of PostgreSQL: sql_client.py PORT LOG CONNECTIONS REQUESTS STEPS...

Like client.py, with a thread for each connection. A request is one statement, which calls step()
(step.sql) and returns its notes. LOG.steps has these: ID,what,N,begin,end,PID of the server's
process. There are no `call` and `collect` steps here.
"""

import contextlib
import sys
import threading
import time

import psycopg

PORT, LOG = int(sys.argv[1]), sys.argv[2]
CONNECTIONS, REQUESTS = map(int, sys.argv[3:5])
STEPS = sys.argv[5:]
NOTES, STEP_NOTES = [], []


def realtime_ahead_ns():
    """How far CLOCK_REALTIME, which SQL uses, is ahead of CLOCK_MONOTONIC: of several tries, the
    one with the shortest time between its reads."""
    tries = []
    for _ in range(20):
        before_ns, now_ns = time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_REALTIME)
        after_ns = time.monotonic_ns()
        tries.append((after_ns - before_ns, now_ns - (before_ns + after_ns) // 2))
    return min(tries)[1]


def ask(connection, begin, done):
    link = psycopg.connect(host="127.0.0.1", port=PORT, dbname="postgres", user="postgres")
    link.autocommit = True
    # Plain statements only, each one question and one answer.
    link.prepare_threshold = None
    server_pid = link.info.backend_pid
    cursor = psycopg.ClientCursor(link)
    # Run each step once: on the first call, the process plans the step's statements after it has
    # stamped the begin.
    for step in ("sleep", "burn", "lock"):
        cursor.execute(f"select step('{step}', 0)").fetchone()
    begin.wait()
    for number in range(REQUESTS):
        step, amount = STEPS[(number + connection) % len(STEPS)].split("=")
        begin_ns = time.monotonic_ns()
        (told,) = cursor.execute(f"select step('{step}', {amount})").fetchone()
        now_ns = time.monotonic_ns()
        name = f"{connection}_{number}"
        NOTES.append(f"{name},{threading.get_native_id()},{begin_ns},{now_ns}\n")
        for line in told.split():
            what, ms, from_us, to_us = line.split(",")
            from_ns, to_ns = (int(us) * 1000 - AHEAD_NS for us in (from_us, to_us))
            STEP_NOTES.append(f"{name},{what},{ms},{from_ns},{to_ns},{server_pid}\n")
    done.wait()
    with contextlib.suppress(psycopg.Error):
        link.close()


AHEAD_NS = realtime_ahead_ns()
begin, done = threading.Barrier(CONNECTIONS + 1), threading.Barrier(CONNECTIONS + 1)
threads = [threading.Thread(target=ask, args=(n, begin, done)) for n in range(CONNECTIONS)]
for thread in threads:
    thread.start()
while begin.n_waiting < CONNECTIONS:
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
begin.wait()
while done.n_waiting < CONNECTIONS:
    time.sleep(0.01)
print("done", flush=True)
sys.stdin.readline()
done.wait()
for thread in threads:
    thread.join()
for name, lines in ((LOG, NOTES), (f"{LOG}.steps", STEP_NOTES)):
    with open(name, "w") as file:
        file.writelines(lines)
