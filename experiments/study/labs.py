"""The labs' judgements for studies: `from study.labs import greeter, stockbazaar`.

Which requests are which lines of a server's log, what lies between its stamps, the phases of a first call: these are in
`experiments/labs`, where they are checked."""

import sys

from .capture import ROOT

sys.path.insert(0, str(ROOT / "experiments/labs"))
import flexcache  # noqa: E402
import greeter  # noqa: E402
import kvlog  # noqa: E402
import stockbazaar  # noqa: E402

__all__ = ["flexcache", "greeter", "kvlog", "stockbazaar"]
