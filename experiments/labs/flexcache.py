#!/usr/bin/env python3
"""flexcache on two 10 Mbit/s Ethernets: is each operation a tree of as many messages as it should be?

An object server and the home of some objects on one host, a client on the other. The messages of each
operation of the client's log are the requests that rpcprobe found while it ran: their number, who asked
whom, and which was asked for the sake of which.
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

SCRIPT = """
pids=
trap 'kill $pids' EXIT
until_said() { for i in $(seq 100); do grep -qs "$2" "$1" && return; sleep 0.1; done; exit 3; }
mkdir node0 node1
nodes=10.77.1.2:7302,10.77.2.2:7303
"$netlab" in server ./consistency_cacher --dir node1 --port 7303 > home &
pids="$pids $!"
./consistency_cacher --dir node0 --port 7302 > away &
pids="$pids $!"
"$netlab" in server ./objserver > objects &
pids="$pids $!"
until_said home ready; until_said away ready; until_said objects ready
"$netlab" in server ./flexclient --method create --requests 1 --node 1 --dir node1 \
    --nodes $nodes --hold > held &
pids="$pids $!"
until_said held 'is done'
for method in null invoke; do
    ./flexclient --method $method --server 10.77.2.2:7301 --requests $REQUESTS --log $method.csv
done
./flexclient --method create --requests $REQUESTS --dir node0 --nodes $nodes --log create.csv
for method in validate cache read invalidate; do
    ./flexclient --method $method --requests $REQUESTS --object 1.1.0 --dir node0 \
        --nodes $nodes --log $method.csv
done
"""


def lab(rpcprobe: str, scratch: Path) -> bool:
    folder = scratch / "flexcache"
    names = ["consistency_cacher", "process_cacher", "objserver", "flexclient"]
    setting = f"netlab={NETLAB} REQUESTS={REQUESTS}\n"
    links = "".join(f"ln -s {TARGETS / 'flexcache' / name} {name}\n" for name in names)
    inner = setting + links + SCRIPT
    (folder.parent / "inner.sh").write_text(inner)
    found = capture(rpcprobe, folder, f"{NETLAB} routed -- /bin/sh -e {scratch}/inner.sh")
    calls = [request for request in found.requests if request["kind"] == "oncrpc"]

    print("flexcache, two Ethernets of 10 Mbit/s: messages of each operation")
    print(
        f"  {'operation':12}{'log':>5}{'messages':>10}{'should be':>11}{'p50':>12}  who asks whom"
    )
    good = True
    for method, expected in MESSAGES.items():
        # Those of several of each operation: the method's own come last, once it has a copy.
        log = [row for row in found.log(f"{method}.csv") if row["method"] == method]
        right = 0
        seen: set[tuple[str, ...]] = set()
        for row in log:
            during = [c for c in calls if row["begin_ns"] <= c["start_ns"] < row["end_ns"]]
            asked = sorted(during, key=lambda c: (c["start_ns"], -c["latency_ns"]))
            names = [f"{c['client_comm']} > {c['server_comm']}" for c in asked]
            seen.add(tuple(names))
            asked_by = {c["request_id"]: c["client_comm"] for c in during}
            inner = [c for c in during if c["client_comm"] == "consistency_cac"]
            linked = all(asked_by.get(c["parent_request_id"]) == "flexclient" for c in inner)
            right += sorted(names) == sorted(expected) and linked
        good &= right == len(log) == REQUESTS
        said = "; ".join(", ".join(names) or "none" for names in sorted(seen))
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
