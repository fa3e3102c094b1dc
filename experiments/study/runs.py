"""Runs of several things in turn, in an order drawn anew for each round: a machine that becomes slower slows all alike."""

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Arm = TypeVar("Arm")
SEED = 1


def rounds(arms: Sequence[Arm], count: int, seed: int = SEED) -> Iterator[tuple[int, Arm]]:
    """(round, arm): `count` rounds, each of all arms."""
    drawn = random.Random(seed)
    for number in range(count):
        for arm in drawn.sample(list(arms), len(arms)):
            yield number, arm
