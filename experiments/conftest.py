"""Of the reports' experiments: which folder their tests look at."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
STUDIES = sorted(file.parent.name for file in HERE.glob("*/tell.py"))


def results_of(study: str) -> Path:
    """What is kept with the sources, or what was written to $EXPERIMENT_RESULTS/NAME."""
    return Path(os.environ.get("EXPERIMENT_RESULTS") or HERE).resolve() / study


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """With `results/` and RESULTS.md of the study whose test this is."""
    return results_of(request.path.parent.name)
