"""More findings of s3_flexcache: the effects of the wire, of needing no messages, and of the
probe."""

import drawing
from facts import ETHERNETS, LOCAL_CALL, NAMES, NO_CALL, RATE, REMOTE, REPORTED_NS, Facts

import study
from study import Document, ns, percent


def wire(document: Document, facts: Facts):
    document.say(
        f"""**The wire at 10 Mbit/s.** The lab's token buckets let 1600 bytes pass at once, so on a quiet line no frame waits, and
        `wire.qdisc` is {ns(max(qdisc(facts, name, "quiet") for name in REMOTE))} at most. An Ethernet sends each bit: the frames'
        bytes at the rate, on {ETHERNETS} Ethernets one after another, are computed here, and added. So much is wire of what
        such a network would show, and at most so much of what the report measured, had its messages our lengths:"""
    )
    rows = []
    for operation in (*REMOTE, *LOCAL_CALL):
        measured = facts.median(operation)
        request, answer = facts.frames(operation) if operation in REMOTE else (0, 0)
        line = facts.serialised_ns(operation) if operation in REMOTE else 0
        reported = REPORTED_NS.get(operation)
        rows.append(
            [
                NAMES[operation],
                f"{request} + {answer}" if line else "none",
                ns(line) if line else "",
                ns(measured),
                percent(line / (line + measured)) if line else "",
                percent(line / reported) if line and reported else "",
            ]
        )
    document.table(
        (
            "",
            "bytes of frames",
            "on two Ethernets",
            "all else, measured",
            "wire",
            "of the reported",
        ),
        rows,
    )
    document.show(
        "with_the_line",
        drawing.with_the_line(facts),
        "Operations as measured on a quiet line, and what two Ethernets of 10 Mbit/s would add (hollow).",
    )
    busy = facts.median("validate", "busy")
    limit = max(facts.frames("validate")) * 8 / RATE * 1e9
    same = abs(busy / facts.median("cache", "busy") - 1) < 0.05
    document.say(
        f"""Back to back, a `validate` takes {ns(busy)} without the probe: its longer frame takes {ns(limit)} at the rate
        ({percent(busy / limit - 1, sign=True)}), and while programs work the bucket fills. rpcprobe shows the wait as
        `wire.qdisc`: {ns(qdisc(facts, "validate", "busy"))} of {ns(facts.mean("validate", "busy"))} on average.
        {"`cache` takes as long: its one more IPC is hidden in that wait, so on a busy line of this kind the report's difference between the two cannot be seen." if same else ""}"""
    )


def qdisc(facts: Facts, operation: str, line: str) -> float:
    return facts.mean(operation, line, category="wire.qdisc") + facts.mean(
        operation, line, category="wire.link"
    )


def cached(document: Document, facts: Facts):
    read, invoke = facts.median("read", "any"), facts.median("invoke_udp", "any")
    invalidate = facts.median("invalidate", "any")
    reported = REPORTED_NS["invoke_udp"] / REPORTED_NS["read"]
    messages = sum(1 for row in facts.calls if row["operation"] in NO_CALL)
    document.say(
        f"""**A cached invocation is {"no message" if messages == 0 else "not free of messages"}.** It takes {ns(read)} by the
        client's stamps, one reading of the clock included, and the remote one {invoke / read:,.0f} times as long; reported were
        {reported:.0f} times. An invalidation takes {ns(invalidate)}{": negligible, as reported" if invalidate < 0.01 * invoke else ""}.
        rpcprobe {"finds no request in either, rightly, and says nothing of their time" if messages == 0 else "finds requests in them"}."""
    )


def probe(document: Document, facts: Facts):
    rows = []
    for operation in NAMES:
        bare, probed = (facts.of_runs(operation, arm=arm) for arm in ("bare", "probed"))
        more = [with_it - without for without, with_it in zip(bare, probed)]
        low, high = study.interval(more)
        rows.append(
            [
                NAMES[operation],
                ns(study.median(bare)),
                ns(study.median(probed)),
                percent(study.median(more) / study.median(bare), sign=True),
                f"{ns(low)} to {ns(high)}",
                ns(facts.median(operation, "busy")),
                ns(facts.median(operation, "busy", "probed")),
            ]
        )
    document.say(
        """**What the probe costs.** By the client's stamps, with and without it, on a quiet line and on a busy one. *Change* is
        the median over rounds of the difference of a round's two runs. So what is attributed above are these longer operations; their parts,
        not their sums, are what the table is for."""
    )
    document.table(
        (
            "",
            "without",
            "with",
            "change",
            "95 % interval of the difference",
            "busy, without",
            "busy, with",
        ),
        rows,
    )


ALL = (wire, cached, probe)
