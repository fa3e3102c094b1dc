"""Tests of frpc's arguments and files."""

import os
import subprocess

from case import ARITY, Case, FRPC, MODES, STREAM_MODES


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
