import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Sockets against gRPC")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Sockets against gRPC: what does a framework cost?

    `targets/stockbazaar` serves prices of stocks in two ways: by plain sockets, with a connection and a line of text
    for each request, and by gRPC, which keeps one connection and speaks HTTP/2 on it. Server, client and the work are
    the same. A call by gRPC takes longer here. Where is the additional time spent?

    rpcprobe finds the requests by itself. Bytes exchanged on a TCP connection are requests of kind `tcp`. Streams of
    HTTP/2 are recognised as requests of kind `http2`, with the called method.
    """)
    return


@app.cell(hide_code=True)
def _():
    import captures
    import marimo as mo
    import rpcprobe
    import shown

    return captures, mo, rpcprobe, shown


@app.cell
def _(captures, mo):
    given = captures.given(mo.cli_args(), least=2)
    runs = dict(zip(("sockets", "gRPC"), given, strict=False)) or {
        "sockets": captures.stockbazaar("socket"),
        "gRPC": captures.stockbazaar("grpc"),
    }
    return (runs,)


@app.cell(hide_code=True)
def _(captures, runs, shown):
    kinds = {name: captures.asked(cap) for name, cap in runs.items()}
    shown.table(
        [
            {"run": name, "kind": kind["kind"], "requests": kind["requests"]} | kind["latency"]
            for name, kind in kinds.items()
        ],
        {
            "run": "run",
            "kind": "kind",
            "requests": "requests",
            "p50_ns": "p50",
            "p90_ns": "p90",
            "mean_ns": "mean",
        },
    )
    return (kinds,)


@app.cell(hide_code=True)
def _(mo, runs):
    run = mo.ui.dropdown(list(runs), value="gRPC", label="Run")
    run
    return (run,)


@app.cell
def _(kinds, run, runs):
    cap, kind = runs[run.value], kinds[run.value]["kind"]
    cap.figure("breakdown", kind=kind)
    return cap, kind


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Threads behind threads

    The socket server has one thread that accepts connections and a thread that serves a request. gRPC hands a call from
    the thread that reads the connection to a pool thread that runs the handler, and back. Each hand-over is a wake-up,
    and each wake-up is a wait for a CPU. The time line of the slowest request shows threads as lanes; its line is the
    **critical path**, which shows what the request waited for at each moment.
    """)
    return


@app.cell
def _(cap, kind, mo):
    slowest = cap.sql(
        """select request_id, latency_ns from requests where complete and kind = $kind
           order by latency_ns desc, request_id limit 10""",
        {"kind": kind},
    ).rows()
    request = mo.ui.dropdown(
        {f"request {row['request_id']}": row["request_id"] for row in slowest},
        value=f"request {slowest[0]['request_id']}",
        label="Request, slowest first",
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
    How often does a request's path change from one thread to another, and how many segments does it have?
    """)
    return


@app.cell
def _(kinds, runs, shown):
    def hops(name):
        return (
            runs[name]
            .sql(
                """with steps as (
                 select request_id, tid <> lag(tid) over (partition by request_id order by seq) as changes
                 from segments join requests using (request_id) where complete and kind = $kind)
               select $name as run, sum(case when changes then 1 else 0 end)::double / count(distinct request_id) as hops,
                      count(*)::double / count(distinct request_id) as segments from steps""",
                {"kind": kinds[name]["kind"], "name": name},
            )
            .rows()[0]
        )

    shown.table(
        [hops(name) for name in runs],
        {"run": "run", "hops": "changes of thread a request", "segments": "segments a request"},
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## The difference, category by category

    Both move some hundred bytes over the same network. The socket client opens and closes a connection for each
    request; gRPC keeps one connection, and sends its own frames. So look at `kernel.tcp` and `wire.stack` first: how
    small is their part of the difference? The rest is Python and the framework's own code (`user`), and waiting: for a
    CPU (`runqueue.*`), for a lock (including Python's interpreter lock), for a thread to read data that has arrived
    (`queue.*`).
    """)
    return


@app.cell(hide_code=True)
def _(kinds, shown):
    def by_category(kind):
        """Mean time per request by category, both sides together."""
        means = {}
        for part in (part for part in kind["parts"] if part["total_ns"] > 0):
            means[part["category"]] = means.get(part["category"], 0) + part["mean_ns"]
        return means

    sockets, grpc = (by_category(kind) for kind in kinds.values())
    rows = [
        {
            "category": name,
            "a_ns": sockets.get(name, 0),
            "b_ns": grpc.get(name, 0),
            "change_ns": grpc.get(name, 0) - sockets.get(name, 0),
        }
        for name in {**sockets, **grpc}
    ]
    rows.sort(key=lambda row: -abs(row["change_ns"]))
    shown.table(
        rows[:10],
        {"category": "category", "a_ns": "sockets", "b_ns": "gRPC", "change_ns": "difference"},
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A report, repeated

    A published report measured both ways with 1 to 5 clients and guessed at the causes. This is the full experiment
    (`make experiment S=s2`; the results are in `experiments/s2_stockbazaar/RESULTS.md`):
    """)
    return


@app.cell(hide_code=True)
def _(shown):
    shown.results("s2_stockbazaar")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    These are two captures, so this notebook *describes* them; `rpcprobe ab` would show which differences hold beyond
    them.

    ## To think about

    1. Each request by sockets has its own connection, and lasts from `connect()` to `close()`; the calls by gRPC share
       a connection that was opened before. To which categories does connecting add, and is the comparison fair?
    2. Which of the categories would be smaller in another language, and which would not?
    3. Two threads of a pool serve five clients: which category grows?
    """)
    return


if __name__ == "__main__":
    app.run()
