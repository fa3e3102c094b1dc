#!/usr/bin/env python3
"""Says whether reads were causally consistent, by the history of a workload of flexclient."""

import argparse
import csv
import sys
from bisect import bisect_right
from collections import defaultdict

COLUMNS = ["process", "operation", "object", "writer", "serial"]


class Failure(Exception):
    """Ends the program with a message."""


def read_histories(paths):
    """The operations of each process, in its own order: (is_read, object, writer, serial)."""
    operations = defaultdict(list)
    for path in paths:
        with open(path, newline="", encoding="ascii") as file:
            rows = csv.reader(file)
            if next(rows, None) != COLUMNS:
                raise Failure(f"{path} is no history")
            for row in rows:
                try:
                    process, operation, name, writer, serial = row
                    entry = (operation == "read", name, int(writer), int(serial))
                    if operation not in ("read", "write"):
                        raise ValueError
                    operations[int(process)].append(entry)
                except ValueError:
                    raise Failure(f"{path}, line {rows.line_num}: no operation") from None
    return operations


def merge(into, other):
    for process, serial in other.items():
        if into.get(process, 0) < serial:
            into[process] = serial


def check(operations):
    """
    Goes through all histories in an order that keeps causes before effects.  A write is identified
    by its writer and serial.  Its past has, for each process, that process's last write before it.
    Returns the number of operations and a list of violations.
    """
    pasts = {}  # by write: the writes known to its writer, including itself
    written = defaultdict(lambda: defaultdict(list))  # by object and writer: serials, in order
    known = {process: {} for process in operations}
    position = dict.fromkeys(operations, 0)
    waiting = defaultdict(list)  # by write: processes that read it and must wait for it
    ready = list(operations)
    wrong = []
    while ready:
        process = ready.pop()
        while position[process] < len(operations[process]):
            is_read, name, writer, serial = operations[process][position[process]]
            write = (writer, serial)
            if is_read:
                if write not in pasts:
                    waiting[write].append(process)
                    break
                past = known[process]
                merge(past, pasts[write])
                wrong += newer_writes(process, name, write, past, written[name], pasts)
            else:
                if writer != process or known[process].get(process, 0) >= serial:
                    raise Failure(f"process {process} cannot have made write {writer}.{serial}")
                known[process][process] = serial
                pasts[write] = dict(known[process])
                written[name][process].append(serial)
                ready += waiting.pop(write, [])
            position[process] += 1
    for process, where in position.items():
        if where < len(operations[process]):
            _, name, writer, serial = operations[process][where]
            raise Failure(f"process {process} reads write {writer}.{serial}, which nobody made")
    return sum(position.values()), wrong


def newer_writes(process, name, write, past, written, pasts):
    """Writes of the object in the reader's past whose writers knew of the write that it read."""
    writer, serial = write
    for other, serials in written.items():
        seen = bisect_right(serials, past.get(other, 0))
        if seen == 0 or (other, last := serials[seen - 1]) == write:
            continue
        if pasts[other, last].get(writer, 0) >= serial:
            yield (
                f"process {process} reads {writer}.{serial} of object {name}, "
                f"but knows of {other}.{last}, which came after"
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="A read is wrong if a write of the same object came causally between the write "
        "that it returns and the read. Nothing of flexcache's own clocks is used. Exit status: 0 "
        "if all is consistent, 1 if not, 2 if it cannot be told.",
    )
    parser.add_argument("history", nargs="+", help="of all clients of the workload")
    try:
        count, wrong = check(read_histories(parser.parse_args().history))
    except (Failure, OSError) as why:
        print(f"check_causality: {why}", file=sys.stderr)
        return 2
    for line in wrong[:10]:
        print(line)
    print(f"{count} operations, {len(wrong)} violations of causality")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
