"""Compares the attribution of a workload without and with direct hooks on functions."""

from statistics import median

from cases import ATTACHED_AS, CASES, Case
from judge import Verdict, share_found
from observed import Observed, complete_requests

# Measured over modelled copying time. The model gives a long copy its whole call less the fixed
# cost of any call, which includes finding pages and buffers. The function that only copies takes
# less.
COPY_LOW, COPY_HIGH = 0.4, 1.25
# Allowed difference between the shares of the same cause found in the same categories.
SHARES_APART = 0.1


def copied_us(observed: Observed, case: Case) -> float:
    """Copying time of the median request."""
    sums = [
        sum(s["duration_ns"] for s in observed.segments[r["request_id"]] if s["category"] == "copy")
        for r in complete_requests(observed, case)
    ]
    return median(sums) / 1000 if sums else float("nan")


def ran(observed: Observed, case: Case) -> bool:
    """Returns whether there are requests to compare; there are none if no hook reports sockets."""
    return "requests" in observed.windows.get(case.name, {}) and bool(
        complete_requests(observed, case)
    )


def compare_copies(case: Case, plain: Observed, direct: list[Observed], foreign: bool) -> Verdict:
    modelled_us = copied_us(plain, case)
    notes, good = [f"copy {modelled_us:,.0f} us modelled"], True
    for observed in direct:
        measured_us = copied_us(observed, case)
        good &= COPY_LOW <= measured_us / modelled_us <= COPY_HIGH
        notes.append(f"{measured_us:,.0f} us by {observed.way} ({measured_us / modelled_us:.2f})")
    told = ", ".join(notes)
    if foreign:
        # A request has 64 pieces of 32 KiB and takes 1 to 1.5 ms. In emulation, two hooks per piece
        # take as long.
        return Verdict(case.name, True, f"{told}; not judged: the hooks take as long", skipped=True)
    bounds = "" if good else f"; not within {COPY_LOW} to {COPY_HIGH}"
    return Verdict(case.name, good, told + bounds)


def compare_shares(case: Case, plain: Observed, direct: list[Observed]) -> Verdict:
    shares = {
        observed.way: share_found(observed, case.cause, complete_requests(observed, case))
        for observed in (plain, *direct)
    }
    apart = max(shares.values()) - min(shares.values())
    note = ", ".join(f"{share:.2f} by {way}" for way, share in shares.items())
    return Verdict(case.name, apart <= SHARES_APART, f"of injected {note}")


def compare(by_way: dict[str, Observed], foreign: bool) -> list[Verdict]:
    """`foreign`: the kernel is for another processor than this machine's."""
    direct = [observed for way, observed in by_way.items() if way in ATTACHED_AS]
    if "none" not in by_way or not direct:
        return []
    plain = by_way["none"]
    verdicts = []
    for case in CASES:
        with_it = [observed for observed in direct if ran(observed, case)]
        if not with_it or not ran(plain, case):
            continue
        if case.copies_seen and case.long:
            verdicts.append(compare_copies(case, plain, with_it, foreign))
        if case.function and case.cause:
            verdicts.append(compare_shares(case, plain, with_it))
    return verdicts
