"""Programs choose the names of methods and threads: every output treats them as plain text."""

import made_up
import pytest

import rpcprobe

HOSTILE = (
    "</script><script>window.pwned=1</script><img src=x onerror=x>\n\u2028'\"&lt;<b>%{x}$x$ --kind"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> rpcprobe.Capture:
    def change(request: dict, segments: list[dict]) -> None:
        if request["kind"] == "http1":
            request["method"] = HOSTILE if request["request_id"] % 2 else HOSTILE + "x" * 200
        for segment in segments:
            segment["comm"] = "<b>sh</b>\n"
            segment["by"] = segment["by"] and "<script>window.pwned=1</script>/7"
            segment["detail"] = HOSTILE

    directory = tmp_path_factory.mktemp("hostile") / "<b>&amp;\n'\""
    return rpcprobe.open(made_up.make(directory, 400, change=change))


def test_tables_have_them_as_they_are(hostile: rpcprobe.Capture) -> None:
    assert HOSTILE in hostile.requests["method"].to_pylist()
    (row,) = hostile.sql(
        "select count(*)::int as n from requests where method = ?", [HOSTILE]
    ).rows()
    assert row["n"] > 0


def test_figures_have_no_markup_of_theirs(hostile: rpcprobe.Capture) -> None:
    for name in (
        "latency",
        "breakdown",
        "methods",
        "requests",
        "overtime",
        "cpu",
        "tree",
        "timeline",
    ):
        figure = hostile.figure(name, kind="http1")
        text = figure.to_json()
        for markup in ("<script", "<img", "</script", "<b>sh"):
            assert markup not in text, name
        page = figure.to_html(include_plotlyjs=False, full_html=True)
        assert "<img" not in page
        assert "window.pwned=1</script>" not in page


def test_as_a_filter_they_are_one_value(hostile: rpcprobe.Capture) -> None:
    told = hostile.report(method=HOSTILE)
    (found,) = hostile.sql(
        "select count(*)::int as n from requests where method = ?", [HOSTILE]
    ).rows()
    assert sum(kind["requests"] for kind in told["kinds"]) == found["n"]
    for value in ("--json", "-h", "--help", ""):
        with pytest.raises(rpcprobe.Error):
            hostile.figure("latency", method=value)
    with pytest.raises(rpcprobe.Error, match="cannot run rpcprobe"):
        hostile.figure("latency", method="\0")
