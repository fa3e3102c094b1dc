import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="One slow request")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # One slow request: who was it waiting for?

    Most requests of a program are alike, but a few take a hundred times as long. An average cannot explain the slow
    ones. Here the evaluator answers 1,500 requests beside programs that only compute (`neighbour`), one for each CPU.
    We find the slowest requests, choose one, and follow it piece by piece.
    """)
    return


@app.cell(hide_code=True)
def _():
    import os

    import captures
    import marimo as mo
    import shown

    return captures, mo, os, shown


@app.cell
def _(captures, mo, os):
    given = captures.given(mo.cli_args())
    cap = given[0] if given else captures.frpc(mode=3, times=5, beside=os.cpu_count() or 1)
    told = captures.asked(cap)
    kind = told["kind"]
    return cap, kind, told


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## All requests

    Each point is a request: its begin on the horizontal axis, its latency on the vertical axis, in the colour of its
    largest category. Slow requests of the same colour spent most of their time in the same category. Slow requests that
    occur together suggest a cause outside of them.
    """)
    return


@app.cell
def _(cap, kind):
    cap.figure("requests", kind=kind)
    return


@app.cell(hide_code=True)
def _(mo, shown, told):
    tail = told["tail"]
    mo.md(
        "With fewer than 100 requests there is no tail to describe."
        if tail is None
        else f"""
    ## The slowest beside typical ones

    The slowest 1 % take {shown.duration(tail["difference_ns"])} more than typical ones (those around the
    median). The table shows the difference by category, and for each category the thread most waited for, or the main
    cause:
    """
    )
    return (tail,)


@app.cell(hide_code=True)
def _(shown, tail):
    shown.table(
        [
            part | {"mostly": part["by"] or part["cause"]}
            for part in sorted(
                tail["parts"] if tail else [], key=lambda part: -part["difference_ns"]
            )[:6]
        ],
        {
            "category": "category",
            "side": "side",
            "typical_ns": "typical",
            "tail_ns": "slowest",
            "difference_ns": "more",
            "mostly": "mostly behind, or because",
        },
    )
    return


@app.cell
def _(cap, kind, mo, shown):
    slowest = cap.sql(
        """select request_id, latency_ns from requests where complete and kind = $kind
           order by latency_ns desc, request_id limit 12""",
        {"kind": kind},
    ).rows()
    names = {
        f"request {row['request_id']}, {shown.duration(row['latency_ns'])}": row["request_id"]
        for row in slowest
    }
    request = mo.ui.dropdown(names, value=next(iter(names)), label="Request, slowest first")
    request
    return (request,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Its time line

    Each thread has a lane; the line is the **critical path**. It is found by walking back from the answer: the client
    read the answer; before that, it waited for a CPU; before that, the server's write woke it; and so on, back to the
    question. Hover over a piece to see its category, its cause, and rpcprobe's evidence.
    """)
    return


@app.cell
def _(cap, request):
    cap.figure("timeline", requests=request.value)
    return


@app.cell
def _(cap, mo, request):
    categories = ["all"] + [
        row["category"]
        for row in cap.sql(
            "select category, sum(duration_ns) as ns from segments where request_id = ? group by 1 order by 2 desc",
            [request.value],
        ).rows()
    ]
    category = mo.ui.dropdown(categories, value="all", label="Category")
    category
    return (category,)


@app.cell
def _(cap, category, request, shown):
    segments = cap.sql(
        """select (s.start_ns - r.start_ns)::bigint as at_ns, s.duration_ns, s.category, s.side, s.comm, s.by_whom, s.evidence
           from segments s join requests r using (request_id)
           where request_id = $id and ($category = 'all' or s.category = $category) order by s.duration_ns desc limit 12""",
        {"id": request.value, "category": category.value},
    ).rows()
    shown.table(
        segments,
        {
            "at_ns": "at",
            "duration_ns": "lasts",
            "category": "category",
            "side": "side",
            "comm": "thread",
            "by_whom": "who had the CPU",
            "evidence": "evidence",
        },
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Who had the CPU meanwhile

    `runqueue.*` is time in which a thread was runnable but had no CPU. `by_whom` names the thread that ran on that CPU
    instead. The figure covers all requests of the capture:
    """)
    return


@app.cell
def _(cap, kind):
    cap.figure("cpu", kind=kind)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## To think about

    1. Is the slowest request slow because of the program's work, or because of the machine it runs on? How would you
       know from a log that has only latencies?
    2. Would a faster evaluator make the slowest requests faster?
    3. Name two changes, to the program or to the machine, that would shorten the tail, and the category that each would
       shrink.
    """)
    return


if __name__ == "__main__":
    app.run()
