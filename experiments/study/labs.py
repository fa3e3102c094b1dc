"""The labs' analyses, for studies: `from study.labs import greeter, stockbazaar`.

`experiments/labs` has, and checks, the matching of requests with a server's log lines, the time
between its stamps, and the phases of a first call."""

import sys

from .capture import ROOT

sys.path.insert(0, str(ROOT / "experiments/labs"))
import flexcache  # noqa: E402
import greeter  # noqa: E402
import kvlog  # noqa: E402
import stockbazaar  # noqa: E402

__all__ = ["flexcache", "greeter", "kvlog", "stockbazaar"]
