"""Runs several arms in turn, in a new random order in each round, so that a machine that becomes
slower affects all alike."""

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Arm = TypeVar("Arm")
SEED = 1


def rounds(arms: Sequence[Arm], count: int, seed: int = SEED) -> Iterator[tuple[int, Arm]]:
    """Yields (round, arm): `count` rounds, each with all arms."""
    drawn = random.Random(seed)
    for number in range(count):
        for arm in drawn.sample(list(arms), len(arms)):
            yield number, arm
