"""The findings of s5_kvlog, each with what of the tables it rests on."""

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
    TOUCHES,
    Facts,
)

import study
from study import Document, breakdown, ns, percent


def processing(document: Document, facts: Facts):
    fault_ns, user_ns = (facts.mean("process", NEW, name) for name in ("fault", "user"))
    whole_ns = facts.mean("process", NEW)
    new_ns, over_ns = facts.median("process_ns", NEW), facts.median("process_ns", OVER)
    faults = study.median(facts.of_runs("page_faults", NEW, "probed"))
    none = study.median(facts.of_runs("page_faults", OVER, "probed"))
    contradicts = fault_ns > user_ns
    document.say(
        f"""**Processing is {
            "mostly page faults of new memory, not copies: this contradicts the report"
            if contradicts
            else "mostly copies, as the report says"
        }.** The report explains a processing
        time ten times its estimate by copies. Here processing under a new key has {
            ns(fault_ns)
        } of page faults ~
        ({percent(fault_ns / whole_ns)}; {faults:.0f} faults, {
            faults * PAGE_BYTES / 1e6:.2f} MB of pages of 4 KiB) and
        {ns(user_ns)} of user mode ({
            percent(user_ns / whole_ns)
        }), in which the copies are. Where a value replaces one of
        the same length there are {
            none:.0f} page faults, and processing is the copies alone. The stamps say so without the probe,
        too: {ns(new_ns)} under a new key, {ns(over_ns)} overwriting, so {
            ns(new_ns - over_ns)
        } is for the new memory. The
        estimate of {ns(PROCESS_ESTIMATE_NS)} is exceeded {
            over_ns / PROCESS_ESTIMATE_NS:.1f} times by the copies,
        {new_ns / PROCESS_ESTIMATE_NS:.1f} times with the new memory, against {
            PROCESS_NS / PROCESS_ESTIMATE_NS:.1f} times
        in the report."""
    )
    document.show(
        "processing",
        drawing.by_number(facts),
        "Processing, write by write of a connection: means over the probed runs by category, and the median without the probe.",
    )


def copies(document: Document, facts: Facts):
    client, server = (facts.moved_sums(side, sampled=False) for side in ("client", "server"))
    sampled = {side: facts.moved_sums(side, sampled=True) for side in ("client", "server")}
    way_ns = facts.mean("send", (*TEN, *OVER), "copy", "server") + facts.mean(
        "send", (*TEN, *OVER), "kernel.tcp", "server"
    )
    own = facts.sampled("process", OVER, category="user")
    memory = facts.sampled("process", OVER, category="user", own_function="__mem")
    new_ns = facts.mean("process", NEW, "fault")
    document.say(
        f"""**The kernel's copies are not in the processing time.** The server's stamp is taken when all bytes are there. Until
        then, it reads as they come in, beside the transmission: of the calls' CPU time, {ns(way_ns)} a write is on the
        request's critical path. What each copy of the report's list is here, of each write on average:"""
    )

    def sampled_ns(side: str, sums) -> float:
        other = sampled[side]
        share = other["copy_samples"] / max(other["samples"], 1)
        return sums["cpu_ns"] / sums["requests"] * share

    both = (("client", client), ("server", server))
    disagree = (
        """Of the kernel's copying, the calibrated rate counts less than the samples do: it is that of buffers in the caches."""
        if all(sums["copy_ns"] / sums["requests"] < sampled_ns(side, sums) for side, sums in both)
        else ""
    )

    def moved_row(name: str, side: str, sums) -> list[str]:
        return [
            name,
            f"{sums['bytes'] / sums['requests']:,.0f} bytes",
            f"{ns(sums['cpu_ns'] / sums['requests'])} of CPU in the calls; of it, copying: "
            f"{ns(sums['copy_ns'] / sums['requests'])} ~ by the calibrated rate, "
            f"{ns(sampled_ns(side, sums))} by {sampled[side]['samples']} samples",
            "no: while it is sent",
        ]

    document.table(
        ("copy", "moved", "time", "in the processing time"),
        [
            moved_row("client's buffer to the kernel", "client", client),
            ["network card to the kernel", "none here: veth hands pages over", "", "no"],
            moved_row("kernel to the server's buffer", "server", server),
            [
                "buffer to key and value, value to the map",
                "2 x 1 MB (by the program's source)",
                f"{ns(facts.mean('process', OVER, 'user'))} in user mode; "
                f"{percent(memory / max(own, 1), 0)} of {own} samples in memcpy and the like",
                "yes",
            ],
            [
                "pages of new memory, zeroed",
                f"{study.median(facts.of_runs('page_faults', NEW, 'probed')) * PAGE_BYTES:,.0f} bytes",
                f"in the page faults' {ns(new_ns)} ~",
                "yes, under a new key",
            ],
        ],
        right=4,
    )
    document.say(
        f"""So at the server each byte of a value is read or written six times by copies (three of them, each a read and a write),
        and once more where pages are zeroed, against "about {TOUCHES} times" in the report, whose network card wrote it,
        too. Four of these are in the processing time and take {ns(facts.mean("process", OVER, "user"))}:
        {2 * 1e6 / facts.mean("process", OVER, "user"):.1f} GB/s of copying. Samples do not tell the two copies apart, since memcpy
        leaves no frame of its caller. {disagree}"""
    )


def transmission(document: Document, facts: Facts):
    send_ns, wire_ns = facts.mean("send", TEN), facts.mean("send", TEN, "wire.")
    measured = facts.median("wire_ns", TEN, "probed")
    off = measured / BY_RATE_NS - 1
    document.say(
        f"""**Sending is the link.** {percent(wire_ns / send_ns)} of it is `wire.*`. `wire.qdisc` and `wire.link` take
        {ns(measured)} in the median; the bytes with their headers take {ns(BY_RATE_NS)} at 1 Gbit/s, a difference of
        {percent(off, 2, sign=True)}. The report's {ns(SEND_NS)} is {percent(SEND_NS / BY_RATE_NS - 1, 0)} more than that."""
    )
    document.show(
        "one_line",
        drawing.one_line(facts),
        "The first ten RPCs of a run on one time line, from the stamps alone. Hollow: a message on its way.",
    )
    document.show(
        "aligned",
        drawing.aligned(facts),
        """The first ten RPCs of the first probed run from a common start, by category; hollow: on the wire.""",
    )


def response(document: Document, facts: Facts):
    rows = facts.part("response", (*TEN, *OVER))
    waiting_ns = breakdown.mean_ns(rows, "runqueue.", "client")
    server_ns = breakdown.mean_ns(rows, "", "server")
    document.say(
        f"""**The answer's way is mostly {"the client's wait for a CPU" if waiting_ns > server_ns else "the server's call"}.** It
        takes {ns(facts.median("response_ns", (*TEN, *OVER)))} from the server's stamp to the client's (reported: about
        {ns(RESPONSE_NS)}), but the server's call that sends it only {ns(facts.median("answer_ns", (*TEN, *OVER)))} (reported:
        {ns(ANSWER_NS)}). On average of all probed writes: {breakdown.largest(rows)}."""
    )


def gap(document: Document, facts: Facts):
    user = facts.mean("gap", NEW, "user") / facts.mean("gap", NEW)
    samples = facts.sampled("gap", (*TEN, *OVER), category="user")
    making = facts.sampled("gap", (*TEN, *OVER), category="user", own_function="value_of")
    document.say(
        f"""**The gap between RPCs is the client's own work.** {percent(user)} of the {ns(facts.mean("gap", NEW))} before later
        writes is user mode of the client's thread, and {percent(making / max(samples, 1))} of {samples} samples of that fell
        into `value_of`, which makes the next value byte by byte. It is no wait, and no part of any request."""
    )
    document.show(
        "steps",
        drawing.steps(facts),
        "What the gap, processing and the answer's way consist of: means of the probed writes.",
    )


def first_ones(document: Document, facts: Facts):
    def shown(step: str, category: str) -> list[str]:
        more = facts.more_of_first(step, category)
        low, high = study.interval(more)
        return [step, category or "all", ns(study.median(more)), f"{ns(low)} to {ns(high)}"]

    rows = [
        shown(*which)
        for which in (
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
    ]
    held = {
        when: [
            row["not_sent_ns"] > 0
            for row in facts.writes
            if row["arm"] == "probed" and (row["stage"] == "first") == (when == "first")
        ]
        for when in ("first", "later")
    }
    wires = [facts.of_runs("wire_ns", (stage,), "probed") for stage in ("first", *NEW)]
    longer = [first - later for first, later in zip(*wires)]
    low, high = study.interval(longer)
    shares = {when: sum(of) / len(of) for when, of in held.items()}
    held_more = shares["first"] > 2 * shares["later"]
    whole = study.median(facts.more_of_first("process"))
    faults = study.median(facts.more_of_first("process", "fault"))
    counts = [
        study.median(facts.of_runs("page_faults", (stage,), "probed"))
        for stage in ("first", "new key")
    ]
    slow_start = low > 0 and study.median(longer) > 0.01 * study.median(wires[1])
    document.say(
        f"""**The first RPCs are slower because of {
            "page faults" if faults > whole / 2 else "more than page faults"
        }{
            " and the wire"
            if slow_start
            else ", and some because TCP held bytes back"
            if held_more
            else ", not of TCP's slow start"
        }.** The first 3 take {ns(whole)} more to process
        than later ones under new keys (median over {facts.rounds} runs), {
            ns(faults)
        } of it page faults: {counts[0]:.0f} in the median
        against {
            counts[
                1
            ]:.0f}. The server's buffer for the request and the strings it is split into are new memory
        then; later ones find it in the process. The time on the wire
        {"is longer" if slow_start else "is not longer by as much as 1 %"}: {
            ns(study.median(longer))
        } more in the median of runs
        (95 % interval {ns(low)} to {
            ns(high)
        }). TCP held unsent bytes back, for its congestion window or the receiver's, on the
        critical path of {sum(held["first"])} of {len(held["first"])} first writes and {
            sum(held["later"])
        } of {len(held["later"])}
        later ones ({percent(sum(held["first"]) / len(held["first"]))} and {
            percent(sum(held["later"]) / len(held["later"]))
        })."""
    )
    document.table(
        ("step", "category", "first 3 more than later ones", "95 % interval over runs"),
        rows,
        right=2,
    )


def clock(document: Document, facts: Facts):
    all_errors = [*facts.clock_errors("bare"), *facts.clock_errors("probed")]
    within = sum(abs(error) <= uncertainty for error, uncertainty in all_errors)
    worst = max(abs(error) for error, _ in all_errors)
    document.say(
        f"""**The clocks' offset from the stamps is {
            "right within its uncertainty in every run"
            if within == len(all_errors)
            else f"outside of its uncertainty in {len(all_errors) - within} runs"
        }** ({within} of {len(all_errors)}). `kvpost.py`
        bounds it by the pings: no message arrives before it was sent. It was off by
        {ns(study.median([abs(error) for error, _ in all_errors]))} in the median and {
            ns(worst)
        } at most, its uncertainty
        {
            ns(study.median([uncertainty for _, uncertainty in all_errors]))
        } in the median: the two ways of a ping are about
        equally long, which the bounds cannot know."""
    )
    document.show(
        "clocks",
        drawing.clocks(facts),
        "Each run's error of the estimated offset, with the uncertainty that the estimate gives.",
    )


def slop(document: Document, facts: Facts):
    stages = (*TEN, *OVER)
    writes = [row for row in facts.writes if row["arm"] == "probed"]
    known = sum(row["post_transmission_ns"] for row in writes) / len(writes)
    mean = sum(row["post_slop_ns"] for row in writes) / len(writes)
    rows = [*facts.part("send", stages), *facts.part("response", stages)]
    requests = breakdown.count(facts.part("send", stages))

    def of(category: str) -> float:
        chosen = [row for row in rows if row["category"].startswith(category)]
        return sum(row["total_ns"] for row in chosen) / requests

    wire = of("wire.qdisc") + of("wire.link") - known
    named = [
        (
            "frames' headers, and waits in queues beyond bytes / rate (`wire.qdisc`, `wire.link`)",
            wire,
        ),
        ("the network code below the programs' calls (`wire.stack`)", of("wire.stack")),
        (
            "calls of both programs, with their copies (`kernel.`, `copy`)",
            of("kernel.") + of("copy"),
        ),
        ("waits for a CPU (`runqueue.`)", of("runqueue.")),
        ("before the first call and after the last (in no request)", of("no request")),
        ("unattributed", of("unattributed")),
    ]
    rest = mean - sum(value for _, value in named)
    document.say(
        f"""**Nothing of the slop is left.** `kvpost.py` cannot explain {ns(mean)} of a probed write on average: what is neither the
        server's time nor that of the value's bytes at the link's rate. rpcprobe names all of it but
        {ns(of("unattributed"))} ({percent(of("unattributed") / mean, 2)}):"""
    )
    document.table(
        ("slop", "mean of a write", "share"),
        [[name, ns(value), percent(value / mean)] for name, value in [*named, ("all else", rest)]],
    )


def probe(document: Document, facts: Facts):
    rows = []
    for name, column, stages in (
        ("send", "send_ns", (*TEN, *OVER)),
        ("process, new key", "process_ns", NEW),
        ("process, overwriting", "process_ns", OVER),
        ("answer's way", "response_ns", (*TEN, *OVER)),
        ("gap", "gap_ns", NEW),
        ("whole RPC, new key", "all_ns", NEW),
        ("whole RPC, overwriting", "all_ns", OVER),
    ):
        bare, probed = (facts.of_runs(column, stages, arm) for arm in ("bare", "probed"))
        more = [with_it - without for without, with_it in zip(bare, probed)]
        low, high = study.interval(more)
        change = percent(study.median(more) / study.median(bare), sign=True)
        rows.append(
            [
                name,
                ns(study.median(bare)),
                ns(study.median(probed)),
                change,
                f"{ns(low)} to {ns(high)}",
            ]
        )
    bare, probed = (facts.of_runs("process_ns", NEW, arm) for arm in ("bare", "probed"))
    more = study.median([with_it - without for without, with_it in zip(bare, probed)])
    faults = study.median(facts.of_runs("page_faults", NEW, "probed"))
    document.say(
        f"""**What the probe costs.** By the programs' stamps, with and without it; differences are of the two runs of a round.
        Each page fault has two hooks: under a new key processing takes {ns(more)} more for {faults:.0f} faults, which is
        in the page faults' time above."""
    )
    document.table(("", "without", "with", "change", "95 % interval of the difference"), rows)


ALL = (processing, copies, transmission, response, gap, first_ones, clock, slop, probe)
