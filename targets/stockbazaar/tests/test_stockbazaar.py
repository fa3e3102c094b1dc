#!/usr/bin/env python3
"""Tests of server and client, as processes, over both transports, and of the thread pool."""

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TARGET))

from market import Market, Outcome  # noqa: E402
from thread_pool import ThreadPool  # noqa: E402

TRANSPORTS = ("socket", "grpc")


def command(program, *arguments):
    return [sys.executable, "-B", str(TARGET / program), *map(str, arguments)]


def most_at_once(intervals):
    """The largest number of intervals that overlap at one time."""
    edges = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    most = at_once = 0
    for _, step in edges:
        at_once += step
        most = max(most, at_once)
    return most


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def start_server(self, *arguments):
        self.server_log = self.directory / "server.csv"
        self.server = subprocess.Popen(
            command("server.py", "--port", 0, "--log", self.server_log, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.server.communicate)
        self.addCleanup(self.server.kill)
        self.port = int(re.search(r"ready on port (\d+)", self.server.stdout.readline())[1])

    def stop_server(self, number=signal.SIGTERM):
        self.server.send_signal(number)
        _, errors = self.server.communicate(timeout=20)
        self.assertEqual((self.server.returncode, errors), (0, ""))

    def client_command(self, *arguments):
        self.client_log = self.directory / "client.csv"
        return command("client.py", "--port", self.port, "--log", self.client_log, *arguments)

    def run_client(self, *arguments):
        return subprocess.run(
            self.client_command(*arguments), capture_output=True, text=True, check=False
        )

    def rows(self, path):
        with open(path, newline="", encoding="ascii") as file:
            return list(csv.DictReader(file))

    def ask(self, request):
        """The socket server's answer to some bytes."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                return connection.makefile("rb").read()
            except OSError:
                return b""


class LoadTest(Case):
    def check_load(self, transport, method, clients, requests, threads):
        self.start_server("--transport", transport, "--threads", threads)
        run = self.run_client(
            *("--transport", transport, "--method", method),
            *("--clients", clients, "--requests", requests),
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        total = clients * requests
        self.assertIn(f"{clients} clients, {total} {method} requests, 0 failed", run.stdout)
        print(transport, threads, "threads:", run.stdout.strip())
        self.stop_server()
        rows, served = self.rows(self.client_log), self.rows(self.server_log)
        wanted = {str(client): requests for client in range(clients)}
        self.assertEqual(Counter(row["client"] for row in rows), wanted)
        self.assertEqual({(row["method"], row["status"]) for row in rows}, {(method, "ok")})
        for client in wanted:
            own = [row for row in rows if row["client"] == client]
            self.assertEqual([int(row["request"]) for row in own], list(range(requests)))
            stamps = [int(row[name]) for row in own for name in ("begin_ns", "end_ns")]
            self.assertEqual(stamps, sorted(stamps))
        self.assertEqual(len(served), total)
        self.assertEqual({(row["method"], row["status"]) for row in served}, {(method, "ok")})
        for row in served:
            self.assertTrue(int(row["arrival_ns"]) <= int(row["start_ns"]) <= int(row["end_ns"]))
        self.assertLessEqual(len({row["thread"] for row in served}), threads)
        times = [(int(row["start_ns"]), int(row["end_ns"])) for row in served]
        self.assertLessEqual(most_at_once(times), threads)

    def test_five_clients(self):
        for transport in TRANSPORTS:
            for method in ("Lookup", "Trade"):
                self.check_load(transport, method, 5, 3000, 2)

    def test_pool_sizes_and_clients(self):
        for transport in TRANSPORTS:
            for clients, threads in ((1, 1), (2, 6), (3, 1)):
                self.check_load(transport, "Lookup", clients, 100, threads)

    def test_all_trades_count(self):
        self.start_server("--threads", "6", "--settle-us", "100")
        self.assertEqual(
            self.run_client("--method", "Trade", "--clients", 5, "--requests", 200).returncode, 0
        )
        self.assertEqual(self.ask(b"Lookup FishCo\n"), b"3.25 250\n")
        self.stop_server()

    def test_time_that_is_asked_for(self):
        """A lookup's sleep, and the wait for a lock that another trade holds, are in the log."""
        for transport in TRANSPORTS:
            options = ("--settle-us", "20000", "--lookup-us", "30000", "--transport", transport)
            self.start_server(*options)
            for method, requests in (("Lookup", 3), ("Trade", 5)):
                more = ("--transport", transport, "--method", method, "--clients", 2)
                self.assertEqual(self.run_client(*more, "--requests", requests).returncode, 0)
            self.stop_server()
            for row in self.rows(self.server_log):
                took_ns = int(row["end_ns"]) - int(row["start_ns"])
                waited_ns = int(row["lock_wait_ns"])
                self.assertGreaterEqual(took_ns, 30e6 if row["method"] == "Lookup" else 20e6)
                self.assertLess(waited_ns, took_ns)
                self.assertTrue(row["method"] == "Trade" or waited_ns == 0)
            waits_ns = [int(row["lock_wait_ns"]) for row in self.rows(self.server_log)]
            self.assertGreater(max(waits_ns), 1e6)


class ServiceTest(Case):
    def test_line_protocol(self):
        self.start_server("--most-traded", "100")
        for request, answer in (
            (b"Lookup GameStart\n", b"15.99 0\n"),
            (b"Lookup NoCo\n", b"-1 0\n"),
            (b"Trade GameStart 60 buy\n", b"DONE\n"),
            (b"Trade GameStart 40 sell\n", b"DONE\n"),
            (b"Trade GameStart 1 buy\n", b"SUSPENDED\n"),
            (b"Trade NoCo 1 buy\n", b"UNKNOWN_STOCK\n"),
            (b"Trade FishCo 0 buy\n", b"INVALID_COUNT\n"),
            (b"Trade FishCo -5 buy\n", b"INVALID_COUNT\n"),
            (b"Lookup GameStart\n", b"15.99 100\n"),
        ):
            self.assertEqual(self.ask(request), answer, request)
        for request in (
            b"",
            b"Lookup GameStart",
            b"\n",
            b"Lookup\n",
            b"Jump GameStart\n",
            b"Trade FishCo 1\n",
            b"Trade FishCo 1 rent\n",
            b"Trade FishCo one buy\n",
            b"Trade FishCo --1 buy\n",
            b"\xff\xfe\n",
            b"x" * 100000,
        ):
            self.assertEqual(self.ask(request), b"", request)
        self.assertEqual(self.ask(b"Lookup FishCo\n"), b"3.25 0\n")
        self.stop_server()
        statuses = Counter(row["status"] for row in self.rows(self.server_log))
        self.assertEqual(statuses["ok"], 10)
        self.assertEqual(statuses["malformed"] + statuses["failed"], 11)

    def test_suspended_is_reported(self):
        for transport in TRANSPORTS:
            self.start_server("--transport", transport, "--most-traded", "1")
            run = self.run_client("--transport", transport, "--method", "Trade", "--requests", 8)
            self.assertEqual(run.returncode, 1)
            self.assertIn("8 Trade requests, 4 failed", run.stdout)
            statuses = [row["status"] for row in self.rows(self.client_log)]
            self.assertEqual(statuses, ["ok"] * 4 + ["suspended"] * 4)
            self.stop_server()

    def start_busy_client(self, transport):
        client = subprocess.Popen(
            self.client_command("--transport", transport, "--clients", 3, "--requests", 10**6),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        while not (self.client_log.exists() and self.client_log.read_text().count("\n") > 1):
            self.assertIsNone(client.poll())
            time.sleep(0.02)
        return client

    def test_server_ends_with_clients_busy(self):
        for transport in TRANSPORTS:
            for number in (signal.SIGTERM, signal.SIGINT):
                self.start_server("--transport", transport)
                client = self.start_busy_client(transport)
                self.stop_server(number)
                client.communicate(timeout=20)
                self.assertEqual(client.returncode, 1)
                os.remove(self.client_log)

    def test_client_is_stopped(self):
        for transport in TRANSPORTS:
            self.start_server("--transport", transport)
            for number in (signal.SIGTERM, signal.SIGINT):
                client = self.start_busy_client(transport)
                client.send_signal(number)
                output, errors = client.communicate(timeout=20)
                self.assertEqual((client.returncode, errors), (1, ""))
                self.assertIn("0 failed", output)
                text = self.client_log.read_text()
                self.assertTrue(text.endswith("ok\n"))
                self.assertIn(f"3 clients, {text.count(chr(10)) - 1} Lookup requests", output)
                os.remove(self.client_log)
            self.stop_server()

    def test_usage(self):
        for program in ("server.py", "client.py"):
            for arguments, status in (["--help"], 0), (["--nonsense"], 2), (["more"], 2):
                run = subprocess.run(command(program, *arguments), capture_output=True, check=False)
                self.assertEqual(run.returncode, status)
        for arguments in (["--threads", "0"], ["--transport", "pigeon"], ["--port", "x"]):
            run = subprocess.run(command("server.py", *arguments), capture_output=True, check=False)
            self.assertEqual(run.returncode, 2)
        for transport in TRANSPORTS:
            self.start_server("--transport", transport)
            run = subprocess.run(
                command("server.py", "--transport", transport, "--port", self.port),
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((run.returncode, run.stdout), (1, ""))
            self.assertIn("stockbazaar: ", run.stderr)
            self.stop_server()
            run = self.run_client("--transport", transport, "--requests", "2")
            self.assertEqual(run.returncode, 1)
            self.assertIn("refused" if transport == "socket" else "UNAVAILABLE", run.stderr)
        run = subprocess.run(
            command("server.py", "--log", "/no/such"), capture_output=True, text=True, check=False
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("/no/such", run.stderr)


class PartsTest(unittest.TestCase):
    def test_pool_does_each_job_once(self):
        for size in (1, 2, 6):
            done, lock = Counter(), threading.Lock()

            def work(job, done=done, lock=lock):
                with lock:
                    done[job] += 1

            pool = ThreadPool(size, work)
            for job in range(1000):
                pool.submit(job)
            pool.close()
            self.assertEqual(done, dict.fromkeys(range(1000), 1))

    def test_pool_works_at_once(self):
        together = threading.Barrier(6)
        pool = ThreadPool(6, lambda _: together.wait(timeout=10))
        for job in range(12):
            pool.submit(job)
        pool.close()
        self.assertFalse(together.broken)

    def test_trades_exclude_each_other(self):
        market = Market(10**6, settle_s=0.0001)

        def trade():
            for _ in range(50):
                self.assertEqual(market.trade("BoarCo", 2), Outcome.DONE)

        threads = [threading.Thread(target=trade) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(market.lookup("BoarCo"), (7.10, 800))


if __name__ == "__main__":
    signal.alarm(150)
    unittest.main()
