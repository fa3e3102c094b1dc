#!/usr/bin/env python3
"""greeter: where does a first call's time go that later ones do not need?

Each client makes a first call, which includes the connection, and then others. The client's log says when; rpcprobe
says what the client's and the server's processes did meanwhile: the call itself, and before it, between the client's
stamp and the window of the call, name resolution, the connection and HTTP/2's settings, with the page faults of code
that runs for the first time.
"""

from pathlib import Path

from lab import TARGETS, capture, check, main, p50, us

FOLDER = TARGETS / "greeter"
SCRIPT = f"""
{FOLDER}/greeter_server --port 18311 --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 100); do grep -qs ready said && break; sleep 0.1; done
{FOLDER}/greeter_client --server 127.0.0.1:18311 --requests 300 --log client.csv
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
    print(
        f"  of the {us(whole_ns)} more: {before_ns / whole_ns:.0%} before the window (name resolution, connection, settings),"
    )
    print(
        f"  {(whole_ns - before_ns - after_ns) / whole_ns:.0%} in it, {after_ns / whole_ns:.0%} after it"
    )
    faults = calls[0]["fault"] or 0
    return check(
        f"the first call has page faults of first use ({us(faults)})",
        faults > 5 * p50(c["fault"] or 0 for c in calls[1:]),
    )


if __name__ == "__main__":
    main(__doc__, lab)
