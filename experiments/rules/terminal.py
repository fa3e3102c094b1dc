"""Programs that write to a terminal, which their parent reads: terminal.py TIMES.

A kernel worker passes data from one end of a terminal to the other.
"""

import os
import pty
import subprocess
import sys
import time

for _ in range(int(sys.argv[1])):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(["sh", "-c", "read a; echo $a"], stdin=theirs, stdout=theirs)
    os.close(theirs)
    time.sleep(0.005)  # by then the child waits for this process
    os.write(ours, b"hello\n")
    said = b""
    while said.count(b"hello") < 2:
        said += os.read(ours, 100)
    child.wait()
    os.close(ours)
