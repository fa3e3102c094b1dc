"""More findings of s5_kvlog: the results of the stamps alone, their remainder, and the cost of the
probe."""

import drawing
from facts import ALL_WRITES, NEW, OVER, Facts

import study
from study import Document, ns, percent


def clock(document: Document, facts: Facts):
    found = [*facts.clock_errors("bare"), *facts.clock_errors("probed")]
    within = sum(abs(error) <= uncertainty for error, uncertainty in found)
    errors = [abs(error) for error, _ in found]
    head = (
        "right within its uncertainty in every run"
        if within == len(found)
        else f"outside of its uncertainty in {len(found) - within} runs"
    )
    document.say(
        f"""**The clocks' offset from the stamps is {head}** ({within} of {len(found)}). `kvpost.py` bounds it by the pings: no
        message arrives before it was sent. It was off by {ns(study.median(errors))} in the median and {ns(max(errors))} at most,
        and gave {ns(study.median([uncertainty for _, uncertainty in found]))} in the median as its uncertainty. The two ways of
        a ping are about equally long, which the bounds cannot know."""
    )
    document.show(
        "clocks",
        drawing.clocks(facts),
        "Each run's error of the estimated offset, with the uncertainty that the estimate gives.",
    )


def slop(document: Document, facts: Facts):
    writes = [row for row in facts.writes if row["arm"] == "probed"]
    known = sum(row["post_transmission_ns"] for row in writes) / len(writes)
    mean = sum(row["post_slop_ns"] for row in writes) / len(writes)

    def of(*categories: str) -> float:
        return sum(
            facts.mean(step, ALL_WRITES, category)
            for step in ("send", "response")
            for category in categories
        )

    named = [
        (
            "headers of frames, and what is above bytes / rate (`wire.qdisc`, `wire.link`)",
            of("wire.qdisc", "wire.link") - known,
        ),
        ("the network code below the programs' calls (`wire.stack`)", of("wire.stack")),
        ("calls of both programs, with their copies (`kernel.*`, `copy`)", of("kernel.", "copy")),
        ("waits for a CPU (`runqueue.*`)", of("runqueue.")),
        ("before the first call and after the last (in no request)", of("no request")),
        ("unattributed", of("unattributed")),
    ]
    named.append(("all else", mean - sum(value for _, value in named)))
    left = of("unattributed")
    head = "Nothing of the slop is left" if left == 0 else "Some of the slop is left"
    document.say(
        f"""**{head}.** `kvpost.py` cannot explain {ns(mean)} of a probed write on average: what is neither the server's time nor
        that of the value's bytes at the link's rate. rpcprobe names all of it but {ns(left)}
        ({percent(left / mean, 2)}):"""
    )
    document.table(
        ("slop", "mean of a write", "share"),
        [[name, ns(value), percent(value / mean)] for name, value in named],
    )


COMPARED_STEPS = (
    ("send", "send_ns", ALL_WRITES),
    ("process, new key", "process_ns", NEW),
    ("process, overwriting", "process_ns", OVER),
    ("answer's way", "response_ns", ALL_WRITES),
    ("gap", "gap_ns", NEW),
    ("whole RPC, new key", "all_ns", NEW),
    ("whole RPC, overwriting", "all_ns", OVER),
)


def probe(document: Document, facts: Facts):
    rows, more_of = [], {}
    for name, column, stages in COMPARED_STEPS:
        bare, probed = (facts.of_runs(column, stages, arm) for arm in ("bare", "probed"))
        more = [with_it - without for without, with_it in zip(bare, probed)]
        more_of[name] = study.median(more)
        low, high = study.interval(more)
        change = percent(study.median(more) / study.median(bare), sign=True)
        with_and_without = [ns(study.median(bare)), ns(study.median(probed))]
        rows.append([name, *with_and_without, change, f"{ns(low)} to {ns(high)}"])
    faults = study.median(facts.of_runs("page_faults", NEW, "probed"))
    document.say(
        f"""**What the probe costs.** By the programs' stamps, with and without it. *Change* is the median over rounds
        of the difference of a round's two runs, so it is not quite the difference of the two columns. Each page fault has two hooks: under a new key processing takes {ns(more_of["process, new key"])} more, with
        {faults:.0f} faults, and that is in the page faults' time above."""
    )
    heads = ("", "without", "with", "change", "95 % interval of the difference")
    document.table(heads, rows)


ALL = (clock, slop, probe)
