"""Comparisons of two sides, as `rpcprobe diff` makes them."""

import functools
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from . import _figure, _filter, _program
from ._capture import Capture
from ._error import Error
from ._filter import Filter

if TYPE_CHECKING:
    import plotly.graph_objects

Side = Capture | str | os.PathLike[str]


class Comparison:
    """The differences between A and B. `str()` and `print()` give them as text.

    Attributes:
        data: the comparison as a dict, as `rpcprobe diff --json` gives it; times in nanoseconds.
    """

    def __init__(self, a: list[str], b: list[str], options: list[str]) -> None:
        self._a, self._b, self._options = a, b, options
        printed = _program.ask("diff", "--json", *options, *self._sides())
        self.data: dict[str, Any] = _program.from_json(printed)

    def _sides(self) -> list[str]:
        # Options come first: after `--` there are only directories.
        return ["--", *self._a, "---", *self._b] if self._b else self._a

    @functools.cached_property
    def text(self) -> str:
        """The comparison in words and tables, as `rpcprobe diff` prints it."""
        return _program.ask("diff", *self._options, *self._sides())

    def figure(self, name: str = "shift") -> "plotly.graph_objects.Figure":
        """A figure of the first kind of request that both sides have.

        Args:
            name: `shift`, the difference of each percentile with its interval; or `waterfall`, the change of the mean
                by category.

        Raises:
            Error: the figure does not exist, or a side is several captures that are not an `rpcprobe ab` directory.
        """
        name = _figure.name_of(name, None, of_two=True)
        if max(len(self._a), len(self._b)) > 1:
            raise Error(
                "only two captures, or the directory of an `rpcprobe ab`, are shown in a figure"
            )
        directories = [*self._a, *self._b]
        return _figure.drawn(name, *self._options, *directories)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self._a)} with {', '.join(self._b) or 'itself'})"


def diff(
    a: Side | Iterable[Side],
    b: Side | Iterable[Side] | None = None,
    **filters: Unpack[Filter],
) -> Comparison:
    """Compares two captures, two lists of captures (runs of the same two commands), or both sides of an `ab`.

    With one capture per side, the intervals hold for these two captures only and exclude the variation between runs.
    `rpcprobe ab` takes pairs of captures, which include it.

    Args:
        a: a capture, its directory, or several of these; without `b`, the directory that `rpcprobe ab` wrote.
        b: the side to compare `a` with, given in the same way.
        **filters: conditions on the requests, as in `Filter`.

    Raises:
        Error: a capture is missing or damaged, or there is nothing to compare.
    """
    of_a, of_b = _directories(a), ([] if b is None else _directories(b))
    if b is None and len(of_a) != 1:
        raise Error("without b, a is the one directory that `rpcprobe ab` wrote")
    return Comparison(of_a, of_b, _filter.options(filters))


def _directories(side: Side | Iterable[Side]) -> list[str]:
    sides = [side] if isinstance(side, Capture | str | os.PathLike) else list(side)
    if not sides:
        raise Error("one side has no capture")
    return [str(of.path) if isinstance(of, Capture) else os.path.abspath(of) for of in sides]
