"""Plots a soak: a self-contained page, and an image if a program that makes one is installed."""

import shutil
import subprocess
from pathlib import Path

MIB = 1 << 20
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def plot(samples: list, manifest: dict, results: Path):
    try:
        from plotly.graph_objects import Figure, Scatter
        from plotly.subplots import make_subplots
    except ImportError:
        print("no plot: plotly is not installed (`make venv` does it)")
        return
    rows = ("memory of the probe, MiB", "files, MiB", "records lost, in all")
    figure: Figure = make_subplots(rows=3, shared_xaxes=True, subplot_titles=rows)
    at_s = [sample.at_s for sample in samples]
    lines = (
        (1, "RSS", "rss_bytes"),
        (1, "peak", "peak_bytes"),
        (2, "events.bin", "events_bytes"),
        (2, "requests.parquet", "requests_bytes"),
        (2, "segments.parquet", "segments_bytes"),
    )
    for row, name, of in lines:
        values = [getattr(sample, of) / MIB for sample in samples]
        figure.add_trace(Scatter(x=at_s, y=values, name=name), row=row, col=1)
    lost_s, lost = losses(manifest)
    figure.add_trace(
        Scatter(x=lost_s, y=lost, name="lost", line_shape="hv"),
        row=3,
        col=1,
    )
    ends_s = max(sample.at_s for sample in samples if sample.phase == "record")
    figure.add_vline(x=ends_s, line_dash="dot", annotation_text="attribution")
    figure.update_xaxes(title_text="seconds", row=3, col=1)
    figure.update_layout(title_text="Soak", height=900)
    page = results / "soak.html"
    figure.write_html(page, include_plotlyjs=True)
    print(f"plot: {page}")
    image(page, results / "soak.png")


def losses(manifest: dict) -> tuple[list[float], list[int]]:
    start_ns = manifest["start_ns"]
    seconds, counts, lost = [0.0], [0], 0
    for loss in sorted(manifest["losses"], key=lambda loss: loss["first_ns"]):
        lost += loss["count"]
        seconds.append((loss["first_ns"] - start_ns) / 1e9)
        counts.append(lost)
    seconds.append(manifest["duration_ns"] / 1e9)
    counts.append(lost)
    return seconds, counts


def image(page: Path, picture: Path):
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if not browser:
        print(f"no image: none of {', '.join(BROWSERS)} is installed")
        return
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,950"]
    command = [browser, *options, f"--screenshot={picture}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 and picture.exists():
        print(f"image: {picture}")
    else:
        print(f"no image: {done.stderr.strip()[-200:]}")
