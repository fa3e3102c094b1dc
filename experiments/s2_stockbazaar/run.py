#!/usr/bin/env python3
"""S2: StockBazaar, by sockets with a thread pool and by gRPC: where do the milliseconds go?

The experiment repeats the report's table: 1 to 5 clients; sockets with pools of 2 and 6 threads and
a connection for each request (Lookup), and gRPC (Lookup, Trade; a pool of 6); 3000 requests a
client. Each cell is run several times, in random order, without the probe and, with fewer requests,
with it. Response times are from the clients' own logs. The captures show what they consist of; for
the pool and the market's lock, the server's own stamps do, too.

The report has four questions: sockets against gRPC, the effect of load, Lookup against Trade, and
more clients than threads. The experiment also looks for the report's jump at five clients, and
tries a short listen queue as its cause.

Each run has a network namespace of its own, so that it does not meet connections in TIME_WAIT of
another run.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
