"""Prints one line per check on standard output."""

import sys

COLUMNS = (
    "{:<22} {:<36} {:>5} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>5}  {}"
)
HEADER = (
    "case",
    "injected -> category",
    "n",
    "injected",
    "found",
    "err p50",
    "p90",
    "p99",
    "p50 %",
    "p90 %",
    "p99 %",
    "corr",
    "unatt",
    "law 1",
    "verdict",
)


def us(ns: float) -> str:
    return f"{ns / 1e3:,.1f}"


def line(*fields: object):
    print(COLUMNS.format(*fields).rstrip())
    sys.stdout.flush()


def tell_header():
    line(*HEADER[:-1], "verdict (times in us)")


def verdict_of(result: dict) -> str:
    verdict = "pass" if result["passed"] else "FAIL: " + "; ".join(result["failures"])
    if result.get("switches_missed"):
        verdict += f" ({result['switches_missed']} context-switch records never came)"
    former = result.get("former_failures", [])
    if former:
        verdict += f" [try {len(former) + 1}; before: {' | '.join(map('; '.join, former))}]"
    return verdict


def tell(result: dict):
    law1 = "-" if "law1_broken" not in result else "BROKEN" if result["law1_broken"] else "exact"
    end = (f"{result.get('unattributed_share', 0):.2%}", law1, verdict_of(result))
    if not result["checks"]:
        line(result["case"], "", result["n"], *[""] * 9, *end)
    name = result["case"]
    for check in result["checks"]:
        what = f"{check['truth'].removesuffix('_ns')} -> {'+'.join(check['categories'])}"
        numbers = [us(check[k]) for k in ("injected_p50_ns", "attributed_p50_ns")]
        numbers += [us(check[f"error_{q}_ns"]) for q in ("p50", "p90", "p99")]
        numbers += [f"{check[f'error_{q}_share']:.1%}" for q in ("p50", "p90", "p99")]
        together = f"{check['correlation']:.3f}" if check["correlation_asked"] else ""
        line(name, what, check["n"], *numbers, together, *end)
        name, end = "", ("", "", "")
