import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A null RPC, and caching")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # A null RPC, and what a cache saves

    A remote procedure call that does nothing still takes time. Every other call pays this cost of being remote, too.
    `targets/flexcache` has objects on a server, and copies of them near its clients, over ONC RPC (the protocol of
    NFS). Its client makes five operations, each many times:

    | operation | what it needs |
    | --- | --- |
    | `null` | one message and its answer, nothing to do |
    | `invoke` | one message; the object server executes the method |
    | `validate` | two messages, the second made for the first: is my copy still the newest? |
    | `cache` | a copy, and all messages that make it valid |
    | `read` | nothing: the copy is valid |
    """)
    return


@app.cell(hide_code=True)
def _():
    import captures
    import marimo as mo
    import shown

    return captures, mo, shown


@app.cell
def _(captures, mo):
    given = captures.given(mo.cli_args())
    cap, log = (given[0], {}) if given else captures.flexcache()
    return cap, log


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What the client sees

    These times are by the client's own clock, read before and after each operation. A `read` of a valid copy is so
    short because it needs no message at all. So it is **not a request**, and rpcprobe rightly does not show it.
    """)
    return


@app.cell(hide_code=True)
def _(log, shown):
    def middle(values):
        return sorted(values)[(len(values) - 1) // 2]

    shown.table(
        [
            {"operation": name, "times": len(ns), "p50_ns": middle(ns), "max_ns": max(ns)}
            for name, ns in log.items()
            if ns
        ],
        {"operation": "operation", "times": "times", "p50_ns": "p50", "max_ns": "slowest"},
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What happened in between

    Each message and its answer are a request of kind `oncrpc`, with the called procedure: program, version, number.
    Program 536900353 is the object server (its procedure 0 is `null`, 1 is `invoke`), 536900354 the consistency cacher,
    536900355 a client's process cacher.
    """)
    return


@app.cell
def _(cap, shown):
    kinds = {of["kind"]: of for of in cap.report()["kinds"]}
    kind = "oncrpc" if "oncrpc" in kinds else next(iter(kinds))
    # Clients, servers and parents come from the files, counts and percentiles from the report.
    ends = cap.sql(
        """select method, string_agg(distinct client_comm, ', ' order by client_comm) as client,
                  string_agg(distinct server_comm, ', ' order by server_comm) as server,
                  count(parent_request_id)::int as made_for_another
           from requests where complete and kind = $kind group by method""",
        {"kind": kind},
    ).rows()
    ends = {row["method"]: row for row in ends}
    groups = kinds[kind]["groups"]
    # If no request has a method, the report has no groups: all requests form one group.
    of_methods = groups["listed"] if groups else [{**kinds[kind], "name": None}]
    methods = [
        ends[group["name"]]
        | group["latency"]
        | {
            "method": group["name"],
            "name": "(not known)" if group["name"] is None else group["name"],
            "count": group["requests"] - group["incomplete"],
        }
        for group in of_methods
        if group["name"] in ends
    ]
    methods = sorted(methods, key=lambda row: (-row["count"], row["name"]))[:10]
    shown.table(
        methods,
        {
            "name": "procedure",
            "client": "who asks",
            "server": "whom",
            "count": "requests",
            "p50_ns": "p50",
            "made_for_another": "made for another",
        },
    )
    return kind, methods


@app.cell
def _(cap, kind):
    cap.figure("breakdown", by="method", kind=kind)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Compare the shares, not the lengths: how much of a null call is the procedure itself (`user`, on the server's side),
    how much is the network code (`kernel.*`), and how much is switching between the programs (`runqueue.*`, `queue.*`)?

    ## Which request was made for which other request

    A `validate` is sent to the consistency cacher, which asks another process before it answers. The inner request lies
    within the outer request; its time is part of the outer request's wait.
    """)
    return


@app.cell
def _(cap, kind):
    cap.figure("tree", kind=kind)
    return


@app.cell(hide_code=True)
def _(methods, mo):
    names = {row["name"]: row["method"] for row in methods}
    method = mo.ui.dropdown(names, value=next(iter(names)), label="Procedure")
    method
    return (method,)


@app.cell
def _(cap, kind, method):
    # Selects by request number: a method's name may contain `*`, which in a filter stands for any characters.
    selected = cap.sql(
        """select request_id, latency_ns from requests
           where complete and kind = $kind and method is not distinct from $method order by latency_ns, request_id""",
        {"kind": kind, "method": method.value},
    )
    cap.figure("latency", kind=kind, requests=selected)
    return (selected,)


@app.cell(hide_code=True)
def _(mo, selected):
    rows = selected.rows()
    places = {"the fastest": 0, "a typical one": (len(rows) - 1) // 2, "the slowest": len(rows) - 1}
    request = mo.ui.dropdown(
        {name: rows[place]["request_id"] for name, place in places.items()},
        value="a typical one",
        label="Request",
    )
    request
    return (request,)


@app.cell
def _(cap, request):
    cap.figure("timeline", requests=request.value)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A report, repeated

    A published report measured these operations between two machines. This is the experiment over two networks of 10
    Mbit/s (`make experiment S=s3`; the results are in `experiments/s3_flexcache/RESULTS.md`):
    """)
    return


@app.cell(hide_code=True)
def _(shown):
    shown.results("s3_flexcache")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## To think about

    1. A cache saves messages. According to the figures, how many `read`s per `cache` are needed for caching to pay off?
    2. Which parts of a null call would a faster network save, and which parts a faster CPU?
    3. Which parts would remain if both ends were one process?
    """)
    return


if __name__ == "__main__":
    app.run()
