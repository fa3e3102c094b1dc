"""Runs the greeter with one client and two, without and with the probe."""

import re
import shutil
import sys
from pathlib import Path

from study import Capture, Study, breakdown, capture, quantile, rounds
from study.asked import asked
from study.capture import TARGETS, Row, read_log, shell
from study.labs import greeter as lab
from study.waits import behind

HERE = Path(__file__).resolve().parent
FOLDER = TARGETS / "greeter"
ATTEMPTS = 3
INNER = """
ip link set lo up
{server} {folder}/greeter_server --port 7400 --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 200); do grep -qs ready said && break; sleep 0.05; done
head -1 /proc/stat > stat
{client} {folder}/greeter_client --server localhost:7400 --clients {clients} --requests {requests} \\
    --log client.csv > figures
head -1 /proc/stat >> stat
trap - EXIT
kill $server
wait $server
"""
# Units to which latencies are truncated; the last is the report's.
UNITS_NS = (1, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
QUANTILES = [i / 100 for i in range(100)] + [0.995, 0.999, 1.0]


def measure(study: Study):
    calls = study.often(1000, 300)
    clients = (1, 2)
    tables: dict[str, list[Row]] = {}
    # (clients, calls of each, probe); a run of two calls measures the cost of starting and ending.
    arms = [(c, n, False) for c in clients for n in (calls, 1)]
    arms += [(c, calls, True) for c in clients]
    for number, (count, requests, probe) in rounds(arms, study.often(12, 3)):
        study.progress(f"round {number + 1}: {count} clients, {requests} calls, probe: {probe}")
        own = {"round": number, "clients": count, "probe": probe}
        if probe:
            probed(study, requests, own, tables)
        else:
            bare(study, requests, own, tables)
    for name, rows in tables.items():
        study.results.write(name, rows)


def script(folder: Path, clients: int, requests: int, timed: bool) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    by = {name: f"python3 {HERE}/timed.py {name}.cpu" * timed for name in ("server", "client")}
    inner = INNER.format(folder=FOLDER, clients=clients, requests=requests, **by)
    (folder / "inner.sh").write_text(inner)
    return f"unshare --net /bin/sh -e {folder}/inner.sh"


def bare(study: Study, requests: int, own: Row, tables: dict[str, list[Row]]):
    folder = study.scratch / "bare"
    shell(folder, script(folder, own["clients"], requests, timed=True))
    cpu = {
        f"{name}_cpu_ns": int((folder / f"{name}.cpu").read_text()) for name in ("server", "client")
    }
    if requests == 1:
        tables.setdefault("starts", []).append({**own, "calls": 2 * own["clients"], **cpu})
    else:
        of_run(folder, own, {**cpu, "before_ns": None, "after_ns": None, "retaken": 0}, tables)


def idle(folder: Path) -> tuple[int, int]:
    """Idle time and all time of the machine's CPUs while the client ran, in ticks."""
    before, after = ([int(n) for n in line.split()[1:9]] for line in (folder / "stat").open())
    spent = [b - a for a, b in zip(before, after)]
    return spent[3] + spent[4], sum(spent)


def of_run(folder: Path, own: Row, more: Row, tables: dict[str, list[Row]]):
    """Adds a row per run to `runs`, and a row per client and unit to `clients`."""
    log = read_log(folder / "client.csv")
    later = [line for line in log if line["request"]]
    latencies = [line["end_ns"] - line["begin_ns"] for line in later]
    whole_ns = max(line["end_ns"] for line in later) - min(line["begin_ns"] for line in later)
    idle_ticks, all_ticks = idle(folder)
    wall, untruncated, truncated = re.findall(
        r"([\d.]+|inf) by the (?:clock|sum)", (folder / "figures").read_text()
    )
    tables.setdefault("runs", []).append(
        {
            **own,
            "calls": len(later),
            **{f"p{p}_ns": int(quantile(latencies, p / 100)) for p in (50, 90, 99)},
            "max_ns": max(latencies),
            "total_ns": sum(latencies),
            "whole_ns": whole_ns,
            "idle_ticks": idle_ticks,
            "all_ticks": all_ticks,
            "printed_calls_per_ms": float(wall),
            "printed_untruncated_per_ms": float(untruncated),
            "printed_truncated_per_ms": float(truncated),
            **more,
        }
    )
    for client in sorted({line["client"] for line in log}):
        first, *others = [
            line["end_ns"] - line["begin_ns"] for line in log if line["client"] == client
        ]
        for unit_ns in UNITS_NS:
            tables.setdefault("clients", []).append(
                {
                    **own,
                    "client": client,
                    "first_ns": first,
                    "calls": len(others),
                    "unit_ns": unit_ns,
                    "truncated_ns": sum(ns // unit_ns * unit_ns for ns in others),
                }
            )
    if not own["probe"]:
        tables.setdefault("latencies", []).extend(
            {**own, "quantile": q, "latency_ns": quantile(latencies, q)} for q in QUANTILES
        )


def probed(study: Study, requests: int, own: Row, tables: dict[str, list[Row]]):
    folder = study.scratch / "probed"
    for attempt in range(ATTEMPTS):
        found = capture(folder, script(folder, own["clients"], requests, timed=False))
        calls = [r for r in found.requests if r["kind"] == "http2" and r["complete"]]
        pairs = asked(calls, found.log("client.csv"))
        if pairs and (own["clients"] > 1 or first_call(found, pairs, own, tables)):
            break
    else:
        sys.exit(f"{own}: no capture of {ATTEMPTS} has the calls of the log")
    later = [(request, line) for request, line in pairs if line["request"]]
    chosen = [request for request, _ in later]
    tables.setdefault("parts", []).extend(breakdown.of(found, chosen, **own))
    tables.setdefault("behind", []).extend(behind(found, chosen, **own))
    outside = {
        "before_ns": sum(request["start_ns"] - line["begin_ns"] for request, line in later),
        "after_ns": sum(line["end_ns"] - request["end_ns"] for request, line in later),
    }
    of_run(
        folder,
        own,
        {"server_cpu_ns": None, "client_cpu_ns": None, **outside, "retaken": attempt},
        tables,
    )
    if own["clients"] == 2:
        study.keep(found, "http2")


def first_call(found: Capture, pairs: list, own: Row, tables: dict[str, list[Row]]) -> bool:
    """Adds the first call's parts, by phase and kind. Returns false if they do not add up exactly
    to the client's stamps."""
    call, line = pairs[0]
    what = lab.outside(found, call, line)
    if what is None:
        return False
    phases = dict(what.sums)
    after = phases.pop("after it")
    inside = {kind: 0 for kind in lab.KINDS} | {"server": 0}
    for segment in found.segments([call])[call["request_id"]]:
        inside[lab.kind_of(segment)] += segment["duration_ns"]
        inside["server"] += segment["duration_ns"] * (segment["pid"] == call["server_pid"])
    phases |= {"the call": inside, "after it": after}
    total_ns = sum(sums[kind] for sums in phases.values() for kind in lab.KINDS)
    if total_ns != line["end_ns"] - line["begin_ns"]:
        return False
    rows = [
        {**own, "phase": phase, "kind": kind, "total_ns": sums[kind]}
        for phase, sums in phases.items()
        for kind in lab.KINDS
    ]
    rows += [
        {**own, "phase": phase, "kind": "(server's)", "total_ns": sums["server"]}
        for phase, sums in phases.items()
    ]
    tables.setdefault("first", []).extend(rows)
    tables.setdefault("first_behind", []).extend(
        {**own, "by": by, "total_ns": ns} for by, ns in what.had_cpu.items()
    )
    return True
