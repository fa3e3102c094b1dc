"""RESULTS.md agrees with its tables and says nothing else: generated again, each is the same."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from conftest import HERE, STUDIES, results_of
from study import Results
from study.command import document_of


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """(its results, its module `tell`). A study's modules are imported separately, because other
    studies have modules of the same names."""
    monkeypatch.syspath_prepend(str(HERE / request.param))
    before = set(sys.modules)
    yield results_of(request.param), importlib.import_module("tell")
    own = str(HERE / request.param)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(own):
            del sys.modules[name]


def test_the_text_is_what_the_tables_say(study):
    folder, tell = study
    assert document_of(tell.tell, Results(folder)).text() == (folder / "RESULTS.md").read_text()


def test_every_figure_is_there(study):
    folder, _ = study
    shown = re.findall(r"\]\((figures/[^)]+)\)", (folder / "RESULTS.md").read_text())
    assert shown
    for name in shown:
        assert "<svg" in Path(folder / name).read_text()[:200], name
