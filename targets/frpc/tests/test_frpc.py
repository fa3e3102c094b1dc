#!/usr/bin/env python3
"""Tests of frpc and measure, as processes."""

import fcntl
import os
import random
import signal
import struct
import subprocess
import sys
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
        """Exit status and answers, got in the way that is natural for the mode."""
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


class SuiteTest(Case):
    def test_size(self):
        counts = [len(line.split()) for line in read_lines(EXPRESSIONS)]
        self.assertEqual({n: counts.count(n) for n in counts}, {n: 30 for n in range(2, 12)})
        self.assertEqual(len(read_lines(EXPECTED)), 300)

    def test_generator_reproduces_it(self):
        generator = os.path.join(TARGET, "gen_expressions.py")
        subprocess.run([sys.executable, generator, self.directory], check=True)
        for path in (EXPRESSIONS, EXPECTED):
            self.assertEqual(read_lines(self.path(os.path.basename(path))), read_lines(path))

    def check_suite(self, lines, *arguments):
        status, answers = self.evaluate_all_ways("\n".join(lines).encode(), *arguments)
        self.assertEqual(status, 0)
        self.assertEqual(len(answers), 300)
        for line, answer, expected in zip(lines, answers, map(float, read_lines(EXPECTED))):
            self.assertTrue(answer.startswith("ANSWER: "), (line, answer))
            value = float(answer.removeprefix("ANSWER: "))
            self.assertLessEqual(abs(value - expected), 1e-12 * abs(expected), line)

    def test_prefix(self):
        self.check_suite(read_lines(EXPRESSIONS))
        self.check_suite(read_lines(EXPRESSIONS), "--notation", "prefix")

    def test_postfix(self):
        self.check_suite(
            [to_postfix(line) for line in read_lines(EXPRESSIONS)], "--notation=postfix"
        )


class AnswerTest(Case):
    def check(self, pairs, *arguments):
        """Has each expression answered, between two good ones that must not suffer."""
        text, wanted = b"7\n", ["ANSWER: 7"]
        for expression, answer in pairs:
            text += expression + b"\n"
            wanted += [answer]
        status, answers = self.evaluate_all_ways(text + b"8\n", *arguments)
        self.assertEqual(answers, [*wanted, "ANSWER: 8"])
        self.assertEqual(status, int(any(line.startswith("ERROR: ") for line in wanted)))

    def check_errors(self, triples, *arguments):
        self.check(
            [(expression, f"ERROR: token {where}: {what}") for expression, where, what in triples],
            *arguments,
        )

    def test_values(self):
        self.check(
            [
                (expression, f"ANSWER: {value}")
                for expression, value in (
                    (b"+ 1 2", "3"),
                    (b"- 5 3", "2"),
                    (b"* 2 -3.5", "-7"),
                    (b"/ 1 3", "0.3333333333333333"),
                    (b"+ .1 .2", "0.30000000000000004"),
                    (b"^ 2 10", "1024"),
                    (b"^ -8 3", "-512"),
                    (b"^ 0 0", "1"),
                    (b"! 0", "1"),
                    (b"! 5", "120"),
                    (b"! 20", "2.43290200817664e+18"),
                    (b"neg 3", "-3"),
                    (b"~ neg 3", "3"),
                    (b"abs -2", "2"),
                    (b"sqrt 16", "4"),
                    (b"log 1000", "3"),
                    (b"ln e", "1"),
                    (b"exp 0", "1"),
                    (b"pi", "3.141592653589793"),
                    (b"\t + \r1\v2\f\r", "3"),
                )
            ]
        )

    def test_numbers(self):
        self.check(
            [
                (text, f"ANSWER: {value}")
                for text, value in (
                    (b"12", 12),
                    (b"-0.5", -0.5),
                    (b"+3.", 3),
                    (b".25", 0.25),
                    (b"6.02e23", 6.02e23),
                    (b"1E+2", 100),
                    (b"25e-2", 0.25),
                    (b"007", 7),
                )
            ]
        )

    def test_unknown_tokens(self):
        self.check_errors(
            [
                (text, f'1 "{text.decode()}"', UNKNOWN)
                for text in (
                    b"foo",
                    b"Sin",
                    b"sinx",
                    b"si",
                    b".",
                    b"-.",
                    b"+-1",
                    b"1.2.3",
                    b"1e",
                    b"1e+",
                    b"0x10",
                    b"inf",
                    b"-inf",
                    b"nan",
                    b"infinity",
                    b"1,5",
                    b"(",
                    b"1_0",
                    b"++",
                    b"1#",
                )
            ]
        )
        self.check_errors([(b"+ 1 foo", '3 "foo"', UNKNOWN), (b"1 #2", '2 "#2"', UNKNOWN)])

    def test_structure_errors(self):
        self.check_errors(
            [
                (b"+", '1 "+"', "missing operand"),
                (b"+ 1", '1 "+"', "missing operand"),
                (b"+ 1 * 2", '3 "*"', "missing operand"),
                (b"sin", '1 "sin"', "missing operand"),
                (b"1 2", '2 "2"', LEFT_OVER),
                (b"+ 1 2 * 3 4 5", '4 "*"', LEFT_OVER),
            ]
        )

    def test_structure_errors_in_postfix(self):
        self.check_errors(
            [
                (b"+", '1 "+"', "missing operand"),
                (b"1 +", '2 "+"', "missing operand"),
                (b"+ 1 2", '1 "+"', "missing operand"),
                (b"1 2", '1 "1"', LEFT_OVER),
                (b"1 2 3 +", '1 "1"', LEFT_OVER),
                (b"1 2 + 3 4 *", '3 "+"', LEFT_OVER),
                (b"1 foo +", '2 "foo"', UNKNOWN),
                (b"1 0 /", '3 "/"', "division by zero"),
            ],
            "--notation",
            "postfix",
        )

    def test_undefined_results(self):
        self.check_errors(
            [
                (b"/ 1 0", '1 "/"', "division by zero"),
                (b"/ 0 0", '1 "/"', "division by zero"),
                (b"+ 1 / 2 - 3 3", '3 "/"', "division by zero"),
                (b"^ 0 -1", '1 "^"', NOT_REAL),
                (b"^ -8 / 1 3", '1 "^"', NOT_REAL),
                (b"! -1", '1 "!"', NOT_COUNT),
                (b"! 2.5", '1 "!"', NOT_COUNT),
                (b"! 171", '1 "!"', NOT_COUNT),
                (b"asin 1.1", '1 "asin"', NOT_UNIT),
                (b"acos -2", '1 "acos"', NOT_UNIT),
                (b"ln 0", '1 "ln"', NOT_POSITIVE),
                (b"ln -1", '1 "ln"', NOT_POSITIVE),
                (b"log 0", '1 "log"', NOT_POSITIVE),
                (b"log -1", '1 "log"', NOT_POSITIVE),
                (b"sqrt -1", '1 "sqrt"', "the operand is negative"),
            ]
        )

    def test_overflow(self):
        self.check_errors(
            [
                (text, f'1 "{text.split()[0].decode()}"', "overflow")
                for text in (
                    b"exp 1000",
                    b"^ 10 400",
                    b"* 1e200 1e200",
                    b"+ 1.7e308 1.7e308",
                    b"/ 1e300 1e-300",
                )
            ]
        )
        self.check_errors([(b"neg -1e999", '2 "-1e999"', "the number is too large")])

    def test_odd_bytes_are_shown_safely(self):
        self.check_errors(
            [
                (b"+ 1 2\0", r'3 "2\x00"', UNKNOWN),
                (b"\0", r'1 "\x00"', UNKNOWN),
                (b"+ \0 2", r'2 "\x00"', UNKNOWN),
                (b'\x1b[2J"\\\xc3\xa9', r'1 "\x1b[2J\x22\x5c\xc3\xa9"', UNKNOWN),
                (b"x" * 1000, f'1 "{"x" * 32}..."', UNKNOWN),
                (b"\xff" * 1000, '1 "' + r"\xff" * 32 + '..."', UNKNOWN),
            ]
        )

    def test_skipped_lines(self):
        text = b"\n  \t\r\n# + 1 2\n  # x\n+ 1 2\n#" + b"x" * 2 * LINE_LIMIT + b"\n\n+ 3 4"
        self.assertEqual(self.evaluate_all_ways(text), (0, ["ANSWER: 3", "ANSWER: 7"]))
        self.assertEqual(self.evaluate_all_ways(b""), (0, []))
        self.assertEqual(self.evaluate_all_ways(b"\n"), (0, []))

    def test_long_lines(self):
        longest = b"1" + b" " * (LINE_LIMIT - 1)
        too_long = f"longer than {LINE_LIMIT} bytes"
        self.check(
            [
                (longest, "ANSWER: 1"),
                (longest + b" ", f"ERROR: line 3: {too_long}"),
                (b" " * LINE_LIMIT + b"1", f"ERROR: line 4: {too_long}"),
            ]
        )

    def test_deep_nesting(self):
        depth = LINE_LIMIT // 2 - 1
        self.check(
            [
                (b"~ " * depth + b"1", f"ANSWER: {(-1) ** depth}"),
                (b"+ " * (depth // 2) + b"1 " * (depth // 2 + 1), f"ANSWER: {depth // 2 + 1}"),
            ]
        )
        self.check(
            [
                (b"1 " * depth + b"2", f'ERROR: token {depth} "1": {LEFT_OVER}'),
                (b"1 " * (depth // 2 + 1) + b"+ " * (depth // 2), f"ANSWER: {depth // 2 + 1}"),
            ],
            "--notation",
            "postfix",
        )

    def test_random_bytes_give_one_line_each(self):
        rng = random.Random(1)
        alphabet = b'0123456789.eE+-*/^!~ \t\0"\\\xff pisncoqrtabl'
        lines = [
            b"x" + bytes(rng.choice(alphabet) for _ in range(rng.randrange(60))) for _ in range(300)
        ]
        status, answers = self.evaluate_all_ways(b"\n".join(lines))
        self.assertEqual((status, len(answers)), (1, 300))


class CommandLineTest(Case):
    def check_refused(self, message, *arguments, **more):
        run = self.run_frpc(*arguments, **more)
        self.assertEqual(run.returncode, 2, arguments)
        self.assertIn(message, run.stderr.decode())
        self.assertFalse(run.stdout)

    def test_help(self):
        for option in ("-h", "--help"):
            run = self.run_frpc(option)
            self.assertEqual((run.returncode, run.stderr), (0, b""))
            for token in [
                *ARITY,
                "pi",
                "e",
                "--notation",
                "--mode",
                "--input",
                "--output",
                "--batch",
                "--log",
            ]:
                self.assertIn(token, run.stdout.decode().replace(",", " ").split(), token)

    def test_usage_errors(self):
        self.check_refused("-m is missing")
        for mode in ("0", "7", "11", "", "x", "-1"):
            self.check_refused(f"mode '{mode}'", "-m", mode)
        self.check_refused("notation 'infix'", "-m1", "--notation", "infix")
        self.check_refused("argument 'extra'", "-m1", "extra")
        self.check_refused("--nonsense", "-m1", "--nonsense")
        self.check_refused("both -i and -o", "-m2", "-i", "x")
        self.check_refused("both -i and -o", "-m2", "-o", "x")
        for batch in ("0", "1001", "", "x", "-1", "2x"):
            self.check_refused(f"batch '{batch}'", "-m4", "--batch", batch)
        self.check_refused("--batch is for mode 4", "-m3", "--batch", "2")
        self.check_refused("--log is for modes", "-m1", "--log", "x")
        self.check_refused("cannot open /no/such: No such file", "-m3", "--log", "/no/such")
        run = self.run_frpc("-m3", "--log", "/dev/full", text=b"+ 1 2\n")
        self.assertEqual((run.returncode, run.stdout), (2, b"ANSWER: 3\n"))
        self.assertIn(b"cannot write /dev/full: No space", run.stderr)

    def test_files_in_all_modes(self):
        source = self.write("in", b"+ 1 2\n* 3 4\n")
        for mode in map(str, MODES):
            for option_in, option_out in (("-i", "-o"), ("--input", "--output")):
                run = self.run_frpc("--mode", mode, option_in, source, option_out, self.path("out"))
                self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
                self.assertEqual(self.read("out"), b"ANSWER: 3\nANSWER: 12\n")

    def test_unusable_files(self):
        source = self.write("in", b"+ 1 2\n")
        for mode in map(str, MODES):
            arguments = ["-m", mode, "-o", self.path("out"), "-i"]
            missing = self.path("missing")
            self.check_refused(f"cannot open {missing}: No such file", *arguments, missing)
            self.check_refused(
                f"cannot read {self.directory}: Is a directory", *arguments, self.directory
            )
            arguments = ["-m", mode, "-i", source, "-o"]
            self.check_refused(f"cannot open {missing}/x: No such file", *arguments, missing + "/x")
            self.check_refused("cannot write /dev/full: No space", *arguments, "/dev/full")

    def test_closed_streams(self):
        for mode in STREAM_MODES:
            self.check_refused(
                "cannot read standard input: Bad file",
                "-m",
                mode,
                text=None,
                preexec_fn=lambda: os.close(0),
            )
            run = self.run_frpc(
                "-m", mode, text=b"+ 1 2\n", stdout=None, preexec_fn=lambda: os.close(1)
            )
            self.assertEqual(run.returncode, 2)
            self.assertIn(b"cannot write standard output: Bad file", run.stderr)
            # With files, the standard streams are not needed.
            source = self.write("in", b"+ 1 2\n")
            run = subprocess.run(
                [FRPC, "-m", mode, "-i", source, "-o", self.path("out")],
                check=False,
                preexec_fn=lambda: os.closerange(0, 3),
            )
            self.assertEqual((run.returncode, self.read("out")), (0, b"ANSWER: 3\n"))

    def test_message_without_standard_error_stays_out_of_the_output(self):
        directory = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        for mode in STREAM_MODES:
            run = subprocess.run(
                [FRPC, "-m", mode, "-o", self.path("out")],
                stdin=directory,
                check=False,
                preexec_fn=lambda: os.close(2),
            )
            self.assertEqual((run.returncode, self.read("out")), (2, b""))


class ProcessTest(Case):
    """What depends on when things happen; a process that hangs is ended by the alarm in main."""

    def start_mode(self, mode):
        return self.start("-m", mode, *(["--batch", "1"] if mode == "4" else []))

    def test_interactive_use(self):
        for mode in STREAM_MODES:
            process = self.start_mode(mode)
            self.assertEqual(self.exchange(process, b"+ 1 2"), b"ANSWER: 3\n")
            self.assertEqual(self.exchange(process, b"# a comment\n\n* 2 4"), b"ANSWER: 8\n")
            self.assertIn(b"ERROR: ", self.exchange(process, b"/ 1 0"))
            self.assertEqual(len(children(process.pid)), 1 if mode in BACK_END_MODES else 0)
            self.assertEqual(process.communicate(), (b"", b""))
            self.assertEqual(process.returncode, 1)

    def test_one_round_trip_an_expression(self):
        for mode in "346":
            process = self.start_mode(mode)
            for _ in range(10):
                self.exchange(process, b"\n#\n+ 1 2")
            [back_end] = children(process.pid)
            try:
                with open(f"/proc/{back_end}/io", encoding="ascii") as file:
                    counts = dict(line.split(": ") for line in file.read().splitlines())
            except OSError:
                self.skipTest("the kernel does not account for system calls")
            # The last answer can be here before its call has been counted.
            self.assertIn(int(counts["syscw"]), (9, 10))

    def test_answers_come_when_a_batch_is_full(self):
        process = self.start("-m4", "--batch", "3")
        for _ in range(2):
            self.assertEqual(self.exchange(process, b"1\n2\n3"), b"ANSWER: 1\n")
            self.assertEqual(process.stdout.readline(), b"ANSWER: 2\n")
            self.assertEqual(process.stdout.readline(), b"ANSWER: 3\n")
        self.assertEqual(process.communicate(b"4"), (b"ANSWER: 4\n", b""))

    def test_killed_back_end(self):
        for mode in BACK_END_MODES:
            for last_input in (b"+ 1 2\n", b""):
                process = self.start_mode(mode)
                self.exchange(process, b"+ 1 2")
                [back_end] = children(process.pid)
                os.kill(back_end, signal.SIGKILL)
                output, errors = process.communicate(last_input)
                self.assertEqual((process.returncode, output), (2, b""))
                self.assertIn(
                    f"back end (process {back_end}) was killed by signal 9", errors.decode()
                )
                self.assertEqual(b"no answer from the back end" in errors, last_input != b"")

    def test_back_end_killed_while_it_is_asked(self):
        for mode in BACK_END_MODES:
            process = self.start_mode(mode)
            self.exchange(process, b"+ 1 2")
            [back_end] = children(process.pid)
            # Who is stopped cannot answer before the kill.
            os.kill(back_end, signal.SIGSTOP)
            process.stdin.write(b"+ 1 2\n")
            process.stdin.flush()
            wait_until_asleep(process)
            os.kill(back_end, signal.SIGKILL)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, 2)
            self.assertIn(b"no answer from the back end: the connection was closed", errors)

    def test_killed_front_end(self):
        for mode in BACK_END_MODES:
            process = self.start_mode(mode)
            self.exchange(process, b"+ 1 2")
            process.kill()
            # The end of standard error comes when the back end, too, has let go of it.
            self.assertEqual(process.communicate(), (b"", b""))

    def test_output_closed_early(self):
        source = self.write("in", b"+ 1 2\n" * 100000)
        for mode in STREAM_MODES:
            with (
                open(source, "rb") as file,
                subprocess.Popen(
                    [FRPC, "-m", mode], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                ) as process,
            ):
                self.assertEqual(process.stdout.readline(), b"ANSWER: 3\n")
                process.stdout.close()
                errors = process.stderr.read()
                self.assertIn(
                    (process.wait(), b"Broken pipe" in errors),
                    ((-signal.SIGPIPE, False), (2, True)),
                )
                self.assertNotIn(b"back end", errors)


class LogTest(Case):
    def check(self, mode, text, wanted, *arguments):
        """Each request is logged once, in turn, with as many expressions as wanted."""
        run = self.run_frpc("-m", mode, "--log", self.path("log"), *arguments, text=text)
        self.assertEqual(run.stderr, b"")
        header, *rows = self.read("log").decode().splitlines()
        self.assertEqual(header, "client,request,method,begin_ns,end_ns,status,expressions")
        rows = [row.split(",") for row in rows]
        self.assertEqual([int(row[6]) for row in rows], wanted)
        previous = 0
        for number, row in enumerate(rows):
            self.assertEqual((row[:3], row[5]), (["0", str(number), "evaluate"], "ok"))
            begin, end = int(row[3]), int(row[4])
            self.assertTrue(previous <= begin < end)
            previous = end

    def test_one_line_a_request(self):
        with open(EXPRESSIONS, "rb") as file:
            text = file.read()
        for mode in "356":
            self.check(mode, text, [1] * 300)
            self.check(mode, b"\n#\n/ 1 0\n" + b"x" * 2 * LINE_LIMIT, [1])
            self.check(mode, b"", [])
        self.check("4", text, [BATCH] * (300 // BATCH) + [300 % BATCH])
        self.check("4", text, [299, 1], "--batch", "299")

    def test_batches_hold_at_most_a_mebibyte(self):
        longest = b"1" + b" " * (LINE_LIMIT - 1) + b"\n"
        self.check("4", longest * 40, [15, 15, 10], "--batch", "1000")

    def test_a_line_too_long_ends_a_batch(self):
        self.check("4", b"1\n2\n" + b"x" * 2 * LINE_LIMIT + b"\n3\n", [2, 1])


class MeasureTest(Case):
    def run_measure(self, *arguments, **more):
        more = {"cwd": self.directory} | more
        return subprocess.run(
            [MEASURE, *arguments], capture_output=True, text=True, check=False, **more
        )

    def script(self, body):
        path = self.write("evaluator", b"#!/bin/sh\n" + body)
        os.chmod(path, 0o755)
        return path

    def lines_of(self, name):
        return self.read(name).decode().splitlines()

    def check_results(self, wanted):
        header, *rows = self.lines_of("results")
        self.assertEqual(header, "mode,tokens,elapsed_ns")
        rows = [tuple(map(int, row.split(","))) for row in rows]
        self.assertEqual([row[:2] for row in rows], wanted)
        self.assertTrue(all(row[2] > 0 for row in rows))

    def test_each_mode_and_all(self):
        source = self.write("expressions", b"# a comment\n\n+ 1 2\nsin 1\n+ 1 * 2 3")
        os.mkdir(self.path("temporary"))
        for mode, modes in [*((str(mode), [mode]) for mode in MODES), ("all", [1, 2, 3])]:
            run = self.run_measure("-m", mode, "-e", source, "--dir", self.path("temporary"))
            self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)
            self.check_results([(m, tokens) for tokens in (3, 2, 5) for m in modes])
            self.assertEqual(self.lines_of("errors"), [])
            self.assertEqual(os.listdir(self.path("temporary")), [])
            rows = [line.split() for line in run.stderr.splitlines()[1:]]
            self.assertEqual(
                [(row[0], row[1], row[-1]) for row in rows], [(str(m), "3", "0") for m in modes]
            )

    def test_closed_streams(self):
        source = self.write("expressions", b"+ 1 2\n")
        run = subprocess.run(
            [MEASURE, "-mall", "-e", source],
            cwd=self.directory,
            check=False,
            preexec_fn=lambda: os.closerange(0, 3),
        )
        self.assertEqual(run.returncode, 0)
        self.check_results([(1, 3), (2, 3), (3, 3)])

    def test_failures_are_recorded(self):
        source = self.write("expressions", b"/ 1 0\n+ 1 2\n1" + b" " * LINE_LIMIT)
        run = self.run_measure(
            "-m", "all", "-e", source, "--results", self.path("r"), "--errors", self.path("e")
        )
        self.assertEqual(run.returncode, 1)
        self.assertEqual(len(self.lines_of("r")), 4)
        self.assertEqual(
            self.lines_of("e"),
            [f'{m},1,exit status 1: ERROR: token 1 "/": division by zero' for m in (1, 2, 3)]
            + [f"{m},3,the line is too long" for m in (1, 2, 3)],
        )

    def test_bad_evaluators(self):
        source = self.write("expressions", b"+ 1 2\n")
        for body, what in (
            (b"echo 3", "no ANSWER: in the output: 3"),
            (b"exit 0", "no ANSWER: in the output: "),
            (b"echo ANSWER: 3; exit 5", "exit status 5: ANSWER: 3"),
            (b"kill -9 $$", "killed by signal 9 (Killed)"),
        ):
            run = self.run_measure("-m1", "-e", source, "--frpc", self.script(body))
            self.assertEqual(run.returncode, 1)
            self.assertEqual(self.lines_of("errors"), [f"1,1,{what}"])
            self.check_results([])

    def test_an_old_answer_does_not_count(self):
        source = self.write("expressions", b"1\n2\n")
        once = b"[ -e flag ] || { : > flag; echo 'ANSWER: 1' > \"$6\"; }"
        run = self.run_measure("-m2", "-e", source, "--frpc", self.script(once))
        self.assertEqual((run.returncode, len(self.lines_of("results"))), (1, 2))
        self.assertEqual(len(self.lines_of("errors")), 1)

    def test_temporary_directory_from_the_environment(self):
        source = self.write("expressions", b"+ 1 2\n")
        os.mkdir(self.path("other"))
        script = self.script(b"readlink /proc/self/fd/0 > seen; echo ANSWER: 3")
        run = self.run_measure(
            "-m1", "-e", source, "--frpc", script, env=os.environ | {"TMPDIR": self.path("other")}
        )
        self.assertEqual(run.returncode, 0)
        self.assertRegex(
            self.read("seen").decode(), f"^{self.path('other')}/frpc-measure\\.\\w+/input$"
        )
        self.assertEqual(os.listdir(self.path("other")), [])

    def test_usage_and_file_errors(self):
        source = self.write("expressions", b"+ 1 2\n")
        missing = self.path("missing")
        for arguments, message in (
            ([], "-m and -e are required"),
            (["-m1"], "-m and -e are required"),
            (["-m7", "-e", source], "mode is not a number from 1 to 6, or all: 7"),
            (["-m1", "-e", source, "x"], "unexpected argument: x"),
            (["-m1", "-e", missing], f"cannot open {missing}"),
            (["-m1", "-e", self.directory], f"cannot read {self.directory}"),
            (["-m1", "-e", source, "--dir", missing], f"directory in {missing}"),
            (["-m1", "-e", source, "--frpc", missing], f"cannot run {missing}"),
            (["-m1", "-e", source, "--results", missing + "/x"], f"cannot open {missing}/x"),
            (["-m1", "-e", source, "--results", "/dev/full"], "cannot write /dev/full"),
        ):
            run = self.run_measure(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(message, run.stderr)
        self.assertEqual(self.run_measure("--help").returncode, 0)

    def test_interrupted(self):
        source = self.write("expressions", b"+ 1 2\n")
        os.mkfifo(self.path("fifo"))
        os.mkdir(self.path("temporary"))
        script = self.script(b"echo started > fifo; exec sleep 1000")
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(
                [MEASURE, "-m1", "-e", source, "--frpc", script, "--dir", self.path("temporary")],
                cwd=self.directory,
                stderr=subprocess.DEVNULL,
            ) as process:
                self.assertEqual(self.read("fifo"), b"started\n")
                process.send_signal(number)
                self.assertEqual(process.wait(), -number)
            self.assertEqual(os.listdir(self.path("temporary")), [])
            self.check_results([])


if __name__ == "__main__":
    signal.alarm(120)
    unittest.main()
