#!/usr/bin/env python3
"""Puts the stamps of both machines in a kvclient's log on one clock, and shows what is left over."""

import argparse
import csv
import statistics
import sys
from dataclasses import dataclass

COLUMNS = "client method status id request_bytes response_bytes client_send_ns".split()
COLUMNS += "server_receive_ns server_send_ns client_receive_ns".split()
OUTPUT = (
    "client,id,method,start_ns,request_ns,server_ns,response_ns,total_ns,transmission_ns,"
    "slop_ns,gap_ns"
)


class Failure(Exception):
    """Ends the program with a message."""


@dataclass
class Rpc:
    client: int
    id: int
    method: str
    request_bytes: int
    response_bytes: int
    t1: int  # client sends, by the client's clock
    t2: int  # server has received, by the server's
    t3: int  # server sends, by the server's
    t4: int  # client has received, by the client's


def read_log(path):
    """The answered RPCs, in the order of sending, and the number of unanswered RPCs."""
    rpcs, unanswered = [], 0
    with open(path, newline="", encoding="ascii") as file:
        rows = csv.DictReader(file)
        if missing := [name for name in COLUMNS if name not in (rows.fieldnames or [])]:
            raise Failure(f"{path} is no log of kvclient: it has no column {missing[0]}")
        for row in rows:
            try:
                if row["status"] == "failed":
                    unanswered += 1
                    continue
                numbers = [int(row[name]) for name in COLUMNS[3:]]
                rpcs.append(Rpc(int(row["client"]), numbers[0], row["method"], *numbers[1:]))
            except (TypeError, ValueError):
                raise Failure(f"{path}, line {rows.line_num}: not a whole line") from None
    if not rpcs:
        raise Failure(f"{path} has no answered RPC")
    rpcs.sort(key=lambda rpc: rpc.t1)
    return rpcs, unanswered


@dataclass
class Link:
    rate_mbit: int | None
    burst_bytes: int

    def transmission_ns(self, size):
        """The least transmission time of `size` bytes."""
        if self.rate_mbit is None:
            return 0
        return max(0, size - self.burst_bytes) * 8 * 1000 // self.rate_mbit


def offset_bounds(rpcs, link):
    """
    Lower and upper bounds of how far the server's clock is ahead: no message arrives before it was
    sent and transmitted, and each RPC bounds one message in each direction.
    """
    least = max(r.t3 - r.t4 + link.transmission_ns(r.response_bytes) for r in rpcs)
    most = min(r.t2 - r.t1 - link.transmission_ns(r.request_bytes) for r in rpcs)
    return least, most


def align(rpcs, offset_ns, link):
    """Rows of OUTPUT: the parts of each RPC on the client's clock."""
    ended = {}
    for r in rpcs:
        total = r.t4 - r.t1
        server = r.t3 - r.t2
        known = link.transmission_ns(r.request_bytes) + link.transmission_ns(r.response_bytes)
        gap = r.t1 - ended[r.client] if r.client in ended else ""
        ended[r.client] = r.t4
        yield (
            *(r.client, r.id, r.method, r.t1 - rpcs[0].t1, r.t2 - offset_ns - r.t1, server),
            *(r.t4 - (r.t3 - offset_ns), total, known, total - server - known, gap),
        )


def print_summary(rows, with_slop):
    names = OUTPUT.split(",")[4:]
    if not with_slop:
        names = [name for name in names if name not in ("transmission_ns", "slop_ns")]
    print(f"{'median [us]':>12} {'n':>7}" + "".join(f"{n.removesuffix('_ns'):>14}" for n in names))
    for method in dict.fromkeys(row[2] for row in rows):
        of_method = [dict(zip(OUTPUT.split(","), row)) for row in rows if row[2] == method]
        print(f"{method:>12} {len(of_method):>7}", end="")
        for name in names:
            values = [row[name] for row in of_method if row[name] != ""]
            print(f"{statistics.median(values) / 1000:>14.1f}" if values else f"{'-':>14}", end="")
        print()


def compare_ids(rpcs, path):
    with open(path, newline="", encoding="ascii") as file:
        served = {row.get("id") for row in csv.DictReader(file)}
    unserved = sum(str(rpc.id) not in served for rpc in rpcs)
    print(f"{len(rpcs) - unserved} of {len(rpcs)} answered RPCs are in {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="The offset of the clocks is bounded by each RPC: nothing arrives before it was "
        "sent. Pings, or a rate, make the bounds tight. Slop is what of an RPC is neither the "
        "server's time nor that of its bytes on the link.",
    )
    parser.add_argument("log", help="log of kvclient")
    parser.add_argument("--server-log", help="log of kvserver, to be compared")
    parser.add_argument("--rate-mbit", type=int, help="of the link; without it, there is no slop")
    parser.add_argument(
        "--burst",
        type=int,
        default=0,
        help="bytes that the link, if idle, lets pass at once (default: 0)",
    )
    parser.add_argument("-o", "--output", help=f"write a CSV file with the columns {OUTPUT}")
    options = parser.parse_args()
    if options.rate_mbit is not None and options.rate_mbit < 1:
        parser.error("--rate-mbit is not positive")
    try:
        rpcs, unanswered = read_log(options.log)
        link = Link(options.rate_mbit, options.burst)
        least, most = offset_bounds(rpcs, link)
        if least > most:
            raise Failure(
                f"the clocks have no constant offset, or the rate is wrong: it would be at least "
                f"{least} ns and at most {most} ns"
            )
        offset_ns = (least + most) // 2
        print(f"{len(rpcs)} RPCs answered, {unanswered} not")
        if options.server_log:
            compare_ids(rpcs, options.server_log)
        print(f"offset_ns {offset_ns} uncertainty_ns {(most - least + 1) // 2}")
        rows = list(align(rpcs, offset_ns, link))
        print_summary(rows, bool(options.rate_mbit))
        if options.output:
            with open(options.output, "w", encoding="ascii") as file:
                print(OUTPUT, file=file)
                for row in rows:
                    print(*row, sep=",", file=file)
    except (Failure, OSError) as why:
        print(f"kvpost: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
