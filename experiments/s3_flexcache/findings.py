"""The findings of s3_flexcache, each with what of the tables it rests on."""

import drawing
from facts import ETHERNETS, LOCAL_CALL, NAMES, NO_CALL, RATE, REMOTE, REPORTED_NS, Facts

import study
from study import Document, breakdown, ns, percent

ADOPT = "flexclient > process_cacher"
GIVE = "consistency_cac > process_cacher"
FETCH = "flexclient > consistency_cac"


def local_call(document: Document, facts: Facts):
    """The report has a local create above a remote invocation, and says that one IPC dominates it."""
    create, invoke = facts.median("create"), facts.median("invoke_udp")
    reported = REPORTED_NS["create"] / REPORTED_NS["invoke_udp"]
    whole = facts.mean("create")
    ipc = facts.mean("create", transport="unix")
    dominates = ipc > whole / 2
    if create < invoke:
        head = (
            "Creating an object is cheaper than a remote invocation, which contradicts the report"
        )
    else:
        head = "Creating an object is dearer than a remote invocation, as in the report"
    does = "does" if dominates else "does not"
    parts = breakdown.largest(
        [row for row in facts.part("create") if row["transport"] == "unix"],
        requests=facts.count("create"),
    )
    document.say(
        f"""**{head}.** The report has {reported:.2f} times a null proxy invocation for it; here it is
        {create / invoke:.2f} times ({ns(create)} and {ns(invoke)}, on a line that adds nothing). That one IPC, to the
        process cacher, dominates it {does} hold: {percent(ipc / whole)} of it lies in that request. Of this request: {parts}.
        {"What the process cacher itself does in user mode is" if dominates else "User mode of the process cacher is"}
        {ns(facts.mean("create", transport="unix", side="server", category="user"))}; the rest is the way there and back."""
    )


def one_more_ipc(document: Document, facts: Facts):
    reported_more = REPORTED_NS["cache"] - REPORTED_NS["validate"]
    more, low, high = facts.difference("validate", "cache", "quiet")
    adopt = facts.call("cache", ADOPT)
    give = facts.call("validate", GIVE)
    fetch = facts.call("validate", FETCH)
    probed = study.median(facts.of_runs("cache", arm="probed")) - study.median(
        facts.of_runs("validate", arm="probed")
    )
    document.say(
        f"""**Caching is validating and one more IPC**, as the report says: {ns(more)} more without the probe (95 %
        interval {ns(low)} to {ns(high)}; reported: {ns(reported_more)}). With the probe it is {ns(probed)} more, and the
        request to the process cacher takes {ns(adopt)}. Validating waits for the remote process cacher behind the
        consistency cacher: {ns(give)} of the {ns(fetch)} of its remote request."""
    )
    operations = sum(row["operations"] for row in facts.messages)
    right = sum(row["right"] for row in facts.messages)
    unlinked = sum(row["unlinked"] for row in facts.messages)
    missing = operations - right - unlinked
    others = (
        ""
        if operations == right
        else f"; in {unlinked:,} the inner request was not found below the client's, {missing:,} had other requests"
    )
    document.say(
        f"""The requests were found as they should be, those of a server below the client's, in {right:,} of {operations:,}
        operations{others}. Medians of the probed ones on a quiet line:"""
    )
    document.code(
        "\n".join(
            line for operation in ("create", "validate", "cache") for line in tree(facts, operation)
        )
    )
    document.show(
        "cache",
        drawing.time_line(facts, "cache"),
        """One `cache` of the first probed run, the median one: a lane for each request, in it what is not in the inner one.
        Hollow: on the wire, or in the network code below the calls.""",
    )


def tree(facts: Facts, operation: str) -> list[str]:
    rows = facts.tree(operation)
    outer = [row for row in rows if not row["is_inner"]]
    lines = [f"{operation:46} {ns(facts.median(operation, arm='probed')):>9}"]
    for row in rows:
        last = row["is_inner"] or row is outer[-1]
        if row["is_inner"]:
            branch = "   └─ "
        else:
            branch = "└─ " if last else "├─ "
        by = {"unix": "IPC", "tcp": "TCP", "udp": "UDP"}[row["transport"]]
        name = f"{branch}{row['who']}, {by}"
        lines.append(f"{name:46} {ns(facts.call(operation, row['who'])):>9}")
    return lines


def proxy(document: Document, facts: Facts):
    sides = []
    for by in ("udp", "tcp"):
        more, low, high = facts.difference(f"null_{by}", f"invoke_{by}", "any")
        sides.append((by.upper(), more, low, high, facts.median(f"null_{by}", "any")))
    shown = all(low > 0 for _, _, low, _, _ in sides)
    slight = all(more < 0.1 * base for _, more, _, _, base in sides)
    sums = {name: sum(facts.frames(name)) for name in ("null_udp", "invoke_udp")}
    bytes_more = sums["invoke_udp"] - sums["null_udp"]
    line_ns = facts.serialised_ns("invoke_udp") - facts.serialised_ns("null_udp")
    said = "; ".join(
        f"{by} {ns(more)} ({percent(more / base, sign=True)}; 95 % interval over runs {ns(low)} to {ns(high)})"
        for by, more, low, high, base in sides
    )
    if shown and slight:
        head = "The null proxy invocation is slightly above the null RPC, as the report says"
    elif shown:
        head = "The null proxy invocation is above the null RPC, and not slightly"
    else:
        most = max(high / base for _, _, _, high, base in sides)
        head = f"No difference between the null proxy invocation and the null RPC is shown, or at most {percent(most)}"
    document.say(
        f"""**{head}.** By the programs alone it takes more by: {said}. The object server's work is {ns(server_user(facts, "invoke_udp"))}
        in user mode against {ns(server_user(facts, "null_udp"))} for the null RPC. Its frames have {bytes_more} bytes more,
        which is {ns(line_ns)} on two Ethernets that send each bit, and would be {percent(line_ns / REPORTED_NS["invoke_udp"])}
        of the reported {ns(REPORTED_NS["invoke_udp"])}."""
    )


def server_user(facts: Facts, operation: str) -> float:
    return facts.mean(operation, side="server", category="user")


def udp_or_tcp(document: Document, facts: Facts):
    more, low, high = facts.difference("null_udp", "null_tcp", "any")
    udp = facts.median("null_udp", "any")
    if low > 0:
        head = f"UDP is faster than TCP, by {ns(more)}"
    elif high < 0:
        head = f"TCP is faster than UDP, by {ns(-more)}"
    else:
        head = "No difference between UDP and TCP is shown"
    stacks = {
        by: facts.mean(f"null_{by}", category=f"kernel.{by}")
        + facts.mean(f"null_{by}", category="wire.stack")
        for by in ("udp", "tcp")
    }
    document.say(
        f"""**{head}.** A null RPC over TCP takes {ns(more)} more ({percent(more / udp, sign=True)}; 95 % interval over runs
        {ns(low)} to {ns(high)}). Calls and network code below take {ns(stacks["udp"])} of a probed one over UDP,
        {ns(stacks["tcp"])} over TCP; {bytes_of(facts, "null_udp")} and {bytes_of(facts, "null_tcp")} bytes of frames."""
    )
    waits = {name: facts.mean(name, category="runqueue.") / facts.mean(name) for name in REMOTE}
    document.say(
        f"""**What a null RPC consists of: waking up.** {percent(waits["null_udp"], 0)} of a null RPC over UDP is waiting for a CPU
        after a message has come (`runqueue.`), {percent(waits["null_tcp"], 0)} over TCP; the two hosts have a CPU each, which
        is idle until then."""
        if waits["null_udp"] > 0.3
        else f"""**What a null RPC consists of.** {percent(waits["null_udp"], 0)} of it is waiting for a CPU after a message has come,
        the rest calls, network code and the programs themselves."""
    )
    document.show(
        "operations",
        drawing.operations(facts),
        "What each operation consists of: means of the probed ones, on a quiet line, and of two also on a busy one.",
    )


def bytes_of(facts: Facts, operation: str) -> int:
    return sum(facts.frames(operation))


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
        """**What the probe costs.** By the client's stamps, with and without it, on a quiet line and on a busy one. So what is
        attributed above are these longer operations; their parts, not their sums, are what the table is for."""
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


ALL = (local_call, one_more_ipc, proxy, udp_or_tcp, wire, cached, probe)
