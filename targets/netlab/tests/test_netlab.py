#!/usr/bin/env python3
"""Tests of netlab; they need root."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

NETLAB = Path(__file__).resolve().parent.parent / "netlab"

# Sends BYTES to a host that confirms them, and prints the duration.
SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000)) as s:
    begin = time.monotonic_ns()
    s.sendall(bytes(int(sys.argv[2])))
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b"x"
    print(time.monotonic_ns() - begin)
"""
RECEIVE = """
import socket
with socket.create_server(("", 7000)) as listener:
    print("ready", flush=True)
    s, _ = listener.accept()
    while s.recv(1 << 20):
        pass
    s.sendall(b"x")
"""
TRANSFER = """
exec 3<&0; mkfifo "$1/ready"
"$0" in server python3 -c "$2" > "$1/ready" &
read -r _ < "$1/ready"
exec python3 -c "$3" "$NETLAB_SERVER" "$4"
"""


def namespaces():
    return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def locks():
    return sorted(os.listdir("/run/netlab")) if os.path.exists("/run/netlab") else []


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    """Returns whether a process that was told to end does so within some time."""
    deadline = time.monotonic() + 10
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


class NetlabTest(unittest.TestCase):
    def setUp(self):
        self.before = namespaces(), locks()

    def check_clean(self):
        self.assertEqual((namespaces(), locks()), self.before)

    def run_netlab(self, *arguments, **more):
        return subprocess.run(
            [NETLAB, *arguments], capture_output=True, text=True, check=False, **more
        )

    def start(self, *arguments):
        """Starts a lab, and waits until its command has printed a line."""
        process = subprocess.Popen([NETLAB, *arguments], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        self.first_line = process.stdout.readline()
        return process

    def transfer_ns(self, topology, size):
        with tempfile.TemporaryDirectory() as directory:
            run = self.run_netlab(
                topology, "--", "sh", "-euc", TRANSFER, NETLAB, directory, RECEIVE, SEND, str(size)
            )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return int(run.stdout)

    def test_rates(self):
        """No link is faster than it should be, but for the burst."""
        for topology, size, burst, bits_per_s in (
            ("link", 10_000_000, 16_000, 10**9),
            ("routed", 200_000, 1_600, 10**7),
        ):
            least_ns = (size - burst) * 8 * 10**9 // bits_per_s
            took_ns = self.transfer_ns(topology, size)
            self.assertGreater(took_ns, least_ns)
            print(f"{topology}: {size} bytes in {took_ns / 1e6:.1f} ms; {bits_per_s} bits/s")
        self.check_clean()

    def test_hosts_see_each_other_only(self):
        for topology, names in (("link", "client server"), ("routed", "client router server")):
            for host in names.split():
                run = self.run_netlab(
                    topology, "--in", host, "--", "sh", "-c", "ip -br link; echo $NETLAB_SERVER"
                )
                *interfaces, address = run.stdout.splitlines()
                self.assertEqual(len(interfaces), 3 if host == "router" else 2)
                self.assertIn(address, ("10.77.0.2", "10.77.2.2"))
        self.check_clean()

    def test_two_at_once(self):
        first = self.start("link", "--", "sh", "-c", "echo; exec sleep 1000")
        second = self.start("link", "--", "sh", "-c", "echo $NETLAB")
        self.assertEqual(second.wait(), 0)
        first.terminate()
        self.assertEqual(first.wait(), 128 + signal.SIGTERM)
        self.check_clean()

    def test_standard_streams_and_status(self):
        run = self.run_netlab("link", "--", "sh", "-c", "cat; echo e >&2; exit 7", input="text")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (7, "text", "e\n"))
        run = self.run_netlab("link", "--", "sh", "-c", "kill -KILL $$")
        self.assertEqual(run.returncode, 128 + signal.SIGKILL)
        run = self.run_netlab("link", "--", "/no/such")
        self.assertEqual(run.returncode, 127)
        self.assertIn("/no/such", run.stderr)
        self.check_clean()

    def test_stopped(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = self.start("routed", "--", "sh", "-c", "echo; exec sleep 1000")
            process.send_signal(number)
            self.assertEqual(process.wait(), 128 + number)
            self.check_clean()

    def test_stopped_while_it_builds(self):
        for delay in range(0, 300, 30):
            script = f"timeout -s TERM 0.{delay + 20:03} {NETLAB} routed -- sleep 1000"
            subprocess.run(["sh", "-c", script], check=False)
            self.check_clean()

    def test_stubborn_command(self):
        script = "trap '' TERM; echo; while :; do sleep 0.1; done"
        process = self.start("link", "--grace", "0.2", "--", "sh", "-c", script)
        process.terminate()
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.check_clean()

    def test_what_the_command_left_running(self):
        script = f"{NETLAB} in server sleep 1000 & echo $!; setsid sleep 1000 & echo $!"
        run = self.run_netlab("link", "--", "sh", "-c", f"({script}) >out; cat out", cwd="/tmp")
        self.assertEqual(run.returncode, 0)
        for pid in run.stdout.split():
            self.assertTrue(ends(pid))
        self.check_clean()

    def test_killed(self):
        process = self.start("routed", "--", "sh", "-c", "echo $$; exec sleep 1000")
        pid = int(self.first_line)
        process.kill()
        process.wait()
        self.assertNotEqual((namespaces(), locks()), self.before)
        other = self.start("link", "--", "sh", "-c", "echo; exec sleep 1000")
        run = self.run_netlab("clean")
        self.assertEqual(run.returncode, 0)
        self.assertEqual(run.stdout.count("removed"), 3)
        self.assertTrue(ends(pid))
        self.assertIsNone(other.poll())
        other.terminate()
        other.wait()
        self.check_clean()

    def test_usage(self):
        self.assertEqual(self.run_netlab("--help").returncode, 0)
        for arguments, message in (
            ([], "required"),
            (["ring", "--", "true"], "invalid choice"),
            (["link"], "no command"),
            (["link", "--in", "router", "--", "true"], "invalid choice"),
        ):
            run = self.run_netlab(*arguments)
            self.assertEqual(run.returncode, 2)
            self.assertIn(message, run.stderr)
        run = self.run_netlab("in", "server", "true")
        self.assertEqual(run.returncode, 125)
        self.assertIn("NETLAB", run.stderr)
        run = self.run_netlab("link", "--", "true", preexec_fn=lambda: os.setuid(65534))
        self.assertEqual(run.returncode, 125)
        self.assertIn("need root", run.stderr)


if __name__ == "__main__":
    signal.alarm(120)
    if os.geteuid() != 0:
        print("netlab: its tests need root, skipped")
        sys.exit(0)
    if "--alone" not in sys.argv:
        # Runs in a mount namespace in which other labs are not visible.
        script = """
            mkdir -p /run/netns /run/netlab
            mount -t tmpfs netlab /run/netns
            mount -t tmpfs netlab /run/netlab
            exec "$@"
        """
        again = [sys.executable, "-B", __file__, "--alone", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", "sh", "-ec", script, "sh", *again])
    sys.argv.remove("--alone")
    unittest.main()
