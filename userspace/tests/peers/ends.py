"""What pairs of a server and its client share: each alone, or the server forked by the client."""

import os
import sys


def run(serve, ask):
    """`serve(tell_port, stopped, *arguments)` writes its port and a line's end to one descriptor and ends when the
    other does; `ask(port, *arguments)` is the client.

        SCRIPT serve ARG...       until standard input ends
        SCRIPT ask PORT ARG...
        SCRIPT ARG...             both
    """
    match sys.argv[1:]:
        case ["serve", *arguments]:
            serve(sys.stdout.fileno(), sys.stdin.fileno(), *arguments)
        case ["ask", *arguments]:
            ask(*arguments)
        case arguments:
            both(serve, ask, arguments)


def both(serve, ask, arguments):
    port, tell_port = os.pipe()
    stopped, stop = os.pipe()
    server = os.fork()
    if server == 0:
        os.close(stop)
        serve(tell_port, stopped)
        os._exit(0)
    os.close(stopped)
    ask(os.read(port, 16).decode().strip(), *arguments)
    os.close(stop)
    _, status = os.waitpid(server, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
