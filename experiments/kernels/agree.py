"""Whether a workload looks the same without and with functions hooked themselves."""

from judge import Observed, Verdict


def compare(by_way: dict[str, Observed]) -> list[Verdict]:
    return []
