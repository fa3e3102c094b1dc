"""Measures mode 2 of the evaluator on both file systems, alone and beside a writer."""

import contextlib
import csv
import json
import subprocess
from collections import defaultdict
from pathlib import Path

import inside
import study
from study import ab, breakdown, outliers
from study.capture import RPCPROBE, TARGETS, Row, shell
from study.disks import mounted, writer

FRPC = TARGETS / "frpc"
DISKS = ("ext4", "tmpfs")
ALONE, BESIDE = "alone", "beside the writer"
SCENES = (ALONE, BESIDE)
# Only without the probe: all processes of the evaluator on one CPU.
PINNED = "alone, on one CPU"
WITHOUT = "journal,block_io"
# `ab`'s names of the sides.
SIDES = {"ext4": "a", "tmpfs": "b"}


def measure(experiment: study.Study):
    """Writes the tables `evaluations` (without the probe), `changes`, `names`, `breakdown`,
    `calls`, `placement`, `waits`, `whatif`, `outliers`."""
    subprocess.run(["make", "-s", "-C", FRPC], check=True)
    lines = (FRPC / "expressions.txt").read_text().splitlines()[:: experiment.often(1, 3)]
    expressions = experiment.scratch / "expressions"
    expressions.write_text("\n".join(lines) + "\n")
    with contextlib.ExitStack() as mounts:
        disks = {
            kind: mounts.enter_context(mounted(kind, experiment.scratch / kind)) for kind in DISKS
        }
        commands = {
            kind: f"{FRPC}/measure -m 2 -e {expressions} --errors /dev/null --dir {disk}"
            for kind, disk in disks.items()
        }
        plain(experiment, commands, disks["ext4"])
        experiment.progress("runs without the probe are done")
        probed(experiment, commands, disks["ext4"])


def beside(scene: str, disk: Path):
    return writer(disk) if scene == BESIDE else contextlib.nullcontext()


def plain(experiment: study.Study, commands: dict[str, str], disk: Path):
    rows = []
    arms = [(scene, kind) for scene in (*SCENES, PINNED) for kind in DISKS]
    for number, (scene, kind) in study.rounds(arms, experiment.often(20, 3)):
        folder = experiment.scratch / f"plain-{number}-{scene}-{kind}"
        pinned = "taskset -c 1 " if scene == PINNED else ""
        with beside(scene, disk):
            shell(folder, f"{pinned}{commands[kind]} --results results")
        with (folder / "results").open(newline="") as file:
            rows += [
                {
                    "round": number,
                    "scene": scene,
                    "disk": kind,
                    "elapsed_ns": int(row["elapsed_ns"]),
                }
                for row in csv.DictReader(file)
            ]
    experiment.results.write("evaluations", rows)


def probed(experiment: study.Study, commands: dict[str, str], disk: Path):
    tables: dict[str, list[Row]] = defaultdict(list)
    slowest = outliers.Outliers(each=("scene", "disk"))
    pairs = experiment.often(12, 3)
    for scene in SCENES:
        out = experiment.scratch / f"ab-{scene[:5]}"
        sides = [f"{commands[kind]} --results /dev/null".split() for kind in DISKS]
        with beside(scene, disk):
            comparison = ab.compare(out, *sides, pairs)
        tables["changes"] += ab.changes(comparison, "exec", scene=scene)
        tables["names"] += [
            {"scene": scene, **{key: of[key] for key in NAMES}}
            for of in ab.of_kind(comparison, "exec")["names"]
        ]
        for disk_kind, side in SIDES.items():
            for number in range(1, pairs + 1):
                capture = study.Capture(out, out / f"{side}.{number}")
                requests = [request for request in capture.requests if request["kind"] == "exec"]
                labels = {"scene": scene, "disk": disk_kind, "pair": number}
                tables["breakdown"] += breakdown.of(capture, requests, **labels)
                ordered = sorted(requests, key=lambda request: request["latency_ns"])
                middle = ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4]
                slowest.add(capture, requests, middle, **labels)
                found = inside.segments(capture)
                wanted = {request["request_id"] for request in requests}
                tables["calls"] += inside.calls(found, wanted, labels)
                tables["waits"] += inside.waits(found, requests, labels)
                two = inside.on_two_cpus(capture, wanted)
                tables["placement"].append({**labels, "requests": len(wanted), "on_two_cpus": two})
                tables["whatif"].append({**labels, **whatif(capture)})
        if scene == BESIDE:
            experiment.keep(study.Capture(out, out / "a.1"), "exec")
        experiment.progress(f"{scene}: the comparison is made")
    for name, rows in tables.items():
        experiment.results.write(name, rows)
    experiment.results.write("outliers", slowest.rows())


NAMES = ("category", "side", "says", "name", "a_ns", "b_ns", "change_ns")


def whatif(capture: study.Capture) -> Row:
    """The evaluations of a capture as measured, and as estimated without the categories."""
    command = [RPCPROBE, "whatif", str(capture.path), "--kind", "exec", "--json"]
    said = subprocess.run([*command, "--without", WITHOUT], capture_output=True, check=True).stdout
    kind = json.loads(said)["kinds"][0]
    row = {"touched": kind["touched"], "requests": kind["requests"]}
    for name, of in (("was", kind["as_it_was"]), ("without", kind["without"])):
        row |= {f"{name}_{key}_ns": round(of[f"{key}_ns"]) for key in ("p50", "p99", "max", "mean")}
    return row
