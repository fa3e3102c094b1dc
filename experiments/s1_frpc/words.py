"""The sentences of RESULTS.md, which depend on the figures."""

from common import (
    REPORTED_EVALUATION_NS,
    REPORTED_MORE,
    SHOWN_NS,
    STORAGE,
    between,
    more_by,
    range_of,
    signed,
    slope_verdict,
    us_and_interval,
)
from facts import GROUPS, MODES, PHASES, Facts
from roundtrips import ANY_CPU, ONE_CPU
from study import breakdown, ns, percent
from study.capture import Row
from study.statistics import interval, median


def contradictions(facts: Facts) -> list[str]:
    """The statements of the report that the figures contradict, in short."""
    found, total, evaluating = facts.differences(3), facts.mean_ns(1), facts.evaluating_ns()
    said = []
    if evaluating < total / 2:
        said.append(
            f"""The evaluator's work is {percent(evaluating / total)} of an evaluation, not 90 %: starting, linking and ending
            the process is the rest."""
        )
    if facts.differs(2) is False or (
        facts.differs(2) and median(facts.more(2)) < REPORTED_MORE[2] / 2
    ):
        said.append(
            f"""Files cost {"nothing that shows" if facts.differs(2) is False else "less"}
            ({signed(median(facts.more(2)))}), where +11 % was reported, and no typical evaluation waits for the disk
            ({ns(facts.mean_ns(2, *STORAGE))})."""
        )
    process, pipe = (found[name][0] for name in list(GROUPS)[:2])
    if process > pipe:
        said.append(
            f"""What mode 3 adds is not pipe calls and context switches ({us_and_interval(found[list(GROUPS)[1]])} us and
            {us_and_interval(found["run queue"])} us) but a second process ({us_and_interval(found[list(GROUPS)[0]])} us)."""
        )
    slowest = [row for row in facts.results.read("outliers", mode=2) if row["more_ns"] > 0]
    if not any(row["category"] in STORAGE for row in slowest):
        waited, others = for_a_cpu(slowest)
        said.append(
            f"""None of the {len(waited) + len(others)} slowest evaluations on files waited for a commit of the journal;
            {len(waited)} of them waited for a CPU."""
        )
    return said or ["Nothing."]


def contradiction(facts: Facts) -> str:
    total, evaluating = facts.mean_ns(1), facts.evaluating_ns()
    alone, found = facts.alone_ns()
    phases = {phase: facts.mean_ns(1, phase=phase) for phase in PHASES}
    first = max(phases, key=phases.get)
    dominates = evaluating > total / 2
    return f"""**The report contradicts itself, and {
        "its breakdown is right" if dominates else "the smaller figure is right"
    }.**
        It says that parse + evaluate takes at most 8 us, and charges 100 ms of 111 ms to "evaluator work". In a process that
        runs already an expression takes {ns(alone)} ({
        between(found, ns)
    }) with parsing, evaluating and printing it.
        In a process of its own, from the end of the read of the expression to the write of the answer, it takes {
        ns(evaluating)
    }:
        {percent(evaluating / total)} of the {ns(total)} of an evaluation. {
        "More than half of it is evaluation."
        if dominates
        else f"The other {percent(1 - evaluating / total)} make the process, load it and take it away: {first} is"
        f" the largest phase with {percent(phases[first] / total)}."
    } So what the report calls the evaluator is
        {
        "the evaluator"
        if dominates
        else "the life of a process. Our absolute times are two orders of magnitude below the reported ones"
        if total < 10e6
        else "the life of a process"
    }; the comparison of parts is what can be reproduced."""


def evaluation(facts: Facts) -> str:
    total = facts.evaluating_ns()
    fault, user = facts.evaluating_ns(category="fault"), facts.evaluating_ns(category="user")
    alone = facts.alone_ns()[0]
    return f"""Why {ns(total)} in a new process and {ns(alone)} in one that runs: {ns(fault)} ({percent(fault / total)}) are
        page faults on code and data that the process touches for the first time, and {ns(user)} user time, in which
        caches are cold and functions of the libraries are bound at their first call."""


def linking(facts: Facts) -> str:
    phase, after, often = facts.stretch_place()
    stretch, cpuid = facts.stretch_ns(), facts.cpuid_ns()
    asking, known, kernel = facts.linking_samples()
    static = facts.medians(1, "static")
    saved = median(facts.medians(1)) - median(static)
    linking_ns = facts.mean_ns(1, phase="dynamic linking")
    total = facts.mean_ns(1)
    share = asking / max(known, 1)
    says = (
        f"""**The largest single piece is the dynamic linker asking what CPU it runs on.** An uninterrupted stretch of user
        time of {ns(stretch)} ({percent(stretch / total)} of an evaluation) lies in the phase {phase}, after its call
        {after.split()[0] if after else "exec"} in {percent(often, 0)} of evaluations."""
        if share > 0.5
        else f"""The longest stretch without a call or a page fault is user time of {ns(stretch)} ({percent(stretch / total)} of
        an evaluation)."""
    )
    return f"""{says} What it is, is inferred from samples: of {known} samples of user time in this phase (`--stacks`), {asking} are in functions of `ld.so` that
        ask the CPU for its features and caches by CPUID (and {kernel} in the kernel, at the edges of calls and faults). One CPUID takes {ns(cpuid)} here,
        {"because a virtual machine leaves to its hypervisor for each" if cpuid > 500 else "so it costs little"}: the stretch is
        worth {stretch / cpuid:.0f} of them. Linked statically, where CPUID is still executed, an evaluation takes
        {range_of(static)}: {ns(saved)} less ({percent(saved / median(facts.medians(1)))}). Foretold from the phase, less that
        stretch: {ns(linking_ns - stretch)}."""


def typical(facts: Facts) -> str:
    segments = facts.results.read("typical")
    shown = [s for s in segments if s["duration_ns"] >= SHOWN_NS]
    total = sum(s["duration_ns"] for s in segments)
    return f"""The segments of one typical evaluation, {ns(total)} in all: those of {ns(SHOWN_NS)} or more are {len(shown)} of
        {len(segments)}, {percent(sum(s["duration_ns"] for s in shown) / total, 0)} of the time; the others are mostly page faults and short calls."""


def files(facts: Facts) -> str:
    found = facts.differences(2)
    storage = facts.mean_ns(2, *STORAGE)
    vfs = {mode: facts.mean_ns(mode, "kernel.vfs") for mode in (1, 2)}
    share = median(facts.more(2))
    if facts.differs(2) is None:
        head = "**Too few runs to tell mode 2 from mode 1.**"
    elif not facts.differs(2) or share < 0:
        head = "**Contradicts the report: mode 2 is not slower than mode 1 here.**"
    elif share < REPORTED_MORE[2] / 2:
        head = "**Contradicts the report: mode 2 is hardly slower than mode 1 here.**"
    else:
        head = "**As reported, mode 2 is slower than mode 1.**"
    return f"""{head} Its median against mode 1's, paired by round: {more_by(facts, 2)}; +11 % was reported. In both modes the evaluator's process opens its input,
        creates its output file on the ext4 and writes it; in mode 1 before exec, as a shell's `<` and `>` do. Calls to the
        file system take {ns(vfs[1])} in mode 1 and {ns(vfs[2])} in mode 2 ({us_and_interval(found["files"])} us). Waits
        for the disk (journal, block_io, writeback) are {ns(storage)} of a typical evaluation in mode 2:
        {"no metadata is flushed on the way" if storage < 1000 else "metadata is flushed on the way"}; the kernel
        writes the journal later, in a thread of its own. What happens beside a writer that forces commits is in
        [tmpfs_ext4](../tmpfs_ext4/RESULTS.md)."""


def pipes(facts: Facts) -> str:
    found = facts.differences(3)
    process, pipe = (found[name][0] for name in list(GROUPS)[:2])
    middle = facts.mean_ns(3, "fault", side="middle")
    runqueue = found["run queue"][0]
    total = found["in all"][0]
    head = (
        "**The pipes are the smaller part: mode 3 starts a second process.**"
        if process > pipe + max(runqueue, 0)
        else "**Pipes and context switches are most of what mode 3 adds.**"
    )
    return f"""{head} Its median against mode 1's, paired by round: {more_by(facts, 3)}; +6 % was reported. Of {total / 1e3:+.0f} us
        in captures, {process / 1e3:+.0f} us are fork, exit and wait of the back end, and page faults: {middle / 1e3:.0f} us are faults
        of the back end itself, a new process that has to map its pages anew or copy them; {pipe / 1e3:+.0f} us are the pipes (calls, and the question lying in the pipe until the back end first runs), and
        {runqueue / 1e3:+.0f} us the run queue. The evaluation has {facts.faults(3):.0f} page faults, {facts.faults(1):.0f} in mode 1.
        Through a pair of processes that is there already, the same round trip takes {ns(median(facts.trips(3)))}."""


def for_a_cpu(table: list[Row]) -> tuple[list[list[Row]], list[list[Row]]]:
    """The slowest evaluations whose excess over typical ones is mostly run queue; and the other
    slowest evaluations."""
    requests: dict[tuple[int, int], list[Row]] = {}
    for row in table:
        requests.setdefault((row["mode"], row["rank"]), []).append(row)
    found: tuple[list[list[Row]], list[list[Row]]] = ([], [])
    for of in requests.values():
        queue = sum(row["more_ns"] for row in of if row["category"].startswith("runqueue."))
        found[queue <= sum(row["more_ns"] for row in of) / 2].append(of)
    return found


def other_excess(others: list[list[Row]]) -> str:
    """The excess over typical evaluations of the slowest ones that did not wait for a CPU."""
    if not others:
        return ""
    sums: dict[str, int] = {}
    for row in (row for of in others for row in of):
        sums[row["category"]] = sums.get(row["category"], 0) + row["more_ns"]
    first = sorted(sums, key=lambda name: -sums[name])[:3]
    said = f" What the other {len(others)} have more is mostly {', '.join(first)}"
    if all(name.startswith(("user", "fault", "kernel.")) for name in first):
        said += """: work that took longer than usual. The hypervisor may have had the CPU without telling, which rpcprobe
            cannot see"""
    return f"{said}."


def outliers(facts: Facts) -> str:
    table = [row for row in facts.results.read("outliers") if row["more_ns"] > 0]
    total = sum(row["more_ns"] for row in table)

    def share(*names: str) -> float:
        return sum(row["more_ns"] for row in table if row["category"].startswith(names)) / total

    behind: dict[str, int] = {}
    for row in table:
        if row["category"].startswith("runqueue."):
            behind[row["who"]] = behind.get(row["who"], 0) + row["more_ns"]
    names = ", ".join(f"`{name}`" for name in sorted(behind, key=behind.get, reverse=True)[:4])
    queue, preempted = share("runqueue."), share("runqueue.preempted")
    storage = share(*STORAGE)
    waited, others = for_a_cpu(table)
    if len(waited) > len(others):
        head = f"**Of the {len(waited) + len(others)} slowest evaluations {len(waited)} waited for a CPU.**"
        if preempted < queue / 2:
            head += """ Most of it is not the involuntary context switches that the report saw in mode 1, but
                the wait after a fork or a wake-up until the thread runs."""
        else:
            head += " Most of it is involuntary context switches, as the report says of mode 1."
        head += other_excess(others)
    else:
        head = "**The slowest evaluations are not mainly waits for a CPU.**"
    journal = (
        "None of them waited for the journal or a disk, in mode 2 or any other: the report's guess about mode 2 is not confirmed."
        if storage == 0
        else f"Waits for the journal or a disk are {percent(storage)}."
    )
    return f"""{head} Of what the five slowest of each mode have more than typical ones, {percent(queue)} is the run queue
        ({percent(preempted)} after the CPU was taken away, {percent(queue - preempted)} after a wake-up), mostly behind
        {names or "nobody"}. {journal} The table has the parts of at least 5 % of the excess, of captured runs.
        Who had the CPU is particular to this machine."""


def tokens(facts: Facts) -> str:
    said = []
    for mode in MODES:
        slopes, middle = facts.slopes(mode), median(facts.medians(mode))
        low, high = interval(slopes)
        said.append(
            f"mode {mode}: {median(slopes):+,.0f} ns ({low:+,.0f} to {high:+,.0f}), "
            f"{percent(median(slopes) / middle, 2, sign=True)} of the median "
            f"({percent(low / middle, 2, sign=True)} to {percent(high / middle, 2, sign=True)})"
        )
    return f"""**{slope_verdict(facts).capitalize()}.** The line of least squares through the medians of each number of tokens rises for each token more by,
        {"; ".join(said)}. Nearly nothing of the time is parse + evaluate, so more tokens can hardly be seen in it."""


def trips_per_second(facts: Facts, mode: int) -> float:
    rows = facts.results.read("trips", mode=mode, probed=False, cpus=ANY_CPU)
    return median([row["trips"] / (row["total_ns"] / 1e9) for row in rows])


def roundtrips(facts: Facts) -> str:
    costs = {mode: median(facts.trips(mode)) for mode in (3, 4, 5, 6)}
    process = median(facts.medians(1))
    best = min(costs, key=costs.get)
    rows = facts.results.read("trip_breakdown", mode=3)
    user = breakdown.mean_ns(rows, "user", "server")
    one = {mode: median(facts.trips(mode, cpus=ONE_CPU)) for mode in costs}
    order = ", ".join(f"mode {mode}" for mode in sorted(one, key=one.get))
    return f"""What the report names as future work. One pair of processes serves 3000 expressions. An expression then costs
        {ns(costs[3])} in mode 3 instead of {ns(process)} for a process of its own: {process / costs[3]:,.0f} times less. With both
        processes on one CPU, from the cheapest: {order}. {"Batches win: the two wake-ups of a round trip are shared by 16 expressions." if best == 4 else ""}
        The back end's own user time in mode 3, {ns(user)} an expression under the probe, is parse + evaluate + print, and it is
        {"below" if user < REPORTED_EVALUATION_NS else "above"} the reported 8 us. The rest is calls, the wake-ups, and bytes that lie
        ready (queue.pipe, queue.socket) until the other side has its CPU."""


def placement(facts: Facts) -> str:
    """The effect of running both processes on one CPU."""
    free = {mode: facts.trips(mode) for mode in (3, 5, 6)}
    one = {mode: median(facts.trips(mode, cpus=ONE_CPU)) for mode in free}
    mode = max(free, key=lambda mode: max(free[mode]) / one[mode])
    said = "; ".join(f"mode {of} {ns(one[of])} instead of {range_of(free[of])}" for of in free)
    woke = facts.woke_idle_ns(mode)
    head = (
        "**Where both processes run matters more than the transport.**"
        if max(free[mode]) > 2 * one[mode]
        else "Where both processes run makes little difference here."
    )
    return f"""{head} On one CPU (`taskset`) an expression takes: {said}. On two CPUs each side sleeps while the other works, and an idle CPU
        has to be woken up for each message; which it is, is the scheduler's choice. In captured runs of mode {mode} these wake-ups
        (runqueue.wakeup behind `idle`) took {ns(min(woke))} to {ns(max(woke))} of a round trip."""


def probe(facts: Facts) -> str:
    said = [
        f"mode {mode} {signed(median(facts.medians(mode, probed=True)) / median(facts.medians(mode)) - 1)}"
        for mode in MODES
    ]
    off = facts.off_ns()
    return f"""Medians of the driver's own stamps under the probe, against without: {"; ".join(said)}. The hooks lie on calls,
        faults, and switches, of which a process that starts and ends has hundreds, so shares by category are those of a
        probed run. The driver's stamps and rpcprobe's windows of the same {len(off):,} evaluations differ by {ns(median(off))} in the
        median (stamps are taken outside of fork and wait), at most {ns(max(off, key=abs))}."""
