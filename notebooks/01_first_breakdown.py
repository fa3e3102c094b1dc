import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A first breakdown")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # A first breakdown: where does the time of a round trip go?

    A program asks, another program answers, and the first program waits in between. This exchange is a **request**, and
    its duration is the **latency**. Latency is often measured. This notebook shows what the latency *consists of*:
    computing, the kernel's work, waiting for a CPU, waiting for data that has arrived but is not yet read.

    `rpcprobe` observes an unmodified program from inside the kernel and splits every request into **segments**. In each
    segment, one thread does (or awaits) one thing, and the segment has a **category**. Segments follow each other
    without gaps, so they add up to the latency, to the nanosecond. This always holds, and you will check it below.

    The program is `targets/frpc`: its front end sends 300 arithmetic expressions to a back end, one at a time, and
    reads the values. The two processes can communicate in three ways: through two pipes, shared memory, or a Unix
    socket.
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
    runs = {f"{number}: {cap.path.name}": cap for number, cap in enumerate(given, 1)} or {
        "pipes": captures.frpc(mode=3),
        "shared memory": captures.frpc(mode=5),
        "Unix socket": captures.frpc(mode=6),
    }
    return (runs,)


@app.cell(hide_code=True)
def _(mo, runs):
    mode = mo.ui.dropdown(list(runs), value=next(iter(runs)), label="Run, by how the two talk")
    mode
    return (mode,)


@app.cell
def _(captures, mode, runs):
    cap = runs[mode.value]
    told = captures.asked(cap)
    kind = told["kind"]
    return cap, kind, told


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## One number is not enough

    The mean hides the differences between requests. A **percentile** says how many requests are faster: half take less
    than p50, and 99 of 100 take less than p99. On most machines p99 is many times p50, and the slow requests spend
    their time in other categories than the typical ones.
    """)
    return


@app.cell(hide_code=True)
def _(shown, told):
    shown.table(
        [told["latency"] | {"requests": told["requests"], "kind": told["kind"]}],
        {
            "kind": "kind",
            "requests": "requests",
            "mean_ns": "mean",
            "p50_ns": "p50",
            "p90_ns": "p90",
            "p99_ns": "p99",
            "max_ns": "slowest",
        },
    )
    return


@app.cell(hide_code=True)
def _(mo, told):
    bands = {"all requests": "all"}
    if told["requests"] - told["incomplete"] >= 100:
        bands |= {
            "the faster half": "p0-50",
            "p50 to p90": "p50-90",
            "p90 to p99": "p90-99",
            "the slowest 1 %": "top1",
        }
    band = mo.ui.dropdown(bands, value="all requests", label="Percentile band")
    band
    return (band,)


@app.cell
def _(band, cap, kind):
    cap.figure("latency", kind=kind, band=band.value)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The upper plot shows the share of requests that take less than a given latency; the lower plot shows the number of
    requests at each latency. The axis is logarithmic: the same step to the right is the same factor everywhere, so the
    few slow requests remain visible.

    ## What it consists of

    Each bar is a percentile band, split by category. Compare the bands: the categories that grow make requests slow.

    * `user` is the program's own code. `kernel.*` is the kernel's code on behalf of the program: `kernel.pipe` moves
      bytes through a pipe, `kernel.unix` through a Unix socket, and `kernel.futex` wakes the other process with shared
      memory.
    * `runqueue.wakeup` is the wait of a thread that has been woken, is runnable, and has no CPU yet.
      `runqueue.preempted` is the wait of a thread that ran and had to give its CPU to another thread.
    * `queue.*` is the wait of a message that has arrived but is not yet read.
    * `fault` is the kernel providing a page of memory that the program touches for the first time. `interrupt` is the
      kernel serving a device or a timer meanwhile.

    (`docs/categories.md` lists all categories.)
    """)
    return


@app.cell
def _(band, cap, kind):
    cap.figure("breakdown", kind=kind, band=band.value)
    return


@app.cell(hide_code=True)
def _(mo, told):
    found = list(dict.fromkeys(part["category"] for part in told["parts"] if part["total_ns"] > 0))
    category = mo.ui.dropdown(found, value=found[0], label="Category")
    category
    return (category,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    How long do individual requests spend in the chosen category: a little in every request, or much in a few?
    """)
    return


@app.cell
def _(band, cap, category, kind):
    cap.figure("latency", kind=kind, band=band.value, category=category.value)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Check it yourself

    A capture is a directory of plain Parquet files, and `cap.sql` queries them with DuckDB. The first query counts
    requests whose segments do not add up to their latency. There must be none.
    """)
    return


@app.cell
def _(cap):
    wrong = cap.sql(
        """select r.request_id, r.latency_ns, sum(s.duration_ns)::bigint as segments_ns
           from requests r join segments s using (request_id) where r.complete
           group by r.request_id, r.latency_ns having sum(s.duration_ns) <> r.latency_ns"""
    )
    assert len(wrong) == 0, wrong.rows()
    len(wrong)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The second query computes the breakdown: it adds up the segments by category and side, and the cell fails if the
    report has other sums. The table shows the report's eight largest parts. Each segment also has its **evidence**:
    `measured` means that kernel events bound the segment on both sides, `modelled` means inferred, and `sampled` means
    taken from samples. Figures mark time that is not measured (`~`, `*`).
    """)
    return


@app.cell
def _(cap, kind, shown, told):
    by_hand = cap.sql(
        """select category, side, sum(duration_ns)::bigint as total_ns,
                  coalesce(sum(duration_ns) filter (evidence = 'modelled'), 0)::bigint as modelled_ns,
                  coalesce(sum(duration_ns) filter (evidence = 'sampled'), 0)::bigint as sampled_ns
           from segments join requests using (request_id) where complete and kind = $kind
           group by category, side""",
        {"kind": kind},
    ).rows()
    reported = [part for part in told["parts"] if part["total_ns"] > 0]

    def sums(parts):
        return {
            (part["category"], part["side"]): [
                part[of] for of in ("total_ns", "modelled_ns", "sampled_ns")
            ]
            for part in parts
        }

    assert sums(by_hand) == sums(reported)
    reported.sort(key=lambda part: -part["total_ns"])
    shown.table(
        [
            {
                **part,
                "of_all": shown.share(part["total_ns"], told["latency"]["total_ns"]),
                "measured": shown.share(
                    part["total_ns"] - part["modelled_ns"] - part["sampled_ns"], part["total_ns"]
                ),
            }
            for part in reported[:8]
        ],
        {
            "category": "category",
            "side": "side",
            "mean_ns": "per request",
            "of_all": "share of the time",
            "measured": "of it measured",
        },
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## To think about

    1. Choose the other ways to communicate. Which categories change, and which do not? Should the server's `user` time
       be the same, and is it?
    2. Two threads that take turns need a wake-up for each message. What share of the time do wake-ups take, and could
       they be avoided?
    3. Where would a faster evaluator help, and how much at most?
    """)
    return


if __name__ == "__main__":
    app.run()
