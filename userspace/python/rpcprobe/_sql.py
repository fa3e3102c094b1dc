"""SQL over the files of a capture, by DuckDB."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._error import Error
from ._optional import package
from ._table import Table, column_names

# Columns whose plain name is a reserved word.
RENAMED = {"by": "by_whom"}


def plain(column: str) -> str:
    """The name of a column in the views: `runqueue.wakeup` is `runqueue_wakeup`."""
    return RENAMED.get(column, re.sub(r"\W", "_", column))


class Database:
    """Views of some Parquet files; nothing is read before a query needs it."""

    def __init__(self, tables: Mapping[str, Path]) -> None:
        duckdb = package("duckdb", "Capture.sql()")
        import pyarrow.dataset

        self._failure = duckdb.Error
        # A connection holds one result at a time.
        self._lock = threading.Lock()
        self._connection = duckdb.connect()
        for name, file in tables.items():
            # By way of Arrow, because DuckDB takes `*` and `[` in a path for a pattern.
            data = pyarrow.dataset.dataset(str(file), format="parquet")
            self._connection.register(f"{name}_in_file", data)
            columns = ", ".join(
                f"{quoted(column)} as {quoted(plain(column))}" for column in column_names(file)
            )
            self._connection.execute(f"create view {name} as select {columns} from {name}_in_file")

    def query(self, query: str, parameters: Any = None) -> Table:
        """The rows that a query gives.

        Raises:
            Error: DuckDB refuses it.
        """
        import pyarrow

        try:
            with self._lock:
                answer = self._connection.sql(query, params=parameters)
                # A statement that is not a query has no result.
                return Table(pyarrow.table({}) if answer is None else answer.to_arrow_table())
        except self._failure as error:
            raise Error(f"SQL: {error}") from None
        except pyarrow.ArrowException as error:
            raise Error(f"a table of the capture is damaged: {error}") from None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
