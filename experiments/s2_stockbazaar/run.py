#!/usr/bin/env python3
"""S2: StockBazaar, by sockets with a thread pool and by gRPC: where do the milliseconds go?

The report's table is made again: 1 to 5 clients; sockets with pools of 2 and 6 threads, which open a connection for each request
(Lookup), and gRPC (Lookup, Trade; a pool of 6); 3000 requests a client. Each cell is run several times, in random order,
without the probe and, with fewer requests, with it. Response times are those of the clients' own logs. What they
consist of comes from the captures, and for the pool and the market's lock from the server's own stamps, too.

The report's four questions: sockets against gRPC, the effect of load, Lookup against Trade, more clients than threads. And its
jump at five clients, for which a listen queue with room for few connections is tried as a cause.

Each run has a network namespace of its own: no run meets what another has left in TIME_WAIT.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
