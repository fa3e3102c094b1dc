#!/usr/bin/env python3
"""Tests of kvserver, kvclient and kvpost, as processes."""

import csv
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent
SERVER, CLIENT, POST = TARGET / "kvserver", TARGET / "kvclient", TARGET / "kvpost.py"
HEADER = struct.Struct("<II QQ IIHHI II QQQQ 16x")
MAGIC = 0x474F4C4B
WRITE, READ = 2, 3


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def start_server(self, *arguments):
        self.server_log = self.directory / "server.csv"
        self.server = subprocess.Popen(
            [SERVER, "--port", "0", "--log", self.server_log, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.server.communicate)
        self.addCleanup(self.server.kill)
        self.port = int(re.search(r"ready on port (\d+)", self.server.stdout.readline())[1])

    def stop_server(self, number=signal.SIGTERM):
        self.server.send_signal(number)
        output = self.server.communicate()
        self.assertEqual(self.server.returncode, 0)
        return output[1]

    def run_client(self, *arguments):
        self.client_log = self.directory / "client.csv"
        return subprocess.run(
            [CLIENT, "--port", str(self.port), "--log", self.client_log, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def ask_well(self, *arguments):
        run = self.run_client(*arguments)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))

    def rows(self, path):
        with open(path, newline="", encoding="ascii") as file:
            return list(csv.DictReader(file))

    def post(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", POST, self.client_log, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )


class ServiceTest(Case):
    def test_both_logs_agree(self):
        self.start_server()
        self.ask_well("--requests", "6", "--method", "mixed", "--bytes", "1000000", "--pings", "2")
        self.stop_server()
        rows, served = self.rows(self.client_log), self.rows(self.server_log)
        self.assertEqual([row["method"] for row in rows], ["ping"] * 2 + ["write", "read"] * 3)
        self.assertEqual([row["request"] for row in rows], list(map(str, range(8))))
        self.assertEqual(len(served), 8)
        for row, other in zip(rows, served):
            for name in set(row) & set(other) - {"client_receive_ns", "end_ns"}:
                self.assertEqual(row[name], other[name], name)
            self.assertEqual(row["status"], "ok")
            stamps = ["begin_ns", "client_send_ns", "server_receive_ns", "server_send_ns"]
            stamps = [int(row[name]) for name in [*stamps, "client_receive_ns", "end_ns"]]
            self.assertEqual(stamps, sorted(stamps))
            served_ns = [int(other[name]) for name in ("arrival_ns", "start_ns", "end_ns")]
            self.assertEqual(served_ns, sorted(served_ns))
        self.assertEqual(int(rows[2]["request_bytes"]), 4 + len("client 0 key 0") + 1000000)
        self.assertEqual(int(rows[3]["response_bytes"]), 1000000)

    def test_five_clients(self):
        self.start_server()
        for method in ("write", "read", "mixed", "ping"):
            self.ask_well(
                *("--clients", "5", "--requests", "3000", "--method", method, "--bytes", "1000")
            )
            rows = self.rows(self.client_log)
            self.assertEqual(len(rows), 15000)
            self.assertEqual(len({row["id"] for row in rows}), 15000)
            self.assertEqual({row["status"] for row in rows}, {"ok"})
        self.assertEqual(self.stop_server(), "")
        self.assertEqual(len(self.rows(self.server_log)), 60000)

    def test_sizes(self):
        self.start_server()
        for size in (0, 1, 65536, 64 * 2**20 - 1000):
            self.ask_well("--bytes", str(size), "--requests", "2", "--method", "mixed")

    def test_not_found_and_full(self):
        self.start_server("--memory-mb", "1")
        run = self.run_client("--method", "read")
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("client 0: the server answers: not_found", run.stderr)
        run = self.run_client("--requests", "2")
        self.assertEqual(run.returncode, 1)
        self.assertIn("the server answers: full", run.stderr)
        # A key's value can be replaced any number of times.
        self.ask_well("--requests", "1000", "--bytes", "4000", "--keys", "1")

    def exchange(self, message):
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            try:
                connection.sendall(message)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65536):
                    answer += piece
            except OSError:  # the server may close the connection at any time
                pass
        return answer

    def header(self, method, length, magic=MAGIC):
        return HEADER.pack(magic, method, 7, 8, 0, 0, 0, 0, 0, length, 0, 1, 0, 0, 0)

    def test_hostile_messages(self):
        self.start_server()
        for message in (
            b"",
            b"GET / HTTP/1.1\r\n" * 20,
            self.header(WRITE, 10, magic=0),
            self.header(WRITE, 2**32 - 1),
            self.header(WRITE, 100) + b"short",
            self.header(WRITE, 0)[:50],
        ):
            self.assertEqual(self.exchange(message), b"")
        malformed = 3
        for method, body in ((WRITE, b"\1\0"), (READ, b"\xff\xff\xff\xff1"), (99, b"\0\0\0\0")):
            answer = self.exchange(self.header(method, len(body)) + body)
            self.assertEqual(HEADER.unpack(answer)[8], malformed)
        rng = random.Random(1)
        for _ in range(200):
            self.exchange(self.header(rng.randrange(5), rng.randrange(30)) + rng.randbytes(29))
        self.ask_well()
        self.assertIn("does not speak this protocol", self.stop_server())

    def test_server_ends_with_clients_connected(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.start_server()
            with subprocess.Popen(
                [CLIENT, "--port", str(self.port), "--requests", "1000000"],
                stderr=subprocess.PIPE,
                text=True,
            ) as client:
                while not self.server_log.read_text().count("\n") > 3:
                    self.assertIsNone(client.poll())
                self.stop_server(number)
                self.assertIn("the connection to the server was closed", client.stderr.read())
            self.assertEqual(client.returncode, 1)

    def test_client_is_stopped(self):
        self.start_server()
        for number in (signal.SIGTERM, signal.SIGINT):
            log = self.directory / f"{number.name}.csv"
            with subprocess.Popen(
                [CLIENT, "--port", str(self.port), "--requests", "1000000", "--bytes", "1000"]
                + ["--clients", "3", "--log", log],
                stderr=subprocess.PIPE,
                text=True,
            ) as client:
                while not log.exists() or log.read_text().count("\n") < 50:
                    self.assertIsNone(client.poll())
                client.send_signal(number)
                self.assertEqual(client.stderr.read(), f"kvclient: stopped by {number.name}\n")
            self.assertEqual(client.returncode, 1)
            self.assertTrue(log.read_text().endswith("\n"))

    def test_usage(self):
        for program in (SERVER, CLIENT):
            run = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            for arguments, message in (
                (["--port", "x"], "--port 'x' is not a number"),
                (["--port", "65536"], "--port '65536' is not a number"),
                (["more"], "unexpected argument 'more'"),
                (["--nonsense"], "--nonsense"),
            ):
                run = subprocess.run(
                    [program, *arguments], capture_output=True, text=True, check=False
                )
                self.assertEqual(run.returncode, 2)
                self.assertIn(message, run.stderr)
        run = subprocess.run([CLIENT, "--method", "x"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.start_server()
        for command, message in (
            ([SERVER, "--port", str(self.port)], "cannot listen on port"),
            ([SERVER, "--port", "0", "--log", "/no/such"], "cannot open /no/such"),
            ([CLIENT, "--port", "1"], "cannot connect to 127.0.0.1:1: Connection refused"),
            ([CLIENT, "--server", "no.such.host.invalid"], "cannot connect"),
            ([CLIENT, "--port", str(self.port), "--log", "/dev/full"], "cannot write /dev/full"),
        ):
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 1, command)
            self.assertIn(message, run.stderr)


class PostTest(Case):
    def offset(self, output):
        found = re.search(r"offset_ns (-?\d+) uncertainty_ns (\d+)", output)
        return int(found[1]), int(found[2])

    def test_injected_shift_is_found(self):
        for shift_us in (0, 5000, -123456, 3600 * 10**6):
            self.start_server(f"--clock-shift-us={shift_us}")
            self.ask_well("--pings", "50")
            self.stop_server()
            run = self.post("--server-log", self.server_log)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            offset, uncertainty = self.offset(run.stdout)
            self.assertLessEqual(abs(offset - 1000 * shift_us), uncertainty)
            # The uncertainty is at most half of the fastest ping's time.
            fastest = min(int(r["end_ns"]) - int(r["begin_ns"]) for r in self.rows(self.client_log))
            self.assertLessEqual(2 * uncertainty, fastest + 1)
            self.assertIn("60 of 60 answered RPCs", run.stdout)

    def write_log(self, *rpcs):
        self.client_log = self.directory / "client.csv"
        header = "client,method,status,id,request_bytes,response_bytes,client_send_ns,"
        header += "server_receive_ns,server_send_ns,client_receive_ns"
        lines = [",".join(map(str, rpc)) for rpc in rpcs]
        self.client_log.write_text("\n".join([header, *lines]) + "\n")

    def test_parts_by_hand(self):
        # The server's clock is 1000 ns ahead; a byte takes 8 ns.
        self.write_log(
            (0, "ping", "ok", 1, 0, 0, 100, 1110, 1120, 130),
            (0, "write", "ok", 2, 100, 10, 200, 2030, 2080, 1200),
            (0, "write", "failed", 3, 100, 0, 200, 0, 0, 1200),
        )
        output = self.directory / "parts.csv"
        run = self.post("--rate-mbit", "1000", "-o", output)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("2 RPCs answered, 1 not", run.stdout)
        self.assertEqual(self.offset(run.stdout), (1000, 10))
        ping, write = self.rows(output)
        wanted = {"start_ns": 0, "request_ns": 10, "server_ns": 10, "response_ns": 10}
        wanted |= {"total_ns": 30, "transmission_ns": 0, "slop_ns": 20}
        self.assertEqual({name: int(ping[name]) for name in wanted}, wanted)
        self.assertEqual(ping["gap_ns"], "")
        wanted = {"start_ns": 100, "request_ns": 830, "server_ns": 50, "response_ns": 120}
        wanted |= {"total_ns": 1000, "transmission_ns": 880, "slop_ns": 70, "gap_ns": 70}
        self.assertEqual({name: int(write[name]) for name in wanted}, wanted)

    def test_burst(self):
        self.write_log((0, "write", "ok", 2, 100, 10, 200, 2030, 2080, 1200))
        output = self.directory / "parts.csv"
        run = self.post("--rate-mbit", "1000", "--burst", "60", "-o", output)
        self.assertEqual(run.returncode, 0, run.stderr)
        [row] = self.rows(output)
        self.assertEqual((row["transmission_ns"], row["slop_ns"]), ("320", "630"))

    def test_errors(self):
        self.write_log((0, "ping", "ok", 1, 0, 0, 100, 1110, 1120, 130), (0, "ping", "ok", 2))
        for message in ("line 3", "no answered RPC", "no constant offset", "no column", "No such"):
            run = self.post()
            self.assertEqual((run.returncode, run.stdout), (1, ""))
            self.assertIn(message, run.stderr)
            if message == "line 3":
                self.write_log()
            elif message == "no answered RPC":
                self.write_log(
                    (0, "p", "ok", 1, 0, 0, 0, 5, 6, 9), (0, "p", "ok", 2, 0, 0, 0, 95, 96, 9)
                )
            elif message == "no constant offset":
                self.client_log.write_text("1\n")
            else:
                self.client_log = self.directory / "missing"


if __name__ == "__main__":
    signal.alarm(120)
    os.environ["PYTHONUNBUFFERED"] = "1"
    unittest.main()
