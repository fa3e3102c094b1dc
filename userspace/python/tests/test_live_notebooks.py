"""The notebooks as `make notebook` opens them: they run, their widgets work, and they make no network requests."""

import importlib
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_up
import pytest
from conftest import ROOT

pytest.importorskip("marimo")
sys.path.insert(0, str(ROOT / "userspace/tests/page"))
browser = importlib.import_module("browser")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
SECONDS = 60
# marimo's own elements have their own shadow roots.
FIND = """
window.found = (what, root = document) => [...root.querySelectorAll(what),
  ...[...root.querySelectorAll("*")].filter((node) => node.shadowRoot).flatMap((node) => found(what, node.shadowRoot))];
window.shown = () => found("svg.main-svg text, td, .output-area pre").map((node) => node.textContent).join("|");
window.choose = (select) => {
  select.value = [...select.options].find((option) => option.value !== select.value).value;
  select.dispatchEvent(new Event("change", {bubbles: true}));
};
0
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and password of a marimo server whose notebooks are given two pairs of captures."""
    folder = tmp_path_factory.mktemp("captures")
    captures = [made_up.make(folder / f"run{number}", 200, seed=number) for number in range(4)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Anyone who can open a notebook can run code, and this process may be root.
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "marimo", "edit", "--headless", "-p", str(port)]
    command += ["--token", "--token-password", token]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "userspace/python"),
        "RPCPROBE_CAPTURE": os.pathsep.join(map(str, captures)),
    }
    with open(folder / "said", "w+") as said:
        marimo = subprocess.Popen(
            [*command, str(ROOT / "notebooks")], env=environment, stdout=said, stderr=said, cwd=ROOT
        )
        try:
            address = f"http://127.0.0.1:{port}"
            end = time.monotonic() + SECONDS
            while not answers(address):
                said.seek(0)
                assert marimo.poll() is None and time.monotonic() < end, said.read()
                time.sleep(0.2)
            yield address, token
        finally:
            marimo.terminate()
            marimo.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda of: of.stem)
def test_widgets_work_and_no_network_is_asked(server: tuple[str, str], notebook: Path) -> None:
    address, token = server
    if (path := browser.find()) is None:
        pytest.skip("no Chromium (apt-get install chromium-headless-shell)")
    with browser.Browser(path) as opened:
        page = browser.Page(opened, f"{address}/?file={notebook.name}&access_token={token}", 1280)
        page.until("document.readyState === 'complete'", SECONDS)
        page.run(FIND)
        before = settled(page)
        assert page.run("found('.js-plotly-plot').length") > 0
        selects = page.run("found('select').map((node) => node.options.length)")
        assert selects
        for number, options in enumerate(selects):
            if options > 1:
                page.run(f"choose(found('select')[{number}])")
                page.until(f"shown() !== {before!r}", SECONDS)
                before = settled(page)
        assert not faults(page, address), faults(page, address)


def settled(page: Any) -> str:
    """The shown text, once it has not changed for two seconds."""
    end, before, same = time.monotonic() + SECONDS, "", 0
    while same < 4:
        assert time.monotonic() < end, f"nothing settles: {before}"
        time.sleep(0.5)
        now = page.run("shown()")
        same = same + 1 if now and now == before else 0
        before = now
    return before


def faults(page: Any, server: str) -> list[str]:
    """The page's errors and requests to other servers than marimo's, without marimo's hints at its unused resources."""
    own = (f"network: {server}", f"log: The resource {server}")
    return [of for of in page.faults() if not of.startswith(own)]
