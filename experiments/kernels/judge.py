"""Judges whether a kernel's capture holds the workloads' activity."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cases import ATTACHED_AS, SHARE_HIGH, SHARE_LOW, Case, Cause
from losses import judge_losses
from observed import Kernel, Observed, complete_requests, requests_of, tiles

GROUND_TRUTH = Path(__file__).resolve().parent.parent / "ground_truth"
sys.path.insert(0, str(GROUND_TRUTH))

from truth import UNKNOWN, read_log  # noqa: E402

# Hooks that are attached only on request, so not in every capture.
ON_REQUEST = ("sw:cpu-clock", "task:", "task_file:", "unix:")

# The least number of rows of the cross-check with bcc.
LEAST_ROWS = 10


@dataclass(frozen=True)
class Verdict:
    name: str
    passed: bool
    # The finding, or the reason of a failure.
    note: str
    skipped: bool = False


def judge_doctor(kernel: Kernel, observed: Observed) -> Verdict:
    """The capture's attached hooks must be those that doctor reports."""

    def always(name: str) -> bool:
        return not name.startswith(ON_REQUEST)

    said = {h["name"]: h["attached_as"] for h in kernel.doctor["hooks"] if always(h["name"])}
    had = {name: means for name, means in observed.hooks.items() if always(name)}
    problems = [
        f"{name}: doctor says {said.get(name)}, the capture had {had.get(name)}"
        for name in sorted(said.keys() | had.keys())
        if name not in said or name not in had or said[name] != had[name]
    ]
    if not kernel.facts["securityfs_mounted"] and "unknown" not in (
        kernel.doctor["lockdown"] or ()
    ):
        problems.append(f"cannot see lockdown, says {kernel.doctor['lockdown']}")
    means = Counter(means for means in had.values() if means)
    absent = sorted(name for name, means in had.items() if not means)
    note = ", ".join(f"{n} {name}" for name, n in sorted(means.items()))
    note += f"; absent: {', '.join(absent)}" if absent else ""
    return Verdict("doctor", not problems, "; ".join(problems) or note)


def hookable(kernel: Kernel, way: str) -> set[str]:
    """The functions that can be hooked directly in this way, according to doctor."""
    return {each["function"] for each in kernel.doctor["direct"] if "Ok" in each[way]}


def judge_refusal(kernel: Kernel, way: str, said: str) -> Verdict:
    """On a kernel that allows no direct hooks, doctor says so; a capture with them is refused, with
    a message."""
    allowed = hookable(kernel, way)
    if allowed:
        return Verdict("hooks", False, f"doctor says {len(allowed)} can be hooked; {said.strip()}")
    why = said.strip().removeprefix("rpcprobe: ") or "nothing was said"
    told = "does not allow them" in why
    return Verdict("hooks", told, f"refused, as doctor says: {why}" if told else why, skipped=told)


def judge_stacks(kernel: Kernel, observed: Observed) -> Verdict:
    """Stacks of sleeps and samples were taken, and doctor says that they can be."""
    note = f"{observed.sleep_stacks} stacks of sleeps, {observed.samples} samples"
    taken = observed.sleep_stacks > 0 and observed.samples > 0
    if "Ok" not in kernel.doctor["stacks"]:
        return Verdict("stacks", False, f"doctor says none can be taken; {note}")
    return Verdict("stacks", taken, note)


def judge_hooks(kernel: Kernel, observed: Observed) -> Verdict:
    """The capture's direct hooks must be those that doctor reports as possible."""
    said, means = hookable(kernel, observed.way), ATTACHED_AS[observed.way]
    functions = {each["function"] for each in kernel.doctor["direct"]}
    had = {name for name, attached_as in observed.hooks.items() if attached_as == means}
    problems = [f"{name}: doctor says otherwise" for name in sorted(said ^ had)]
    problems += [f"{name} is not told of" for name in sorted(functions - observed.hooks.keys())]
    if not said:
        problems.append("doctor says none can be hooked, and still there is a capture")
    note = f"{len(had)} {means}"
    absent = sorted(functions - had)
    note += f"; absent: {', '.join(absent)}" if absent else ""
    return Verdict("hooks", not problems, "; ".join(problems) or note)


def share_found(observed: Observed, cause: Cause, requests: list[dict]) -> float:
    """The ratio of attributed (in the cause's categories) to injected time, over all requests."""
    if cause.log is None:
        injected_ns = cause.each_ns * len(requests)
        found = requests
    else:
        rows = read_log(observed.folder / cause.log)
        rows = [row for row in rows if row[cause.column] != UNKNOWN]
        injected_ns = sum(row[cause.column] for row in rows)
        spans = [(row["start_ns"], row["end_ns"]) for row in rows]
        found = [r for r in requests if any(begin <= r["start_ns"] < end for begin, end in spans)]
    if not injected_ns:
        return float("nan")
    attributed_ns = sum(r["category_ns"].get(c) or 0 for r in found for c in cause.categories)
    return attributed_ns / injected_ns


def judge_functions(observed: Observed, case: Case, complete: list[dict]) -> tuple[list, list]:
    """Notes and problems of the findings from direct hooks."""
    notes, problems = [], []
    of = [observed.segments[r["request_id"]] for r in complete]
    if case.copies_seen:
        copied_ns = Counter()
        for segment in (s for segments in of for s in segments if s["category"] == "copy"):
            # A helper's time is always modelled.
            if segment["rule"] != "helper":
                copied_ns[segment["evidence"]] += segment["duration_ns"]
        expected = "measured" if observed.way in ATTACHED_AS else "modelled"
        us = copied_ns[expected] / 1000 / max(1, len(complete))
        notes.append(f"copy {us:,.1f} us {expected}")
        if not us:
            problems.append(f"no copy is {expected}")
        if others := sum(copied_ns.values()) - copied_ns[expected]:
            problems.append(f"{others / 1000:,.1f} us of copying are not {expected}")
    if case.function and observed.way in ATTACHED_AS:
        category, function = case.function
        told = sum(
            any(
                s["category"] == category and f", in {function}" in (s["detail"] or "")
                for s in each
            )
            for each in of
        )
        notes.append(f"{function} told in {told}")
        if 2 * told < len(complete):
            problems.append(f"{function} told in {told} of {len(complete)} only")
    return notes, problems


def judge_crosscheck(folder: Path) -> Verdict:
    """Judges the printed cross-check with bcc: all rows must be good, or it says why it was
    skipped."""
    said = (folder / "crosscheck").read_text()
    lines = said.strip().splitlines()
    refusals = [line for line in lines if "SKIPPED" in line and "perf" not in line]
    if refusals:
        return Verdict("bcc cross-check", True, "; ".join(refusals), skipped=True)
    rows = [line for line in lines if " bcc " in line or " kernel " in line]
    apart = [
        line for line in lines if line.endswith(": NO") or " NO: " in line or "failed:" in line
    ]
    bad = [" ".join(line.split()) for line in apart]
    if len(rows) < LEAST_ROWS:
        bad.append(f"{len(rows)} rows only: {' '.join(lines[-1:])}")
    note = f"{len(rows)} rows agree, {sum('explained' in row for row in rows)} of them as explained"
    return Verdict("bcc cross-check", not bad, "; ".join(bad) or note)


def not_run(observed: Observed, case: Case) -> Verdict | None:
    """A verdict if the workload was skipped or failed, so that there is nothing to judge."""
    window = observed.windows[case.name]
    if why := window.get("skipped"):
        return Verdict(case.name, True, why, skipped=True)
    if why := window.get("failed"):
        return Verdict(case.name, False, f"the workload: {why}")
    return None


def told_evidence(kernel: Kernel, category: str) -> str:
    """A category's evidence according to doctor."""
    return next(c["evidence"] for c in kernel.doctor["categories"] if c["category"] == category)


def judge(kernel: Kernel, observed: Observed, case: Case) -> Verdict:
    if verdict := not_run(observed, case):
        return verdict
    if case.over_sockets and told_evidence(kernel, "queue.socket") == "none":
        found = len(complete_requests(observed, case))
        note = f"no requests over sockets here, as doctor says; {found} are told"
        return Verdict(case.name, found == 0, note, skipped=found == 0)
    window = observed.windows[case.name]
    requests = requests_of(observed, case)
    complete = [r for r in requests if r["complete"]]
    notes = [f"{len(complete)} of {window['requests']}"]
    problems = []
    if len(complete) != window["requests"]:
        problems.append(f"{len(complete)} requests instead of {window['requests']}")
    reasons = Counter(
        f"{r['reason']} ({' to '.join((r[end] or {}).get('comm', '?') for end in ('client', 'server'))})"
        for r in requests
        if not r["complete"]
    )
    problems += [f"{n} incomplete: {reason}" for reason, n in reasons.items()]
    if broken := sum(
        sum(v or 0 for v in r["category_ns"].values()) != r["latency_ns"] for r in complete
    ):
        problems.append(f"{broken} do not add up")
    if gaps := sum(not tiles(r, observed.segments[r["request_id"]]) for r in complete):
        problems.append(f"{gaps} do not tile")
    if case.method and (others := {r["method"] for r in complete} - {case.method}):
        problems.append(f"called {', '.join(sorted(map(str, others)))}")
    if case.attach and (traced := sum(r["client"] is not None for r in complete)):
        problems.append(f"{traced} have a client, which nobody traces")
    if case.told:
        category, begin = case.told
        told = sum(
            any(s["category"] == category and (s["detail"] or "").startswith(begin) for s in of)
            for of in (observed.segments[r["request_id"]] for r in complete)
        )
        notes.append(f"{category} told in {told}")
        if 2 * told < len(complete):
            problems.append(f"{category}: {begin.strip()} told in {told} of {len(complete)} only")
    more = [judge_functions(observed, case, complete)]
    if case.losses:
        more.append(judge_losses(observed, case, complete))
    for of_these in more:
        notes += of_these[0]
        problems += of_these[1]
    if case.cause:
        share = share_found(observed, case.cause, complete)
        notes.append(f"{'+'.join(case.cause.categories)} {share:.2f} of injected")
        if not SHARE_LOW <= share <= SHARE_HIGH:
            problems.append(f"{notes[-1]}, not within {SHARE_LOW} to {SHARE_HIGH}")
    return Verdict(case.name, not problems, "; ".join(problems or notes))
