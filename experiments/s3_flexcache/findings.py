"""The findings of s3_flexcache, each with its evidence from the tables."""

import drawing
from facts import NAMES, REMOTE, REPORTED_NS, Facts

import study
from study import Document, ab, breakdown, ns, percent

ADOPT = "flexclient > process_cacher"
GIVE = "consistency_cac > process_cacher"
FETCH = "flexclient > consistency_cac"


def local_call(document: Document, facts: Facts):
    """The report has a longer time for a local create than for a remote invocation, and says that
    one IPC dominates it."""
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
    does = "holds" if dominates else "does not hold"
    parts = breakdown.largest(
        [row for row in facts.part("create") if row["transport"] == "unix"],
        requests=facts.count("create"),
    )
    document.say(
        f"""**{head}.** The report has {reported:.2f} times a null proxy invocation for it; here it is
        {create / invoke:.2f} times ({ns(create)} and {ns(invoke)}, on a line that adds nothing). The report's claim that one
        IPC, to the process cacher, dominates it {does}: {percent(ipc / whole)} of it lies in that request. Of this request: {parts}.
        The process cacher's own code in user mode is
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
    is_one = low > 0 and 0.5 * adopt < more < 1.5 * adopt
    head = (
        "Caching is validating and one more IPC, as the report says"
        if is_one
        else "Caching is not just validating and one more IPC"
    )
    document.say(
        f"""**{head}.** It takes {ns(more)} more without the probe (95 %
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
        f"""**{head}.** By the programs alone, the invocation's time less the null RPC's: {said}. The object server's work is {ns(server_user(facts, "invoke_udp"))}
        in user mode against {ns(server_user(facts, "null_udp"))} for the null RPC. Its frames have {bytes_more} bytes more,
        which is {ns(line_ns)} on two Ethernets that send each bit: there the invocation would be above the null RPC by
        {percent(line_ns / (facts.serialised_ns("null_udp") + facts.median("null_udp")))} here, and by
        {percent(line_ns / REPORTED_NS["invoke_udp"])} of the reported {ns(REPORTED_NS["invoke_udp"])}: "slightly"."""
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
    document.say(
        f"""**{head}.** Within a round a null RPC over TCP takes {ns(more)} more ({percent(more / udp, sign=True)}; 95 % interval over
        runs {ns(low)} to {ns(high)}; rounds differ by more than that, so the table's medians over all do not show it), and {bytes_of(facts, "null_tcp") - bytes_of(facts, "null_udp")} bytes of frames more.
        {ab.said(facts.changes, "UDP", "TCP", "p50")}"""
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
    operations = ("null_udp", "null_tcp", "invoke_udp", "create", "validate", "cache")
    rows = [
        [name, *(ns(sum_of(facts, operation, *of)) for operation in operations)]
        for name, of in CLASSES.items()
    ]
    rows.append(["all", *(ns(facts.mean(operation)) for operation in operations)])
    by_ipc = [facts.mean(of, transport="unix") / facts.mean(of) for of in operations]
    rows.append(["of it, in requests by IPC", *(percent(share) for share in by_ipc)])
    document.table(("mean of probed ones, quiet line", *(NAMES[of] for of in operations)), rows)
    document.show(
        "operations",
        drawing.operations(facts),
        "What each operation consists of: means of the probed ones, on a quiet line, and of two also on a busy one.",
    )


# Prefixes of categories, and the side.
CLASSES = {
    "waits for a CPU": (("runqueue.",), ""),
    "calls into the kernel, with their copies": (("kernel.", "copy"), ""),
    "network code below the calls": (("wire.stack",), ""),
    "on the line, or in its queue": (("wire.qdisc", "wire.link"), ""),
    "bytes ready, not yet asked for": (("queue.",), ""),
    "user mode of servers": (("user",), "server"),
    "user mode of the client, also outside of requests": (("user", "no request"), ""),
    "page faults, interrupts": (("fault", "interrupt", "steal"), ""),
}


def sum_of(facts: Facts, operation: str, categories: tuple[str, ...], side: str) -> float:
    """The time in these categories; all user time that is not the server's counts as the
    client's."""
    found = sum(facts.mean(operation, category=of, side=side) for of in categories)
    return found - facts.mean(operation, category="user", side="server") * (
        "no request" in categories
    )


def bytes_of(facts: Facts, operation: str) -> int:
    return sum(facts.frames(operation))


ALL = (local_call, one_more_ipc, proxy, udp_or_tcp)
