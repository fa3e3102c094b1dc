"""Shared code of the tests that run frpc and measure as processes."""

import fcntl
import os
import struct
import subprocess
import tempfile
import termios
import time
import unittest


HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.dirname(HERE)
FRPC = os.path.join(TARGET, "frpc")
MEASURE = os.path.join(TARGET, "measure")
EXPRESSIONS = os.path.join(TARGET, "expressions.txt")
EXPECTED = os.path.join(TARGET, "expected.txt")

LINE_LIMIT = 65536
BATCH = 16
MODES = range(1, 7)
STREAM_MODES = "13456"
BACK_END_MODES = "3456"
ARITY = dict.fromkeys("+ - * / ^".split(), 2) | dict.fromkeys(
    "! sin cos tan asin acos atan exp ln log sqrt abs neg ~".split(), 1
)

UNKNOWN = "not a number, operator, function or constant"
NOT_UNIT = "the operand is not between -1 and 1"
NOT_POSITIVE = "the operand is not positive"
NOT_COUNT = "the operand is not a whole number from 0 to 170"
NOT_REAL = "the power is not a real number"
LEFT_OVER = "left over, no operator takes it"


def read_lines(path):
    with open(path, encoding="ascii") as file:
        return file.read().splitlines()


def to_postfix(expression):
    tokens = iter(expression.split())

    def subtree():
        token = next(tokens)
        operands = [part for _ in range(ARITY.get(token, 0)) for part in subtree()]
        return [*operands, token]

    return " ".join(subtree())


def stat(pid):
    """The fields of /proc/PID/stat from the state on."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def children(pid):
    """The processes whose parent is pid."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = stat(name)[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(int(name))
    return found


def wait_until_asleep(process):
    """Wait until process has read all of its standard input, a pipe, and sleeps or has ended."""
    while True:
        [unread] = struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))
        if unread == 0 and stat(process.pid)[0] in "SZ":
            return
        time.sleep(0.001)


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def run_frpc(self, *arguments, text=b"", **more):
        more = {"stdout": subprocess.PIPE, "input": text} | more
        return subprocess.run([FRPC, *arguments], stderr=subprocess.PIPE, check=False, **more)

    def evaluate(self, mode, text, *arguments):
        """Exit status and answers, through the channel of the mode."""
        if mode != 2:
            run = self.run_frpc(f"-m{mode}", *arguments, text=text)
            self.assertEqual(run.stderr, b"")
            return run.returncode, run.stdout.decode("ascii").splitlines()
        source = self.write("in", text)
        run = self.run_frpc("-m2", "-i", source, "-o", self.path("out"), *arguments)
        self.assertEqual((run.stdout, run.stderr), (b"", b""))
        return run.returncode, self.read("out").decode("ascii").splitlines()

    def evaluate_all_ways(self, text, *arguments):
        """The same, after a check that all modes agree."""
        results = [self.evaluate(mode, text, *arguments) for mode in MODES]
        for result in results[1:]:
            self.assertEqual(result, results[0])
        return results[0]

    def start(self, *arguments):
        process = subprocess.Popen(
            [FRPC, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(process.communicate)
        return process

    def exchange(self, process, line):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        return process.stdout.readline()
