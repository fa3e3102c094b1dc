"""Gunicorn with a pool of threads: wsgi.py PORT LOG BACKEND, until SIGTERM. See steps.py."""

from gunicorn.app.base import BaseApplication
from steps import PORT, Threads, write_notes

steps = None


def app(environ, start_response):
    steps.carry_out(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def begin(worker):
    global steps
    steps = Threads()


class Server(BaseApplication):
    def load_config(self):
        settings = {
            "bind": f"127.0.0.1:{PORT}",
            "threads": 8,
            "keepalive": 60,
            "loglevel": "critical",
            "post_worker_init": begin,
            "worker_exit": lambda server, worker: write_notes(),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self):
        return app


Server().run()
