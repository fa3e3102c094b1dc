"""The sentences and rows of RESULTS.md, which depend on the figures."""

from facts import ALONE, BESIDE, PINNED, SCENES, Facts
from study import ns, percent
from study.capture import Row
from study.statistics import interval, median

# As reported: tmpfs's median against ext4's, and mode 2's worst outlier in medians of mode 2.
REPORTED_GAIN, REPORTED_SPIKE = -0.06, 2.34e8 / 1.23e8
RUN_QUEUE = "runqueue."
STORAGE = ("journal", "block_io", "writeback")


def signed(share: float) -> str:
    return percent(share, sign=True)


def us(value: float) -> str:
    return f"{value / 1e3:+.1f} us"


def gain(facts: Facts, scene: str) -> str:
    gains = facts.gains(scene)
    low, high = interval(gains)
    said = {None: ", of too few runs to tell", False: ": no difference shown", True: ""}
    return f"{signed(median(gains))} ({signed(low)} to {signed(high)}){said[facts.differs(scene)]}"


def compared(facts: Facts) -> list[tuple[str, str, str, str]]:
    rows = []
    for scene in SCENES:
        rows.append(
            (
                f"median on tmpfs, {scene}",
                "about -6 %",
                f"{ns(median(facts.medians(scene, 'ext4')))} to "
                f"{ns(median(facts.medians(scene, 'tmpfs')))}: {gain(facts, scene)}",
                carried(facts, scene),
            )
        )
    for scene in SCENES:
        worst = {disk: max(facts.values(scene, disk)) for disk in ("ext4", "tmpfs")}
        rows.append(
            (
                f"slowest, {scene}",
                "234 ms (1.9 medians) on ext4, gone on tmpfs",
                "; ".join(
                    f"{disk} {ns(of)} ({of / median(facts.medians(scene, disk)):.1f} medians)"
                    for disk, of in worst.items()
                ),
                slowest_in_short(facts, scene),
            )
        )
    waited = {scene: facts.waited(scene, "ext4") for scene in SCENES}
    rows.append(
        (
            "`openat()` behind a commit of the journal",
            "cause of the spike",
            "; ".join(
                f"{scene}: {waiters(waited[scene])} of {facts.evaluations(scene, 'ext4'):,} evaluations"
                + (f", longest {ns(waited[scene][0]['wait_ns'])}" if waited[scene] else "")
                for scene in SCENES
            ),
            journal_in_short(facts),
        )
    )
    rows.append(
        (
            "foretold by `whatif --without journal,block_io`, median",
            "",
            "; ".join(f"{scene} {signed(foretold(facts, scene))}" for scene in SCENES),
            "; ".join(f"tmpfs really, under the probe: {signed(really(facts, s))}" for s in SCENES),
        )
    )
    return rows


def contradictions(facts: Facts) -> list[str]:
    """The statements of the report that the figures contradict, in short."""
    said = []
    waited = {scene: waiters(facts.waited(scene, "ext4")) for scene in SCENES}
    storage = sum(facts.change_of(ALONE, "mean", name) for name in STORAGE)
    vfs = facts.change_of(ALONE, "mean", "kernel.vfs")
    if facts.differs(ALONE) and abs(storage) < abs(vfs):
        said.append(
            f"""tmpfs changes the median by {signed(median(facts.gains(ALONE)))}, but not because of the journal: alone,
            {waited[ALONE]} evaluations waited for a commit, and waits for the disk change by {us(storage)} of the mean. Calls change
            by {us(vfs)}, CPU time."""
        )
    elif facts.differs(ALONE) is False:
        said.append(f"Alone, the median on tmpfs against ext4: {gain(facts, ALONE)}.")
    if facts.differs(BESIDE) is False:
        said.append(f"Beside the writer, the median on tmpfs against ext4: {gain(facts, BESIDE)}.")
    worst = {disk: max(facts.values(BESIDE, disk)) for disk in ("ext4", "tmpfs")}
    if worst["tmpfs"] > worst["ext4"] / 2:
        longest = facts.waited(BESIDE, "ext4")
        said.append(
            f"""The slowest evaluations do not go away on tmpfs ({ns(worst["ext4"])} and {ns(worst["tmpfs"])} beside the writer):
            {percent(queued(facts), 0)} of what the slowest captured ones have more than typical ones is waiting for a CPU."""
            + (
                f" The longest wait for a commit was {ns(longest[0]['wait_ns'])}."
                if longest
                else ""
            )
        )
    return said or ["Nothing that these runs can tell."]


def waiters(rows: list[Row]) -> int:
    return len({(row["pair"], row["request_id"]) for row in rows})


def carried(facts: Facts, scene: str) -> str:
    """The categories that account for the change of the median, according to ab."""
    total = facts.total(scene, "p50")
    shown = facts.shown(scene)
    parts = shown or facts.parts(scene, "p50")[:2]
    said = ", ".join(f"{r['category']} ({r['side']}) {us(r['change_ns'])}" for r in parts)
    verdict = "changed" if shown else "nothing shown to change; largest"
    return f"{verdict}: {said}, of {us(total['change_ns'])} under the probe"


def verdict(facts: Facts, scene: str) -> str:
    total = facts.total(scene, "p50")
    vfs = facts.change_of(scene, "mean", "kernel.vfs")
    storage = sum(facts.change_of(scene, "mean", name) for name in STORAGE)
    mean = facts.total(scene, "mean")["a_ns"]
    differs = facts.differs(scene)
    if differs is None:
        head = f"Too few runs to tell tmpfs from ext4, {scene}."
    elif not differs:
        head = f"Contradicts the report: no difference of the medians is shown, {scene}."
    elif median(facts.gains(scene)) > 0:
        head = f"Contradicts the report: tmpfs is slower, {scene}."
    elif median(facts.gains(scene)) > REPORTED_GAIN / 2:
        head = (
            f"Contradicts the report in size: tmpfs is faster, {scene}, by less than half of 6 %."
        )
    else:
        head = f"As reported, tmpfs is faster, {scene}."
    shown = ", ".join(f"{r['category']} ({r['side']})" for r in facts.shown(scene))
    detectable = total["detectable_ns"]
    least = (
        f" A change of {percent(detectable / total['a_ns'])} would have been found in 8 of 10 such comparisons."
        if detectable
        else ""
    )
    return f"""**{head}** Without the probe the median changes by {
        gain(facts, scene)
    }. `rpcprobe ab` calls
        {shown or "no category"} of the median changed, and the median itself
        {"changed" if total["shown"] else "not beyond chance"}.{
        least
    } Of the mean, calls to the file system change by {us(vfs)}
        ({signed(vfs / mean)}), and waits for the journal and the disk {us(storage)} ({
        signed(storage / mean)
    }):
        {
        "of these two, the calls are what ext4 costs here."
        if abs(vfs) > abs(storage)
        else "of these two, the disk is what ext4 costs here."
    }"""


def statistic(facts: Facts, scene: str, name: str) -> tuple[str, ...]:
    row = facts.total(scene, name)
    bounds = (row["low_ns"], row["high_ns"])
    return (
        f"{name}, {scene}",
        ns(row["a_ns"]),
        ns(row["b_ns"]),
        f"{us(row['change_ns'])} ({signed(row['change_ns'] / row['a_ns'])})",
        "-" if None in bounds else f"{us(bounds[0])} to {us(bounds[1])}",
        "-" if row["p"] is None else f"{row['p']:.2g}",
        "changed" if row["shown"] else "",
    )


def calls(facts: Facts) -> str:
    ext4, tmpfs = facts.calls(ALONE, "ext4"), facts.calls(ALONE, "tmpfs")
    more = {name: ext4[name] - tmpfs.get(name, 0) for name in ext4}
    total = sum(ext4.values()) - sum(tmpfs.values())
    first = sorted(more, key=lambda name: -more[name])[:2]
    said = " and ".join(f"`{name}` ({us(more[name])})" for name in first)
    share = sum(more[name] for name in first) / total
    return f"""Which calls: of {us(total)} that calls take more on ext4, {percent(share, 0)} are {said}: creating the file in the
        directory, in a transaction of the journal, and reserving blocks for it. It is CPU time, not waiting. The rest of the calls are those
        of the dynamic linker and cost the same."""


def scheduling(facts: Facts) -> str:
    """The placement of the evaluator on CPUs, when it ran alone."""
    two = {disk: facts.on_two_cpus(ALONE, disk) for disk in ("ext4", "tmpfs")}
    woke = {disk: facts.woke_idle_ns(ALONE, disk) for disk in ("ext4", "tmpfs")}
    calls_ns = -facts.change_of(ALONE, "mean", "kernel.vfs")
    apart = woke["ext4"] - woke["tmpfs"]
    said = f"""Evaluations with work on more than one CPU: {percent(two["ext4"])} on ext4, {percent(two["tmpfs"])} on tmpfs. Waits for an idle CPU
        to wake up (runqueue.wakeup behind `idle`): {ns(woke["ext4"])} and {ns(woke["tmpfs"])} of an evaluation."""
    said += f" With all processes on one CPU (`taskset`, without the probe) the median changes by {gain(facts, PINNED)}."
    less = abs(median(facts.gains(PINNED))) < abs(median(facts.gains(ALONE))) / 2
    if apart > calls_ns / 2 and two["ext4"] > two["tmpfs"]:
        head = "**The other part is where processes run.**"
        said += f""" On ext4 the new process is put on the other, idle CPU more often, which has to be woken up and has colder
            caches{": on one CPU most of the difference is gone" if less else ""}. Why the scheduler does so is not shown: kernel
            threads that write ext4 later, which are on no evaluation's path, may occupy the CPU."""
    else:
        head = "Where processes run makes little of the difference."
    return f"{head} {said}"


def slowest_in_short(facts: Facts, scene: str) -> str:
    """What the slowest captured evaluations on ext4 waited for."""
    rows = [
        row
        for row in facts.results.read("outliers", scene=scene, disk="ext4")
        if row["more_ns"] > 0
    ]
    total = sum(row["more_ns"] for row in rows)
    queue = sum(row["more_ns"] for row in rows if row["category"].startswith(RUN_QUEUE))
    journal = sum(row["more_ns"] for row in rows if row["category"] in ("journal", "block_io"))
    return (
        f"the five slowest captured on ext4: run queue {percent(queue / total, 0)}, "
        f"journal and block_io {percent(journal / total, 0)} of the excess"
    )


def journal_in_short(facts: Facts) -> str:
    waited = facts.waited(BESIDE, "ext4")
    if not waited:
        return "no evaluation waited for a commit"
    in_openat = [row for row in waited if row["call"].startswith("openat")]
    shares = [row["wait_ns"] / row["latency_ns"] for row in waited]
    return (
        f"{waiters(in_openat)} of the {waiters(waited)} beside the writer waited in `openat` of the output; "
        f"a wait is at most {percent(max(shares))} of its evaluation"
    )


def spike(facts: Facts) -> str:
    worst = {
        (scene, disk): max(facts.values(scene, disk))
        for scene in SCENES
        for disk in ("ext4", "tmpfs")
    }
    vanished = worst[BESIDE, "tmpfs"] < worst[BESIDE, "ext4"] / 2
    p99 = {scene: facts.gains(scene, 0.99) for scene in SCENES}
    head = (
        "As reported, the slowest evaluation beside the writer is gone on tmpfs."
        if vanished
        else "Contradicts the report: tmpfs does not take the slowest evaluations away."
    )
    said = "; ".join(f"{disk}, {scene}: {ns(of)}" for (scene, disk), of in worst.items())
    return f"""**{head}** The slowest without the probe: {
        said
    }. The 99th percentile of a run on tmpfs against ext4, paired by
        round: {
        "; ".join(
            f"{scene} {signed(median(of))} ({signed(interval(of)[0])} to {signed(interval(of)[1])})"
            for scene, of in p99.items()
        )
    }."""


def waits(facts: Facts) -> str:
    waited = facts.waited(BESIDE, "ext4")
    count, evaluations = waiters(waited), facts.evaluations(BESIDE, "ext4")
    if not waited:
        return "No evaluation waited for a commit of the journal, even beside the writer."
    calls: dict[str, set] = {}
    for row in waited:
        calls.setdefault(row["call"], set()).add((row["pair"], row["request_id"]))
    said = ", ".join(
        f"{len(of)} in `{name}`"
        for name, of in sorted(calls.items(), key=lambda item: -len(item[1]))
    )
    alone = waiters(facts.waited(ALONE, "ext4"))
    slowest = [
        row["latency_ns"] for row in facts.results.read("outliers", scene=BESIDE, disk="ext4")
    ]
    among = any(row["latency_ns"] >= min(slowest) for row in waited)
    exists = any(name.startswith("openat") for name in calls)
    return f"""The mechanism that the report guessed {
        "exists" if exists else "was not seen in openat"
    }: beside the writer {count} of {evaluations:,} evaluations
        on ext4 ({percent(count / evaluations)}) waited for a commit ({said}), alone {alone}. {
        "But it is not what makes the slowest evaluations slow here"
        if not among
        else "It is among what makes the slowest evaluations slow"
    }: the longest such wait is {ns(waited[0]["wait_ns"])}, the longest evaluation
        that had one took {ns(max(row["latency_ns"] for row in waited))}. The longest waits:"""


def waited_for(row: Row) -> str:
    return (row["detail"] or "").rpartition(", in ")[0] or row["category"]


def queued(facts: Facts) -> float:
    """The run queue's share of the slowest captured evaluations' excess over typical ones."""
    rows = [row for row in facts.results.read("outliers") if row["more_ns"] > 0]
    queue = sum(row["more_ns"] for row in rows if row["category"].startswith(RUN_QUEUE))
    return queue / sum(row["more_ns"] for row in rows)


def slowest(facts: Facts) -> str:
    queue = queued(facts)
    where = (
        "They waited for a CPU, on either file system"
        if queue > 0.5
        else "They did not mainly wait for a CPU"
    )
    return f"""The five slowest captured evaluations of each. {where}: {percent(queue)} of what they have more than typical
        ones is the run queue. The writer, too, needs a CPU, so beside it a tmpfs also has slow evaluations."""


def foretold(facts: Facts, scene: str) -> float:
    was = facts.whatif(scene, "ext4", "was_p50_ns")
    return facts.whatif(scene, "ext4", "without_p50_ns") / was - 1


def really(facts: Facts, scene: str) -> float:
    return (
        facts.whatif(scene, "tmpfs", "was_p50_ns") / facts.whatif(scene, "ext4", "was_p50_ns") - 1
    )


def whatif(facts: Facts) -> str:
    said = "; ".join(
        f"{scene} it foretold {signed(foretold(facts, scene))}, and tmpfs gave {signed(really(facts, scene))}"
        for scene in SCENES
    )
    vfs = facts.change_of(BESIDE, "p50", "kernel.vfs")
    if really(facts, BESIDE) < foretold(facts, BESIDE):
        why = f"""tmpfs gives more, because it is also less work: {us(vfs)} of kernel.vfs at the median, which the estimate leaves as it
            was. What else differs is scheduling, from run to run."""
    else:
        why = f"""tmpfs does not give more, though kernel.vfs changes by {us(vfs)} at the median, too: scheduling
            differs by more from run to run."""
    return f"""`rpcprobe whatif --without journal,block_io`, asked of the captures of ext4 alone. Of the median: {said}. Beside the
        writer {why}"""


def probe(facts: Facts) -> float:
    return facts.whatif(ALONE, "ext4", "was_p50_ns") / median(facts.medians(ALONE, "ext4")) - 1
