"""The notebooks run with every choice of their widgets; a browser checks their exported pages."""

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import made_up
import pytest
from conftest import ROOT

import rpcprobe

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
HOSTILE = "<script>window.pwned=1</script><img src=x onerror=x>\n*_`|$"

# Text that is nearly as light or as dark as the page behind it.
TOO_FAINT = """
(() => {
  const light = (color) => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number); return 0.3 * r + 0.6 * g + 0.1 * b; };
  const back = light(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll(".plot svg text")].map((node) => [node, getComputedStyle(node).fill]);
  const blocks = [...document.querySelectorAll("h1, h2, td, th, p, span.paragraph, pre, summary")].map((node) => [node, getComputedStyle(node).color]);
  return [...texts, ...blocks].filter(([node, color]) => node.textContent.trim() && Math.abs(light(color) - back) < 80).map(([node]) => node.textContent);
})()
"""

# Names defined by the cells that take captures.
CAPTURES = ("given", "runs", "log", "side_a")

pytestmark = pytest.mark.root
marimo = pytest.importorskip("marimo")


@pytest.fixture(scope="module")
def export() -> Any:
    sys.path[:0] = [str(ROOT / "notebooks"), str(ROOT / "userspace/tests/page")]
    return importlib.import_module("export")


@pytest.fixture(scope="module")
def exported(
    export: Any, kernel: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The directory of the exported files, and each notebook's definitions. Each notebook takes its captures once."""
    folder = tmp_path_factory.mktemp("exported")
    # Two pairs of runs instead of eight: these tests do not check what the notebooks say of them.
    os.environ["RPCPROBE_PAIRS"] = "2"
    try:
        return folder, {notebook.stem: export.export(notebook, folder) for notebook in NOTEBOOKS}
    finally:
        del os.environ["RPCPROBE_PAIRS"]


def test_there_are_five() -> None:
    assert [notebook.stem[:2] for notebook in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


def test_what_is_exported(exported: tuple[Path, dict]) -> None:
    folder, _ = exported
    for notebook in NOTEBOOKS:
        page = (folder / f"{notebook.stem}.html").read_text()
        assert page.count("Plotly.newPlot") >= 1
        assert 'src="http' not in page
        assert "<select disabled>" in page
        jupyter = json.loads((folder / f"{notebook.stem}.ipynb").read_text())
        kinds = [
            kind
            for cell in jupyter["cells"]
            for out in cell.get("outputs", [])
            for kind in out["data"]
        ]
        assert "application/vnd.plotly.v1+json" in kinds
        assert sum(cell["cell_type"] == "markdown" for cell in jupyter["cells"]) >= 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda of: of.stem)
def test_every_choice_works(export: Any, exported: tuple[Path, dict], notebook: Path) -> None:
    """Sets one widget after another to each of its values, over the captures already taken."""
    first = exported[1][notebook.stem]
    app = export.load(notebook)
    choices = {name: of for name, of in first.items() if isinstance(of, marimo.ui.dropdown)}
    assert choices
    for name, choice in choices.items():
        for value in list(choice.options.values())[:6]:
            # marimo replaces either all definitions of a cell or none.
            kept = {}
            for cell in export.InternalApp(app).cell_manager.cells():
                if cell.defs & {*CAPTURES, name}:
                    kept |= {of: first[of] for of in cell.defs if of in first}
            app.run(defs=kept | {name: SimpleNamespace(value=value)})


def test_a_browser_shows_them_as_they_are_meant(exported: tuple[Path, dict]) -> None:
    browser = importlib.import_module("browser")
    look = importlib.import_module("look")
    if (path := browser.find()) is None:
        pytest.skip("no Chromium (apt-get install chromium-headless-shell)")
    with browser.Browser(path) as opened:
        for file in sorted(exported[0].glob("*.html")):
            for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
                page = browser.Page(opened, file.as_uri(), width, dark=dark)
                page.until(
                    "document.readyState === 'complete' && [...document.querySelectorAll('.plot')]"
                    ".every((plot) => plot.data && plot.querySelector('svg text'))"
                )
                frames = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 300)))"
                page.run(f"new Promise((done) => {frames})")
                assert not page.run(look.FAULTS), (file.name, width, dark)
                assert not page.run(TOO_FAINT), (file.name, width, dark)
                assert not page.faults(), (file.name, width, dark)
                page.close()


def test_names_are_text_in_notebooks(
    export: Any, exported: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook uses the given capture with hostile names instead of a fresh one."""

    def change(request: dict, segments: list[dict]) -> None:
        request["method"] = HOSTILE
        for segment in segments:
            segment["comm"] = segment["by"] = HOSTILE

    directory = made_up.make(tmp_path / "<b>x", 300, change=change)
    monkeypatch.setenv("RPCPROBE_CAPTURE", str(directory))
    for number in ("01", "04", "05"):
        (notebook,) = (of for of in NOTEBOOKS if of.stem.startswith(number))
        defined = export.export(notebook, tmp_path)
        found = defined.get("cap") or next(iter(defined["runs"].values()))
        assert found.path == directory
        page = (tmp_path / f"{notebook.stem}.html").read_text()
        assert "<img src=x" not in page
        assert "<script>window" not in page
        jupyter = json.loads((tmp_path / f"{notebook.stem}.ipynb").read_text())
        shown = [
            out["data"].get("text/html", "")
            for cell in jupyter["cells"]
            for out in cell.get("outputs", [])
        ]
        assert not any("<img" in of or "<script" in of for of in shown)


def test_exported_numbers_are_those_of_sql(
    export: Any, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputes from the files what the notebook shows: percentiles in a table, a figure's bars."""
    monkeypatch.setenv("RPCPROBE_CAPTURE", str(directory))
    (notebook,) = (of for of in NOTEBOOKS if of.stem.startswith("01"))
    kind = export.export(notebook, tmp_path)["kind"]
    db = duckdb.connect()
    for table in ("requests", "segments"):
        db.execute(f"create view {table} as select * from '{directory}/{table}.parquet'")
    (found,) = db.execute(
        """select percentile_disc(0.5) within group (order by latency_ns),
                  percentile_disc(0.9) within group (order by latency_ns),
                  percentile_disc(0.99) within group (order by latency_ns), max(latency_ns)
           from requests where complete and kind = ?""",
        [kind],
    ).fetchall()
    shown = importlib.import_module("shown")
    page = (tmp_path / f"{notebook.stem}.html").read_text()
    assert all(f">{shown.duration(ns)}<" in page for ns in found)
    jupyter = json.loads((tmp_path / f"{notebook.stem}.ipynb").read_text())
    figures = [
        out["data"]["application/vnd.plotly.v1+json"]["data"]
        for cell in jupyter["cells"]
        for out in cell.get("outputs", [])
        if "application/vnd.plotly.v1+json" in out["data"]
    ]
    (bars,) = ([t for t in of if t["type"] == "bar"] for of in figures if of[0]["type"] == "bar")
    by_category = dict(
        db.execute(
            """select category, sum(duration_ns)::bigint from segments join requests using (request_id)
               where complete and kind = ? group by category""",
            [kind],
        ).fetchall()
    )
    assert {bar["meta"]["category"]: bar["customdata"][0] for bar in bars} == by_category


def test_two_captures_are_needed_where_two_are_compared(
    export: Any, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RPCPROBE_CAPTURE", str(directory))
    for number in ("02", "03"):
        (notebook,) = (of for of in NOTEBOOKS if of.stem.startswith(number))
        with pytest.raises(Exception, match="compares 2 captures, and 1 is named") as raised:
            export.run(export.load(notebook))
        assert isinstance(raised.value.__cause__ or raised.value, rpcprobe.Error)
