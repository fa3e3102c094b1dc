#!/usr/bin/env python3
"""Runs on each kernel: takes a capture of the workloads for each way of hooking, and runs
`rpcprobe doctor`.

observe.py RPCPROBE FOLDER PLAN     PLAN: a JSON file, {"doctor": true or false,
                                    "ways": {way: {"attach": true or false, "options": [...], "names": [workload...],
                                    "truths": [case of the ground truth...; none: all]}}, "crosscheck": a command}

Leaves in FOLDER: doctor.json; facts.json, which describes the kernel; for each way a folder with
capture/ and the files of workloads.py, or with rpcprobe's message in `refused`; crosscheck, that
command's output, and crosscheck.status. Judges nothing. Runs in guests, so it needs only Python's
own modules.
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
    """Writes the kernel's facts and doctor's report; returns doctor's status."""
    facts = {"release": os.uname().release, "securityfs_mounted": securityfs_mounted()}
    (folder / "facts.json").write_text(json.dumps(facts))
    with (folder / "doctor.json").open("wb") as out:
        return subprocess.run([rpcprobe, "doctor", "--json"], stdout=out).returncode


def captured(
    rpcprobe: str, folder: Path, options: list[str], names: list[str], truths: list[str]
) -> int:
    """Runs the workloads. Returns rpcprobe's status, or 0 if it refused to begin: `refused` then
    says why."""
    folder.mkdir()
    argv = [rpcprobe, "run", "--quiet", "--share", *options, "-o", str(folder / "capture"), "--"]
    # Not sys.executable, which on the host may be of a virtual environment.
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
