"""plotly figures, as self-contained HTML and as SVG for Markdown pages.

Chromium draws the SVG from the HTML, so both are the same figure."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.offline

from .capture import ROOT

sys.path.insert(0, str(ROOT / "userspace/tests/page"))
import browser  # noqa: E402

WIDTH, HEIGHT = 860, 420
# Colours of compared things: from Okabe and Ito (2008), suitable for the colour-blind. Categories
# have the package's colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def figure(x: str, y: str, title: str = "", height: int = HEIGHT, **layout: Any) -> go.Figure:
    """An empty figure with named axes, in the common style."""
    made = go.Figure()
    made.update_layout(
        template="plotly_white",
        width=WIDTH,
        height=height,
        title={"text": title, "font": {"size": 15}, "x": 0.01},
        font={"family": "sans-serif", "size": 12},
        margin={"l": 70, "r": 20, "t": 50 if title else 20, "b": 55},
        xaxis_title=x,
        yaxis_title=y,
        **layout,
    )
    return made


def write(figures: dict[str, Any], folder: Path, title: str):
    """Writes `folder`/figures.html with all figures, and `folder`/figures/NAME.svg for each; says
    so if there is no Chromium for the SVG."""
    page = [
        "<!doctype html><meta charset=utf-8>",
        f"<title>{title}</title><script>{plotly.offline.get_plotlyjs()}</script>",
    ]
    for name, made in figures.items():
        page.append(f'<div id="{name}"></div>')
        drawn = json.dumps(json.loads(made.to_json())).replace("</", "<\\/")
        page.append(f"<script>{{const f = {drawn};")
        page.append(f'Plotly.newPlot("{name}", f.data, f.layout)}}</script>')
    html = folder / "figures.html"
    html.write_text("\n".join(page))
    chromium = browser.find()
    if chromium is None:
        print("figures: no Chromium, so no SVG; they are in", html)
        return
    (folder / "figures").mkdir(exist_ok=True)
    with browser.Browser(chromium) as running:
        shown = browser.Page(running, html.resolve().as_uri(), WIDTH)
        shown.until("document.readyState == 'complete'")
        for name, made in figures.items():
            size = {"width": made.layout.width or WIDTH, "height": made.layout.height or HEIGHT}
            options = json.dumps({"format": "svg", "imageDataOnly": True, **size})
            svg = shown.run(f"Plotly.toImage(document.getElementById({name!r}), {options})")
            (folder / "figures" / f"{name}.svg").write_text(always_the_same(svg))


def always_the_same(svg: str) -> str:
    """Replaces the random names that plotly gives to a figure's parts by numbers."""
    names = dict.fromkeys(
        re.findall(r'(?:id="defs-|class="trace scatter trace|id="p\w{6}-\w+-)(\w{6})', svg)
    )
    for number, name in enumerate(names):
        svg = svg.replace(name, f"{number:06}")
    return svg
