#!/usr/bin/env python3
"""The evaluator on files: does tmpfs instead of ext4 take 6 % off the median, and remove the spike?

A report claimed both of its mode 2, and blamed `openat` that waits for commits of ext4's journal.
Each evaluation is a process that reads its expression from a file and writes its answer to another
file (targets/frpc, `measure -m 2`). Here:

- Without the probe: `measure` with its files on an ext4 of its own and on a tmpfs, alone (also on
  one CPU), and beside a process that writes and calls fsync on that ext4 all the time. Runs are in
  random order within each round, and times are from measure's own stamps.
- `rpcprobe ab`, ext4 against tmpfs, 12 random pairs, alone and beside that writer, shows which
  categories carry the difference.
- `rpcprobe whatif --without journal,block_io` on the captures of ext4 alone is compared with the
  real result of tmpfs.
- The slowest evaluations on ext4: what they waited for.

Needs root, mkfs.ext4 and a loop device. Usage: run.py [--quick] [--tell] [--to DIR]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import measure  # noqa: E402
from study import main  # noqa: E402
from tell import tell  # noqa: E402

if __name__ == "__main__":
    main(measure, tell)
