"""Filters that select requests, as on the command line."""

from collections.abc import Iterable
from typing import TypedDict

from ._error import Error

Words = str | Iterable[str]


class Filter(TypedDict, total=False):
    """Conditions on requests. All given conditions must hold; of several values of one condition, any is enough.

    `kind`, `method`, `status`, `client` and `server` are as in `rpcprobe report --help` (`*` in a method or name stands
    for any characters). `from_ns` and `to_ns` bound the request's begin, in nanoseconds since the capture's begin:
    `from_ns` is included, `to_ns` is not. `min_ns` and `max_ns` bound the latency, both included.
    """

    kind: Words
    method: Words
    status: Words | int
    client: Words | int
    server: Words | int
    from_ns: int
    to_ns: int
    min_ns: int
    max_ns: int


WORDS = ("kind", "method", "status", "client", "server")
TIMES = ("from_ns", "to_ns", "min_ns", "max_ns")


def options(given: Filter) -> list[str]:
    """The equivalent options of the command line.

    Raises:
        Error: the condition does not exist, or does not take the value.
    """
    found: list[str] = []
    for name, value in given.items():
        if value is None:
            continue
        if name in WORDS:
            values = [value] if isinstance(value, str | int) else list(value)  # type: ignore[call-overload]
            if not values:
                raise Error(f"no request passes: {name} is one of none")
            # One argument per value, so that no value is parsed as an option.
            found += [f"--{name}={one}" for one in values]
        elif name in TIMES:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise Error(f"{name} is a number of nanoseconds, not {value!r}")
            found.append(f"--{name.removesuffix('_ns')}={value}ns")
        else:
            raise Error(f"there is no filter {name!r}; there are {', '.join((*WORDS, *TIMES))}")
    return found
