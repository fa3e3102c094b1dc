#!/usr/bin/env python3
"""Is the report right about servers inside runtimes, with several requests at once?

Servers do what their requests say, and note when each step began and ended (CLOCK_MONOTONIC;
PostgreSQL uses clock_timestamp()). Clients note when they asked. A capture of the server alone, of
the client alone, or of both (attach) says what the request did in each nanosecond of these steps.
`mix` has five sorts of requests, one after the other on each connection: a sleep, a computation, a
sleep while holding a lock, a question to a back end, and, rarely, a garbage collection. `hands` has
two: a job that is handed to a worker, and a sleep. A row is one cause, with its right categories:

  sleep      the requested time of a sleep: `sleep`
  late       from the end of that time until the server continued: a queue, the run queue, `lock`
             (the interpreter's), its work, or `sleep` (timers can be late, too)
  burn       CPU time, with interrupts and preemptions: on a CPU, the run queue
  lockwait   the wait for the lock, which another request holds: `lock`, the run queue
  lock       the sleep while holding the lock: `sleep`
  handwait   the time in the queue of a worker that also works for others: `queue.*`, the run queue
  hand       the worker's work for the request: on a CPU, the run queue
  call       a question to a back end that is not captured, from when the back end has the question
             until it answers: `idle.peer`
  connwait   the wait for a connection to the back end, which another request has (Go's transport
             tells): `lock`, a queue, the run queue, its work
  connect    the same, where it made a connection of its own: `idle.peer`, `wire.*`, a queue, the run
             queue, its work
  collect    a collection: on a CPU, the run queue, or `lock` where the collector's threads do it
  queue      from the client's sending until the server's first step: `queue.*`, `wire.*`, the run
             queue, the work of reading the request

If only the client is captured, or nginx without the server behind it, `idle.peer` is right for all
causes.

Columns: the number of requests with the cause; its median time; the error of the median and of p99
over these requests, absolute and relative, with `!` if the median is off by more than 5 % and
20 us, or p99 by more than 15 % and 200 us. Then, as shares of the cause's time: the time that is
shown in a right category; the time in a wrong category and measured (which claims to be certain);
and the time in a wrong category and modelled (which is marked as inferred). Last, the category and
the rule of the largest wrong part.

Each capture has a line: requests found of those made; `invented` time, measured and modelled, as a
share of the time of all requests (it is shown as a cause of latency that is not in the notes); law
6 (`twice`); and the ledger: whether it adds up, and its CPU time as a share of the kernel's figure.

Needs root, and the languages and programs of the servers; servers that lack theirs are skipped.
rpcprobe from $RPCPROBE or PATH. Exit status: 0 if all requests were found, at most 5 % of each row
except `late` and `queue` is wrong and measured, at most 2 % of any capture is invented and
measured, and the laws hold; else 1.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from attached import (  # noqa: E402
    SECONDS,
    attached,
    build_go,
    build_java,
    build_rust,
    free_port,
    wait_for,
)
from catalogue import CATALOGUE, JAVA, OWN_PYTHON, SERVERS, children, process  # noqa: E402
from cpu_clock import ran  # noqa: E402
from judge import EXPECTED, judged  # noqa: E402
from laws import ledger  # noqa: E402

MIX = ["sleep=8", "burn=1", "lock=2", "call=4"]
HANDS = ["hand=1", "sleep=4"]
# Of this many consecutive requests of a connection, at most one is a collection.
COLLECTS_EVERY = 20
MOST_SURE_AND_WRONG = 0.05
MOST_INVENTED = 0.02
NOT_JUDGED = ("late", "queue")


def steps_of(server, text):
    if text == "hands":
        return HANDS
    if text != "mix":
        return [text]
    able = [step for step in MIX if not (server.is_sql and step.startswith("call"))]
    steps = able * (COLLECTS_EVERY // len(able))
    return [*steps, "collect=1"] if server.collects else steps


def lines_of(path):
    return [line.split(",") for line in path.read_text().splitlines()]


class Taken:
    """A capture, with the simultaneous notes of the server and its clients."""

    def __init__(self, server, ends, connections, requests, steps, directory):
        each = max(1, requests // connections)
        self.made = each * connections
        self.directory = directory / "capture"
        asked = directory / "asked"
        with contextlib.ExitStack() as stack:
            backend, answered = free_port(), directory / "answered"
            words = [sys.executable, SERVERS / "backend.py", str(backend), answered]
            stack.enter_context(process(words))
            wait_for(backend)
            running = stack.enter_context(server.running(directory, backend))
            program = (
                [OWN_PYTHON, "sql_client.py"] if server.is_sql else [sys.executable, "client.py"]
            )
            words = [program[0], HERE / program[1], running.port, asked, connections, each, *steps]
            client = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(client.kill)
            client.stdout.readline()
            # PostgreSQL has a process for each connection.
            theirs = [*running.pids, *(pid for top in running.pids for pid in children(top))]
            pids = {"server": theirs, "client": [client.pid], "both": [*theirs, client.pid]}[ends]
            pids = sorted(set(pids))
            before_ns = ran(pids)
            with attached(pids, directory, *server.options):
                tell(client)
                client.stdout.readline()
            after_ns = ran(pids)
            tell(client)
            client.wait(SECONDS)
        self.adds_up, self.ledger = ledger(self.directory, before_ns, after_ns)
        self.asked = {name: tuple(map(int, rest)) for name, *rest in lines_of(asked)}
        notes = lines_of(running.notes)
        # The back end's notes tell what a call waits for.
        called = {"call": "called"}
        self.notes = [
            (line[0], called.get(line[1], line[1]), *map(int, line[2:5])) for line in notes
        ]
        self.notes += [(line[0], line[1], *map(int, line[2:])) for line in lines_of(answered)]
        self.processes = {line[0]: int(line[5]) for line in notes if len(line) > 5}


def tell(client):
    client.stdin.write("\n")
    client.stdin.flush()


HEAD = (
    f"{'server':14}{'ends':7}{'of':>4} {'cause':9}{'times':>6}{'median':>11}{'error':>10}{'':8}{'of p99':>10}{'':9}"
    f"{'right':>8}{'measured':>10}{'modelled':>10}\n{'':14}{'':7}{'':4} {'':9}{'':6}{'':11}{'':10}{'':8}{'':10}{'':9}"
    f"{'':8}{'and wrong':>10}{'and wrong':>10}  most of that"
)


def shown_row(label, cause, row, expected):
    right, sure, inferred, named = row.shares(expected)
    errors = "".join(
        f"{off_ns / 1000:>7.0f} us{off_ns / max(of_ns, 1):>+8.1%}"
        for off_ns, of_ns in map(row.quantile_off, (0.5, 0.99))
    )
    good = " " if cause in NOT_JUDGED or row.is_good() else "!"
    _, median_ns = row.quantile_off(0.5)
    return (
        f"{label}{cause:9}{len(row.true_ns):>6}{median_ns / 1e6:>8.2f} ms{errors}{good}"
        f"{right:>8.1%}{sure:>10.1%}{inferred:>10.1%}  {named}"
    )


def shown_capture(label, taken, verdict):
    all_ns = max(1, verdict.invented["all"])
    measured, modelled = (verdict.invented[key] / all_ns for key in ("measured", "modelled"))
    adds_up = "adds up" if taken.adds_up else "WRONG"
    return (
        f"{label}found {len(verdict.found)}/{taken.made}; invented {measured:.1%} measured, {modelled:.1%} modelled; "
        f"twice {verdict.twice:.2%}; ledger {adds_up}, {taken.ledger:.1%}"
    )


def told(taken, verdict, server, ends, connections, summary):
    """Prints a capture and adds it to the summary; returns whether all of it is good."""
    label = f"{server.name:14}{ends:7}{connections:>4} "
    good = len(verdict.found) == taken.made and verdict.twice < 0.001 and taken.adds_up
    good &= verdict.invented["measured"] <= MOST_INVENTED * verdict.invented["all"]
    for cause in (cause for cause in EXPECTED if cause in verdict.rows and cause != "around"):
        row, expected = verdict.rows[cause], verdict.expected[cause]
        print(shown_row(label, cause, row, expected))
        right, sure, *_ = row.shares(expected)
        good &= cause in NOT_JUDGED or sure <= MOST_SURE_AND_WRONG
        is_good = cause in NOT_JUDGED or row.is_good()
        summary[server.name, ends, cause][connections] = (right, sure, is_good)
    print(shown_capture(label, taken, verdict), flush=True)
    return good


def print_summary(summary, numbers):
    """Prints the right share by number of connections; in brackets the wrong and measured share, if
    at least 0.5 %."""
    print(f"\n{'server':14}{'ends':7}{'cause':9}" + "".join(f"{number:>17}" for number in numbers))
    for (server, ends, cause), by_number in summary.items():
        cells = ""
        for number in numbers:
            cell = ""
            if number in by_number:
                right, sure, good = by_number[number]
                wrong = f" ({100 * sure:.1f})" if sure >= 0.005 else ""
                cell = f"{100 * right:.1f}{wrong} %{' ' if good else '!'}"
            cells += f"{cell:>17}"
        print(f"{server:14}{ends:7}{cause:9}{cells}")


def print_precision(sums):
    print("\nOf the time shown as a cause, how much the notes have as such:")
    for (category, evidence), (right_ns, all_ns) in sorted(sums.items()):
        print(f"  {category:14}{evidence:10}{right_ns / all_ns:>7.1%} of {all_ns / 1e9:8.2f} s")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", default="1,4,32,128")
    parser.add_argument("--ends", default="server,client,both")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument(
        "--steps", default="mix", help='a capture for each: "mix hands sleep=8,burn=1"'
    )
    parser.add_argument("--short", action="store_true", help="4 and 32 connections, server only")
    parser.add_argument("--keep", type=Path, help="where to keep the captures")
    names = [server.name for server in CATALOGUE]
    parser.add_argument("server", nargs="*", metavar="SERVER", help=", ".join(names))
    options = parser.parse_args()
    for name in set(options.server) - set(names):
        parser.error(f"no server {name}: {', '.join(names)}")
    if options.short:
        options.connections, options.ends = "4,32", "server"
    return options


def build():
    build_go(SERVERS / "go", HERE / ".cache/server")
    build_rust(SERVERS / "tokio", HERE / ".cache/tokio")
    for server in CATALOGUE:
        if server.archives is not None and not server.lacks():
            sources = [SERVERS / f"java/{name}.java" for name in ("Steps", server.command[-1])]
            build_java(sources, JAVA, ":".join((str(JAVA), *server.archives)))


def kept_at(options, *words):
    """A folder for a capture; removed after the judgement, unless captures are kept."""
    if not options.keep:
        return tempfile.TemporaryDirectory()
    path = options.keep / "-".join(map(str, words))
    path.mkdir(parents=True)
    return contextlib.nullcontext(path)


def main():
    options = arguments()
    build()
    print(HEAD)
    good, sums, summary = True, defaultdict(lambda: [0, 0]), defaultdict(dict)
    numbers = [int(number) for number in options.connections.split(",")]
    for server in CATALOGUE:
        if options.server and server.name not in options.server:
            continue
        if server.lacks():
            print(f"{server.name}: skipped, there is no {server.lacks()}")
            continue
        for text in options.steps.split():
            if text == "hands" and not server.hands:
                continue
            for ends in options.ends.split(","):
                for connections in numbers:
                    with kept_at(options, server.name, text, ends, connections) as directory:
                        steps = steps_of(server, text)
                        taken = Taken(
                            server, ends, connections, options.requests, steps, Path(directory)
                        )
                        verdict = judged(
                            taken.directory, server, ends, taken.notes, taken.asked, taken.processes
                        )
                        good &= told(taken, verdict, server, ends, connections, summary)
                        for key, (right_ns, all_ns) in verdict.precision.items():
                            sums[key][0] += right_ns
                            sums[key][1] += all_ns
    print_summary(summary, numbers)
    print_precision(sums)
    sys.exit(not good)


if __name__ == "__main__":
    main()
