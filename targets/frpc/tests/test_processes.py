"""Tests of frpc's processes and log, and of measure."""

import os
import signal
import subprocess

from case import (
    BACK_END_MODES,
    BATCH,
    Case,
    EXPRESSIONS,
    FRPC,
    LINE_LIMIT,
    MEASURE,
    MODES,
    STREAM_MODES,
    children,
    wait_until_asleep,
)


class ProcessTest(Case):
    """Tests that depend on timing; the alarm in main ends a process that hangs."""

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
            # The last answer may arrive before its call has been counted.
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
            # A stopped back end cannot answer before the kill.
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
            # Standard error ends only when the back end has closed it, too.
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
