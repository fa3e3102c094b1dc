"""Wrong arguments and missing packages."""

import subprocess
import sys
from pathlib import Path

import pytest

import rpcprobe
from rpcprobe import _program

HEAVY = ("pyarrow", "plotly", "pandas", "polars", "duckdb", "numpy", "narwhals")


def python(code: str, *arguments: str) -> str:
    folder = str(Path(rpcprobe.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {folder!r}); {code}"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_an_import_imports_nothing_heavy() -> None:
    loaded = python("import rpcprobe; print(*sys.modules)").split()
    assert not {*HEAVY} & {*loaded}


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("requests.pandas()", "pandas"),
        ("requests.polars()", "polars"),
        ("sql('select 1')", "duckdb"),
    ],
)
def test_what_is_not_installed_is_named(directory: Path, call: str, extra: str) -> None:
    said = python(
        f"import rpcprobe; sys.modules[{extra!r}] = None; cap = rpcprobe.open(sys.argv[1])\n"
        f"try: cap.{call}\nexcept rpcprobe.Error as error: print(error)",
        str(directory),
    )
    assert f"needs {extra}" in said
    assert "pip install" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "nothing"}, "there is no figure 'nothing'; there are latency, breakdown"),
        ({"name": "shift"}, "rpcprobe.diff"),
        ({"name": "breakdown", "by": "colour"}, "by 'band', 'method', 'time', not by 'colour'"),
        ({"name": "latency", "by": "method"}, "only the figure 'breakdown'"),
        ({"name": "latency", "kind": "udp"}, "no complete request passes the filter: kind udp"),
        ({"name": "latency", "kind": "colour"}, "`colour` is no kind of request"),
        ({"name": "latency", "kind": []}, "kind is one of none"),
        ({"name": "latency", "band": "middle"}, "invalid value 'middle'"),
        ({"name": "latency", "category": "colour"}, "invalid value 'colour'"),
        ({"name": "latency", "colour": "red"}, "there is no filter 'colour'"),
        ({"name": "latency", "min_ns": 1.5}, "min_ns is a number of nanoseconds, not 1.5"),
        ({"name": "latency", "min_ns": -1}, "min_ns is a number of nanoseconds, not -1"),
        ({"name": "latency", "requests": []}, "no complete request passes the filter: no request"),
        ({"name": "latency", "requests": [999_999]}, "there is no request 999999"),
        ({"name": "latency", "requests": "12"}, "not by '12'"),
        ({"name": "latency", "requests": [1, "2"]}, "'2' is no number of a request"),
        ({"name": "latency", "requests": [True]}, "True is no number of a request"),
        ({"name": "latency", "requests": 3.5}, "not by 3.5"),
        ({"name": "timeline", "requests": [1, 2]}, "of one request"),
    ],
)
def test_wrong_arguments_of_a_figure(cap: rpcprobe.Capture, arguments: dict, said: str) -> None:
    with pytest.raises(rpcprobe.Error, match=said.replace("(", r"\(")):
        cap.figure(**arguments)


def test_rows_without_numbers_of_requests(cap: rpcprobe.Capture) -> None:
    with pytest.raises(rpcprobe.Error, match="no column request_id"):
        cap.figure("latency", requests=cap.sql("select kind from requests"))


def test_what_a_figure_leaves_out_is_written_on_it(cap: rpcprobe.Capture) -> None:
    (incomplete,) = cap.sql("select count(*)::int as n from requests where not complete").rows()
    subtitle = cap.figure("latency", requests=cap.requests).layout.title.subtitle.text
    subtitle = subtitle.replace("<br>", " ")
    assert f"{incomplete['n']} requests are of those named incomplete" in subtitle
    assert "of http1 requests; `kind` selects others (resp)" in subtitle


def test_the_program_is_missing_or_another(
    monkeypatch: pytest.MonkeyPatch, cap: rpcprobe.Capture
) -> None:
    monkeypatch.setenv("RPCPROBE", "/nowhere/rpcprobe")
    with pytest.raises(rpcprobe.Error, match=r"\$RPCPROBE is '/nowhere/rpcprobe'"):
        cap.report()
    monkeypatch.setenv("RPCPROBE", "/bin/echo")
    with pytest.raises(rpcprobe.Error, match="printed no JSON: is /.*/?bin/echo another program"):
        cap.report()
    monkeypatch.delenv("RPCPROBE")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(_program.sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setattr(_program.sys, "executable", "/nowhere/python")
    # A `bin` above the sources may hold a program, wherever the sources are.
    monkeypatch.setattr(_program, "__file__", "/nowhere/of/all/the/package/_program.py")
    with pytest.raises(rpcprobe.Error, match="neither in /nowhere nor on the PATH"):
        cap.report()
