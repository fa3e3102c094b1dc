"""Examines openat() calls that wait for a commit, on one file system beside the other."""

import re
from pathlib import Path

from capture import Sample, ask
from judge import quantile

# The number of requests, those with the longest waits, that are examined segment by segment.
LOOKED_AT = 10
EXPLAINED = re.compile(r"commit of transaction (\d+) on \S+, in openat")
DEVICE = re.compile(r"its device (\d+) %")
# A thread that finds the journal full writes its contents to their place, and waits for the device.
ROOM = re.compile(r"(write of \d+ bytes|flush) .*in openat .*, to make room in the full journal$")


def journal_waits(rpcprobe: str, capture: Path, samples: list[Sample]) -> list[dict]:
    """The waits for the journal in the requests that waited longest for it."""
    met = [sample for sample in samples if sample.attributed(("journal",))]
    met.sort(key=lambda sample: sample.attributed(("journal",)), reverse=True)
    waits = []
    for sample in met[:LOOKED_AT]:
        explained = ask(rpcprobe, "explain", capture, sample.request["request_id"])
        waits += [s for s in explained["segments"] if s["category"] == "journal"]
    return waits


def look(rpcprobe: str, capture: Path, samples: list[Sample]) -> dict:
    latencies = [sample.latency_ns for sample in samples]
    journal = [ns for s in samples if (ns := s.attributed(("journal",)))]
    waits = journal_waits(rpcprobe, capture, samples)
    longest = max(waits, key=lambda wait: wait["duration_ns"], default=None)
    named = [w for w in waits if EXPLAINED.match(w["detail"] or "")]
    with_device = [w for w in named if DEVICE.search(w["cause"] or "")]
    room = [w for w in waits if ROOM.match(w["detail"] or "")]
    return {
        "latency_p50_ns": quantile(latencies, 0.5),
        "latency_p99_ns": quantile(latencies, 0.99),
        "latency_max_ns": max(latencies, default=0),
        "requests_n": len(samples),
        "waited_for_journal_n": len(journal),
        "journal_total_ns": sum(journal),
        "journal_max_ns": max(journal, default=0),
        "waits_looked_at_n": len(waits),
        "waits_named_n": len(named),
        "waits_with_device_n": len(with_device),
        "waits_for_room_n": len(room),
        "longest": longest and {k: longest[k] for k in ("duration_ns", "detail", "cause")},
    }


def failures_of(spike: dict) -> list[str]:
    """Each wait for the journal must name its transaction and its device's time, or the request
    that the waiting thread itself sent to the device."""
    explained = spike["waits_with_device_n"] + spike["waits_for_room_n"]
    lacking = spike["waits_looked_at_n"] - explained
    return [f"{lacking} waits for the journal lack transaction or device"] if lacking else []


ROWS = (
    ("requests", "requests_n", 1),
    ("latency p50, us", "latency_p50_ns", 1e3),
    ("latency p99, us", "latency_p99_ns", 1e3),
    ("latency max, us", "latency_max_ns", 1e3),
    ("requests that waited for the journal", "waited_for_journal_n", 1),
    ("waiting for the journal, in all, us", "journal_total_ns", 1e3),
    ("most in one request, us", "journal_max_ns", 1e3),
    ("longest waits looked at", "waits_looked_at_n", 1),
    ("that name their transaction", "waits_named_n", 1),
    ("and their device's time", "waits_with_device_n", 1),
    ("or their own write to make room", "waits_for_room_n", 1),
)


def tell(results: list[dict]):
    print("\nopenat() beside a writer that calls fsync():")
    print(f"{'':<38}" + "".join(f"{result['case']:>22}" for result in results))
    for name, key, unit in ROWS:
        values = "".join(f"{result['spike'][key] / unit:>22,.0f}" for result in results)
        print(f"{name:<38}{values}")
    for result in results:
        longest = result["spike"]["longest"]
        if longest:
            print(f"the longest wait of {result['case']}, {longest['duration_ns'] / 1e3:,.0f} us:")
            print(f"  {longest['detail']}")
            print(f"  because: {longest['cause']}")
    print()
