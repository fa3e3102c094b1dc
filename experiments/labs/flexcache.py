#!/usr/bin/env python3
"""flexcache on two 10 Mbit/s Ethernets: is each operation a tree of as many messages as expected?

An object server and the home of some objects run on one host, and a client runs on the other. The
messages of an operation in the client's log are the requests that rpcprobe found while the
operation ran. Checked are their number, the client and the server of each, and the parents of those
that a server made for the operation.
"""

from pathlib import Path

from lab import NETLAB, TARGETS, capture, check, main, p50, us

# Messages and their answers (targets/flexcache/README.md), outermost first.
MESSAGES = {
    "null": ["flexclient > objserver"],
    "invoke": ["flexclient > objserver"],
    "create": ["flexclient > process_cacher"],
    "validate": [
        "flexclient > consistency_cac",
        "consistency_cac > process_cacher",
    ],
    "cache": [
        "flexclient > consistency_cac",
        "consistency_cac > process_cacher",
        "flexclient > process_cacher",
    ],
    "read": [],
    "invalidate": [],
}
REQUESTS = 30

# Starts the servers, and a client that holds the object 1.1.0. $here runs a command on the client's
# host, $there on the server's.
START = f"""
for name in consistency_cacher process_cacher objserver flexclient; do
    ln -s {TARGETS}/flexcache/$name $name
done
pids=
trap 'kill $pids' EXIT
until_said() {{ for i in $(seq 100); do grep -qs "$2" "$1" && return; sleep 0.1; done; exit 3; }}
mkdir node0 node1
nodes=10.77.1.2:7302,10.77.2.2:7303
there="{NETLAB} in server $there"
$there ./consistency_cacher --dir node1 --port 7303 > home &
pids="$pids $!"
$here ./consistency_cacher --dir node0 --port 7302 > away &
pids="$pids $!"
$there ./objserver > objects &
pids="$pids $!"
until_said home ready; until_said away ready; until_said objects ready
$there ./flexclient --method create --requests 1 --node 1 --dir node1 --nodes $nodes --hold > held &
pids="$pids $!"
until_said held 'is done'
"""
# Options of each method's client.
OPTIONS = {
    "null": "--server 10.77.2.2:7301",
    "invoke": "--server 10.77.2.2:7301",
    "create": "--dir node0 --nodes $nodes",
    **dict.fromkeys(
        ["validate", "cache", "read", "invalidate"], "--dir node0 --nodes $nodes --object 1.1.0"
    ),
}


def ask(method: str, requests: int, log: str, *options: str) -> str:
    """The script's line that runs a client."""
    told = " ".join([f"--method {method} --requests {requests} --log {log}", *options])
    return f"$here ./flexclient {told} {OPTIONS[method]}\n"


def messages(calls: list[dict], row: dict) -> list[dict]:
    """The messages of an operation of the client's log, outermost first."""
    during = [c for c in calls if row["begin_ns"] <= c["start_ns"] < row["end_ns"]]
    return sorted(during, key=lambda c: (c["start_ns"], -c["latency_ns"]))


def who(call: dict) -> str:
    return f"{call['client_comm']} > {call['server_comm']}"


def is_right(method: str, found: list[dict]) -> bool:
    """Returns whether an operation has the expected messages, and the inner ones have the client's
    as parent."""
    asked_by = {call["request_id"]: call["client_comm"] for call in found}
    inner = [call for call in found if call["client_comm"] == "consistency_cac"]
    linked = all(asked_by.get(call["parent_request_id"]) == "flexclient" for call in inner)
    return sorted(map(who, found)) == sorted(MESSAGES[method]) and linked


def lab(rpcprobe: str, scratch: Path) -> bool:
    asks = (ask(method, REQUESTS, f"{method}.csv") for method in MESSAGES)
    (scratch / "inner.sh").write_text(START + "".join(asks))
    script = f"{NETLAB} routed -- /bin/sh -e {scratch}/inner.sh"
    found = capture(rpcprobe, scratch / "flexcache", script)
    calls = [request for request in found.requests if request["kind"] == "oncrpc"]

    print("flexcache, two Ethernets of 10 Mbit/s: messages of each operation")
    print(
        f"  {'operation':12}{'log':>5}{'messages':>10}{'should be':>11}{'p50':>12}  who asks whom"
    )
    good = True
    for method, expected in MESSAGES.items():
        # The log also has other operations before the method's own, which come last, once the
        # client has a copy.
        log = [row for row in found.log(f"{method}.csv") if row["method"] == method]
        of_each = [messages(calls, row) for row in log]
        right = sum(is_right(method, each) for each in of_each)
        good &= right == len(log) == REQUESTS
        seen = sorted({tuple(map(who, each)) for each in of_each})
        said = "; ".join(", ".join(names) or "none" for names in seen)
        numbers = "/".join(sorted({str(len(names)) for names in seen}))
        took = us(p50(row["end_ns"] - row["begin_ns"] for row in log))
        print(f"  {method:12}{len(log):>5}{numbers:>10}{len(expected):>11}{took:>12}  {said}")
    whole = check("every request is complete", all(c["complete"] for c in calls))
    return (
        check("each operation has its messages, those of a server below the client's", good)
        and whole
    )


if __name__ == "__main__":
    main(__doc__, lab)
