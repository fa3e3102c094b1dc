#!/usr/bin/env python3
"""flexcache: what remote and cached invocations and the operations of a coherent cache consist of.

The report had Sun RPC on two 10 Mbit/s Ethernets joined by a router, objects invoked through
proxies on top of it, and on top of these a cache that keeps copies causally consistent: each client
has a process cacher, and each node a consistency cacher. The report gave a time for each operation,
and for some operations the one message that it took for the cause.

`targets/flexcache` does the same between two network namespaces behind a router; each host has a
CPU of its own. A run has batches of 20 requests of each operation, and a client process for each
batch. The links' token buckets let 1600 bytes pass at once: the second and third request of a batch
find a quiet line, and the last ten find a line as busy as this client makes it. Each round has a
run without the probe and one with it, in random order.

`make experiment-s3_flexcache` runs it; --quick has fewer rounds.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
