"""Runs flexcache without and with the probe: each operation's time, messages and breakdown."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import study
from study import ab, hosts, windows
from study.breakdown import colours
from study.capture import NETLAB, Capture, Row, read_log, shell
from study.labs import flexcache as lab


# By name of the log: the method, and the client's transport to the object server.
OPERATIONS = {
    "null_udp": ("null", "--transport udp"),
    "null_tcp": ("null", "--transport tcp"),
    "invoke_udp": ("invoke", "--transport udp"),
    "invoke_tcp": ("invoke", "--transport tcp"),
    **{name: (name, "") for name in ("create", "validate", "cache", "read", "invalidate")},
}
BATCH = 20
# Positions in a batch. The first position is left out, because it includes a process's one-time
# work.
QUIET, BUSY = range(1, 3), range(10, BATCH)
LINES = {"quiet": QUIET, "busy": BUSY}
# Headers of Ethernet, IPv4, and UDP or TCP (with time stamps). Over TCP, requests also have ONC
# RPC's record mark of four bytes.
FRAME_BYTES = {"udp": 14 + 20 + 8, "tcp": 14 + 20 + 32}


def measure(study_: study.Study):
    rounds, batches, rows = study_.often(12, 2), study_.often(8, 6), Tables()
    for number, arm in study.rounds(("bare", "probed"), rounds):
        folder = study_.scratch / f"{arm}{number}"
        folder.mkdir()
        (folder / "inner.sh").write_text(hosts.apart() + lab.START + "".join(asks(batches)))
        script = f"{NETLAB} routed -- /bin/sh -e inner.sh"
        if arm == "bare":
            shell(folder, script)
            found = None
        else:
            found = study.capture(folder, script)
            if number == 0:
                study_.keep(found, "oncrpc")
        rows.add({"round": number, "arm": arm}, folder, batches, found)
        study_.progress(f"round {number + 1} of {rounds}: {arm}")
    rows.write(study_.results)
    study_.results.write("changes", udp_and_tcp(study_))


def udp_and_tcp(study_: study.Study) -> list[Row]:
    """Compares null RPCs by UDP and by TCP, in pairs of runs with few calls at a time, so that the
    line is quiet."""
    sides = []
    for name in ("null_udp", "null_tcp"):
        method, options = OPERATIONS[name]
        asked = "".join(lab.ask(method, 3, f"{of}.csv", options) for of in range(30))
        inner = study_.scratch / f"{name}.sh"
        inner.write_text(hosts.apart() + lab.START + asked)
        # Each run has its own folder.
        script = f"cd $(mktemp -d -p {study_.scratch}); {NETLAB} routed -- /bin/sh -e {inner}"
        sides.append(["sh", "-ec", script])
    comparison = ab.compare(study_.scratch / "ab", *sides, study_.often(8, 2))
    return ab.changes(comparison, "oncrpc")


def asks(batches: int) -> Iterator[str]:
    """The script's lines: each operation in turn, repeatedly, so that a token bucket is full again
    when its next batch begins."""
    for batch in range(batches):
        for name, (method, options) in OPERATIONS.items():
            yield lab.ask(method, BATCH, f"{name}.{batch}.csv", options)


def log_of(folder: Path, name: str, batches: int) -> Iterator[Row]:
    """The operation's log lines, with their positions in their batches."""
    method, _ = OPERATIONS[name]
    for batch in range(batches):
        rows = read_log(folder / f"{name}.{batch}.csv")
        own = [row for row in rows if row["method"] == method]
        for position, row in enumerate(own):
            yield {**row, "position": position, "method": method}


class Tables:
    def __init__(self):
        self.requests: list[Row] = []
        self.messages: list[Row] = []
        self.parts: list[Row] = []
        self.calls: list[Row] = []
        self.timeline: list[Row] = []

    def add(self, run: Row, folder: Path, batches: int, found: Capture | None):
        calls, colour, segments = [], {}, {}
        if found:
            calls = [call for call in found.requests if call["kind"] == "oncrpc"]
            colour = colours(found, {"oncrpc"})
            segments = found.segments(calls)
        for name, (method, _) in OPERATIONS.items():
            log = list(log_of(folder, name, batches))
            for row in log:
                if row["position"] in (*QUIET, *BUSY):
                    line = "quiet" if row["position"] in QUIET else "busy"
                    took = {"line": line, "position": row["position"], "took_ns": took_ns(row)}
                    self.requests.append({**run, "operation": name, **took})
            if not found:
                continue
            trees = [(row, Tree(row, lab.messages(calls, row), segments)) for row in log]
            right = sum(tree.is_right() for _, tree in trees)
            wrong = [tree for _, tree in trees if not tree.is_right()]
            # Operations with all their requests, of which one made by a server lacks the right
            # parent.
            unlinked = [tree for tree in wrong if tree.is_whole()]
            count = {"operations": len(log), "right": right, "unlinked": len(unlinked)}
            self.messages.append({**run, "operation": name, **count})
            for line, positions in LINES.items():
                chosen = [tree for row, tree in trees if row["position"] in positions]
                labels = {**run, "operation": name, "line": line}
                self.parts += parts(middle_half(chosen), colour, labels)
                self.calls += of_calls(chosen, labels)
            if run["round"] == 0 and lab.MESSAGES[method]:
                quiet = [tree for row, tree in trees if row["position"] in QUIET]
                self.timeline += drawn(name, quiet, colour)

    def write(self, results: study.Results):
        for name in ("requests", "messages", "parts", "calls", "timeline"):
            results.write(name, getattr(self, name))


def took_ns(row: Row) -> int:
    return row["end_ns"] - row["begin_ns"]


class Tree:
    """An operation of the client's log, and its requests: `outer` are the client's own, `inner` are
    those made for an outer one."""

    def __init__(self, row: Row, calls: list[Row], segments: dict[int, list[Row]]):
        self.row, self.calls, self.segments = row, calls, segments
        self.outer = [call for call in calls if call["client_comm"] == "flexclient"]

    def is_right(self) -> bool:
        return lab.is_right(self.row["method"], self.calls)

    def is_whole(self) -> bool:
        return sorted(map(lab.who, self.calls)) == sorted(lab.MESSAGES[self.row["method"]])

    def pieces(self) -> Iterator[Row]:
        """All segments of the operation's critical path, each with its innermost request
        (`call`)."""
        for outer in self.outer:
            spans = [(outer, outer["start_ns"], outer["end_ns"])]
            for inner in self.calls:
                if inner["parent_request_id"] == outer["request_id"]:
                    spans = list(cut(spans, inner))
            for call, begin_ns, end_ns in spans:
                for piece in windows.within(self.segments[outer["request_id"]], begin_ns, end_ns):
                    yield {**piece, "call": call}


def cut(spans: list[tuple[Row, int, int]], inner: Row) -> Iterator[tuple[Row, int, int]]:
    """Splits the spans so that the inner request has its own time."""
    for call, begin_ns, end_ns in spans:
        from_ns, to_ns = max(inner["start_ns"], begin_ns), min(inner["end_ns"], end_ns)
        if from_ns >= to_ns:
            yield call, begin_ns, end_ns
            continue
        yield call, begin_ns, from_ns
        yield inner, from_ns, to_ns
        yield call, to_ns, end_ns


def middle_half(trees: list[Tree]) -> list[Tree]:
    """The operations without the fastest and the slowest quarter."""
    ordered = sorted(trees, key=lambda tree: took_ns(tree.row))
    return ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4]


def transport(call: Row) -> str:
    """`udp`, `tcp` or `unix`."""
    return (call["channel"] or "").split()[0]


def parts(trees: list[Tree], colour: dict[str, str], labels: Row) -> list[Row]:
    """Breakdowns of the operations by the requests' transport; the rest is in no request."""
    by_transport: dict[str, list[list[Row]]] = {}
    for place, tree in enumerate(trees):
        for piece in tree.pieces():
            empty: list[list[Row]] = [[] for _ in trees]
            by_transport.setdefault(transport(piece["call"]), empty)[place].append(piece)
    rows, covered_ns = [], Counter()
    for name, of_each in by_transport.items():
        lengths = [(windows.spent_ns(each), each) for each in of_each]
        covered_ns.update({place: length for place, (length, _) in enumerate(lengths)})
        rows += windows.breakdown(lengths, colour, **labels, transport=name)
    outside = [(took_ns(tree.row) - covered_ns[place], []) for place, tree in enumerate(trees)]
    return rows + windows.breakdown(outside, colours_of_none(), **labels, transport="")


def colours_of_none() -> dict[str, str]:
    return {windows.OUTSIDE: study.breakdown.REST_COLOUR}


def of_calls(trees: list[Tree], labels: Row) -> list[Row]:
    """For each request of the operation: its client and server, its count, its median latency, and
    its frame sizes on the line."""
    found: dict[str, list[Row]] = {}
    for tree in trees:
        for call in tree.calls:
            found.setdefault(lab.who(call), []).append(call)
    rows = []
    for who, calls in found.items():
        by = transport(calls[0])
        header = FRAME_BYTES.get(by, 0)
        rows.append(
            {
                **labels,
                "who": who,
                "transport": by,
                "is_inner": calls[0]["client_comm"] != "flexclient",
                "requests": len(calls),
                "median_ns": study.median([call["latency_ns"] for call in calls]),
                "request_frame_bytes": study.median([c["request_bytes"] for c in calls]) + header,
                "response_frame_bytes": study.median([c["response_bytes"] for c in calls]) + header,
                "retransmissions": sum(call["retransmissions"] or 0 for call in calls),
            }
        )
    return rows


def drawn(name: str, trees: list[Tree], colour: dict[str, str]) -> list[Row]:
    """The pieces of the operation of median length."""
    ordered = sorted(trees, key=lambda tree: took_ns(tree.row))
    tree = ordered[len(ordered) // 2]
    begin_ns = tree.row["begin_ns"]
    whole = {"who": "", "begin_ns": 0, "duration_ns": took_ns(tree.row), "side": ""}
    rows = [{"operation": name, **whole, "category": windows.OUTSIDE, "colour": ""}]
    for piece in tree.pieces():
        rows.append(
            {
                "operation": name,
                "who": lab.who(piece["call"]),
                "begin_ns": piece["start_ns"] - begin_ns,
                "duration_ns": piece["duration_ns"],
                "side": piece["side"],
                "category": piece["category"],
                "colour": colour[piece["category"]],
            }
        )
    return rows
