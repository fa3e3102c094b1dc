"""uWSGI with eight threads: uwsgi.py PORT LOG BACKEND, until SIGINT. See steps.py."""

import os
import sys

if __name__ == "__main__":
    words = ["uwsgi", "--plugin", "python3", "--http11-socket", f"127.0.0.1:{sys.argv[1]}"]
    words += ["--wsgi-file", __file__, "--enable-threads", "--threads", "8", "--disable-logging"]
    words += ["--die-on-term", "--pyargv", " ".join(sys.argv[1:])]
    os.execvp("uwsgi", words)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import atexit  # noqa: E402

from steps import LOG, NOTES, Threads  # noqa: E402

steps = Threads()


def application(environ, start_response):
    steps.carry_out(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def write():
    with open(LOG, "w") as file:
        file.writelines(NOTES)


atexit.register(write)
