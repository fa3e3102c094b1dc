"""Runs kvlog without the probe, with it, and with stacks; collects the stamps, and the breakdown
between them."""

import random
from collections import Counter
from pathlib import Path

import study
from stamps import STEPS, between, seen, told, windows_of
from study import hosts, windows
from study.breakdown import colours
from study.capture import NETLAB, Capture, Row, shell
from study.labs import kvlog as lab


# Numbers of writes: the first ones, those that store under one of ten new keys, and all.
FIRST, FRESH, WRITES = 3, 10, 30
STAGES = ("first", "new key", "overwrites")
SAMPLES_PER_S, SAMPLED_WRITES, SAMPLED_KEYS = 4999, 200, 100
MOST_SHIFT_US = 2_000_000


def measure(study_: study.Study):
    rounds, rows = study_.often(20, 2), Tables()
    for number, arm in study.rounds(("bare", "probed"), rounds):
        shift_us = random.Random(number).randrange(-MOST_SHIFT_US, MOST_SHIFT_US)
        folder = study_.scratch / f"{arm}{number}"
        script = on_link(folder, lab.script(WRITES, shift_us=shift_us))
        if arm == "bare":
            shell(folder, script)
            found = None
        else:
            found = study.capture(folder, script)
            if number == 0:
                study_.keep(found, "tcp")
        rows.add({"round": number, "arm": arm}, folder, shift_us * 1000, found)
        study_.progress(f"round {number + 1} of {rounds}: {arm}")
    for number in range(study_.often(3, 1)):
        folder = study_.scratch / f"sampled{number}"
        script = on_link(folder, lab.script(SAMPLED_WRITES, SAMPLED_KEYS))
        found = study.capture(folder, script, f"--stacks={SAMPLES_PER_S}")
        rows.add_samples(number, found)
        study_.progress("a run with stacks")
    rows.write(study_.results)


def on_link(folder: Path, inner: str) -> str:
    folder.mkdir()
    (folder / "inner.sh").write_text(hosts.apart() + inner)
    return f"{NETLAB} link -- /bin/sh -e inner.sh"


def stage_of(number: int, keys: int = FRESH) -> str:
    return STAGES[0] if number < FIRST else STAGES[1] if number < keys else STAGES[2]


def life_of_client(found: Capture) -> list[Row]:
    """The segments of the client's process, from its start to its end. The process's own segments
    have side `client` here."""
    program = [r for r in found.requests if (r["method"] or "").endswith("/kvclient")]
    segments = found.segments(program)[program[0]["request_id"]]
    return [{**s, "side": "client"} if s["comm"] == "kvclient" else s for s in segments]


class Tables:
    def __init__(self):
        self.runs: list[Row] = []
        self.rpcs: list[Row] = []
        self.parts: list[Row] = []
        self.moved: list[Row] = []
        self.timeline: list[Row] = []
        self.samples: list[Row] = []

    def add(self, run: Row, folder: Path, shift_ns: int, found: Capture | None):
        offset_ns, uncertainty_ns = lab.clock(folder)
        self.runs.append(
            {**run, "shift_ns": shift_ns, "offset_ns": offset_ns, "uncertainty_ns": uncertainty_ns}
        )
        calls = windows_of(folder, shift_ns)
        requests = between(found, calls) if found else [None] * len(calls)
        segments = found.segments(filter(None, requests)) if found else {}
        for call, request in zip(calls, requests):
            own = segments[request["request_id"]] if request else []
            stage = stage_of(call["number"]) if call["method"] == "write" else ""
            self.rpcs.append({**run, "stage": stage, **told(call), **seen(call, request, own)})
        if found:
            writes = [(c, r) for c, r in zip(calls, requests) if c["method"] == "write"]
            self.add_parts(run, found, writes, segments)
            if run["round"] == 0:
                self.add_timeline(found, writes, segments)

    def add_parts(self, run: Row, found: Capture, writes: list, segments: dict):
        life = life_of_client(found)
        colour = colours(found, {"tcp", "exec"})
        for stage in STAGES:
            chosen = [(c, r) for c, r in writes if stage_of(c["number"]) == stage]
            for step in STEPS:
                spans = []
                for call, request in chosen:
                    begin_ns, end_ns = call[step]
                    of = life if step == "gap" else segments[request["request_id"]]
                    spans.append((end_ns - begin_ns, windows.within(of, begin_ns, end_ns)))
                self.parts += windows.breakdown(spans, colour, **run, stage=stage, step=step)
            for side in ("client", "server"):
                sums = lab.moved([r for _, r in chosen], side)
                self.moved.append(
                    {**run, "stage": stage, "side": side, "requests": len(chosen), **sums}
                )

    def add_timeline(self, found: Capture, writes: list, segments: dict):
        """Adds the pieces of the ten writes that store under a new key, merged by category and
        side."""
        colour = colours(found, {"tcp"})
        for call, request in writes[:FRESH]:
            for piece in merged(segments[request["request_id"]]):
                begin_ns = piece["start_ns"] - call["all"][0]
                self.timeline.append(
                    {
                        "number": call["number"],
                        "begin_ns": begin_ns,
                        "duration_ns": piece["duration_ns"],
                        "side": piece["side"],
                        "category": piece["category"],
                        "colour": colour[piece["category"]],
                    }
                )

    def add_samples(self, number: int, found: Capture):
        stacks = lab.functions(found)
        calls = windows_of(found.folder, lab.SHIFT_US * 1000)
        writes = [
            pair for pair in zip(calls, between(found, calls)) if pair[0]["method"] == "write"
        ]
        segments = found.segments(request for _, request in writes)
        life = life_of_client(found)
        counts: Counter = Counter()
        for call, request in writes:
            stage = stage_of(call["number"], SAMPLED_KEYS)
            for step, of in (("process", segments[request["request_id"]]), ("gap", life)):
                for piece in windows.within(of, *call[step]):
                    if piece["samples"]:
                        names = functions_of(stacks[piece["stack_id"]])
                        counts[stage, step, piece["category"], *names] += piece["stack_samples"]
        for key, count in counts.items():
            names = ("stage", "step", "category", "kernel_function", "own_function")
            self.samples.append({"run": number, **dict(zip(names, key)), "samples": count})
        for side in ("client", "server"):
            sums = lab.moved([request for _, request in writes], side)
            run = {"round": number, "arm": "sampled", "stage": "all", "side": side}
            self.moved.append({**run, "requests": len(writes), **sums})

    def write(self, results: study.Results):
        for name in ("runs", "rpcs", "parts", "moved", "timeline", "samples"):
            results.write(name, getattr(self, name))


def merged(segments: list[Row]) -> list[Row]:
    """Merges neighbouring segments of the same category and side."""
    pieces: list[Row] = []
    for segment in segments:
        names = segment["category"], segment["side"]
        if pieces and (pieces[-1]["category"], pieces[-1]["side"]) == names:
            pieces[-1]["duration_ns"] += segment["duration_ns"]
        else:
            pieces.append({**segment})
    return pieces


def functions_of(stack: list[Row]) -> tuple[str, str]:
    """The innermost function, if it is the kernel's, and the innermost function of the program."""
    kernel = next((frame["function"] for frame in stack[:1] if frame["kernel"]), "")
    own = next((frame["function"] for frame in stack if not frame["kernel"]), "")
    return kernel, own
