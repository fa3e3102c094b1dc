"""Tests of frpc's answers."""

import os
import random
import subprocess
import sys

from case import (
    Case,
    EXPECTED,
    EXPRESSIONS,
    LEFT_OVER,
    LINE_LIMIT,
    NOT_COUNT,
    NOT_POSITIVE,
    NOT_REAL,
    NOT_UNIT,
    TARGET,
    UNKNOWN,
    read_lines,
    to_postfix,
)


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
        """Checks each answer, between two valid expressions whose answers must stay right."""
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
