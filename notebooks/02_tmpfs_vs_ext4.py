import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="tmpfs against ext4")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # tmpfs against ext4: is B slower, and why?

    The evaluator runs as a new process for each expression (60 in captures made here). It reads its expression from one
    file and writes the value to another. **A** has these files in memory (tmpfs), **B** on an ext4 file system. A
    request here is one run of the evaluator: from `fork` until its parent has waited for it.

    Comparisons have a pitfall: requests of the same run resemble each other, because they share the machine's state.
    Ten thousand requests of two runs are *two* observations, not ten thousand.
    """)
    return


@app.cell(hide_code=True)
def _():
    import os

    import captures
    import marimo as mo
    import rpcprobe
    import shown

    return captures, mo, os, rpcprobe, shown


@app.cell
def _(captures, mo, os):
    # Pairs of runs, A and B alternating. At least eight pairs are needed to show a change at the level of 1 %.
    pairs = int(os.environ.get("RPCPROBE_PAIRS", "8"))
    given = captures.given(mo.cli_args(), least=2)
    side_a, side_b = given[::2], given[1::2]
    if not given:
        for _pair in range(pairs):
            # The order alternates, so that drift does not look like a difference.
            for _on_disk in (False, True) if _pair % 2 == 0 else (True, False):
                (side_b if _on_disk else side_a).append(captures.files(on_disk=_on_disk))
    return side_a, side_b


@app.cell(hide_code=True)
def _(mo, side_a):
    run = mo.ui.dropdown(
        {f"pair {number + 1}": number for number in range(len(side_a))}, value="pair 1", label="Run"
    )
    run
    return (run,)


@app.cell
def _(captures, run, side_a, side_b):
    chosen = {"A: tmpfs": side_a[run.value], "B: ext4": side_b[run.value]}
    # Selects the evaluator: other programs of the script (mount, mkfs) are requests, too. For captures of other
    # programs, selects their most frequent kind.
    evaluator = {"kind": "exec", "method": "*frpc"}
    if not side_a[0].report(**evaluator)["kinds"]:
        evaluator = {"kind": captures.asked(side_a[0])["kind"]}
    return chosen, evaluator


@app.cell(hide_code=True)
def _(chosen, evaluator, shown):
    shown.table(
        [
            {"side": side} | kind["latency"] | {"requests": kind["requests"]}
            for side, cap in chosen.items()
            for kind in cap.report(**evaluator)["kinds"]
        ],
        {
            "side": "side",
            "requests": "runs of it",
            "mean_ns": "mean",
            "p50_ns": "p50",
            "p90_ns": "p90",
            "max_ns": "slowest",
        },
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Choose another pair: the numbers change, perhaps by more than A differs from B. So a single pair decides nothing.

    ## One pair, described

    The figure shows the change of the mean by category. The steps add up exactly to the whole change. It *describes*
    these two captures; it cannot say whether the next two would look alike.
    """)
    return


@app.cell
def _(chosen, evaluator, rpcprobe):
    rpcprobe.diff(*chosen.values(), **evaluator).figure("waterfall")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## All pairs, decided

    All pairs together can distinguish a difference from chance: without a difference, swapping A and B within any pair
    would make no systematic change. The *p* below is the share of all such swaps that show at least as large a
    difference anywhere in the tables. A quantity is called "changed" if p is at most 1 % and the change is large enough
    to matter; the interval says how large the change may be.
    """)
    return


@app.cell
def _(evaluator, rpcprobe, shown, side_a, side_b):
    comparison = rpcprobe.diff(side_a, side_b, **evaluator)
    shown.said(comparison)
    return (comparison,)


@app.cell(hide_code=True)
def _(comparison, mo):
    flips, smallest_p = comparison.data["flips"], comparison.data["smallest_p"]
    mo.md(
        f"With {comparison.data['pairs']} pairs there are {flips:,} ways to swap A and B, and p is at least "
        f"2/{flips:,} = {smallest_p:.4f}: swapping all pairs at once looks as extreme as swapping none."
        if comparison.data["pairs"]
        else "These captures do not form pairs, so there is no p."
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    `sudo rpcprobe ab -- A... --- B...` does all of this in one command, in random order.

    ## The categories of file work

    tmpfs and ext4 can differ in these categories: the kernel's file code (`kernel.vfs`), and waits for the journal
    (`journal`), for the disk (`block_io`) and for write-back (`writeback`). The table shows means per request, averaged
    over the runs of each side:
    """)
    return


@app.cell(hide_code=True)
def _(comparison, shown):
    (changes,) = (
        of for of in comparison.data["kinds"][0]["statistics"] if of["statistic"] == "mean"
    )

    def on_all_sides(category):
        found = [part for part in changes["parts"] if part["category"] == category]
        return {of: sum(part[of] for part in found) for of in ("a_ns", "b_ns", "change_ns")}

    shown.table(
        [
            {"category": category} | on_all_sides(category)
            for category in ("kernel.vfs", "journal", "block_io", "writeback")
        ]
        + [{"category": "the whole latency"} | changes["total"]],
        {
            "category": "category",
            "a_ns": "A: tmpfs",
            "b_ns": "B: ext4",
            "change_ns": "difference",
        },
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A report, repeated

    This is the full experiment, with many more runs, alone and beside a program that syncs its file all the time
    (`make experiment S=tmpfs`; the results are in `experiments/tmpfs_ext4/RESULTS.md`):
    """)
    return


@app.cell(hide_code=True)
def _(shown):
    shown.results("tmpfs_ext4")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## To think about

    1. Nothing here calls `fsync`. Which categories would you expect to grow if the evaluator did?
    2. Most of a run is the start of a process. How large must a change of file work be for these pairs to show it? (The
       comparison says which changes it would have found.)
    3. If p were 3 %, what would you do: say that nothing differs, or take more pairs?
    """)
    return


if __name__ == "__main__":
    app.run()
