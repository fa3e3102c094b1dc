#!/usr/bin/env python3
"""Takes a picture of the page of a capture of `web.py`: docs/page.png. Needs root and a Chromium."""

import base64
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "userspace/tests/page"))
import browser  # noqa: E402

RPCPROBE = Path(os.environ.get("RPCPROBE") or ROOT / "userspace/target/release/rpcprobe").resolve()
WIDTH, HEIGHT = 1280, 1100
# The line that names the machine.
WITHOUT_HOST = """for (const node of document.querySelectorAll("header p, p, div"))
    if (node.children.length == 0 && / x86_64 · \\d+ CPUs · /.test(node.textContent)) node.remove()"""
# How long the page may take to draw.
SECONDS = 5


def main():
    path = browser.find() or sys.exit("picture.py: no Chromium found")
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "page.html"
        capture = Path(directory) / "capture"
        run = [RPCPROBE, "run", "-q", "-o", capture, "--", "./web.py"]
        subprocess.run(run, cwd=HERE, check=True)
        report = [RPCPROBE, "report", capture, "--kind", "http1", "--html", page]
        subprocess.run(report, check=True, stderr=subprocess.DEVNULL)
        with browser.Browser(path) as chromium:
            shown = browser.Page(chromium, page.as_uri(), WIDTH, HEIGHT)
            time.sleep(SECONDS)
            shown.run(WITHOUT_HOST)
            picture = shown.send("Page.captureScreenshot", format="png")["data"]
        (ROOT / "docs/page.png").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
