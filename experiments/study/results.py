"""The result tables of an experiment: Parquet files, small enough to keep with its text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet


class Results:
    """`results/NAME.parquet` below an experiment's folder, or below the given folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / "results" / f"{name}.parquet"

    def write(self, name: str, rows: Sequence[dict[str, Any]]):
        """Writes rows of the same columns."""
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        table = pyarrow.Table.from_pylist(list(rows))
        pyarrow.parquet.write_table(table, self.path(name), compression="zstd")

    def read(self, name: str, /, **equal: Any) -> list[dict[str, Any]]:
        """The rows in the order they were written; given columns, only rows with these values."""
        rows = pyarrow.parquet.read_table(self.path(name)).to_pylist()
        return [row for row in rows if all(row[key] == value for key, value in equal.items())]
