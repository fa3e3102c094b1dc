"""The texts' statements about `rpcprobe ab` agree with its table of changes, whose parts sum to
their totals."""

import re

import duckdb
import pytest
from conftest import results_of
from study import ns, us

SAID = re.compile(
    r"`rpcprobe ab`, (\d+) pairs of runs in random order: the (mean|median) of (?:[^.;]+?) is ([\d.]+ \w+)"
    r" against ([\d.]+ \w+) of [^;(]+?, ([\d.,]+ us (?:more|less)) \([^)]*\): (changed|not beyond chance)\."
)


@pytest.mark.parametrize(
    ("study", "comparisons"), [("s1_frpc", 2), ("s2_stockbazaar", 2), ("s3_flexcache", 1)]
)
def test_what_ab_says(study: str, comparisons: int):
    text = " ".join((results_of(study) / "RESULTS.md").read_text().split())
    changes = f"'{results_of(study)}/results/changes.parquet'"
    said = SAID.findall(text)
    assert len(said) == comparisons == text.count("`rpcprobe ab`, ")
    totals = duckdb.sql(
        f"""select pairs, statistic, a_ns, b_ns, change_ns, coalesce(shown, false) from {changes}
        where category is null and b_ns - a_ns = change_ns"""
    ).fetchall()
    names = {"p50": "median", "mean": "mean"}
    known = {
        (
            str(pairs),
            names[of],
            ns(b),
            ns(a),
            f"{us(abs(change))} {'less' if change < 0 else 'more'}",
            "changed" if shown else "not beyond chance",
        )
        for pairs, of, a, b, change, shown in totals
        if of in names
    }
    assert set(said) <= known


@pytest.mark.parametrize("study", ["s1_frpc", "s2_stockbazaar", "s3_flexcache", "tmpfs_ext4"])
def test_parts_sum_to_totals(study: str):
    changes = f"'{results_of(study)}/results/changes.parquet'"
    sums = duckdb.sql(
        f"""with part as (
            select change_ns * case when category is null then 1 else -1 end as signed_ns,
                columns(* exclude (category, side, a_ns, b_ns, change_ns, low_ns, high_ns, p, shown, detectable_ns))
            from {changes}
        )
        select sum(signed_ns), * exclude (signed_ns) from part group by all"""
    ).fetchall()
    assert sums and {apart for apart, *_ in sums} == {0}
