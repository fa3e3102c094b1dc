#!/usr/bin/env python3
"""Serves prices and trades of stocks, by sockets or by gRPC, until SIGTERM or SIGINT."""

import argparse
import signal
import sys

from market import Market
from request_log import SERVER_COLUMNS, RequestLog, start_log


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Says 'stockbazaar: ready on port N' once it listens. gRPC needs the Python of "
        "'make': .venv/bin/python server.py --transport grpc",
    )
    parser.add_argument("--transport", choices=("socket", "grpc"), default="socket")
    parser.add_argument("--port", type=int, default=7200, help="0 for any (default: 7200)")
    parser.add_argument("--threads", type=positive, default=2, help="(default: 2)")
    parser.add_argument("--log", help="write a line for each request")
    parser.add_argument(
        "--most-traded",
        type=positive,
        default=10**12,
        help="suspend a stock of which more would have been traded (default: 10^12)",
    )
    parser.add_argument(
        "--settle-us",
        type=int,
        default=0,
        help="have a trade take so much longer, under the lock (default: 0)",
    )
    parser.add_argument(
        "--lookup-us",
        type=int,
        default=0,
        help="have a lookup take so much longer, asleep, as if a slow database was asked "
        "(default: 0)",
    )
    return parser.parse_args()


def main():
    options = parse_arguments()
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # also in the threads
    market = Market(options.most_traded, options.settle_us / 1e6, options.lookup_us / 1e6)
    try:
        if options.transport == "grpc":
            from grpc_service import GrpcServer as Server
        else:
            from socket_service import SocketServer as Server
        start_log(options.log, SERVER_COLUMNS)
        log = RequestLog(options.log)
        server = Server(options.port, options.threads, market, log)
        print(f"stockbazaar: ready on port {server.port}", flush=True)
        signal.sigwait(stops)
        server.stop()
        log.close()
    except (OSError, OverflowError, ImportError) as error:
        print(f"stockbazaar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
