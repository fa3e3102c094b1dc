"""CSV files with a line for each request, written by several threads or processes."""

import os
import threading

CLIENT_COLUMNS = "client,request,method,begin_ns,end_ns,status"
SERVER_COLUMNS = "method,arrival_ns,start_ns,end_ns,status,thread,lock_wait_ns"
LINES_AT_ONCE = 500


def start_log(path, columns):
    """Empties a log except for the names of the columns."""
    if path is not None:
        with open(path, "w", encoding="ascii") as file:
            print(columns, file=file)


class RequestLog:
    """Appends to a started log; without a path, does nothing."""

    def __init__(self, path):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = None if path is None else os.open(path, flags)
        self._lines = []
        self._lock = threading.Lock()

    def add(self, *values):
        if self._fd is None:
            return
        with self._lock:
            self._lines.append(",".join(map(str, values)) + "\n")
            if len(self._lines) == LINES_AT_ONCE:
                self._write()

    def close(self):
        if self._fd is not None:
            with self._lock:
                self._write()
            os.close(self._fd)

    def _write(self):
        # A single call, so that lines of other processes do not mix in.
        data = "".join(self._lines).encode("ascii")
        if os.write(self._fd, data) != len(data):
            raise OSError("the log took only a part of what was written")
        self._lines.clear()
