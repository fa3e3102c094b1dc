#!/usr/bin/env python3
"""kvlog: 1 MB writes over 1 Gbit/s, by the programs' own stamps and by rpcprobe.

The report had a client write values of 1 MB to a server. Messages carry four stamps, and both sides
log them. The report compared the time of each step with an estimate (send 10 ms, process 100 us,
answer 2 us), found processing ten times slower than estimated, and explained that by copies. It
estimated the offset of the clocks from the stamps, called the rest slop, and left open why the
first RPCs are slower.

`targets/kvlog` does the same over a 1 Gbit/s link between two network namespaces, each host with a
CPU of its own. A run is 20 pings, for the clocks, and 30 writes over 10 keys: the first 10 store
under a new key, the others overwrite. Each round has a run without the probe and one with it, in
random order, and shifts the server's clock by another amount. Other runs take stacks (--stacks),
which name the functions.

`make experiment-s5_kvlog` runs it; --quick has fewer rounds.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
