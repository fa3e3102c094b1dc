#!/usr/bin/python3
"""The bcc side: writes the records of tracepoints.c's programs to a file, with a fixed size each.

Runs under the system's Python, for which Debian packages bcc. Prints `ready` when the programs are
attached. At the end of its standard input, it writes the records, prints the numbers of records and
of lost records, and ends.

Usage: collect.py FILE MARKER
"""

import ctypes
import sys
from pathlib import Path

RING_BYTES = 64 << 20
PAGE_BYTES = 4096
HERE = Path(__file__).resolve().parent


def main():
    out, marker = sys.argv[1:]
    try:
        import bcc
    except ImportError:
        sys.exit("no Python bcc (Debian's python3-bpfcc)")
    text = (HERE / "tracepoints.c").read_text()
    text = text.replace("RING_PAGES", str(RING_BYTES // PAGE_BYTES))
    text = text.replace("MARKER", f'"{marker}"')
    try:
        programs = bcc.BPF(text=text)
    except Exception as error:  # bcc raises plain exceptions for all failures
        sys.exit(f"bcc cannot compile or attach its programs here: {error}")
    print("ready", flush=True)
    sys.stdin.read()
    count = 0
    with open(out, "wb") as file:

        def keep(_context, data, size):
            nonlocal count
            count += 1
            file.write(ctypes.string_at(data, size))

        programs["records"].open_ring_buffer(keep)
        programs.ring_buffer_consume()
    print(count, programs["lost"][0].value, flush=True)


if __name__ == "__main__":
    main()
