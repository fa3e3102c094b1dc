#!/usr/bin/env python3
"""What runs on each kernel: the workloads under rpcprobe, in a capture for each way of hooking, and what
`rpcprobe doctor` says.

observe.py RPCPROBE FOLDER PLAN     PLAN: a JSON file, {"doctor": true or false,
                                    "ways": {way: {"attach": true or false, "options": [...], "names": [workload...],
                                    "truths": [case of the ground truth...; none: all]}}, "crosscheck": a command}

Leaves in FOLDER: doctor.json, facts.json, what the kernel is, and for each way a folder with capture/, what
workloads.py leaves there, or refused, what rpcprobe said instead; crosscheck, what that command printed, and
crosscheck.status. Judges nothing. Runs in guests, so it needs nothing but Python's own modules.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import servers

HERE = Path(__file__).resolve().parent


def securityfs_mounted() -> bool:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(words[1:3] == ["/sys/kernel/security", "securityfs"] for words in mounts)


def examined(rpcprobe: str, folder: Path) -> int:
    """What the kernel is, and what doctor says of it; doctor's status."""
    facts = {"release": os.uname().release, "securityfs_mounted": securityfs_mounted()}
    (folder / "facts.json").write_text(json.dumps(facts))
    with (folder / "doctor.json").open("wb") as out:
        return subprocess.run([rpcprobe, "doctor", "--json"], stdout=out).returncode


def captured(
    rpcprobe: str, folder: Path, options: list[str], names: list[str], truths: list[str]
) -> int:
    """Runs the workloads; rpcprobe's status, or 0 if it refused to begin, which `refused` then tells."""
    folder.mkdir()
    argv = [rpcprobe, "run", "--quiet", "--share", *options, "-o", str(folder / "capture"), "--"]
    # Not Path(sys.executable): on the host that may be of a virtual environment.
    argv += ["/usr/bin/python3", str(HERE / "workloads.py"), str(folder), *names]
    environment = {**os.environ, "TRUTHS": " ".join(truths)}
    with (folder / "said").open("w") as said:
        status = subprocess.run(argv, stderr=said, env=environment).returncode
    said = (folder / "said").read_text()
    if status != 0 and not (folder / "windows.json").exists():
        (folder / "refused").write_text(said)
        return 0
    print(said, end="", file=sys.stderr)
    return status


def main() -> int:
    rpcprobe, folder = sys.argv[1], Path(sys.argv[2])
    plan = json.loads(Path(sys.argv[3]).read_text())
    status = examined(rpcprobe, folder) if plan["doctor"] else 0
    if status != 0:
        print(f"observe.py: rpcprobe doctor ended with status {status}", file=sys.stderr)
        return status
    for way, what in plan.get("ways", {}).items():
        if what["attach"]:
            (folder / way).mkdir()
            servers.captured(rpcprobe, folder / way, what["options"], what["names"])
            continue
        status = captured(rpcprobe, folder / way, what["options"], what["names"], what["truths"])
        if status != 0:
            return status
    if "crosscheck" in plan:
        with (folder / "crosscheck").open("w") as out:
            done = subprocess.run(plan["crosscheck"], stdout=out, stderr=subprocess.STDOUT)
        (folder / "crosscheck.status").write_text(str(done.returncode))
    return 0


if __name__ == "__main__":
    sys.exit(main())
