"""Imports optional packages when they are first used."""

import importlib
from types import ModuleType

from ._error import Error

# The extra of this package that installs each.
EXTRAS = {"pandas": "pandas", "polars": "polars", "duckdb": "sql"}


def package(name: str, wanted_for: str) -> ModuleType:
    """Imports the package `name`.

    Raises:
        Error: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name:
            raise Error(f"{wanted_for} needs {name}, which cannot be imported: {error}") from None
        raise Error(
            f"{wanted_for} needs {name}: pip install {name}, or 'rpcprobe[{EXTRAS[name]}]'"
        ) from None
