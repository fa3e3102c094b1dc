#!/usr/bin/env python3
"""Waits for a row's lock in MariaDB, with a thread for each connection and with a pool of threads.

Clients of mysqlslap sleep for 8 ms (SELECT SLEEP()) and then update the same row, ten times each; only the server is
traced. InnoDB sums up how long statements waited for the row's lock (Innodb_row_lock_time). Beside it: `lock`, in which
other locks of the server are, too; `queue.app`; and `sleep`, beside what the clients asked for. In the pool of threads,
another thread than the one that has executed a statement may answer it.

Ends with status 1 if requests are missing (a client's login is one, too), if `lock` is less than three fourths of InnoDB's
sum or more than five fourths (in a row with a second of waits or more), or if `sleep` is not within a tenth of what was
asked for."""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from attached import attached, free_port, running, wait_for  # noqa: E402

HANDLINGS = ("one-thread-per-connection", "pool-of-threads")
ROUNDS, SLEEP_MS = 10, 8
QUERY = f"select sleep({SLEEP_MS / 1000});update t.a set v=v+1 where id=1"
SETUP = (
    "create user x@'%' identified by ''; grant all on *.* to x@'%'; create database t; "
    "create table t.a (id int primary key, v int); insert into t.a values (1, 0)"
)
# `lock` in relation to InnoDB's sum, where the sum is large enough, and the error of `sleep`.
LEAST, MOST, ENOUGH_NS, SLEEP_WITHIN = 0.75, 1.25, 1_000_000_000, 0.1
TIMES = ("InnoDB", "lock", "queue.app", "asleep", "sleep")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@contextlib.contextmanager
def server(handling, directory):
    """MariaDB: its port and pid."""
    data, port = directory / "data", free_port()
    words = ["mysql_install_db", "--no-defaults", f"--datadir={data}", "--user=root"]
    words += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(words, check=True, **QUIET)
    words = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--port={port}"]
    words += ["--bind-address=127.0.0.1", f"--socket={directory}/socket", "--skip-name-resolve"]
    words += ["--max-connections=1200", f"--thread-handling={handling}", "--thread-pool-size=4"]
    with running(words, **QUIET) as pid:
        wait_for(port)
        ask(port, "root", SETUP)
        yield port, pid


def ask(port, user, statement):
    words = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{port}", f"-u{user}", "-N", "-e"]
    return subprocess.run([*words, statement], check=True, capture_output=True, text=True).stdout


def waited_ns(port):
    """How long statements have waited for rows' locks so far."""
    said = ask(port, "x", "show global status like 'Innodb_row_lock_time'")
    return 1_000_000 * int(said.split()[-1])


def told(capture):
    """Number of requests, and how long they were in lock, queue.app and sleep."""
    segments = pq.read_table(capture / "segments.parquet", columns=["category", "duration_ns"])

    def total(category):
        return pc.sum(segments.filter(pc.equal(segments["category"], category))["duration_ns"])

    found = pq.read_metadata(capture / "requests.parquet").num_rows
    return found, *(total(name).as_py() or 0 for name in ("lock", "queue.app", "sleep"))


def line(handling, clients, found, asked, *times, mark=""):
    """Prints a line of the table."""
    print(
        f"{handling:26}{clients:>7} {found:>6} {asked:>6}",
        *(f"{t:>10}" for t in times),
        mark,
        flush=True,
    )


def row(handling, clients, directory):
    with server(handling, directory) as (port, pid):
        before_ns = waited_ns(port)
        with attached([pid], directory):
            words = ["mysqlslap", "--no-defaults", "-h127.0.0.1", f"-P{port}", "-ux"]
            words += ["--create-schema=t", f"--concurrency={clients}", "--delimiter=;"]
            words += [f"--number-of-queries={clients * ROUNDS * 2}", f"--query={QUERY}"]
            subprocess.run(words, check=True, **QUIET)
        truth_ns = waited_ns(port) - before_ns
    found, lock_ns, queue_ns, sleep_ns = told(directory / "capture")
    asked, asked_ns = clients * (2 * ROUNDS + 1), clients * ROUNDS * SLEEP_MS * 1_000_000
    right = found >= asked and abs(sleep_ns - asked_ns) <= SLEEP_WITHIN * asked_ns
    if truth_ns >= ENOUGH_NS:
        right = right and LEAST <= lock_ns / truth_ns <= MOST
    shown = [f"{ns / 1e6:.1f}" for ns in (truth_ns, lock_ns, queue_ns, asked_ns, sleep_ns)]
    line(handling, clients, found, asked, *shown, mark="" if right else " !")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="50,400", help="numbers of clients (50,400)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root")
    if not all(map(shutil.which, ("mariadbd", "mysql_install_db", "mysqlslap", "mariadb"))):
        print("skipped: not installed (Debian: apt-get install mariadb-server)")
        return
    line("thread_handling", "clients", "found", "asked", *TIMES)
    line("", "", "", "", *("(ms)" for _ in TIMES))
    wrong = 0
    for handling in HANDLINGS:
        for clients in map(int, options.clients.split(",")):
            with tempfile.TemporaryDirectory() as directory:
                wrong += not row(handling, clients, Path(directory))
    if wrong:
        sys.exit(f"{wrong} rows are not as they should be")


if __name__ == "__main__":
    main()
