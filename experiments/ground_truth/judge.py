"""The verdict: compares each request's injected and attributed amounts."""

import math

from capture import Sample, join
from cases import (
    MEDIAN_NS,
    MIN_CORRELATION,
    MIN_MET,
    MIN_REQUESTS,
    NOISE,
    UNATTRIBUTED_SHARE,
    WAITS,
    Case,
    Check,
    title,
)
from truth import UNKNOWN, Row


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least a share q of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)] if ordered else 0


def correlation(xs: list[int], ys: list[int]) -> float:
    """Pearson's correlation; 0 if one of the series is constant."""
    n = len(xs)
    if n == 0:
        return 0
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    products = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    squares = sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys)
    return products / math.sqrt(squares) if squares else 0


def known(samples: list[Sample], check: Check) -> list[Sample]:
    return [sample for sample in samples if sample.log[check.truth] != UNKNOWN]


def meets(sample: Sample, check: Check) -> bool:
    return max(sample.log[check.truth], sample.attributed(check.categories)) > MEDIAN_NS


def apart_ns(sample: Sample, check: Check) -> int:
    """Error of a request. A finding may fall short of the truth by up to the gaps without error."""
    truth, found = sample.log[check.truth], sample.attributed(check.categories)
    gaps = sample.log[check.gaps] if check.gaps else 0
    return abs(found - min(max(found, truth - gaps), truth))


def judge_check(check: Check, samples: list[Sample], case: Case) -> dict:
    samples = known(samples, check)
    pairs = [(s.log[check.truth], s.attributed(check.categories)) for s in samples]
    together = correlation(*zip(*pairs, strict=True)) if pairs else 0
    if case.by_chance:
        samples = [sample for sample in samples if meets(sample, check)]
    truths = [sample.log[check.truth] for sample in samples]
    founds = [sample.attributed(check.categories) for sample in samples]
    biases = [found - truth for found, truth in zip(founds, truths, strict=True)]
    # The median request is assumed undisturbed, so gaps do not excuse its error.
    errors = [abs(bias) for bias in biases]
    apart = [apart_ns(sample, check) for sample in samples]
    # Each error relative to the bound of its own request, because the injected amounts differ.
    excess50, excess99 = (
        [error / max(share * truth, ns) for error, truth in zip(of, truths, strict=True)]
        for of, (share, ns) in ((errors, case.median), (apart, case.p99))
    )
    worst = max(range(len(samples)), key=lambda i: excess99[i], default=0)
    result = {
        "truth": check.truth,
        "n": len(samples),
        "injected_n": sum(truth > 0 for truth in truths),
        "categories": list(check.categories),
        "injected_p50_ns": quantile(truths, 0.5),
        "injected_max_ns": max(truths, default=0),
        "attributed_p50_ns": quantile(founds, 0.5),
        "bias_p50_ns": quantile(biases, 0.5),
        "correlation": together,
        "correlation_asked": case.correlate,
        "median_ok": quantile(excess50, 0.5) <= 1,
        "p99_ok": quantile(excess99, 0.99) <= 1,
        "correlation_ok": not case.correlate or together >= MIN_CORRELATION,
    }
    for name, q, of in (("p50", 0.5, errors), ("p90", 0.9, apart), ("p99", 0.99, apart)):
        result[f"error_{name}_ns"] = quantile(of, q)
        shares = [error / truth for error, truth in zip(of, truths, strict=True) if truth]
        result[f"error_{name}_share"] = quantile(shares, q)
    if samples:
        result["worst"] = {
            "request_id": samples[worst].request["request_id"],
            "injected_ns": truths[worst],
            "attributed_ns": founds[worst],
        }
    return result


def failures_of(check: dict, case: Case) -> list[str]:
    failures = []
    least = MIN_MET if case.by_chance else MIN_REQUESTS
    if check["injected_n"] < least:
        failures.append(f"{check['truth']} is known and not 0 in {check['injected_n']} only")
    for bound in ("median", "p99"):
        if not check[f"{bound}_ok"]:
            failures.append(f"{bound} error of {check['truth']}")
    if not check["correlation_ok"]:
        failures.append(f"correlation {check['correlation']:.3f} of {check['truth']}")
    return failures


def judge_strays(checks: list[Check], case: Case, samples: list[Sample]) -> tuple[dict, list[str]]:
    """Checks that nothing of the cause is in any other wait."""
    expected = {category for check in checks for category in check.categories}
    others = tuple(c for c in WAITS if c not in expected and c not in case.beside)
    all_known = [s for s in samples if all(s.log[check.truth] != UNKNOWN for check in checks)]
    amounts = [sum(s.log[check.truth] for check in checks) for s in all_known]
    strays, failures = {}, []
    for name, q, (portion, least) in (("median", 0.5, case.median), ("p99", 0.99, case.p99)):
        looked_at = [c for c in others if name == "median" or c not in NOISE]
        found = [sample.attributed(looked_at) for sample in all_known]
        strays[name] = quantile(found, q)
        excess = [
            stray / max(portion * amount, least)
            for stray, amount in zip(found, amounts, strict=True)
        ]
        if quantile(excess, q) > 1:
            sums = {c: sum(s.attributed([c]) for s in samples) for c in looked_at}
            where = ", ".join(f"{c} {ns / 1e3:,.0f} us" for c, ns in sums.items() if ns)
            failures.append(f"{name} of other waits (in all {where})")
    return strays, failures


def judge(
    case: Case, transport: str, log: list[Row], requests: list[dict]
) -> tuple[dict, list[Sample]]:
    samples, problems = join(log, requests)
    failures = problems[:3] + ([f"... {len(problems)} in all"] if len(problems) > 3 else [])
    if len(samples) < MIN_REQUESTS:
        failures.append(f"only {len(samples)} requests can be compared")
    broken = [s for s in samples if sum(s.request["category_ns"].values()) != s.latency_ns]
    if broken:
        failures.append(f"law 1: {len(broken)} requests do not add up")
    total = sum(sample.latency_ns for sample in samples)
    share = sum(s.attributed(("unattributed",)) for s in samples) / total if total else 0
    if share > UNATTRIBUTED_SHARE:
        failures.append(f"unattributed {share:.2%}")
    if case.proof and sum(s.log[case.proof] > 0 for s in samples) < 0.9 * len(samples):
        failures.append(f"{case.proof} is 0: the case did not do its work")

    checks = case.checks_on(transport)
    results = [judge_check(check, samples, case) for check in checks]
    for result in results:
        failures += failures_of(result, case)
    strays, stray_failures = judge_strays(checks, case, samples)
    failures += stray_failures
    for category in case.nothing:
        if any(sample.attributed((category,)) for sample in samples):
            failures.append(f"{category}, where there is none")
    judged = {
        "case": title(case, transport),
        "transport": transport,
        "n": len(samples),
        "problems": problems,
        "checks": results,
        "unattributed_share": share,
        "law1_broken": len(broken),
        "stray_ns": strays,
        "category_mean_ns": means(samples),
        "failures": failures,
        "passed": not failures,
    }
    return judged, samples


def failed(case: Case, transport: str, why: str) -> dict:
    return {
        "case": title(case, transport),
        "transport": transport,
        "n": 0,
        "checks": [],
        "failures": [why],
        "passed": False,
    }


def means(samples: list[Sample]) -> dict[str, float]:
    names = sorted({name for sample in samples for name in sample.request["category_ns"]})
    return {name: sum(s.attributed((name,)) for s in samples) / len(samples) for name in names}
