#!/usr/bin/env python3
"""Pages of many requests: size, time to make, time to open in a headless Chromium, memory.

A real capture of `redis-benchmark` (or the given capture) is repeated in its Parquet files, each
time later and with other numbers, until it has the requested number of requests."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).parent / "../../userspace/tests/page"))
from browser import Browser, Page, find  # noqa: E402

PORT = 7399
# How often a page is opened, each time by a new browser.
OPENS = 5


def captured(rpcprobe, directory):
    """Redis serves two kinds of request; the client is traced."""
    server = subprocess.Popen(
        ["redis-server", "--port", str(PORT), "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(1)
        client = [
            "redis-benchmark",
            "-p",
            str(PORT),
            "-n",
            "10000",
            "-c",
            "20",
            "-t",
            "set,get,lpush,lrange_100",
            "-q",
        ]
        command = [rpcprobe, "run", "-q", "-o", directory, "--", *client]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        server.terminate()
        server.wait()


def repeated(source, directory, wanted):
    """Writes a capture of at least `wanted` requests."""
    directory.mkdir()
    manifest = json.loads((source / "manifest.json").read_text())
    db = duckdb.connect()
    db.execute("set preserve_insertion_order = true")
    for table in ("requests", "segments"):
        db.execute(f"create view {table} as select * from '{source}/{table}.parquet'")
    count, first, last = db.execute(
        "select count(*), min(request_id), max(request_id) from requests"
    ).fetchone()
    times = -(-wanted // count)
    step, span = last - first + 1, manifest["duration_ns"] + 1_000_000
    shift = f"request_id + i * {step} as request_id, start_ns + i * {span} as start_ns"
    parent = f"parent_request_id + i * {step} as parent_request_id"
    order = "order by i, file_row_number"
    for table, replaced in (("requests", f"{shift}, {parent}"), ("segments", shift)):
        db.execute(
            f"""copy (select * exclude (i, file_row_number) replace ({replaced})
                from read_parquet('{source}/{table}.parquet', file_row_number = true),
                     (select range::bigint as i from range({times})) {order})
                to '{directory}/{table}.parquet' (format parquet, compression snappy)"""
        )
    manifest["duration_ns"] = span * times
    manifest["counts"]["requests"] = count * times
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return count * times, db.execute(
        f"select count(*) from '{directory}/segments.parquet'"
    ).fetchone()[0]


# Run by a separate small process: a child's peak memory includes the time before it runs its
# program, when it is still a copy of its parent.
MEASURE = """
import os, subprocess, sys, time
begin = time.monotonic()
child = subprocess.Popen(sys.argv[1:], stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(status, time.monotonic() - begin, usage.ru_maxrss * 1024)
"""


def made(command):
    """Duration in seconds and peak memory in bytes of a command."""
    command = [sys.executable, "-S", "-c", MEASURE, *map(str, command)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    if told[0] != "0":
        sys.exit(f"{command}: status {told[0]}")
    return float(told[1]), int(told[2])


def resident(pid):
    """Memory of a process and its descendants, bytes: shared pages count proportionally (PSS)."""
    total, open_pids = 0, [pid]
    while open_pids:
        pid = open_pids.pop()
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
            open_pids += map(
                int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            )
        except OSError:
            continue
    return total


def opened(browser, file):
    before = resident(browser.process.pid)
    page = Page(browser, file.as_uri(), 1280)
    page.send("Performance.enable")
    page.until("document.documentElement?.dataset.ready", 60)
    ready = int(page.run("document.documentElement.dataset.ready"))
    metrics = {of["name"]: of["value"] for of in page.send("Performance.getMetrics")["metrics"]}
    page.run("new Promise((done) => setTimeout(done, 1500))")
    memory = resident(browser.process.pid) - before
    faults = page.faults()
    page.close()
    return {
        "open_ms": ready,
        "cpu_ms": round(metrics["TaskDuration"] * 1000),
        "browser_mb": round(memory / 1e6),
        "faults": faults,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rpcprobe", required=True)
    parser.add_argument("--capture", type=pathlib.Path)
    parser.add_argument("--requests", type=int, nargs="+", default=[180_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = args.capture or folder / "source"
        if args.capture is None:
            captured(args.rpcprobe, source)
        results = []
        for wanted in args.requests:
            directory, file = folder / str(wanted), folder / f"{wanted}.html"
            requests, segments = repeated(source, directory, wanted)
            made_s, most = made([args.rpcprobe, "report", directory, "--html", file])
            result = {
                "requests": requests,
                "segments": segments,
                "bytes": file.stat().st_size,
                "make_s": round(made_s, 1),
                "make_mb": round(most / 1e6),
            }
            if path := find():
                opens = []
                for _ in range(OPENS):
                    with Browser(path) as browser:
                        opens.append(opened(browser, file))
                # The memory and the thread's time are those of the median run.
                opens.sort(key=lambda of: of["open_ms"])
                result |= opens[OPENS // 2]
                result["opens_ms"] = [of["open_ms"] for of in opens]
                result["faults"] = [fault for of in opens for fault in of["faults"]]
            else:
                print("no Chromium: not opened", file=sys.stderr)
            results.append(result)
            for table in directory.iterdir():
                table.unlink()
        for result in results:
            if args.json:
                print(json.dumps(result))
                continue
            print(
                f"{result['requests']:,} requests, {result['segments']:,} segments: {result['bytes'] / 1e6:.2f} MB,"
                f" made in {result['make_s']} s with {result['make_mb']} MB"
            )
            if "open_ms" in result:
                print(
                    f"  open after {' '.join(map(str, result['opens_ms']))} ms ({result['cpu_ms']} ms of its thread); the browser takes"
                    f" {result['browser_mb']} MB more"
                )
        wrong = [r for r in results if r["bytes"] > 3_000_000 or r.get("faults")]
        if wrong:
            sys.exit(f"more than 3 MB, or faults: {wrong}")


if __name__ == "__main__":
    main()
