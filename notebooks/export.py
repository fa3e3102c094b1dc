#!/usr/bin/env python3
"""Runs notebooks and writes what they show: export.py --to FOLDER NOTEBOOK... [--no-captures]

Writes for each a Jupyter notebook with its outputs (.ipynb), and a page that needs no network
(.html). Widgets are shown with their initial choice. Fails if a cell fails."""

import argparse
import ast
import gzip
import html
import importlib.util
import inspect
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import marimo
import nbformat.v4 as nb
import plotly.graph_objects as go
from marimo._ast.app import InternalApp

HERE = Path(__file__).resolve().parent
PLOTLY_JS = HERE.parent / "userspace/crates/page/assets/plotly-basic.min.js.gz"
CONFIG = {"responsive": True, "displaylogo": False, "displayModeBar": False}
STYLE = """
:root { color-scheme: light dark; --fore: #1b1f24; --back: #fff; --soft: #57606a; --line: #d9dee3; --code: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --fore: #e6eaee; --back: #12161b; --soft: #a0abb6; --line: #333d47; --code: #1f2730; }
}
@media print {
  :root { color-scheme: light; --fore: #000; --back: #fff; --soft: #444; --line: #bbb; --code: #fff; }
  details { display: none; } .plot, tr { break-inside: avoid; } .scroll, pre { overflow: visible; }
  pre { white-space: pre-wrap; }
}
body { font: 16px/1.5 system-ui, 'DejaVu Sans', sans-serif; color: var(--fore); background: var(--back);
       max-width: 900px; margin: 0 auto; padding: 8px 14px 60px; overflow-wrap: break-word; }
h1 { font-size: 26px; line-height: 1.25; } h2 { font-size: 20px; margin-top: 1.6em; }
table { border-collapse: collapse; font-size: 14px; margin: 6px 0; } tr { border-bottom: 1px solid var(--line); }
th { text-align: left; } th, td { padding: 2px 8px; } code { background: var(--code); padding: 0 3px; border-radius: 3px; }
pre { overflow-x: auto; background: var(--code); padding: 8px; font-size: 12px; line-height: 1.4; }
pre code { background: none; padding: 0; } details { margin: 2px 0 14px; }
summary { color: var(--soft); font-size: 12px; cursor: pointer; } .choice { margin: 14px 0 4px; }
.paragraph { display: block; margin: 0.7em 0; } li .paragraph { margin: 0; }
select { font: inherit; max-width: 100%; } .scroll { overflow-x: auto; }
"""

# Figures are made for a white background. Here they take the page's colours, and black on white in
# print.
SCRIPT = """
const colours = (dark) => {
  const [fore, line] = dark ? ["#e6eaee", "#333d47"] : ["#1b1f24", "#d9dee3"];
  for (const plot of document.querySelectorAll(".plot")) {
    const set = {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": fore};
    for (const axis of Object.keys(plot.layout).filter((name) => /^[xy]axis/.test(name))) {
      set[axis + ".gridcolor"] = set[axis + ".zerolinecolor"] = set[axis + ".linecolor"] = line;
    }
    Plotly.relayout(plot, set);
  }
};
const dark = matchMedia("(prefers-color-scheme: dark)");
colours(dark.matches);
dark.addEventListener("change", () => colours(dark.matches));
addEventListener("beforeprint", () => colours(false));
addEventListener("afterprint", () => colours(dark.matches));
"""


class Cell(NamedTuple):
    """A cell that ran."""

    code: str
    output: Any

    def markdown(self) -> str | None:
        """The cell's text, if the cell is only `mo.md(TEXT)`."""
        body = ast.parse(self.code).body
        match body:
            case [
                ast.Expr(ast.Call(ast.Attribute(ast.Name("mo"), "md"), [ast.Constant(str(text))]))
            ]:
                return inspect.cleandoc(text)
        return None


def load(notebook: Path) -> marimo.App:
    """Loads a notebook's app without running it."""
    spec = importlib.util.spec_from_file_location(f"notebook_{notebook.stem}", notebook)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def run(app: marimo.App) -> tuple[list[Cell], dict[str, Any]]:
    """Runs the app; returns its cells in order, and their definitions."""
    outputs, found = app.run()
    codes = [cell.code for cell in InternalApp(app).cell_manager.cell_data()]
    return [Cell(*pair) for pair in zip(codes, outputs, strict=True)], dict(found)


def is_choice(output: Any) -> bool:
    return isinstance(output, marimo.ui.dropdown)


def label(choice: marimo.ui.dropdown) -> str:
    return str(choice._args.label)


def as_html(output: Any, number: int) -> str:
    if output is None:
        return ""
    if is_choice(output):
        names = "".join(
            f"<option{' selected' if name == output.selected_key else ''}>{html.escape(name)}</option>"
            for name in output.options
        )
        told = f"{html.escape(label(output))} (a choice, in the live notebook): "
        return f'<p class="choice"><label>{told}<select disabled>{names}</select></label></p>'
    if isinstance(output, go.Figure):
        figure = output.to_html(
            full_html=False, include_plotlyjs=False, config=CONFIG, div_id=f"figure-{number}"
        )
        return figure.replace('class="plotly-graph-div"', 'class="plotly-graph-div plot"', 1)
    if isinstance(output, marimo.Html):
        return f"<div>{output.text}</div>"
    return f"<pre>{html.escape(repr(output))}</pre>"


def page(title: str, cells: list[Cell]) -> str:
    parts = []
    for number, cell in enumerate(cells):
        parts.append(as_html(cell.output, number))
        if cell.markdown() is None:
            code = html.escape(cell.code)
            parts.append(
                f"<details><summary>code</summary><pre><code>{code}</code></pre></details>"
            )
    library = gzip.decompress(PLOTLY_JS.read_bytes()).decode()
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>
<link rel="icon" href="data:,"><style>{STYLE}</style><script>{library}</script></head>
<body>{"".join(parts)}<script>{SCRIPT}</script></body></html>
"""


def as_jupyter(cells: list[Cell]) -> Any:
    written = []
    for cell in cells:
        text = cell.markdown()
        if text is not None:
            written.append(nb.new_markdown_cell(text))
            continue
        output, data = cell.output, {}
        if is_choice(output):
            data = {"text/plain": f"{label(output)}: {output.selected_key}"}
        elif isinstance(output, go.Figure):
            figure = output.to_plotly_json()
            figure = go.Figure(figure).to_dict() | {"config": CONFIG}
            data = {"application/vnd.plotly.v1+json": _plain(figure), "text/plain": "a figure"}
        elif isinstance(output, marimo.Html):
            data = {"text/html": output.text}
        elif output is not None:
            data = {"text/plain": repr(output)}
        outputs = [nb.new_output("display_data", data)] if data else []
        written.append(nb.new_code_cell(cell.code, outputs=outputs))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nb.new_notebook(cells=written, metadata=kernel)


def _plain(figure: dict[str, Any]) -> Any:
    """Converts a figure to plain JSON types."""
    import json

    from plotly.io.json import to_json_plotly

    return json.loads(to_json_plotly(figure))


def export(notebook: Path, folder: Path) -> dict[str, Any]:
    """Runs a notebook and writes both files; returns the notebook's definitions."""
    app = load(notebook)
    cells, defined = run(app)
    title = InternalApp(app).config.app_title or notebook.stem
    (folder / f"{notebook.stem}.html").write_text(page(title, cells), encoding="utf-8")
    (folder / f"{notebook.stem}.ipynb").write_text(
        nbformat_text(as_jupyter(cells)), encoding="utf-8"
    )
    return defined


def nbformat_text(notebook: Any) -> str:
    import nbformat

    nbformat.validate(notebook)
    return nbformat.writes(notebook)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(HERE.glob("[0-9]*.py")))
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    # The notebooks must not see this program's arguments.
    sys.argv[1:] = []
    sys.path.insert(0, str(HERE))
    options.to.mkdir(parents=True, exist_ok=True)
    for notebook in options.notebooks:
        begin = time.monotonic()
        export(notebook, options.to)
        print(
            f"{options.to / notebook.stem}.html, .ipynb: {time.monotonic() - begin:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
