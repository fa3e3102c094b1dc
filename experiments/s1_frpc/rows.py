"""Rows of the tables of RESULTS.md."""

from common import (
    REPORTED_WORST,
    STORAGE,
    between,
    more_by,
    range_of,
    slope_verdict,
    us_and_interval,
)
from facts import GROUPS, MODES, REST, Facts, iqr, variance
from facts import elapsed as elapsed_of
from study import ns, outliers, percent
from study.statistics import RUNS_NEEDED, interval, median


def compared(facts: Facts) -> list[tuple[str, str, str, str]]:
    total = facts.mean_ns(1)
    alone = facts.alone_ns()[0]
    rows = [
        (
            "median, mode 1",
            "111 ms",
            range_of(facts.medians(1)),
            f"starting and ending a process: {percent(1 - facts.evaluating_ns() / total)} of it; "
            f"parse + evaluate: {percent(facts.evaluating_ns() / total)}",
        ),
        (
            "median, mode 2",
            "123 ms, +11 %",
            f"{range_of(facts.medians(2))}, {more_by(facts, 2)}",
            files_in_short(facts),
        ),
        (
            "median, mode 3",
            "117 ms, +6 %",
            f"{range_of(facts.medians(3))}, {more_by(facts, 3)}",
            pipes_in_short(facts),
        ),
        (
            '"evaluator work"',
            "100 ms, 90 % of mode 1",
            f"{ns(facts.evaluating_ns())}, {percent(facts.evaluating_ns() / total)} of mode 1",
            f"page faults {percent(facts.evaluating_ns(category='fault') / facts.evaluating_ns(), 0)}, "
            f"user {percent(facts.evaluating_ns(category='user') / facts.evaluating_ns(), 0)} of that",
        ),
        (
            "parse + evaluate",
            "at most 8 us",
            f"{ns(alone)} in a process that runs already, {ns(facts.evaluating_ns())} in a new one",
            f"{percent(alone / facts.evaluating_ns(), 0)} is the evaluation; the rest is that everything is touched "
            "for the first time",
        ),
        (
            "files instead of streams",
            "+12 ms, metadata flush",
            f"{us_and_interval(facts.differences(2)['in all'])} us",
            f"journal, block_io and writeback: {ns(facts.mean_ns(2, *STORAGE))}; "
            f"calls to the file system: {us_and_interval(facts.differences(2)['files'])} us",
        ),
        (
            "pipes instead of streams",
            "+6 ms, pipe calls and context switches",
            f"{us_and_interval(facts.differences(3)['in all'])} us",
            "; ".join(
                f"{name}: {us_and_interval(facts.differences(3)[name])} us"
                for name in list(GROUPS)[:3]
            ),
        ),
        spread_row(facts),
        (
            "variance, mode 2 to mode 1",
            "about 2.2",
            ratio_and_interval(facts.ratios(lambda of: variance(elapsed_of(of)))),
            variance_cause(facts),
        ),
    ]
    for mode in MODES:
        worst = max(facts.runs(lambda of: max(elapsed_of(of)), mode))
        rows.append(
            (
                f"slowest, mode {mode}",
                REPORTED_WORST[mode],
                f"{ns(worst)}, {worst / median(facts.medians(mode)):.1f} medians",
                f"under the probe: {first_outlier(facts, mode)}",
            )
        )
    slopes = {mode: facts.slopes(mode) for mode in MODES}
    shares = {mode: median(of) / median(facts.medians(mode)) for mode, of in slopes.items()}
    rows.append(
        (
            "an extra token",
            "below 0.6 % of the median",
            "; ".join(
                f"mode {mode} {median(of):+,.0f} ns, {percent(shares[mode], 2, sign=True)}"
                for mode, of in slopes.items()
            ),
            f"{slope_verdict(facts)}; parse + evaluate is hardly any of the time",
        )
    )
    return rows


def spread_row(facts: Facts) -> tuple[str, str, str, str]:
    spreads = {
        mode: median(facts.runs(lambda of: iqr(elapsed_of(of)) / median(elapsed_of(of)), mode))
        for mode in MODES
    }
    ratios = facts.ratios(lambda of: iqr(elapsed_of(of)) / median(elapsed_of(of)))
    return (
        "IQR of a run",
        "mode 1 < 5 % of the median, mode 2 nearly double, mode 3 between",
        "; ".join(f"mode {mode} {percent(of)}" for mode, of in spreads.items()),
        f"mode 2's by mode 1's: {ratio_and_interval(ratios)}; {compared_to_one(facts, ratios)}",
    )


def variance_cause(facts: Facts) -> str:
    said = compared_to_one(facts, facts.ratios(lambda of: variance(elapsed_of(of))))
    without = ratio_and_interval(facts.ratios(trimmed_variance))
    return f"{said}; a few slow evaluations make it: without each run's slowest 1 % it is {without}"


def compared_to_one(facts: Facts, ratios: list[float]) -> str:
    low, high = interval(ratios)
    if facts.rounds < RUNS_NEEDED:
        return "too few runs to tell"
    if low <= 1 <= high:
        return "no difference shown"
    return "larger" if low > 1 else "smaller"


def ratio_and_interval(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({between(interval(ratios), '{:.2f}'.format)})"


def trimmed_variance(rows) -> float:
    values = sorted(elapsed_of(rows))
    return variance(values[: len(values) - max(1, len(values) // 100)])


def files_in_short(facts: Facts) -> str:
    storage = facts.mean_ns(2, *STORAGE)
    if not facts.differs(2):
        return (
            "no difference to be attributed: both modes create and write the same file (mode 1 before exec, by redirection); "
            f"journal, block_io and writeback take {ns(storage)}"
        )
    return main_groups(facts, 2)


def pipes_in_short(facts: Facts) -> str:
    return main_groups(facts, 3)


def main_groups(facts: Facts, mode: int) -> str:
    found = facts.differences(mode)
    total = found["in all"][0]
    ordered = sorted(
        ((name, value[0]) for name, value in found.items() if name not in ("in all", REST)),
        key=lambda item: -abs(item[1]),
    )
    return "; ".join(f"{name} {value / 1e3:+.0f} us" for name, value in ordered[:3]) + (
        f" (of {total / 1e3:+.0f} us under the probe)"
    )


def first_outlier(facts: Facts, mode: int) -> str:
    of = [row for row in facts.results.read("outliers", mode=mode) if row["rank"] == 1]
    return f"{ns(of[0]['latency_ns'])}: {outliers.told(of[0])}"
