"""The report's figures, and the format of figures."""

from facts import MODES, Facts, iqr
from study import ns, percent
from study.outliers import comm
from study.statistics import interval, median

# As reported.
REPORTED_MORE = {2: 0.11}
REPORTED_WORST = {
    1: "160 to 170 ms, involuntary context switches, ~50 ms pauses",
    2: "234 ms, `openat()` blocked while ext4 commits its journal",
    3: "below 170 ms",
}
REPORTED_EVALUATION_NS = 8_000
REPORTED_SLOPE = 0.006
# Least length of the segments that a time line shows.
SHOWN_NS = 8_000
STORAGE = ("journal", "block_io", "writeback")


def between(found: tuple[float, float], shown) -> str:
    return f"{shown(found[0])} to {shown(found[1])}"


def us_and_interval(found: tuple[float, tuple[float, float]]) -> str:
    value, (low, high) = found
    return f"{value / 1e3:+.1f} ({low / 1e3:+.1f} to {high / 1e3:+.1f})"


def signed(share: float) -> str:
    return percent(share, sign=True)


def spread(values: list[int]) -> str:
    return f"{median(values) / 1e3:,.0f} / {iqr(values) / 1e3:,.0f} / {max(values) / 1e3:,.0f}"


def range_of(values: list[float]) -> str:
    return f"{ns(median(values))} ({ns(min(values))} to {ns(max(values))})"


def largest(facts: Facts, phase: str, most: int = 3) -> str:
    """The largest parts of mode 1's phase."""
    sums = {}
    for row in facts.of(1):
        if row["phase"].startswith(phase):
            sums[row["category"]] = sums.get(row["category"], 0) + row["total_ns"]
    total = sum(sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {percent(part / total, 0)}" for name, part in ordered)


def more_by(facts: Facts, mode: int) -> str:
    shares = facts.more(mode)
    text = f"{signed(median(shares))} ({between(interval(shares), signed)})"
    verdicts = {None: f"{text}, of too few runs to tell", False: f"{text}: no difference shown"}
    return verdicts.get(facts.differs(mode), text)


def slope_verdict(facts: Facts) -> str:
    """The verdict on the reported slope, by the intervals of all modes."""
    bounds = [
        [bound / median(facts.medians(mode)) for bound in interval(facts.slopes(mode))]
        for mode in MODES
    ]
    if all(max(abs(low), abs(high)) < REPORTED_SLOPE for low, high in bounds):
        return "as reported, below 0.6 % of the median in every mode"
    if any(low > REPORTED_SLOPE for low, _ in bounds):
        return "contradicts the report: above 0.6 % of the median in some mode"
    return "not decided in every mode: runs scatter by more than 0.6 % of the median"


def time_line(facts: Facts) -> str:
    """The longer segments of the typical evaluation, in order."""
    lines = [f"{'at':>9}{'lasts':>10}  {'phase':17}{'category':21}{'side':8}detail"]
    for s in facts.results.read("typical"):
        if s["duration_ns"] >= SHOWN_NS:
            modelled = "" if s["evidence"] == "measured" else " ~"
            detail = f"behind {comm(s['by'])}" if s["by"] else s["detail"] or ""
            call, _, path = detail.partition(" ")
            detail = f"{call} {path.rsplit('/', 1)[-1]}" if path.startswith("/") else detail
            lines.append(
                f"{s['at_ns'] / 1e3:>6.0f} us{ns(s['duration_ns']):>10}  {s['phase'] or '':17}"
                f"{s['category'] + modelled:21}{s['side']:8}{detail}"
            )
    return "\n".join(lines)
