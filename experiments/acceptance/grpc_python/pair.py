#!/usr/bin/env python3
"""A gRPC server and its client: pair.py serve PORT | pair.py ask PORT STREAMS REQUESTS

The client has one connection with STREAMS requests in flight on it. Each stream makes REQUESTS
requests. The client prints the number of answers.
"""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

METHOD = "/pair.Pair/Ask"


class Pair(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda asked, context: bytes(100))


def serve(port: int):
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Pair()])
    if server.add_insecure_port(f"127.0.0.1:{port}") != port:
        raise SystemExit(f"cannot listen on port {port}")
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
    server.wait_for_termination()


def ask(port: int, streams: int, requests: int) -> int:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ThreadPoolExecutor(streams) as pool:
        method = channel.unary_unary(METHOD)

        def one(_) -> int:
            return sum(len(method(bytes(64))) == 100 for _ in range(requests))

        return sum(pool.map(one, range(streams)))


if __name__ == "__main__":
    port = int(sys.argv[2])
    if sys.argv[1] == "serve":
        serve(port)
    else:
        print(ask(port, int(sys.argv[3]), int(sys.argv[4])))
