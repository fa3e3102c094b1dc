"""Fixtures for the tests of the reports' experiments: the folder of results to test."""

import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
STUDIES = sorted(file.parent.name for file in HERE.glob("*/tell.py"))


def results_of(study: str) -> Path:
    """The study's folder in the sources, or $EXPERIMENT_RESULTS/NAME if that is set."""
    return Path(os.environ.get("EXPERIMENT_RESULTS") or HERE).resolve() / study


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """The folder with `results/` and RESULTS.md of the tested study."""
    return results_of(request.path.parent.name)


class Told:
    """A study's RESULTS.md (`text`; in one line, `words`), and SQL over the study's tables, which
    are named like their files."""

    def __init__(self, folder: Path):
        self.text = (folder / "RESULTS.md").read_text()
        self.words = " ".join(self.text.split())
        self.connection = duckdb.connect()
        for table in (folder / "results").glob("*.parquet"):
            self.connection.execute(f"create view {table.stem} as from '{table}'")

    def ask(self, query: str) -> list[tuple]:
        return self.connection.execute(query).fetchall()

    def first(self, query: str) -> tuple | None:
        return self.connection.execute(query).fetchone()

    def one(self, query: str) -> Any:
        return self.ask(query)[0][0]

    def row(self, name: str) -> str:
        """The first table row whose first cell is `name`."""
        found = [line for line in self.text.splitlines() if line.startswith(f"| {name} |")]
        assert found, name
        return found[0]


@pytest.fixture
def told(folder: Path) -> Told:
    return Told(folder)
