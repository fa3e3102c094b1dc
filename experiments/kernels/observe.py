#!/usr/bin/env python3
"""What runs on each kernel: the workloads under rpcprobe, in one capture, and what `rpcprobe doctor` says.

observe.py RPCPROBE FOLDER [NAME...]     names of workloads (default: all)

Leaves in FOLDER: doctor.json, capture/, what workloads.py leaves there, and facts.json, what the kernel is. Judges
nothing. Runs in guests, so it needs nothing but Python's own modules.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def securityfs_mounted() -> bool:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(words[1:3] == ["/sys/kernel/security", "securityfs"] for words in mounts)


def main() -> int:
    rpcprobe, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    facts = {"release": os.uname().release, "securityfs_mounted": securityfs_mounted()}
    (folder / "facts.json").write_text(json.dumps(facts))
    with (folder / "doctor.json").open("wb") as out:
        status = subprocess.run([rpcprobe, "doctor", "--json"], stdout=out).returncode
    if status != 0:
        print(f"observe.py: rpcprobe doctor ended with status {status}", file=sys.stderr)
        return status
    argv = [rpcprobe, "run", "--quiet", "--share", "-o", str(folder / "capture"), "--"]
    # Not Path(sys.executable): on the host that may be of a virtual environment.
    argv += ["/usr/bin/python3", str(HERE / "workloads.py"), str(folder), *names]
    return subprocess.run(argv).returncode


if __name__ == "__main__":
    sys.exit(main())
