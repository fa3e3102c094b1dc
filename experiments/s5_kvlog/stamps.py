"""The stamps of kvlog's logs as windows of time, and the requests in these windows."""

import re
import sys
from collections import Counter
from pathlib import Path

from study import windows
from study.capture import Capture, Row, read_log

# The windows whose lengths are kept: see `windows_of`.
STEPS = ("send", "process", "answer", "response", "all", "gap")


def windows_of(folder: Path, shift_ns: int) -> list[Row]:
    """The client's RPCs, with windows of time on the client's clock, as the injected shift is known
    here.

    `send`: until the server has the whole request. `process`: until the server sends. `answer`:
    while the server sends. `response`: from the server's sending until the client has the answer.
    `all`: the whole RPC. `gap`: the time before it."""
    served = {row["id"]: row for row in read_log(folder / "server.csv")}
    by_kvpost = folder / "parts.csv"
    parts = {row["id"]: row for row in read_log(by_kvpost)} if by_kvpost.exists() else {}
    calls, before_ns, counts = [], None, Counter()
    for row in read_log(folder / "client.csv"):
        sent_ns, received_ns = row["client_send_ns"], row["client_receive_ns"]
        arrived_ns = row["server_receive_ns"] - shift_ns
        answered_ns = row["server_send_ns"] - shift_ns
        calls.append(
            {
                "method": row["method"],
                "number": counts[row["method"]],
                "send": (sent_ns, arrived_ns),
                "process": (arrived_ns, answered_ns),
                "answer": (answered_ns, min(served[row["id"]]["end_ns"], received_ns)),
                "response": (answered_ns, received_ns),
                "all": (sent_ns, received_ns),
                "gap": (before_ns or sent_ns, sent_ns),
                "post": parts.get(row["id"]),
            }
        )
        before_ns = received_ns
        counts[row["method"]] += 1
    return calls


def between(found: Capture, calls: list[Row]) -> list[Row]:
    """The request of each call. A single client makes them one after another; otherwise this ends
    the experiment."""
    requests = sorted(
        (r for r in found.requests if r["kind"] == "tcp" and r["complete"]),
        key=lambda r: r["start_ns"],
    )
    fits = len(requests) == len(calls) and all(
        call["all"][0] <= request["start_ns"] and request["end_ns"] <= call["all"][1]
        for call, request in zip(calls, requests)
    )
    if not fits:
        sys.exit(f"s5_kvlog: {len(requests)} requests do not fit {len(calls)} lines of the log")
    return requests


def told(call: Row) -> Row:
    """An RPC's figures by the stamps, and by kvpost.py."""
    lengths = {f"{step}_ns": call[step][1] - call[step][0] for step in STEPS}
    post = call["post"] or {}
    return {
        "method": call["method"],
        "number": call["number"],
        "begin_ns": post.get("start_ns"),
        **lengths,
        "post_send_ns": post.get("request_ns"),
        "post_response_ns": post.get("response_ns"),
        "post_transmission_ns": post.get("transmission_ns"),
        "post_slop_ns": post.get("slop_ns"),
    }


def seen(call: Row, request: Row | None, own: list[Row]) -> Row:
    """An RPC's figures by rpcprobe; null in runs without the probe."""
    if request is None:
        names = ("wire_ns", "latency_ns", "unattributed_ns", "not_sent_ns")
        return dict.fromkeys([*names, "process_fault_ns", "process_user_ns", "page_faults"])
    process = windows.within(own, *call["process"])
    not_sent = [s for s in own if (s["detail"] or "").startswith("not sent")]
    return {
        "wire_ns": windows.spent_ns(own, "wire.qdisc", "wire.link"),
        "latency_ns": request["latency_ns"],
        "unattributed_ns": windows.spent_ns(own, "unattributed"),
        "not_sent_ns": windows.spent_ns(not_sent),
        "process_fault_ns": windows.spent_ns(process, "fault"),
        "process_user_ns": windows.spent_ns(process, "user"),
        "page_faults": page_faults(process),
    }


def page_faults(segments: list[Row]) -> int:
    """The number of page faults; the `cause` of merged segments has the number of their pieces."""
    count = 0
    for segment in segments:
        if segment["category"] == "fault" and segment["detail"] == "minor fault":
            pieces = re.search(r"(\d+) of the pieces|(\d+) pieces", segment["cause"] or "")
            count += int(pieces[1] or pieces[2]) if pieces else 1
    return count
