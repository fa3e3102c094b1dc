#!/usr/bin/env python3
"""stockbazaar: how long does a request wait for a thread of the pool, and how long for the lock?

Sockets, two threads: the server's log says when it accepted a connection and when a thread of the
pool began to serve it, and so whether that thread was busy when the request came. The script prints
what rpcprobe shows between these two stamps, once the client has sent: queue.* while the thread was
busy; while it was free, the time that it needs to start (it is woken, waits for a CPU, or waits for
the interpreter's lock). With lookups that take milliseconds, queue.* must be the time between the
stamps.

Sockets and gRPC, with trades: `lock` must be the time that the server waited for the market's lock
by its own log, whether the lock is held long or not. With sockets, `lock` of the whole request
counts; with gRPC, `lock` between the server's stamps of the request's begin and end.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from lab import TARGETS, Capture, capture, check, main, total, us

FOLDER = TARGETS / "stockbazaar"
SCRIPT = """
python={python}; cd {folder}
$python server.py --port 0 --threads 2 --log "$0/server.csv" {server} > "$0/said" &
server=$!
trap 'kill $server' EXIT
for i in $(seq 200); do grep -qs ready "$0/said" && break; sleep 0.1; done
port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' "$0/said")
$python client.py --port $port --requests {requests} {client} --log "$0/client.csv"
"""


# Other time between the server's stamps, or in queue.* outside of them, is Python's path from
# accept() to the stamp and from the stamp to the read: some 20 us each, if the thread keeps its
# CPU.
LOOKUP_US, LIMIT_PERCENT = 5000, 2
# Shorter waits may also be for the interpreter's lock.
LONG_NS = 100_000


def run(rpcprobe: str, folder: Path, requests: int, client: str, server: str = "") -> Capture:
    python = "python3" if "grpc" not in client else FOLDER / ".venv/bin/python"
    script = SCRIPT.format(
        python=python, folder=FOLDER, requests=requests, client=client, server=server
    )
    return capture(rpcprobe, folder, script)


def served(found: Capture) -> list[tuple[dict, dict]]:
    """Pairs requests with the server's log lines: a thread answers one request after another."""
    requests, lines = defaultdict(list), defaultdict(list)
    for request in found.requests:
        if request["kind"] == "tcp" and request["complete"]:
            requests[request["server_tid"]].append(request)
    for line in found.log("server.csv"):
        lines[line["thread"]].append(line)
    pairs = []
    for own in lines.values():
        own.sort(key=lambda line: line["start_ns"])
        fitting = []
        for thread, theirs in requests.items():
            matched = match(own, theirs) if len(own) == len(theirs) else []
            if len(matched) == len(own):
                apart_ns = sum(abs(r["end_ns"] - line["end_ns"]) for r, line in matched)
                fitting.append((apart_ns, thread, matched))
        # If requests wait for long, the lines of another thread with as many requests may fit, too.
        if fitting:
            _, thread, matched = min(fitting, key=lambda fit: fit[0])
            pairs += matched
            del requests[thread]
    return pairs


def match(lines: list[dict], requests: list[dict]) -> list[tuple[dict, dict]]:
    """Pairs each line, in order, with the request in flight at that time that ends first."""
    pairs, left = [], list(requests)
    for line in lines:
        under_way = [r for r in left if r["start_ns"] <= line["start_ns"] <= r["end_ns"]]
        if not under_way:
            return []
        first = min(under_way, key=lambda request: request["end_ns"])
        left.remove(first)
        pairs.append((first, line))
    return pairs


def pool(rpcprobe: str, scratch: Path, clients: int) -> bool:
    asked = 300
    found = run(rpcprobe, scratch / f"pool{clients}", asked, f"--method Lookup --clients {clients}")
    pairs = served(found)
    segments = found.segments([request for request, _ in pairs])
    accept_ns = total([request for request, _ in pairs], "queue.accept") if pairs else 0
    latency_ns = sum(request["latency_ns"] for request, _ in pairs)
    print(f"stockbazaar, Lookup by sockets, pool of 2, {clients} client(s), a request on average")
    if not check(
        "every request is in the server's log and in rpcprobe's", len(pairs) == clients * asked
    ):
        return False
    print(
        f"  latency {us(latency_ns / len(pairs))}, of it {us(accept_ns / len(pairs))} queue.accept"
    )
    free_ns: dict[str, int] = {}
    sums = {True: Wait(), False: Wait()}
    for request, line in sorted(pairs, key=lambda pair: pair[1]["start_ns"]):
        arrival_ns, start_ns = line["arrival_ns"], line["start_ns"]
        busy = free_ns.get(line["thread"], 0) > arrival_ns
        free_ns[line["thread"]] = line["end_ns"]
        sums[busy].add(segments[request["request_id"]], arrival_ns, start_ns)
    good = True
    for busy, wait in sums.items():
        if wait.requests < 30 or not wait.there_ns:
            continue
        who = "while its thread was busy" if busy else "while its thread was free"
        print(f"  {wait.requests} came {who}: accepted to begun, by the server's stamps,")
        print(f"  {us(wait.ns / wait.requests)}; since the client had sent, by rpcprobe:")
        for name, ns in wait.parts.most_common(6):
            print(f"    {ns / wait.there_ns:6.1%}  {us(ns / wait.requests):>12}  {name}")
        queued = wait.queued_ns() / wait.there_ns
        known = wait.parts["unattributed"] <= 0.01 * wait.there_ns
        good &= check(f"queue.* {queued:.1%}, at most 1 % unattributed", known)
    return good


def slow_pool(rpcprobe: str, scratch: Path) -> bool:
    """Compares a request's wait for a thread with all of its queue.*, when threads are scarce."""
    asked, clients = 100, 5
    what = f"--method Lookup --clients {clients}"
    found = run(rpcprobe, scratch / "slow", asked, what, f"--lookup-us {LOOKUP_US}")
    pairs = served(found)
    print(
        f"stockbazaar, Lookup by sockets that takes {LOOKUP_US / 1000:g} ms, pool of 2, "
        f"{clients} clients"
    )
    if not check(
        "every request is in the server's log and in rpcprobe's", len(pairs) == clients * asked
    ):
        return False
    segments = found.segments([request for request, _ in pairs])
    waited_ns, queued_ns, rest_ns = [], [], []
    for request, line in pairs:
        own = segments[request["request_id"]]
        # The client may lose its CPU between connect() and send(): then the server has a
        # connection, but no request.
        sent_ns = min(s["start_ns"] for s in own if s["side"] != "client")
        wait = Wait()
        wait.add(own, max(line["arrival_ns"], sent_ns), line["start_ns"])
        waited_ns.append(line["start_ns"] - line["arrival_ns"])
        queued_ns.append(total([request], "queue."))
        rest_ns.append(max(wait.ns, 0) - wait.queued_ns())
    mean_ns = sum(waited_ns) / len(pairs)
    limit_ns = mean_ns * LIMIT_PERCENT / 100
    print(f"  accepted to begun, by the server's stamps {us(mean_ns):>12}, a request on average")
    print(f"  queue.*, by rpcprobe                      {us(sum(queued_ns) / len(pairs)):>12}")
    print(f"  of each request{'p50':>45}{'p99':>12}{'most':>12}")
    apart_ns = [abs(queued - waited) for queued, waited in zip(queued_ns, waited_ns)]
    for name, each_ns in (
        ("apart", apart_ns),
        ("between the stamps, once sent, not queue.*", rest_ns),
    ):
        each_ns.sort()
        shown = "".join(f"{us(each_ns[int(s * (len(each_ns) - 1))]):>12}" for s in (0.5, 0.99, 1))
        print(f"    {name:44}{shown}")
    off = (sum(queued_ns) - sum(waited_ns)) / sum(waited_ns) * 100
    near = sum(ns <= limit_ns for ns in rest_ns) / len(rest_ns)
    return all(
        [
            check(
                f"the sums are within {LIMIT_PERCENT} %: {off:+.2f} %", abs(off) <= LIMIT_PERCENT
            ),
            check(
                f"of 99 % of requests, at most {LIMIT_PERCENT} % of the mean wait is not queue.*: {near:.1%}",
                near >= 0.99,
            ),
        ]
    )


@dataclass
class Wait:
    """The time from the server's accept to a thread's begin; `there_ns`: the part after the client
    had sent."""

    requests: int = 0
    ns: int = 0
    there_ns: int = 0
    parts: Counter = field(default_factory=Counter)

    def add(self, segments: list[dict], from_ns: int, to_ns: int):
        self.requests += 1
        self.ns += to_ns - from_ns
        for segment in segments:
            begin_ns = max(segment["start_ns"], from_ns)
            end_ns = min(segment["start_ns"] + segment["duration_ns"], to_ns)
            if begin_ns < end_ns and segment["side"] != "client":
                self.parts[segment["category"]] += end_ns - begin_ns
                self.there_ns += end_ns - begin_ns

    def queued_ns(self) -> int:
        return sum(ns for name, ns in self.parts.items() if name.startswith("queue."))


METHODS = (
    ("Lookup", "--method Lookup", ""),
    ("Trade", "--method Trade", ""),
    ("Trade, lock held 2 ms longer", "--method Trade", "--settle-us 2000"),
)


def within(segments: list[dict], line: dict) -> list[dict]:
    """The parts of segments between the server's stamps of the request's begin and end."""
    parts = []
    for segment in segments:
        begin_ns = max(segment["start_ns"], line["start_ns"])
        end_ns = min(segment["start_ns"] + segment["duration_ns"], line["end_ns"])
        if begin_ns < end_ns:
            parts.append({**segment, "start_ns": begin_ns, "duration_ns": end_ns - begin_ns})
    return parts


def spent(segments: list[dict], category: str) -> int:
    return sum(s["duration_ns"] for s in segments if s["category"] == category)


def follows_a_wait(category: str) -> bool:
    """Whether a wait goes on in this category until the program continues: the wait for a CPU, and the end of the call."""
    return category.startswith(("runqueue.", "kernel.", "interrupt"))


def own_lock_ns(segments: list[dict]) -> int:
    """Waits for the server's own lock, with a wait for the interpreter's lock only where that follows directly, before the
    second stamp."""
    whole_ns, waits = 0, False
    for segment in segments:
        if segment["category"] == "lock":
            waits = waits or not (segment["cause"] or "").startswith("interpreter lock")
            whole_ns += waits * segment["duration_ns"]
        else:
            waits = waits and follows_a_wait(segment["category"])
    return whole_ns


def until_had(segments: list[dict]) -> int:
    """Waits for all locks, each with the time until the program continues."""
    whole_ns, waits = 0, False
    for segment in segments:
        waits = segment["category"] == "lock" or (waits and follows_a_wait(segment["category"]))
        whole_ns += waits * segment["duration_ns"]
    return whole_ns


def lock(rpcprobe: str, scratch: Path, grpc: bool) -> bool:
    """Compares `lock` with the server's own stamps around its lock: by sockets, over the whole
    request. By gRPC, whose threads also wait for one another's locks before and after, from the
    server's begin to its end.
    """
    by = "gRPC" if grpc else "sockets"
    transport = "--transport grpc" if grpc else ""
    where = "from begun to end" if grpc else "at the server"
    print(f"stockbazaar by {by}, pool of 2, 5 clients, {where}, a request on average")
    print(
        f"  {'':30}{'calls':>6}{'begun to end':>15}{'sleep':>12}{'lock':>12}{'and on':>12}"
        f"{'by stamps':>12}{'agree':>8}"
    )
    good = True
    for name, client, server in METHODS:
        folder = scratch / f"{by}-{name.replace(' ', '-')}"
        found = run(
            rpcprobe, folder, 100, f"{transport} --clients 5 {client}", f"{transport} {server}"
        )
        pairs = answered(found) if grpc else served(found)
        if len(pairs) != 500:
            return check(f"every request is found: {len(pairs)} of 500", False)
        segments = found.segments([request for request, _ in pairs])
        parts = [segments[request["request_id"]] for request, _ in pairs]
        if grpc:
            parts = [within(own, line) for own, (_, line) in zip(parts, pairs)]
        whole_ns = [line["end_ns"] - line["start_ns"] for _, line in pairs]
        sleep_ns = [spent(each, "sleep") for each in parts]
        lock_ns = [spent(each, "lock") for each in parts]
        own_ns = [own_lock_ns(each) for each in parts]
        got_ns = [until_had(each) for each in parts]
        stamps_ns = [line["lock_wait_ns"] for _, line in pairs]
        agree, own_agree = (
            sum((a > LONG_NS) == (b > LONG_NS) for a, b in zip(of, stamps_ns)) / 500
            for of in (lock_ns, own_ns)
        )
        columns = "".join(
            f"{us(sum(each) / 500):>12}" for each in (sleep_ns, lock_ns, got_ns, stamps_ns)
        )
        print(f"  {name:30}{500:>6}{us(sum(whole_ns) / 500):>15}{columns}{agree:>8.1%}")
        only = f"lock for over {us(LONG_NS)} where the server waited for it so long"
        good &= check(f"{only}, and nowhere else, in 99 % of requests", agree >= 0.99)
        but = "the same of locks that are not the interpreter's"
        good &= check(f"{but}: {own_agree:.1%}", own_agree >= 0.99)
        if server:
            off = (sum(got_ns) - sum(stamps_ns)) / sum(stamps_ns) * 100
            what = f"lock and the way on, in all, are within {LIMIT_PERCENT} % of the stamps"
            good &= check(f"{what}: {off:+.2f} %", abs(off) <= LIMIT_PERCENT)
            contended = sum(ns > LONG_NS for ns in stamps_ns)
            good &= check(f"{contended} requests had to wait for the lock", contended >= 100)
    return good


def answered(found: Capture) -> list[tuple[dict, dict]]:
    """Pairs calls with the server's log lines, in order of their ends: the gRPC thread that
    received a call need not be the thread that served it."""
    calls = [r for r in found.requests if r["kind"] == "http2" and r["complete"]]
    return match(sorted(found.log("server.csv"), key=lambda line: line["end_ns"]), calls)


def lab(rpcprobe: str, scratch: Path) -> bool:
    return all(
        [
            pool(rpcprobe, scratch, 1),
            pool(rpcprobe, scratch, 5),
            slow_pool(rpcprobe, scratch),
            lock(rpcprobe, scratch, grpc=False),
            lock(rpcprobe, scratch, grpc=True),
        ]
    )


if __name__ == "__main__":
    main(__doc__, lab)
