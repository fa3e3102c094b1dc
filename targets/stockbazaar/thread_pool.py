"""A pool of threads that are started at the beginning and take jobs from one queue."""

import threading
from collections import deque


class ThreadPool:
    def __init__(self, size, work):
        """Calls `work` with each job, in one of `size` threads."""
        self._work = work
        self._jobs = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"worker-{number}") for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job):
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def close(self):
        """Lets the queued jobs finish, and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            self._work(job)
