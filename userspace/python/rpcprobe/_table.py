"""A table in memory and its conversions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._error import Error
from ._optional import package

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Table:
    """Rows of a capture, or of an answer to SQL.

    Anything that accepts Arrow data accepts it directly (`pyarrow.table(table)`, polars, DuckDB, narwhals).

    Attributes:
        arrow: the rows as a `pyarrow.Table`. Times are int64, in nanoseconds.
    """

    def __init__(self, arrow: "pyarrow.Table") -> None:
        self.arrow = arrow

    def pandas(self) -> "pandas.DataFrame":
        """The rows as a pandas data frame, with Arrow's types: integers stay integers where there are nulls.

        Raises:
            Error: pandas is not installed.
        """
        of_arrow = package("pandas", "Table.pandas()").ArrowDtype
        frame: pandas.DataFrame = self.arrow.to_pandas(types_mapper=of_arrow)
        return frame

    def polars(self) -> "polars.DataFrame":
        """The rows as a polars data frame.

        Raises:
            Error: polars is not installed.
        """
        frame: polars.DataFrame = package("polars", "Table.polars()").from_arrow(self.arrow)
        return frame

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.arrow.column_names)

    def rows(self) -> list[dict[str, Any]]:
        """Each row as a dict, from the column's name to a Python value."""
        rows: list[dict[str, Any]] = self.arrow.to_pylist()
        return rows

    def __len__(self) -> int:
        rows: int = self.arrow.num_rows
        return rows

    def __getitem__(self, column: str) -> "pyarrow.ChunkedArray":
        """One column.

        Raises:
            Error: there is no column of that name.
        """
        if column not in self.arrow.column_names:
            raise Error(f"there is no column {column!r}; the columns are {', '.join(self.columns)}")
        return self.arrow.column(column)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table({len(self):,} rows: {', '.join(self.columns)})"


def read(file: Path) -> Table:
    """Reads a whole Parquet file.

    Raises:
        Error: it is damaged, or cannot be read.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        # Opened here, because pyarrow would take a folder `key=value` in a path for a column.
        with file.open("rb") as opened:
            return Table(pyarrow.parquet.ParquetFile(opened).read())
    except OSError as error:
        raise Error(f"cannot read {file}: {error.strerror or error}") from None
    except pyarrow.ArrowException as error:
        raise Error(f"{file} is damaged: {error}") from None


def column_names(file: Path) -> list[str]:
    """The names of a Parquet file's columns, from its footer.

    Raises:
        Error: it is not a complete Parquet file, or cannot be read.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with file.open("rb") as opened:
            return list(pyarrow.parquet.ParquetFile(opened).schema_arrow.names)
    except OSError as error:
        raise Error(f"cannot read {file}: {error.strerror or error}") from None
    except pyarrow.ArrowException as error:
        raise Error(f"{file} is damaged, or no Parquet file: {error}") from None
