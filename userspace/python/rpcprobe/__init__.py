"""Captures of rpcprobe as tables, SQL, figures and comparisons.

    import rpcprobe

    cap = rpcprobe.open("rpcprobe.out")
    cap.requests.pandas()                      # one row per request
    cap.sql("select kind, count(*) from requests group by kind").polars()
    cap.figure("breakdown", by="method")       # a plotly.graph_objects.Figure
    print(rpcprobe.diff("before", "after"))
    cap = rpcprobe.run(["./server", "--once"])  # needs root

All times are nanoseconds, as 64-bit integers. The program `rpcprobe` computes all statistics and figures; this package
runs it, so they equal those of `rpcprobe report` and its page. Failures raise `rpcprobe.Error`.
"""

from ._capture import Capture
from ._capture import open_capture as open  # noqa: A004 - `rpcprobe.open` is deliberately named like the built-in
from ._comparison import Comparison, diff
from ._error import Error
from ._run import run
from ._table import Table

__all__ = ["Capture", "Comparison", "Error", "Table", "diff", "open", "run"]
