"""Packages that are imported when they are first used, and those that need not be installed."""

import importlib
from types import ModuleType

from ._error import Error

# What installs each: an extra of this package.
EXTRAS = {"pandas": "pandas", "polars": "polars", "duckdb": "sql"}


def package(name: str, wanted_for: str) -> ModuleType:
    """The package of that name.

    Raises:
        Error: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name:
            raise Error(f"{wanted_for} needs {name}, which cannot be imported: {error}") from None
        raise Error(
            f"{wanted_for} needs {name}: pip install {name}, or 'rpcprobe[{EXTRAS[name]}]'"
        ) from None
