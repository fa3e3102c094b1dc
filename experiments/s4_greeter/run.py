#!/usr/bin/env python3
"""S4: gRPC's greeter in C++: the first call, the others, and how many a millisecond.

One client, and two at once, each a process with a channel of its own that makes a first call and then 1000 others, over loopback by
the name `localhost`; many runs, in random order, without the probe and with it. Times are those of the client's log.

The first call (the report: 3 to 5 ms) is split by phase: the channel, name resolution, connection, HTTP/2's settings, the call.
The others have percentiles, and are split by category. Throughput is by the clock on the wall; the report's (19.6 and 42.77 messages
a millisecond) came from latencies truncated to whole milliseconds, and that computation is made again on our log. What limits the
throughput is answered by the CPU time of a call: that of whole runs, less that of runs that make two calls only.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
