#!/usr/bin/env python3
"""greeter: why does a first call take longer than later calls?

The client makes a first call, which includes the connection, and then others. The client's log says
when; rpcprobe says what happened in that time. Within the call's window, this is the call's own
time line. Before and after the window, up to the client's stamps, it is the time line of the
client's process, which is a request, too (exec): its critical path, which also leads through the
server's threads. System calls on that path mark where name resolution, the connection and HTTP/2's
settings begin.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lab import TARGETS, Capture, capture, check, main, p50, us

FOLDER = TARGETS / "greeter"
SCRIPT = f"""
{FOLDER}/greeter_server --port 18311 --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 100); do grep -qs ready said && break; sleep 0.1; done
{FOLDER}/greeter_client --server localhost:18311 --requests 300 --log client.csv
"""
SHOWN = (
    "user",
    "fault",
    "kernel.tcp",
    "kernel.mm",
    "lock",
    "queue.accept",
    "runqueue.wakeup",
    "idle.peer",
)

# The phases in order, with the system calls that identify some of them.
PHASES = (
    ("the channel", None),
    ("name resolution", r"/etc/(resolv.conf|nsswitch.conf|hosts)|connect udp:"),
    ("the connection", r"connect tcp:"),
    ("HTTP/2's settings", None),
    ("the call is made", None),
)
KINDS = {
    "user": ("user",),
    "page faults": ("fault",),
    "system calls": ("kernel.", "copy", "wire."),
    "disk": ("block_io",),
    "no CPU": ("runqueue.",),
    "interrupts": ("interrupt", "steal"),
    "waits": ("idle.", "lock", "sleep", "queue.", "journal", "writeback"),
    "unattributed": ("unattributed",),
}


def kind_of(segment: dict) -> str:
    if "in a page fault" in (segment["detail"] or ""):
        return "page faults"
    return next(k for k, starts in KINDS.items() if segment["category"].startswith(starts))


def clipped(segments: list[dict], from_ns: int, to_ns: int) -> list[tuple[int, int, dict]]:
    parts = [
        (max(s["start_ns"], from_ns), min(s["start_ns"] + s["duration_ns"], to_ns), s)
        for s in segments
    ]
    return [(begin_ns, end_ns, s) for begin_ns, end_ns, s in parts if begin_ns < end_ns]


def phases(parts: list[tuple[int, int, dict]], client: int) -> list[tuple[str, int]]:
    """The phases before the call's window: their names, and when each ends."""
    own = [(begin, end, s["detail"] or "") for begin, end, s in parts if s["pid"] == client]

    def first(what: str) -> tuple[int, int]:
        found = [(begin, end) for begin, end, detail in own if re.search(what, detail)]
        return (found[0][0], found[-1][1]) if found else (0, 0)

    end_ns = parts[-1][1]
    resolves_ns, connects = first(PHASES[1][1])[0], first(PHASES[2][1])
    heard = [end for begin, end, detail in own if "recvmsg tcp" in detail and begin >= connects[1]]
    borders = (resolves_ns, connects[0], connects[1], heard[0] if heard else end_ns, end_ns)
    return [(name, border) for (name, _), border in zip(PHASES, borders)]


@dataclass
class Outside:
    """A first call's time outside of its window. `sums`: by phase and kind, in order of time
    (`server`: the part in the server's threads). `had_cpu`: the time without a CPU, by the task
    that had it. `borders`: of the phases before."""

    sums: dict[str, Counter]
    had_cpu: Counter
    borders: list[int]


def outside(found: Capture, call: dict, line: dict) -> Outside | None:
    """Computes the times outside of the call's window; None if the client's process is not a
    request."""
    program = [r for r in found.requests if (r["method"] or "").endswith("/greeter_client")]
    if len(program) != 1:
        return None
    segments = found.segments(program)[program[0]["request_id"]]
    before = clipped(segments, line["begin_ns"], call["start_ns"])
    ends = phases(before, call["client_pid"])
    sums: dict[str, Counter] = {name: Counter() for name, _ in [*ends, ("after it", 0)]}
    had_cpu: Counter = Counter()
    spans = [*zip([line["begin_ns"], *(end_ns for _, end_ns in ends)], ends)]
    spans.append((call["end_ns"], ("after it", line["end_ns"])))
    for from_ns, (name, to_ns) in spans:
        for begin_ns, end_ns, segment in clipped(segments, from_ns, to_ns):
            kind = kind_of(segment)
            sums[name][kind] += end_ns - begin_ns
            if segment["pid"] == call["server_pid"]:
                sums[name]["server"] += end_ns - begin_ns
            if kind == "no CPU":
                had_cpu[(segment["by"] or "unknown").split("/")[0]] += end_ns - begin_ns
    return Outside(sums, had_cpu, [line["begin_ns"], *(end_ns for _, end_ns in ends)])


def split(found: Capture, call: dict, line: dict) -> bool:
    """Prints and checks the times outside of the first call's window."""
    what = outside(found, call, line)
    if not check("the client's process is a request", what is not None):
        return False
    sums, had_cpu, borders = what.sums, what.had_cpu, what.borders
    shown = [kind for kind in KINDS if any(row[kind] for row in sums.values())]
    print("  outside of the first call's window, us:")
    print(f"  {'':20}{'all':>9}" + "".join(f"{kind:>14}" for kind in [*shown, "(server's)"]))
    for name, row in sums.items():
        whole_ns = sum(row[kind] for kind in KINDS)
        columns = "".join(f"{row[kind] / 1e3:>14,.1f}" for kind in [*shown, "server"])
        print(f"  {name:20}{whole_ns / 1e3:>9,.1f}{columns}")
    who = ", ".join(f"{name} {us(ns)}" for name, ns in had_cpu.most_common(4))
    print(f"  who had the CPU meanwhile: {who or 'nobody else'}")
    total_ns = sum(row[kind] for row in sums.values() for kind in KINDS)
    outside_ns = call["start_ns"] - line["begin_ns"] + line["end_ns"] - call["end_ns"]
    faults_ns = sum(row["page faults"] for row in sums.values())
    unknown_ns = sum(row["unattributed"] for row in sums.values())
    # A thread that is not waited for may receive the settings: then the call follows at once.
    begun = all(sum(sums[name][kind] for kind in KINDS) > 0 for name, _ in PHASES[:4])
    return all(
        [
            check(f"that is all of it, to the nanosecond: {total_ns:,} ns", total_ns == outside_ns),
            check(
                "name resolution, connection and settings are found, one after another",
                begun and borders == sorted(borders),
            ),
            check(f"page faults of first use: {us(faults_ns)}", faults_ns > 0),
            check(f"at most 1 % unattributed: {us(unknown_ns)}", unknown_ns <= 0.01 * outside_ns),
        ]
    )


def lab(rpcprobe: str, scratch: Path) -> bool:
    found = capture(rpcprobe, scratch / "greeter", SCRIPT)
    log = found.log("client.csv")
    calls = [r for r in found.requests if r["kind"] == "http2" and r["complete"]]
    calls.sort(key=lambda call: call["start_ns"])
    if not check("every call of the log is found", len(calls) == len(log)):
        return False
    print(f"  {'':24}{'first call':>14}{'later, p50':>14}{'once more':>14}")

    def row(name: str, of):
        first, later = of(calls[0], log[0]), p50(map(of, calls[1:], log[1:]))
        print(f"  {name:24}{us(first):>14}{us(later):>14}{us(first - later):>14}")
        return first - later

    whole_ns = row("client's stamps", lambda call, line: line["end_ns"] - line["begin_ns"])
    before_ns = row(
        "before the call's window", lambda call, line: call["start_ns"] - line["begin_ns"]
    )
    row("the call's window", lambda call, line: call["latency_ns"])
    after_ns = row("after it", lambda call, line: line["end_ns"] - call["end_ns"])
    inside_ns = 0
    for category in SHOWN:
        inside_ns += row(f"  {category}", lambda call, line, name=category: call[name] or 0)
    print(f"  of the {us(whole_ns)} more: {before_ns / whole_ns:.0%} before the window,")
    print(
        f"  {(whole_ns - before_ns - after_ns) / whole_ns:.0%} in it, {after_ns / whole_ns:.0%} after it"
    )
    faults = calls[0]["fault"] or 0
    good = check(
        f"the first call has page faults of first use in its window, too ({us(faults)})",
        faults > 5 * p50(c["fault"] or 0 for c in calls[1:]),
    )
    return split(found, calls[0], log[0]) and good


if __name__ == "__main__":
    main(__doc__, lab)
