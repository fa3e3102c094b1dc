#!/usr/bin/env python3
"""Waits for a connection of a pool: pgbouncer with few connections to PostgreSQL, under pgbench.

pgbouncer sums up how long its clients waited for a connection (total_wait_time of SHOW STATS, microseconds). Beside it:
what rpcprobe tells of pgbouncer's requests. A wait for a connection belongs to `queue.app`. `connection`: the rule that
names it; `others`: the rest of queue.app, in which the time in which pgbouncer itself served others is, too; `sleep`:
what is left as a wait of which is not seen what it was for.

Ends with status 1 if requests are missing (pgbouncer's requests are the statements and a few for each client's login);
if, in a row in which clients waited, less than four fifths of pgbouncer's sum are told as `queue.app`; or if more than 1.1
times the sum are told as `connection`, and more than 5 % of the requests' time (with no more clients than connections,
hardly anybody waits)."""

import argparse
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from attached import attached, free_port, running, wait_for  # noqa: E402

POSTGRES = sorted(
    Path("/usr/lib/postgresql").glob("*/bin/postgres"),
    key=lambda path: [int(part) for part in path.parts[4].split(".")],
)
# pgbench's built-in scripts: how many statements a transaction has, and its option.
SCRIPTS = {"select": (1, "-S"), "update": (5, "-N")}
LEAST, MOST = 0.8, 1.1
# What may be told as `connection`, as a share of all that pgbouncer's requests took, where hardly anybody waited.
FALSE = 0.05
ENV = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"] + ":/usr/sbin"}
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@contextlib.contextmanager
def servers(directory, pool):
    """PostgreSQL and pgbouncer with a pool of that size: the port of each, and their pids."""
    user = pwd.getpwnam("postgres").pw_name
    bin_, data = POSTGRES[-1].parent, directory / "data"
    directory.chmod(0o755)
    data.mkdir()
    (directory / "pgbouncer").mkdir()
    for folder in (data, directory / "pgbouncer"):
        shutil.chown(folder, user)
    words = [bin_ / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run(words, check=True, cwd="/", user=user, env=ENV, **QUIET)
    port, pool_port = free_port(), free_port()
    settings = f"""
        [databases]
        bench = host=127.0.0.1 port={port} dbname=postgres user=postgres
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {pool_port}
        unix_socket_dir =
        auth_type = any
        pool_mode = transaction
        default_pool_size = {pool}
        max_client_conn = 500
        stats_users = postgres
    """
    file = directory / "pgbouncer" / "settings"
    file.write_text("\n".join(line.strip() for line in settings.splitlines()))
    shutil.chown(file, user)
    postgres = [bin_ / "postgres", "-D", data, "-p", str(port), "-k", data]
    as_user = {"user": user, "env": ENV, "cwd": "/", **QUIET}
    with running(postgres, end=signal.SIGINT, **as_user) as server:
        wait_for(port)
        with running(["pgbouncer", "-q", file], **as_user) as front:
            wait_for(pool_port)
            yield port, pool_port, server, front


def bench(port, *options):
    words = ["pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", *options, "bench"]
    subprocess.run(words, check=True, env=ENV, **QUIET)


def waited_ns(pool_port):
    """How long pgbouncer's clients have waited for a connection so far."""
    where = f"host=127.0.0.1 port={pool_port} user=postgres dbname=pgbouncer"
    words = ["psql", where, "-A", "-F", ",", "-c", "show stats"]
    out = subprocess.run(words, check=True, env=ENV, capture_output=True, text=True).stdout
    names, *rows = [line.split(",") for line in out.splitlines() if "," in line]
    row = next(dict(zip(names, row, strict=True)) for row in rows if row[0] == "bench")
    return 1000 * int(row["total_wait_time"])


def told(capture):
    """Number of pgbouncer's requests, and how long their waits are: by rule, and as sleep."""
    requests = pq.read_table(capture / "requests.parquet", columns=["request_id", "server_comm"])
    ours = requests.filter(pc.equal(requests["server_comm"], "pgbouncer"))["request_id"]
    columns = ["request_id", "category", "rule", "duration_ns"]
    segments = pq.read_table(capture / "segments.parquet", columns=columns)
    segments = segments.filter(pc.is_in(segments["request_id"], value_set=ours.combine_chunks()))

    def total(category, rule=None):
        those = pc.equal(segments["category"], category)
        if rule:
            those = pc.and_(those, pc.equal(segments["rule"], rule))
        return pc.sum(segments.filter(those)["duration_ns"]).as_py() or 0

    connection, all_ns = total("queue.app", "connection"), pc.sum(segments["duration_ns"]).as_py()
    return len(ours), connection, total("queue.app") - connection, total("sleep"), all_ns or 0


def row(options, script, clients, ends, directory):
    statements, option = SCRIPTS[script]
    with servers(directory, options.pool) as (port, pool_port, server, front):
        bench(pool_port, "-i", "-q")
        before_ns = waited_ns(pool_port)
        pids = [front, server] if ends == "both" else [front]
        with attached(pids, directory):
            transactions = str(options.transactions)
            bench(pool_port, "-n", option, "-c", str(clients), "-j", "2", "-t", transactions)
        truth_ns = waited_ns(pool_port) - before_ns
    found, connection_ns, others_ns, sleep_ns, all_ns = told(directory / "capture")
    asked = clients * options.transactions * statements
    waited = clients > options.pool and truth_ns > 0
    queued = (connection_ns + others_ns) / truth_ns if waited else 0
    right = found >= asked and connection_ns <= max(MOST * truth_ns, FALSE * all_ns)
    if waited:
        right = right and queued >= LEAST
    shown = [f"{ns / 1e6:10.1f}" for ns in (truth_ns, connection_ns, others_ns, sleep_ns)]
    share = f"{100 * queued:5.1f} %" if waited else "      -"
    mark = "" if right else " !"
    print(
        f"{script:7} {ends:7} {clients:7} {found:6} {asked:6}", *shown, f"{share}{mark}", flush=True
    )
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=4, help="connections to PostgreSQL (4)")
    parser.add_argument("--clients", default="4,20,50", help="numbers of clients (4,20,50)")
    parser.add_argument("--transactions", type=int, default=60, help="of each client (60)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root")
    if not POSTGRES or not shutil.which("pgbouncer", path=ENV["PATH"]):
        print("skipped: not installed (Debian: apt-get install postgresql pgbouncer)")
        return
    print(
        "script  traced  clients  found  asked  pgbouncer connection     others      sleep   queue.app"
    )
    print("                                          (ms)       (ms)       (ms)       (ms)")
    wrong = 0
    for ends in ("both", "server"):
        for script in SCRIPTS:
            for clients in map(int, options.clients.split(",")):
                with tempfile.TemporaryDirectory() as directory:
                    wrong += not row(options, script, clients, ends, Path(directory))
    if wrong:
        sys.exit(f"{wrong} rows are not as they should be")


if __name__ == "__main__":
    main()
