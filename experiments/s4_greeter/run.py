#!/usr/bin/env python3
"""S4: gRPC's greeter in C++: the first call, later calls, and the throughput.

One client, and two at once. Each is a process with a channel of its own, and makes a first call and
then 1000 others, over loopback by the name `localhost`. There are many runs, in random order,
without the probe and with it. Times are from the client's log.

The first call (the report: 3 to 5 ms) is split by phase: the channel, name resolution, connection,
HTTP/2's settings, the call. The later calls have percentiles, and are split by category. Throughput
is by wall-clock time. The report's throughput (19.6 and 42.77 messages a millisecond) came from
latencies truncated to whole milliseconds; this computation is repeated on our log. What limits the
throughput is shown by the CPU time of a call: that of whole runs, less that of runs with only two
calls.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
