"""A gRPC server and its client, each a process, on one connection; messages are plain bytes.

    grpc_pair.py FORM CALLS CONCURRENCY BYTES [LOG]     both
    grpc_pair.py serve                                  prints its port; serves until its input ends
    grpc_pair.py ask PORT FORM CALLS CONCURRENCY BYTES

FORM is Unary, Fail (unary, answered with NOT_FOUND), In, Out or Both (streams of five messages). The
client prints how many calls of each method had their answer, and writes a line for each to LOG.
"""

import collections
import os
import threading
import time

import ends

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
STREAM = 5


def serve(tell_port, stop):
    from concurrent import futures

    import grpc

    def same(request, context):
        return request

    def fail(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "there is none")

    def total(requests, context):
        return b"%d" % sum(map(len, requests))

    def repeat(request, context):
        for _ in range(STREAM):
            yield request

    def each(requests, context):
        yield from requests

    class Methods(grpc.GenericRpcHandler):
        def service(self, details):
            form = details.method.split("/")[-1].rstrip("0123456789")
            return {
                "Unary": lambda: grpc.unary_unary_rpc_method_handler(same),
                "Fail": lambda: grpc.unary_unary_rpc_method_handler(fail),
                "In": lambda: grpc.stream_unary_rpc_method_handler(total),
                "Out": lambda: grpc.unary_stream_rpc_method_handler(repeat),
                "Both": lambda: grpc.stream_stream_rpc_method_handler(each),
            }[form]()

    workers = futures.ThreadPoolExecutor(max_workers=8)
    server = grpc.server(workers, handlers=[Methods()], options=OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    os.write(tell_port, b"%d\n" % port)
    os.read(stop, 1)
    server.stop(None).wait()


def ask(port, form, calls, concurrency, size, log=None):
    import grpc  # after the server has been forked: it does not like to be

    if log:
        log = open(log, "w", buffering=1)
        print("begin_ns,end_ns,method", file=log)
    calls, concurrency, payload = int(calls), int(concurrency), b"x" * int(size)
    channel = grpc.insecure_channel("127.0.0.1:" + port, options=OPTIONS)
    grpc.channel_ready_future(channel).result()
    answered = collections.Counter()
    lock = threading.Lock()

    def call(number):
        method = "/test.Service/%s%d" % (form, number % 7)
        begin_ns = time.monotonic_ns()
        if form == "Unary":
            assert channel.unary_unary(method)(payload) == payload
        elif form == "Fail":
            try:
                channel.unary_unary(method)(payload)
                raise AssertionError("an answer")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.NOT_FOUND
        elif form == "In":
            channel.stream_unary(method)(iter([payload] * STREAM))
        elif form == "Out":
            assert len(list(channel.unary_stream(method)(payload))) == STREAM
        else:
            assert len(list(channel.stream_stream(method)(iter([payload] * STREAM)))) == STREAM
        end_ns = time.monotonic_ns()
        with lock:
            answered[method] += 1
            if log:
                print(begin_ns, end_ns, method, sep=",", file=log)

    def worker(first):
        for number in range(first, calls, concurrency):
            call(number)

    threads = [threading.Thread(target=worker, args=(first,)) for first in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    channel.close()
    for method, count in sorted(answered.items()):
        print(method, count)


ends.run(serve, ask)
