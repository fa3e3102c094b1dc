"""Runs every cell of the table, without and with the probe."""

import shutil
import sys
from collections import Counter

from study import Capture, Study, ab, capture, rounds
from study.asked import asked
from study.capture import Row, read_log, shell
from study.statistics import median, quantile
from study.waits import behind

import parts
import stamps
from workload import SYSTEMS, Arm, System, listen_overflows

ATTEMPTS = 3
# Longer than any request without a lost SYN (the kernel sends the next SYN after 1 s).
LOST_NS = 900_000_000
# The same kind of request on both sides: the two pools, and gRPC's two methods.
COMPARED = (SYSTEMS[:2], SYSTEMS[2:])
KINDS = {"socket": "tcp", "grpc": "http2"}


def measure(study: Study):
    clients = (1, 4, 5) if study.quick else (1, 2, 3, 4, 5)
    arms = [Arm(system, count) for system in SYSTEMS for count in clients]
    # The jump occurs with sockets; the report has it with either pool.
    arms += [Arm(SYSTEMS[0], count, short_backlog=True) for count in (4, 5)]
    runs, tables = [], {"parts": [], "behind": [], "pool": [], "locks": [], "lost": []}
    for number, arm in rounds(arms, study.often(3, 1)):
        study.progress(f"round {number + 1}: {arm.system.name}, {arm.clients} clients")
        runs.append(bare(study, number, arm, study.often(3000, 400)))
        if not arm.short_backlog:
            runs.append(probed(study, number, arm, captured(study), tables))
    arm = Arm(SYSTEMS[0], 5, short_backlog=True)
    runs.append(probed(study, 0, arm, study.often(2000, 200), tables))
    study.results.write("runs", runs)
    study.results.write("changes", [row for pair in COMPARED for row in changes(study, *pair)])
    for name, rows in tables.items():
        study.results.write(name, rows)


def changes(study: Study, a: System, b: System) -> list[Row]:
    """Compares two systems under five clients, in pairs of runs."""
    sides = []
    for system in (a, b):
        folder = study.scratch / f"{system.transport}-{system.threads}-{system.method}"
        script = Arm(system, 5).script(folder, captured(study))
        sides.append(["sh", "-ec", f"cd {folder}; rm -f said\n{script}"])
    study.progress(f"{a.name} against {b.name}")
    out = study.scratch / f"ab-{a.transport}"
    comparison = ab.compare(out, *sides, study.often(8, 2))
    return ab.changes(comparison, KINDS[a.transport], a=a.name, b=b.name)


def labels(number: int, arm: Arm) -> Row:
    return {
        "system": arm.system.name,
        "clients": arm.clients,
        "short_backlog": arm.short_backlog,
        "round": number,
    }


def bare(study: Study, number: int, arm: Arm, requests: int) -> Row:
    folder = study.scratch / "bare"
    shutil.rmtree(folder, ignore_errors=True)
    shell(folder, arm.script(folder, requests))
    log, served = read_log(folder / "client.csv"), read_log(folder / "server.csv")
    return {
        **labels(number, arm),
        "probe": False,
        **of_log(log, captured(study)),
        **stamps.of_log(served, arm.system.threads),
        "listen_overflows": listen_overflows(folder),
        "before_ns": None,
        "after_ns": None,
        "retaken": 0,
    }


def captured(study: Study) -> int:
    """The number of requests of each client with the probe."""
    return study.often(300, 60)


def of_log(log: list[Row], most: int) -> Row:
    """Sums over all requests. `later_*`: each client's requests except its first, up to `most`, the
    same number with and without the probe."""
    latencies = [line["end_ns"] - line["begin_ns"] for line in log]
    later = [line["end_ns"] - line["begin_ns"] for line in log if 0 < line["request"] < most]
    whole_ns = max(line["end_ns"] for line in log) - min(line["begin_ns"] for line in log)
    return {
        "requests": len(log),
        "total_ns": sum(latencies),
        "p50_ns": int(median(latencies)),
        "p99_ns": int(quantile(latencies, 0.99)),
        "max_ns": max(latencies),
        "lost_syns": sum(latency > LOST_NS for latency in latencies),
        "later_requests": len(later),
        "later_total_ns": sum(later),
        "whole_ns": whole_ns,
    }


def probed(study: Study, number: int, arm: Arm, requests: int, tables: dict[str, list]) -> Row:
    folder = study.scratch / "probed"
    for attempt in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        found = capture(folder, arm.script(folder, requests))
        kind = KINDS[arm.system.transport]
        calls = [r for r in found.requests if r["kind"] == kind and r["complete"]]
        log = found.log("client.csv")
        pairs = asked(calls, log)
        if pairs is not None:
            break
    else:
        sys.exit(f"{arm}: no capture of {ATTEMPTS} has a request for each line of the log")
    later = [(request, line) for request, line in pairs if line["request"]]
    own = labels(number, arm)
    if arm.short_backlog:
        tables["lost"] += lost(found, pairs, own)
    else:
        requests = [request for request, _ in later]
        tables["parts"] += parts.of(found, requests, own)
        tables["behind"] += behind(found, requests, **own)
        tables["pool"] += stamps.pool(found, arm.system, own)
        tables["locks"] += stamps.locks(found, arm.system, own)
        if arm.system.transport == "grpc" and arm.system.method == "Lookup" and arm.clients == 5:
            study.keep(found, "http2")
    return {
        **own,
        "probe": True,
        **of_log(log, captured(study)),
        **stamps.of_log(found.log("server.csv"), arm.system.threads),
        "listen_overflows": listen_overflows(folder),
        "before_ns": sum(request["start_ns"] - line["begin_ns"] for request, line in later),
        "after_ns": sum(line["end_ns"] - request["end_ns"] for request, line in later),
        "retaken": attempt,
    }


def lost(found: Capture, pairs: list[tuple[Row, Row]], own: Row) -> list[Row]:
    """What all requests waited for, and what requests waited for that only a lost SYN explains."""
    slow = [r for r, line in pairs if line["end_ns"] - line["begin_ns"] > LOST_NS]
    rows = []
    for which, requests in (("all", [r for r, _ in pairs]), ("lost SYN", slow)):
        sums: Counter = Counter()
        for segments in found.segments(requests).values():
            for s in segments:
                where = (s["detail"] or "").split(" tcp:")[0] if which == "lost SYN" else ""
                sums[s["category"], s["side"], where] += s["duration_ns"]
        for (category, side, where), total_ns in sums.most_common():
            part = {"category": category, "side": side, "where": where, "total_ns": total_ns}
            rows.append({**own, "which": which, "requests": len(requests), **part})
    return rows
