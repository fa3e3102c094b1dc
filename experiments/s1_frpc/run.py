#!/usr/bin/env python3
"""An expression evaluator in three transports: where does the time of one fork/exec'd evaluation go?

The report measured 111 ms (standard streams), 123 ms (files) and 117 ms (pipes). It charged 100 ms
of that to "evaluator work", 12 ms to a metadata flush and 6 ms to pipes, and said elsewhere that
parse + evaluate takes at most 8 us. Here:

- `measure` runs the evaluator for 300 expressions of 2 to 11 tokens, in each mode, with and without
  rpcprobe, in random order of the runs within each round, on an ext4 of its own. Its own stamps
  give medians, spread and slopes. Captures give the time by phase of the process's life and by
  category, and say what the slowest evaluations waited for.
- The same, linked statically, shows what dynamic linking costs.
- `frpc` by itself evaluates each expression a hundred times in one process, and 3000 through each
  of its back ends (modes 3 to 6). This shows what an expression costs once the process exists.
- Samples of the user time (`--stacks`) and a loop of CPUID instructions show what the dynamic
  linker does.

Needs root; cc, mkfs.ext4 and a loop device. Usage: run.py [--quick] [--tell] [--to DIR]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
