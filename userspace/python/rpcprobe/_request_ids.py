"""Request numbers from lists, columns and tables."""

from collections.abc import Iterable
from typing import Any

from ._error import Error

COLUMN = "request_id"


def numbers(requests: Any) -> list[int]:
    """The request numbers that `requests` holds.

    Args:
        requests: numbers (a list, an array, a column, a pandas or polars series), or rows with a column `request_id`
            (a `Table`, an Arrow table, a data frame). One number is one request.

    Raises:
        Error: it holds anything else.
    """
    if isinstance(requests, int) and not isinstance(requests, bool):
        requests = [requests]
    names = getattr(requests, "column_names", None) or getattr(requests, "columns", None)
    if names is not None:
        if COLUMN not in list(names):
            raise Error(f"these rows have no column {COLUMN}, so they are no requests")
        requests = requests[COLUMN]
    # Iterating an Arrow or pandas column gives the library's own scalars; these methods give Python's.
    for as_list in ("to_pylist", "tolist", "to_list"):
        if hasattr(requests, as_list):
            requests = getattr(requests, as_list)()
            break
    if isinstance(requests, str | bytes) or not isinstance(requests, Iterable):
        raise Error(f"requests are given by their numbers, not by {requests!r}")
    found = list(requests)
    for number in found:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise Error(f"{number!r} is no number of a request")
    return found
