#!/usr/bin/env python3
"""Asks a stockbazaar server for prices or for trades, and says how long that took."""

import argparse
import multiprocessing
import signal
import statistics
import sys
import time

from market import PRICES, Outcome
from request_log import CLIENT_COLUMNS, RequestLog, start_log

STOCKS = tuple(PRICES)


def number_from(least):
    def parse(text):
        number = int(text)
        if number < least:
            raise ValueError
        return number

    parse.__name__ = f"number (from {least})"
    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="gRPC needs the Python of 'make': .venv/bin/python client.py --transport grpc",
    )
    parser.add_argument("--transport", choices=("socket", "grpc"), default="socket")
    parser.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1)")
    parser.add_argument("--port", type=number_from(1), default=7200, help="(default: 7200)")
    parser.add_argument("--method", choices=("Lookup", "Trade"), default="Lookup")
    parser.add_argument(
        "--clients", type=number_from(1), default=1, help="processes at once (default: 1)"
    )
    parser.add_argument(
        "--requests", type=number_from(0), default=3000, help="of each (default: 3000)"
    )
    parser.add_argument("--log", help="write a line for each request")
    return parser.parse_args()


def ask(client, method, name):
    """Makes a request; returns the status for the log."""
    try:
        if method == "Lookup":
            price = client.lookup(name)
            if price is None:
                return "unknown_stock"
            return "ok" if price == PRICES[name] else "wrong_price"
        outcome = client.trade(name, 1)
        return "ok" if outcome == Outcome.DONE else outcome.name.lower()
    except (OSError, ValueError, LookupError) as error:
        print(f"client: {error}", file=sys.stderr)
        return "failed"


def run_client(options, number, parent):
    """Runs in a separate process; begins when the parent says so."""
    stopped = False

    def stop(_number, _frame):
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it, and tells this process
    if options.transport == "grpc":
        from grpc_service import GrpcClient as Client
    else:
        from socket_service import SocketClient as Client
    log = RequestLog(options.log)
    client = Client(options.host, options.port)
    parent.send("ready")
    parent.recv()
    latencies_ns, failures = [], 0
    for request in range(options.requests):
        name = STOCKS[request % len(STOCKS)]
        begin_ns = time.monotonic_ns()
        status = ask(client, options.method, name)
        end_ns = time.monotonic_ns()
        log.add(number, request, options.method, begin_ns, end_ns, status)
        latencies_ns.append(end_ns - begin_ns)
        failures += status != "ok"
        if stopped or status == "failed":
            break
    client.close()
    log.close()
    parent.send((latencies_ns, failures))


def run_clients(options):
    """Returns all latencies, the number of failures, and whether all clients finished."""
    context = multiprocessing.get_context("fork")
    clients = []
    for number in range(options.clients):
        ours, theirs = context.Pipe()
        process = context.Process(target=run_client, args=(options, number, theirs))
        process.start()
        theirs.close()  # so that the parent sees when the client ends
        clients.append((process, ours))

    stopped = False

    def stop(_number, _frame):
        nonlocal stopped
        stopped = True
        for process, _ in clients:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    latencies_ns, failures, all_well = [], 0, True
    try:
        for _, client in clients:
            client.recv()
        for _, client in clients:
            client.send("begin")
        for _, client in clients:
            some_ns, some_failures = client.recv()
            latencies_ns += some_ns
            failures += some_failures
    except (EOFError, ConnectionError):
        all_well = False
    for process, client in clients:
        client.close()
        process.join()
        all_well = all_well and process.exitcode == 0
    return latencies_ns, failures, all_well and not stopped


def main():
    options = parse_arguments()
    try:
        start_log(options.log, CLIENT_COLUMNS)
        latencies_ns, failures, all_well = run_clients(options)
    except OSError as error:
        print(f"client: {error}", file=sys.stderr)
        return 1
    if latencies_ns:
        latencies_ns.sort()
        print(
            f"{options.clients} clients, {len(latencies_ns)} {options.method} requests, "
            f"{failures} failed; ms: mean {statistics.fmean(latencies_ns) / 1e6:.3f}, "
            f"median {latencies_ns[len(latencies_ns) // 2] / 1e6:.3f}, "
            f"p99 {latencies_ns[len(latencies_ns) * 99 // 100] / 1e6:.3f}, "
            f"maximum {latencies_ns[-1] / 1e6:.3f}"
        )
    return 0 if all_well and failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
