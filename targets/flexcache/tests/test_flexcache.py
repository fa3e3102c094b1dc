#!/usr/bin/env python3
"""Tests of flexcache's programs, as processes, and of the checker."""

import csv
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent
CHECKER = TARGET / "check_causality.py"
COLUMNS = "process,operation,object,writer,serial\n"


def free_port():
    """A port that neither UDP nor TCP uses."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as datagrams, socket.socket() as stream:
            datagrams.bind(("0.0.0.0", 0))
            try:
                stream.bind(("0.0.0.0", datagrams.getsockname()[1]))
                return stream.getsockname()[1]
            except OSError:
                continue


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="flex")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def start(self, program, *arguments, ready):
        process = subprocess.Popen(
            [TARGET / program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        for _ in range(ready):
            self.assertIn(program, process.stdout.readline())
        return process

    def stop(self, process, number=signal.SIGTERM):
        process.send_signal(number)
        _, errors = process.communicate()
        self.assertEqual((process.returncode, errors), (0, ""))

    def flexclient(self, *arguments):
        return subprocess.run(
            [TARGET / "flexclient", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )

    def run_well(self, *arguments):
        run = self.flexclient(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def rows(self, name):
        with open(self.directory / name, newline="", encoding="ascii") as file:
            return list(csv.DictReader(file))

    def counts(self, name):
        return Counter(row["method"] for row in self.rows(name))


class ObjectServerTest(Case):
    def test_five_clients(self):
        port, log, served = free_port(), self.directory / "log", self.directory / "served"
        server = self.start("objserver", "--port", port, "--log", served, ready=1)
        for transport in ("udp", "tcp"):
            for method in ("null", "invoke"):
                self.run_well(
                    *("--method", method, "--transport", transport, "--log", log),
                    *("--server", f"127.0.0.1:{port}", "--clients", 5, "--requests", 3000),
                )
                rows = self.rows("log")
                self.assertEqual(
                    Counter(row["client"] for row in rows), dict.fromkeys("01234", 3000)
                )
                self.assertEqual({(r["method"], r["status"]) for r in rows}, {(method, "ok")})
                self.assertTrue(all(int(r["begin_ns"]) < int(r["end_ns"]) for r in rows))
        self.stop(server)
        self.assertEqual(self.counts("served"), {"null": 30000, "invoke": 30000})

    def test_errors(self):
        port = free_port()
        server = self.start("objserver", "--port", port, ready=1)
        where = ("--server", f"127.0.0.1:{port}")
        run = self.flexclient("--method", "invoke", "--object", "0.0.1024", *where)
        self.assertEqual(run.returncode, 1)
        self.assertIn("invoke: not_found", run.stderr)
        second = subprocess.run(
            [TARGET / "objserver", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(second.returncode, 1)
        self.assertIn("cannot listen on port", second.stderr)
        self.stop(server, signal.SIGINT)
        run = self.flexclient("--method", "null", "--transport", "tcp", *where)
        self.assertEqual(run.returncode, 1)
        self.assertIn("cannot reach the object server", run.stderr)

    def test_hostile_bytes(self):
        port = free_port()
        server = self.start("objserver", "--port", port, ready=1)
        for message in (b"\0", b"x" * 1000, b"\x80\0\0\4abcd", b"\xff" * 64, b"\x80\0\0\0" * 50):
            with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(message, ("127.0.0.1", port))
            with socket.create_connection(("127.0.0.1", port)) as stream:
                stream.sendall(message)
        self.run_well("--method", "invoke", "--server", f"127.0.0.1:{port}")
        self.stop(server)


class CacheTest(Case):
    """Two nodes, each with a consistency cacher."""

    def setUp(self):
        super().setUp()
        ports = free_port(), free_port()
        self.nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.cachers = []
        for node, port in enumerate(ports):
            (self.directory / str(node)).mkdir()
            self.cachers.append(
                self.start(
                    "consistency_cacher",
                    *("--dir", self.directory / str(node), "--port", port),
                    *("--log", self.directory / f"consistency{node}"),
                    ready=1,
                )
            )

    def on_node(self, node, method, *more):
        where = ("--dir", self.directory / str(node), "--node", node, "--nodes", self.nodes)
        return ("--method", method, *where, *more)

    def hold_objects(self):
        """A client of node 1 with objects 1.9.0 to 1.9.9."""
        more = ("--first-process", 9, "--hold", "--cacher-log", self.directory / "process")
        return self.start("flexclient", *self.on_node(1, "create", *more), ready=1)

    def stop_all(self, *clients):
        for process in (*clients, *self.cachers):
            self.stop(process)
        for node in ("0", "1"):
            self.assertEqual(os.listdir(self.directory / node), [])

    def test_messages_an_operation_needs(self):
        n = 20
        owner = self.hold_objects()
        # In addition, except for create, each client caches the object once before it begins.
        wanted = {
            "create": ((n, "create"), 0, 0),
            "cache": ((n + 1, "adopt"), n + 1, 0),
            "validate": ((1, "adopt"), n + 1, 0),
            "read": ((1, "adopt"), 1, 0),
            "invalidate": ((1, "adopt"), 1, 0),
            "write": ((1, "adopt"), 1, n),
        }
        total = Counter()
        for number, (method, (own, fetches, writes)) in enumerate(wanted.items()):
            log = ("--log", self.directory / "log", "--cacher-log", self.directory / "client")
            more = ("--object", "1.9.2", "--requests", n, "--first-process", number)
            self.run_well(*self.on_node(0, method, *more, *log))
            self.assertEqual(self.counts("log"), {method: n})
            self.assertEqual(self.counts(f"client{number}"), {own[1]: own[0]})
            total += Counter({"fetch": fetches, "write": writes})
        self.stop_all(owner)
        self.assertEqual(self.counts("consistency1"), total)
        self.assertEqual(self.rows("consistency0"), [])
        wanted = {"create": 10, "give": total["fetch"], "take": total["write"]}
        self.assertEqual(self.counts("process9"), wanted)

    def test_five_clients(self):
        owner = self.hold_objects()
        for method in ("create", "cache", "validate", "read", "write", "invalidate"):
            more = ("--object", "1.9.0", "--clients", 5, "--requests", 3000)
            self.run_well(*self.on_node(0, method, *more, "--log", self.directory / "log"))
            rows = [row for row in self.rows("log") if row["method"] == method]
            self.assertEqual(len(rows), 15000)
            self.assertEqual({row["status"] for row in rows}, {"ok"})
        self.stop_all(owner)

    def check(self, *histories):
        return subprocess.run(
            [sys.executable, "-B", CHECKER, *histories],
            capture_output=True,
            text=True,
            check=False,
        )

    def run_workload(self, *more):
        """Runs two clients on each node, and the checker on their histories."""
        clients, histories = [], [self.directory / "history0", self.directory / "history1"]
        for node, history in enumerate(histories):
            all_nodes = ("--clients", 2, "--processes", 4, "--requests", 4000, "--hold")
            log = ("--history", history, "--log", self.directory / f"log{node}")
            arguments = self.on_node(node, "workload", *all_nodes, *log, *more)
            clients.append(self.start("flexclient", *arguments, ready=0))
        for client in clients:
            for _ in range(2):
                self.assertIn("is done", client.stdout.readline())
        self.stop_all(*clients)
        operations = sum(sum(self.counts(f"log{node}").values()) for node in (0, 1))
        self.assertGreaterEqual(operations, 16000)
        return self.check(*histories)

    def test_random_operations_are_causal(self):
        run = self.run_workload("--seed", 1)
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)
        count = int(run.stdout.split()[0])
        self.assertGreaterEqual(count, 10000)
        print("with invalidation:", run.stdout.strip())

    def test_without_invalidation_they_are_not(self):
        run = self.run_workload("--seed", 1, "--no-invalidation")
        self.assertEqual((run.returncode, run.stderr), (1, ""))
        self.assertIn("came after", run.stdout)
        print("without:", run.stdout.splitlines()[-1])

    def test_checker(self):
        # 0 writes y, then x; 1 reads x, so it knows of 0's second y, and must not read the first.
        story = ["0,write,y,0,1", "0,write,y,0,2", "0,write,x,0,3", "1,read,x,0,3"]
        history = self.directory / "story"
        for lines, status, what in (
            ([*story, "1,read,y,0,2"], 0, "5 operations, 0 violations"),
            ([*story, "1,read,y,0,1"], 1, "process 1 reads 0.1 of object y, but knows of 0.2"),
            (["1,read,y,0,1", *story, "1,read,y,0,1"], 1, "6 operations, 1 violations"),
            # 1 writes y without knowing of 0's write: either value may be read after the other.
            ([*story[:2], "1,write,y,1,1", "2,read,y,0,2", "2,read,y,1,1"], 0, "0 violations"),
            ([*story[:2], "1,write,y,1,1", "2,read,y,1,1", "2,read,y,0,2"], 0, "0 violations"),
            # Through a third process: 2 reads a value that 1 wrote after it had read x.
            ([*story, "1,write,z,1,1", "2,read,z,1,1", "2,read,y,0,1"], 1, "knows of 0.2"),
            # A process's own write hides the earlier value.
            (["0,write,y,0,1", "0,write,y,0,2", "0,read,y,0,1"], 1, "knows of 0.2"),
            (["0,read,y,1,1"], 2, "nobody made"),
            (["0,write,y,1,1"], 2, "cannot have made"),
            (["0,jump,y,1,1"], 2, "line 2"),
        ):
            history.write_text(COLUMNS + "".join(line + "\n" for line in lines))
            run = self.check(history)
            self.assertEqual(run.returncode, status, (lines, run))
            self.assertIn(what, run.stdout + run.stderr)

    def test_killed_client_leaves_nothing_that_hinders(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            more = ("--object", "1.9.0", "--requests", 1000000)
            owner = self.hold_objects()
            client = self.start("flexclient", *self.on_node(0, "validate", *more), ready=0)
            sockets = self.directory / "0"
            while not os.listdir(sockets):
                self.assertIsNone(client.poll())
            client.send_signal(number)
            client.communicate()  # together with its process cacher
            self.assertEqual(client.returncode, -9 if number == signal.SIGKILL else 1)
            self.run_well(*self.on_node(0, "validate", "--object", "1.9.0"))
            self.stop(owner)
        self.stop_all()

    def test_owner_gone(self):
        self.stop(self.hold_objects())
        owner = self.hold_objects()
        self.run_well(*self.on_node(0, "validate", "--object", "1.9.0"))
        self.stop(owner)
        run = self.flexclient(*self.on_node(0, "create", "--requests", 20000))
        self.assertEqual(run.returncode, 1)
        self.assertIn("create: full", run.stderr)
        self.stop_all()


class CommandLineTest(Case):
    def test_usage(self):
        for program in ("objserver", "consistency_cacher", "process_cacher", "flexclient"):
            for arguments, status in (["--help"], 0), (["--nonsense"], 2), (["more"], 2):
                run = subprocess.run(
                    [TARGET / program, *arguments], capture_output=True, text=True, check=False
                )
                self.assertEqual(run.returncode, status, (program, arguments))
                self.assertEqual(bool(run.stdout), status == 0)
                self.assertEqual(bool(run.stderr), status != 0)
        for arguments, message in (
            ([], "--method is missing"),
            (["--method", "jump"], "no method 'jump'"),
            (["--method", "create"], "--dir is missing"),
            (["--method", "null", "--server", "host"], "'host' is not an IPv4 address"),
            (["--method", "null", "--transport", "x"], "not udp or tcp"),
            (["--method", "null", "--clients", "0"], "--clients is less than 1"),
            (["--method", "null", "--clients", "33"], "--clients '33' is not a number"),
            (["--method", "read", "--dir", ".", "--object", "1.2"], "not three numbers"),
            (["--method", "read", "--dir", ".", "--node", "1"], "--nodes does not have node 1"),
            (["--method", "workload", "--dir", ".", "--processes", "2"], "does not fit"),
        ):
            run = self.flexclient(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(message, run.stderr)
        run = self.flexclient("--method", "create", "--dir", "/no/such")
        self.assertEqual(run.returncode, 1)
        self.assertIn("cannot make /no/such/segment.0", run.stderr)
        run = self.flexclient("--method", "null", "--log", "/no/such")
        self.assertEqual(run.returncode, 1)
        self.assertIn("cannot open /no/such", run.stderr)


if __name__ == "__main__":
    signal.alarm(150)
    unittest.main()
