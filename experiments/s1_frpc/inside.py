"""Tables from captures of evaluations: breakdowns, the evaluation itself, page faults, outliers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import study
from study import breakdown, outliers
from study.capture import Row

# Sets of a run's requests: all, the middle half of latencies, and the slowest.
ALL, MIDDLE, SLOWEST = "all", "middle half", "slowest 1 %"
# Ends of the paths of measure's files.
INPUT, OUTPUT = "/input", "/output"


def evaluations(capture: study.Capture) -> list[Row]:
    """The runs of frpc, in order."""
    found = [
        request
        for request in capture.requests
        if request["kind"] == "exec" and (request["method"] or "").endswith("/frpc")
    ]
    if not all(request["complete"] for request in found):
        raise SystemExit("an evaluation is incomplete")
    return sorted(found, key=lambda request: request["start_ns"])


def sets(requests: list[Row]) -> dict[str, list[Row]]:
    ordered = sorted(requests, key=lambda request: request["latency_ns"])
    count = len(ordered)
    return {
        ALL: ordered,
        MIDDLE: ordered[count // 4 : count - count // 4],
        SLOWEST: ordered[-max(1, count // 100) :],
    }


class Found:
    """The tables of all captures."""

    def __init__(self):
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.outliers = outliers.Outliers(each=("mode",))

    def add(self, capture: study.Capture, requests: list[Row], labels: Row):
        """Adds a capture of evaluations of one mode."""
        chosen = sets(requests)
        for name, of in chosen.items():
            rows = breakdown.of(capture, of, phases=True, **labels, requests_of=name)
            self.tables["breakdown"] += rows
        if (labels["mode"], labels["linked"]) == (1, "dynamic"):
            self.tables["typical"] = time_line(capture, chosen[ALL][len(requests) // 2])
        if labels["linked"] == "dynamic":
            self.outliers.add(capture, requests, chosen[MIDDLE], **labels)
        own = list(capture.segments(chosen[MIDDLE], outliers.COLUMNS).values())
        labels = {**labels, "requests": len(own)}
        if labels["mode"] != 3:
            self.tables["evaluating"] += summed(map(evaluating, own), labels)
        self.tables["faults"] += faults(own, labels)
        self.tables["stretch"].append({**labels, **stretch(own)})

    def write(self, results: study.Results):
        for name, rows in {**self.tables, "outliers": self.outliers.rows()}.items():
            results.write(name, rows)


def time_line(capture: study.Capture, request: Row) -> list[Row]:
    """All segments of an evaluation."""
    names = ("duration_ns", "category", "side", "phase", "detail", "by", "evidence")
    found = capture.segments([request], ("start_ns", *names))[request["request_id"]]
    return [
        {"at_ns": s["start_ns"] - request["start_ns"], **{name: s[name] for name in names}}
        for s in found
    ]


def evaluating(segments: list[Row]) -> Iterator[Row]:
    """The segments from the end of the first read of the expression to the first write of the
    answer: modes 1 and 2."""
    within = False
    for s in segments:
        call, _, path = (s["detail"] or "").partition(" ")
        if call == "write" and path.endswith(OUTPUT):
            return
        if within:
            yield s
        within = within or (call == "read" and path.endswith(INPUT))


def stretch(requests: list[list[Row]]) -> Row:
    """The longest user time without a call or fault: its median, and its most frequent place."""
    longest_ns, places = [], Counter()
    for segments in requests:
        user = [place for place, s in enumerate(segments) if s["category"] == "user"]
        place = max(user, key=lambda place: segments[place]["duration_ns"])
        longest_ns.append(segments[place]["duration_ns"])
        calls = [s["detail"] for s in segments[:place] if s["category"].startswith("kernel.")]
        named = [call for call in calls if call and call != "entry and return"]
        places[segments[place]["phase"], named[-1] if named else ""] += 1
    (phase, after), often = places.most_common(1)[0]
    return {"user_ns": study.median(longest_ns), "phase": phase, "after": after, "often": often}


def summed(requests: Iterable[Iterable[Row]], labels: Row) -> list[Row]:
    """The sums by category."""
    sums: Counter[str] = Counter()
    for segments in requests:
        for s in segments:
            sums[s["category"]] += s["duration_ns"]
    return [{**labels, "category": name, "total_ns": ns} for name, ns in sums.most_common()]


def faults(requests: list[list[Row]], labels: Row) -> list[Row]:
    """The number of page faults in each phase."""
    found = Counter(
        s["phase"] for of in requests for s in of if (s["detail"] or "").endswith(" fault")
    )
    return [{**labels, "phase": phase, "faults": count} for phase, count in found.items()]
