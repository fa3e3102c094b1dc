#!/usr/bin/env python3
"""Writes expressions.txt (prefix notation) and expected.txt, always with the same content.

Usage: gen_expressions.py [DIRECTORY]

The values are computed with Python's math while the expressions are made, independently of the
evaluator under test.
"""

import math
import operator
import os
import random
import sys

SEED = 2
TOKEN_COUNTS = range(2, 12)
PER_COUNT = 30

# No intermediate value may leave this range: large values amplify rounding (such as in sin), and a
# small value is often the difference of two almost equal values.
SMALLEST, GREATEST = 0.01, 10000

CONSTANTS = {"pi": math.pi, "e": math.e}
LITERALS = (
    "0.5 0.25 -0.75 1 2 3 4 5 6 7 9 10 12 -1 -2 -3.5 1.5 2.75 3.125 42 100 "
    "1e2 2.5e-1 -4E+1 6.02e1 .125 8."
).split()
UNARY = {
    "!": lambda n: float(math.factorial(integer(n))),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "exp": math.exp,
    "ln": math.log,
    "log": math.log10,
    "sqrt": math.sqrt,
    "abs": abs,
    "neg": operator.neg,
    "~": operator.neg,
}
BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": math.pow,
}


class Generator:
    def __init__(self, seed):
        # Only Random's method random() is guaranteed to give the same numbers in all versions.
        self.random = random.Random(seed).random

    def below(self, limit):
        return int(self.random() * limit)

    def pick(self, items):
        return list(items)[self.below(len(items))]

    def leaf(self):
        if self.below(6) == 0:
            name = self.pick(CONSTANTS)
            return [name], CONSTANTS[name]
        literal = self.pick(LITERALS)
        return [literal], float(literal)

    def unary(self, size):
        name = self.pick(UNARY)
        tokens, value = self.expression(size - 1)
        return [name, *tokens], UNARY[name](value)

    def binary(self, size):
        name = self.pick(BINARY)
        left_size = 1 + self.below(size - 2)
        left, a = self.expression(left_size)
        right, b = self.expression(size - 1 - left_size)
        return [name, *left, *right], BINARY[name](a, b)

    def expression(self, size):
        """The tokens and the value of an expression of `size` tokens."""
        if size == 1:
            return self.leaf()
        while True:
            make = self.unary if size == 2 or self.below(3) == 0 else self.binary
            try:
                tokens, value = make(size)
            except (ArithmeticError, ValueError):
                continue
            if SMALLEST <= abs(value) <= GREATEST:
                return tokens, value


def integer(value):
    if value != int(value):
        raise ValueError("not a whole number")
    return int(value)


def suite():
    """The lines of both files, with alternating token counts.

    So a machine that gets slower during a measurement does not make long expressions look slow.
    """
    generator = Generator(SEED)
    expected = {}
    for _ in range(PER_COUNT):
        for size in TOKEN_COUNTS:
            while True:
                tokens, value = generator.expression(size)
                line = " ".join(tokens)
                if line not in expected:
                    break
            # Fewer digits than a double has: the last ones may differ between C libraries.
            expected[line] = f"{value:.14g}"
    used = set(" ".join(expected).split())
    unused = (UNARY.keys() | BINARY.keys() | CONSTANTS.keys() | set(LITERALS)) - used
    assert not unused, unused
    return expected


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    expected = suite()
    for name, lines in (("expressions.txt", expected.keys()), ("expected.txt", expected.values())):
        with open(os.path.join(directory, name), "w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
