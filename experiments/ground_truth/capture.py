"""Reads rpcprobe's requests and joins them with the target's log."""

import bisect
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from machine import give_up
from truth import Row


@dataclass
class Sample:
    """One request in the target's log and in rpcprobe's report."""

    log: Row
    request: dict

    @property
    def latency_ns(self) -> int:
        return self.request["latency_ns"]

    def attributed(self, categories: Iterable[str]) -> int:
        of = self.request["category_ns"]
        return sum(of.get(category) or 0 for category in categories)


def ask(rpcprobe: str, *argv: str | Path) -> dict:
    command = [rpcprobe, *map(str, argv), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        give_up(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def load_requests(rpcprobe: str, capture: Path, kind: str) -> list[dict]:
    argv = ("requests", capture, "--sort", "start", "-n", "0", "--kind", kind)
    return ask(rpcprobe, *argv)["requests"]


def switches_missed(capture: Path) -> int:
    manifest = json.loads((capture / "manifest.json").read_text())
    return manifest["counts"]["switches_missed"]


def join(log: list[Row], requests: list[dict]) -> tuple[list[Sample], list[str]]:
    """Joins each logged request with the attributed request inside its stamps."""
    by_client: dict[int, list[dict]] = {}
    for request in requests:
        if request["client"]:
            by_client.setdefault(request["client"]["pid"], []).append(request)
    samples, problems = [], []
    for row in log:
        of_client = by_client.get(row["client_pid"], [])
        first = bisect.bisect_left(of_client, row["start_ns"], key=lambda r: r["start_ns"])
        last = bisect.bisect_left(of_client, row["end_ns"], key=lambda r: r["start_ns"])
        found = of_client[first:last]
        if len(found) != 1:
            problems.append(f"request {row['seq']} was found {len(found)} times")
            continue
        request = found[0]
        if request["start_ns"] + request["latency_ns"] > row["end_ns"]:
            problems.append(f"request {row['seq']} ends after its client's last stamp")
        if not request["complete"]:
            problems.append(f"request {row['seq']} is incomplete: {request['reason']}")
            continue
        samples.append(Sample(row, request))
    return samples, problems
