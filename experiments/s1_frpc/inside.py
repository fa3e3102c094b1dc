"""What captures of evaluations tell: breakdowns, the evaluation itself, outliers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import study
from study import breakdown
from study.capture import Row

# Sets of a run's requests: all, the middle half of latencies, and the slowest.
ALL, MIDDLE, SLOWEST = "all", "middle half", "slowest 1 %"
OUTLIERS = 5
# What is kept of an outlier: so many parts that are larger than in the middle half.
PARTS = 4
COLUMNS = ("duration_ns", "category", "side", "phase", "detail", "cause", "by")
# The files of measure, which end so.
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
    """Tables of all captures."""

    def __init__(self):
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.outliers: dict[int, list[Row]] = defaultdict(list)

    def add(self, capture: study.Capture, requests: list[Row], labels: Row):
        """A capture of evaluations of one mode; in order of time."""
        chosen = sets(requests)
        for name, of in chosen.items():
            rows = breakdown.of(capture, of, phases=True, **labels, requests_of=name)
            self.tables["breakdown"] += rows
        middle, slowest = chosen[MIDDLE], chosen[ALL][-OUTLIERS:]
        segments = capture.segments([*middle, *slowest], COLUMNS)
        own = [segments[request["request_id"]] for request in middle]
        labels = {**labels, "requests": len(own)}
        if labels["mode"] != 3:
            self.tables["evaluating"] += summed(map(evaluating, own), labels)
        self.tables["faults"] += faults(own, labels)
        longest_ns = [max(s["duration_ns"] for s in of if s["category"] == "user") for of in own]
        self.tables["stretch"].append({**labels, "user_ns": study.median(longest_ns)})
        if labels["linked"] == "dynamic":
            typical = parts([s for of in own for s in of], len(own))
            for request in slowest:
                more = parts(segments[request["request_id"]], 1)
                more = {
                    key: (ns - typical.get(key, (0, ""))[0], who) for key, (ns, who) in more.items()
                }
                self.outliers[labels["mode"]].append(
                    {
                        "mode": labels["mode"],
                        "round": labels["round"],
                        "place": requests.index(request),
                        "latency_ns": request["latency_ns"],
                        "typical_ns": round(sum(ns for ns, _ in typical.values())),
                        "more": more,
                    }
                )

    def write(self, results: study.Results):
        for mode in sorted(self.outliers):
            ordered = sorted(self.outliers[mode], key=lambda row: -row["latency_ns"])
            for rank, row in enumerate(ordered[:OUTLIERS], 1):
                more = row.pop("more")
                largest = sorted(more.items(), key=lambda item: -item[1][0])[:PARTS]
                self.tables["outliers"] += [
                    {
                        **row,
                        "rank": rank,
                        "phase": phase,
                        "category": category,
                        "side": side,
                        "who": who,
                        "more_ns": round(ns),
                    }
                    for (phase, category, side), (ns, who) in largest
                ]
        for name, rows in self.tables.items():
            results.write(name, rows)


def parts(segments: Iterable[Row], count: int) -> dict[tuple, tuple[float, str]]:
    """By phase, category and side: nanoseconds of each of `count` requests, and who or what has most of them."""
    sums: dict[tuple, Counter] = defaultdict(Counter)
    for s in segments:
        who = (s["by"] or "").rpartition("/")[0] or s["cause"] or s["detail"] or ""
        sums[s["phase"], s["category"], s["side"]][who] += s["duration_ns"]
    return {
        key: (sum(named.values()) / count, named.most_common(1)[0][0])
        for key, named in sums.items()
    }


def evaluating(segments: list[Row]) -> Iterator[Row]:
    """From the end of the first read of the expression to the first write of the answer: modes 1 and 2."""
    within = False
    for s in segments:
        call, _, path = (s["detail"] or "").partition(" ")
        if call == "write" and path.endswith(OUTPUT):
            return
        if within:
            yield s
        within = within or (call == "read" and path.endswith(INPUT))


def summed(requests: Iterable[Iterable[Row]], labels: Row) -> list[Row]:
    """By category."""
    sums: Counter[str] = Counter()
    for segments in requests:
        for s in segments:
            sums[s["category"]] += s["duration_ns"]
    return [{**labels, "category": name, "total_ns": ns} for name, ns in sums.most_common()]


def faults(requests: list[list[Row]], labels: Row) -> list[Row]:
    """How many page faults there are in each phase."""
    found = Counter(
        s["phase"] for of in requests for s in of if (s["detail"] or "").endswith(" fault")
    )
    return [{**labels, "phase": phase, "faults": count} for phase, count in found.items()]
