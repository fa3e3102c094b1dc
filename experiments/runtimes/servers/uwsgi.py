"""uWSGI with eight threads, each of which keeps its connection: uwsgi.py PORT LOG BACKEND, until
SIGTERM. See steps.py."""

import atexit
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    server = ["--plugin=python3", f"--http11-socket=127.0.0.1:{sys.argv[1]}", "--die-on-term"]
    threads = ["--enable-threads", "--threads=8"]
    quiet = ["--disable-logging", f"--logto={os.devnull}"]
    program = [f"--wsgi-file={__file__}", f"--pyargv={' '.join(sys.argv[1:])}"]
    os.execvp("uwsgi", ["uwsgi", *server, *threads, *quiet, *program])

# uWSGI loads this file, too.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import Threads, write_notes  # noqa: E402

steps = Threads()


def application(environ, start_response):
    steps.carry_out(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


# uWSGI handles signals itself.
atexit.register(write_notes)
