"""Numbers from the tables: figures of runs, and parts of operations."""

from collections.abc import Sequence
from typing import Any

import study

Row = dict[str, Any]
# The report's times.
REPORTED_NS = {
    "invoke_udp": 2_700_000,
    "read": 20_000,
    "create": 3_800_000,
    "validate": 6_200_000,
    "cache": 8_000_000,
}
NAMES = {
    "null_udp": "null RPC, UDP",
    "null_tcp": "null RPC, TCP",
    "invoke_udp": "null proxy invocation, UDP",
    "invoke_tcp": "null proxy invocation, TCP",
    "read": "invocation on a cached object",
    "create": "create a cacheable object",
    "validate": "validate an object copy",
    "cache": "cache an object copy",
    "invalidate": "invalidation",
}
REMOTE = ("null_udp", "null_tcp", "invoke_udp", "invoke_tcp", "validate", "cache")
LOCAL_CALL, NO_CALL = ("create",), ("read", "invalidate")
RATE, ETHERNETS = 10e6, 2


class Facts:
    def __init__(self, results: study.Results):
        self.changes = results.read("changes")
        self.requests = results.read("requests")
        self.messages = results.read("messages")
        self.parts = results.read("parts")
        self.calls = results.read("calls")
        self.timeline = results.read("timeline")
        self.machine = results.read("machine")[0]
        self.rounds = len({row["round"] for row in self.requests})

    def of_runs(self, operation: str, line: str = "quiet", arm: str = "bare") -> list[float]:
        """Each run's median of the operation, in order of the rounds; `line` may be `any`."""
        found: dict[int, list[int]] = {}
        for row in self.requests:
            if (row["operation"], row["arm"]) == (operation, arm) and line in ("any", row["line"]):
                found.setdefault(row["round"], []).append(row["took_ns"])
        return [study.median(found[number]) for number in sorted(found)]

    def median(self, operation: str, line: str = "quiet", arm: str = "bare") -> float:
        return study.median(self.of_runs(operation, line, arm))

    def difference(self, less: str, more: str, line: str) -> tuple[float, float, float]:
        """The excess time of one operation over another: median over rounds without the probe, 95 %
        interval."""
        pairs = zip(self.of_runs(less, line), self.of_runs(more, line))
        longer = [second - first for first, second in pairs]
        return study.median(longer), *study.interval(longer)

    def part(self, operation: str, line: str = "quiet") -> list[Row]:
        return [row for row in self.parts if row["operation"] == operation and row["line"] == line]

    def count(self, operation: str, line: str = "quiet") -> int:
        """The number of probed operations. Each has a breakdown of the time in no request, besides
        those by transport."""
        rows = [row for row in self.part(operation, line) if row["transport"] == ""]
        return sum({row["round"]: row["requests"] for row in rows}.values())

    def mean(self, operation: str, line: str = "quiet", **begins: str) -> float:
        """The mean time per probed operation in parts whose columns begin with these values."""
        chosen = [
            row["total_ns"]
            for row in self.part(operation, line)
            if all(row[name].startswith(value) for name, value in begins.items())
        ]
        return sum(chosen) / self.count(operation, line)

    def frames(self, operation: str) -> tuple[int, int]:
        """Frame sizes in bytes of the operation's remote request and of the answer."""
        row = next(
            row
            for row in self.calls
            if row["operation"] == operation and row["transport"] in ("udp", "tcp")
        )
        return round(row["request_frame_bytes"]), round(row["response_frame_bytes"])

    def serialised_ns(self, operation: str) -> float:
        """The time of the operation's frames on both Ethernets, one after the other."""
        return sum(self.frames(operation)) * 8 / RATE * 1e9 * ETHERNETS

    def call(self, operation: str, who: str, line: str = "quiet") -> float:
        """The median over runs of the request's median latency."""
        rows = [
            row["median_ns"]
            for row in self.calls
            if (row["operation"], row["line"], row["who"]) == (operation, line, who)
        ]
        return study.median(rows)

    def tree(self, operation: str, line: str = "quiet") -> Sequence[Row]:
        """The operation's requests, in order of their begins."""
        rows = [r for r in self.calls if r["operation"] == operation and r["line"] == line]
        return list({row["who"]: row for row in rows}.values())
