"""The findings of s5_kvlog, each with its evidence from the tables."""

import drawing
from facts import (
    ANSWER_NS,
    BY_RATE_NS,
    NEW,
    OVER,
    PAGE_BYTES,
    PROCESS_ESTIMATE_NS,
    PROCESS_NS,
    RESPONSE_NS,
    SEND_NS,
    TEN,
    ALL_WRITES,
    Facts,
)

import study
from study import Document, breakdown, ns, percent


def processing(document: Document, facts: Facts):
    fault, user = (facts.mean("process", NEW, name) for name in ("fault", "user"))
    whole = facts.mean("process", NEW)
    new, over = facts.median("process_ns", NEW), facts.median("process_ns", OVER)
    faults = study.median(facts.of_runs("page_faults", NEW, "probed"))
    none = study.median(facts.of_runs("page_faults", OVER, "probed"))
    head = (
        "mostly page faults of new memory, not copies: this contradicts the report"
        if fault > user and new - over > over
        else "mostly copies, as the report says"
    )
    document.say(
        f"""**Processing is {head}.** The report explains a processing time ten times its estimate by copies. Here processing
        under a new key has {ns(fault)} of page faults ~ ({percent(fault / whole)}; {faults:.0f} faults,
        {faults * PAGE_BYTES / 1e6:.2f} MB of pages of 4 KiB) and {ns(user)} of user mode ({percent(user / whole)}), in which
        the copies are. Where a value replaces one of the same length there are {none:.0f} page faults, and
        {percent(facts.mean("process", OVER, "user") / facts.mean("process", OVER))} of processing is user mode. The stamps say so
        without the probe, too: {ns(new)} under a new key, {ns(over)} overwriting, so {ns(new - over)} is for the new memory (the page faults' time above has the probe's part in it, see below).
        The copies alone take {over / PROCESS_ESTIMATE_NS:.1f} times the estimate of {ns(PROCESS_ESTIMATE_NS)}, with the new
        memory it is {new / PROCESS_ESTIMATE_NS:.1f} times, against {PROCESS_NS / PROCESS_ESTIMATE_NS:.1f} times in the report."""
    )
    document.show(
        "processing",
        drawing.by_number(facts),
        """Processing, write by write of a connection: means over the probed runs by category, and the median without the
        probe.""",
    )


def copies(document: Document, facts: Facts):
    way = sum(facts.mean("send", ALL_WRITES, name, "server") for name in ("copy", "kernel.tcp"))
    document.say(
        f"""**The kernel's copies are not in the processing time.** The server's stamp is taken when all bytes are there. Until
        then it reads as they come in, beside the transmission: {ns(way)} of its calls is on a write's critical path.
        What each copy of the report's list is here, of a write on average:"""
    )
    kernel = {side: moved(facts, side) for side in ("client", "server")}
    user = facts.mean("process", OVER, "user")
    samples = facts.sampled("process", OVER, category="user")
    in_memcpy = facts.sampled("process", OVER, category="user", own_function="__mem")
    zeroed = study.median(facts.of_runs("page_faults", NEW, "probed")) * PAGE_BYTES
    document.table(
        ("copy", "moved", "time", "in the processing time"),
        [
            ["client's buffer to the kernel", *kernel["client"][:2], "no: while it is sent"],
            ["network card to the kernel", "none here: veth hands pages over", "", "no"],
            ["kernel to the server's buffer", *kernel["server"][:2], "no: while it is sent"],
            [
                "buffer to key and value, value to the map",
                "2 x 1 MB (by the program's source)",
                f"{ns(user)} in user mode; {percent(in_memcpy / max(samples, 1), 0)} of {samples} samples in memcpy",
                "yes",
            ],
            [
                "pages of new memory, zeroed",
                f"{zeroed:,.0f} bytes",
                f"in the page faults' {ns(facts.mean('process', NEW, 'fault'))} ~",
                "yes, under a new key",
            ],
        ],
        right=4,
    )
    less = all(by_rate < by_samples for _, _, by_rate, by_samples in kernel.values())
    rate = (
        "Of the kernel's copying the calibrated rate counts less than the samples do: it is that of buffers in the caches."
        if less
        else ""
    )
    document.say(
        f"""So at the server each byte of a value is read or written six times by copies (three of them, each a read and a write),
        and once more where pages are zeroed; in the report about eight times, its network card's write among them. Four of
        these are in the processing time and take {ns(user)}: {2 * 1e6 / user:.1f} GB/s of copying. Samples do not tell the two
        copies apart, since memcpy leaves no frame of its caller. {rate}"""
    )


def moved(facts: Facts, side: str) -> tuple[str, str, float, float]:
    """The kernel's copying at one end per write: bytes, time, and copying time by the model and by
    samples."""
    sums, sampled = facts.moved_sums(side, sampled=False), facts.moved_sums(side, sampled=True)
    cpu, by_rate = (sums[name] / sums["requests"] for name in ("cpu_ns", "copy_ns"))
    by_samples = cpu * sampled["copy_samples"] / max(sampled["samples"], 1)
    return (
        f"{sums['bytes'] / sums['requests']:,.0f} bytes",
        f"{ns(cpu)} of CPU in the calls; of it, copying: {ns(by_rate)} ~ by the calibrated rate, "
        f"{ns(by_samples)} by {sampled['samples']} samples",
        by_rate,
        by_samples,
    )


def transmission(document: Document, facts: Facts):
    share = facts.mean("send", TEN, "wire.") / facts.mean("send", TEN)
    measured = facts.median("wire_ns", TEN, "probed")
    document.say(
        f"""**Sending is the link.** {percent(share)} of it is `wire.*`. `wire.qdisc` and `wire.link` take {ns(measured)} in the
        median; the bytes with their headers take {ns(BY_RATE_NS)} at 1 Gbit/s, a difference of
        {percent(measured / BY_RATE_NS - 1, 2, sign=True)}. The report's {ns(SEND_NS)} is
        {percent(SEND_NS / BY_RATE_NS - 1, 0)} more than that."""
    )
    document.show(
        "one_line",
        drawing.one_line(facts),
        "The first ten RPCs of a run on one time line, from the stamps alone. Hollow: a message on its way.",
    )
    document.show(
        "aligned",
        drawing.aligned(facts),
        """The first ten RPCs of the first probed run from a common start, by category. Hollow: on the wire.""",
    )


def response(document: Document, facts: Facts):
    rows = facts.part("response", ALL_WRITES)
    waiting = breakdown.mean_ns(rows, "runqueue.", "client")
    server = breakdown.mean_ns(rows, "", "server")
    what = "the client's wait for a CPU" if waiting > server else "the server's call"
    document.say(
        f"""**The answer's way is mostly {what}.** It takes {ns(facts.median("response_ns", ALL_WRITES))} from the server's stamp
        to the client's (reported: about {ns(RESPONSE_NS)}), but the server's call that sends it only
        {ns(facts.median("answer_ns", ALL_WRITES))} (reported: {ns(ANSWER_NS)}). On average of all probed writes:
        {breakdown.largest(rows)}."""
    )


def gap(document: Document, facts: Facts):
    whole, user = facts.mean("gap", NEW), facts.mean("gap", NEW, "user")
    samples = facts.sampled("gap", ALL_WRITES, category="user")
    making = facts.sampled("gap", ALL_WRITES, category="user", own_function="value_of")
    own = user > whole / 2
    document.say(
        f"""**The gap between RPCs is {"the client's own work" if own else "not mostly the client's own work"}.**
        {percent(user / whole)} of the {ns(whole)} before later writes under new keys is user mode of the client's thread, and
        {percent(making / max(samples, 1))} of {samples} samples of that fell into `value_of`, which makes the next value byte
        by byte. It is part of no request."""
    )
    document.show(
        "steps",
        drawing.steps(facts),
        "What the gap, processing and the answer's way consist of: means of the probed writes.",
    )


STEPS_OF_FIRST = (
    ("process", ""),
    ("process", "fault"),
    ("process", "kernel.mm"),
    ("process", "user"),
    ("process", "runqueue."),
    ("send", ""),
    ("send", "wire."),
    ("response", ""),
    ("gap", ""),
    ("gap", "fault"),
    ("gap", "kernel.mm"),
)


def first_ones(document: Document, facts: Facts):
    probed = [row for row in facts.writes if row["arm"] == "probed"]
    held = [
        [row["not_sent_ns"] > 0 for row in probed if (row["stage"] == "first") == is_first]
        for is_first in (True, False)
    ]
    shares = [sum(of) / len(of) for of in held]
    counts = [f"{sum(of)} of {len(of)}" for of in held]
    wires = [facts.of_runs("wire_ns", (stage,), "probed") for stage in ("first", *NEW)]
    longer = [first - later for first, later in zip(*wires)]
    low, high = study.interval(longer)
    whole, fault = (study.median(facts.more_of_first("process", of)) for of in ("", "fault"))
    faults = [study.median(facts.of_runs("page_faults", (of,), "probed")) for of in ("first", *NEW)]
    is_longer = low > 0 and study.median(longer) > 0.01 * study.median(wires[1])
    if is_longer:
        network = ", and because of the wire"
    elif shares[0] > 2 * shares[1]:
        network = ", and some because TCP held bytes back"
    else:
        network = ", not because of TCP's slow start"
    head = "page faults" if fault > whole / 2 else "more than page faults"
    document.say(
        f"""**The first RPCs are slower because of {head}{network}.** The first 3 take {ns(whole)} more to process than later
        ones under new keys (median over {facts.rounds} runs); page faults take {ns(fault)} more: there are {faults[0]:.0f} in
        the median against {faults[1]:.0f}. By the program's source, the server's buffer and the strings that a request is split into
        are new memory then; later ones find them in the process. The time in `wire.qdisc` and `wire.link` is
        {"longer" if is_longer else "not longer by as much as 1 %"}: {ns(study.median(longer))} more in the median of runs (95 % interval
        {ns(low)} to {ns(high)}), of a run's median writes; the table below has means. TCP held unsent bytes back,
        for its congestion window or the receiver's, on the critical path of
        {counts[0]} first writes and {counts[1]} later ones ({percent(shares[0])} and {percent(shares[1])})."""
    )
    rows = []
    for step, category in STEPS_OF_FIRST:
        more = facts.more_of_first(step, category)
        low, high = study.interval(more)
        name = f"{category}*" if category.endswith(".") else category or "all"
        rows.append([step, name, ns(study.median(more)), f"{ns(low)} to {ns(high)}"])
    heads = ("step", "category", "first 3 more than later ones", "95 % interval over runs")
    document.table(heads, rows, right=2)


ALL = (processing, copies, transmission, response, gap, first_ones)
