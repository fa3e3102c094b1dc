#!/usr/bin/env python3
"""Tests of greeter_server and greeter_client, as processes."""

import csv
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent
SERVER, CLIENT = TARGET / "greeter_server", TARGET / "greeter_client"
SUMMARY = re.compile(
    r"first call, ms:(?: [\d.]+)+\n"
    r"(\d+) clients, (\d+) later calls, us: p50 [\d.]+, p90 [\d.]+, p99 [\d.]+, maximum [\d.]+\n"
    r"throughput, calls/ms: ([\d.]+) by the clock on the wall\n"
    r" +([\d.]+) by the sum of latencies\n"
    r" +([\d.]+|inf) by the sum of latencies truncated to whole ms, of which (\d+) are 0\n"
)


class GreeterTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.client_log = Path(directory.name) / "client.csv"
        self.server_log = Path(directory.name) / "server.csv"

    def start_server(self):
        self.server = subprocess.Popen(
            [SERVER, "--port", "0", "--log", self.server_log],
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
        where = [CLIENT, "--server", f"127.0.0.1:{self.port}", "--log", self.client_log]
        return [*where, *map(str, arguments)]

    def run_client(self, *arguments):
        command = self.client_command(*arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def rows(self, path):
        with open(path, newline="", encoding="ascii") as file:
            return list(csv.DictReader(file))

    def test_clients(self):
        for clients, requests in ((1, 1), (1, 1000), (2, 1000), (5, 3000)):
            self.start_server()
            run = self.run_client("--clients", clients, "--requests", requests)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            summary = SUMMARY.fullmatch(run.stdout)
            self.assertEqual(summary.group(1, 2), (str(clients), str(clients * requests)))
            print(run.stdout.strip())
            self.stop_server()

            rows, served = self.rows(self.client_log), self.rows(self.server_log)
            wanted = {str(client): requests + 1 for client in range(clients)}
            self.assertEqual(Counter(row["client"] for row in rows), wanted)
            self.assertEqual({(r["method"], r["status"]) for r in rows}, {("SayHello", "ok")})
            self.assertEqual(len(served), len(rows))
            self.assertTrue(all(int(row["start_ns"]) <= int(row["end_ns"]) for row in served))
            later = [row for row in rows if row["request"] != "0"]
            self.check_figures(summary, later)
            for client in wanted:
                own = [row for row in rows if row["client"] == client]
                self.assertEqual([int(row["request"]) for row in own], list(range(requests + 1)))
                stamps = [int(row[name]) for row in own for name in ("begin_ns", "end_ns")]
                self.assertEqual(stamps, sorted(stamps))
            # All clients make their first calls before any client makes a second call.
            first = [int(row["end_ns"]) for row in rows if row["request"] == "0"]
            self.assertLess(max(first), min(int(row["begin_ns"]) for row in later))

    def check_figures(self, summary, rows):
        """The printed throughput agrees with the log."""
        times = [(row["client"], int(row["begin_ns"]), int(row["end_ns"])) for row in rows]
        wall_ms = (max(end for *_, end in times) - min(begin for _, begin, _ in times)) / 1e6
        self.assertAlmostEqual(float(summary[3]), len(times) / wall_ms, delta=0.001)
        truncated = 0
        for client in {client for client, *_ in times}:
            own_ms = [(end - begin) // 10**6 for each, begin, end in times if each == client]
            truncated += len(own_ms) / sum(own_ms) if sum(own_ms) else float("inf")
        self.assertAlmostEqual(float(summary[5]), truncated, delta=0.001)
        nothing = sum(end - begin < 10**6 for _, begin, end in times)
        self.assertEqual(int(summary[6]), nothing)

    def start_busy_client(self):
        """Starts a client, and waits until the server's log has calls."""
        client = subprocess.Popen(
            self.client_command("--clients", 3, "--requests", 10**6),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        while self.server_log.stat().st_size < 10**4:
            self.assertIsNone(client.poll())
            time.sleep(0.02)
        return client

    def test_server_ends_with_clients_busy(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.start_server()
            client = self.start_busy_client()
            self.stop_server(number)
            output, errors = client.communicate(timeout=20)
            self.assertEqual((client.returncode, output), (1, ""))
            self.assertIn("greeter_client: client ", errors)

    def test_client_is_stopped(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.start_server()
            client = self.start_busy_client()
            client.send_signal(number)
            output, errors = client.communicate(timeout=20)
            self.assertEqual((client.returncode, output), (1, ""))
            self.assertEqual(errors, f"greeter_client: stopped by {number.name}\n")
            self.stop_server()
            self.assertEqual(len(self.rows(self.client_log)), len(self.rows(self.server_log)))

    def test_hostile_bytes(self):
        self.start_server()
        for message in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000)):
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(message)
        self.assertEqual(self.run_client("--requests", 1).returncode, 0)
        self.stop_server()

    def test_usage(self):
        for program in (SERVER, CLIENT):
            for arguments, status in (["--help"], 0), (["--nonsense"], 2), (["more"], 2):
                run = subprocess.run([program, *arguments], capture_output=True, check=False)
                self.assertEqual((run.returncode, bool(run.stdout)), (status, status == 0))
        self.start_server()
        for command, message in (
            ([SERVER, "--port", str(self.port)], "cannot listen on port"),
            ([SERVER, "--port", "0", "--log", "/no/such"], "cannot open /no/such"),
            ([CLIENT, "--log", "/no/such"], "cannot open /no/such"),
            ([CLIENT, "--server", "127.0.0.1:1"], "client 0: "),
        ):
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((run.returncode, run.stdout), (1, ""), command)
            self.assertIn(message, run.stderr)
        for arguments in (["--clients", "0"], ["--requests", "x"]):
            run = subprocess.run([CLIENT, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2)
            self.assertIn("is not a number from 1", run.stderr)


if __name__ == "__main__":
    signal.alarm(150)
    unittest.main()
