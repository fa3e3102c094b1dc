#!/usr/bin/env python3
"""Exports of many requests: size, time and memory of each format.

A real capture of `redis-benchmark` (or the given capture) is repeated as in experiments/page until
it has the requested number of requests. Fails if four times as many requests take more than twice
the memory."""

import argparse
import gzip
import importlib.util
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def page():
    """The module of experiments/page, which makes the captures."""
    spec = importlib.util.spec_from_file_location("page_run", HERE / "../page/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compressed(file):
    """The file's compressed size in bytes; the user interface opens compressed files as well."""

    class Count:
        bytes = 0

        def write(self, data):
            self.bytes += len(data)

        def flush(self):
            pass

    count = Count()
    with open(file, "rb") as data, gzip.GzipFile(fileobj=count, mode="wb", compresslevel=6) as out:
        while block := data.read(1 << 20):
            out.write(block)
    return count.bytes


def exported(made, rpcprobe, directory, folder):
    base = folder / "export"
    trace = folder / "export.pftrace"
    results = {}
    for name, options in (
        ("perfetto", ["--perfetto", trace]),
        ("perfetto --slowest 1000", ["--perfetto", trace, "--slowest", "1000"]),
        ("csv", ["--csv", base]),
        ("json", ["--json", base]),
    ):
        seconds, most = made([rpcprobe, "export", directory, *options])
        files = list(folder.glob("export*"))
        results[name] = {
            "bytes": sum(file.stat().st_size for file in files),
            "seconds": round(seconds, 1),
            "memory_mb": round(most / 1e6),
        }
        if name.startswith("perfetto"):
            results[name]["gzip_bytes"] = compressed(trace)
        for file in files:
            file.unlink()
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rpcprobe", required=True)
    parser.add_argument("--capture", type=pathlib.Path)
    parser.add_argument("--requests", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    study = page()
    memory = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = args.capture or folder / "source"
        if args.capture is None:
            study.captured(args.rpcprobe, source)
        for wanted in args.requests:
            directory = folder / str(wanted)
            requests, segments = study.repeated(source, directory, wanted)
            results = exported(study.made, args.rpcprobe, directory, folder)
            memory[requests] = {name: result["memory_mb"] for name, result in results.items()}
            if args.json:
                print(json.dumps({"requests": requests, "segments": segments, **results}))
            else:
                print(f"{requests:,} requests, {segments:,} segments")
                for name, of in results.items():
                    gzip_mb = (
                        f" ({of['gzip_bytes'] / 1e6:.1f} MB gzip)" if "gzip_bytes" in of else ""
                    )
                    print(
                        f"  {name}: {of['bytes'] / 1e6:.1f} MB{gzip_mb} in {of['seconds']} s with {of['memory_mb']} MB"
                    )
            sys.stdout.flush()
            for table in directory.iterdir():
                table.unlink()
    least, most = min(memory), max(memory)
    for name in memory[least]:
        if most >= 4 * least and memory[most][name] > 2 * memory[least][name]:
            sys.exit(f"{name}: memory grows with the number of requests: {memory}")


if __name__ == "__main__":
    main()
