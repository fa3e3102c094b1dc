"""Part 2: gRPC; a client's requests share one channel."""

import threading
import time
from concurrent import futures

import grpc

import stockbazaar_pb2 as messages
import stockbazaar_pb2_grpc as stubs
from market import Outcome


class StampingExecutor(futures.ThreadPoolExecutor):
    """gRPC's threads; records when each thread's current request arrived."""

    def __init__(self, threads):
        super().__init__(max_workers=threads, thread_name_prefix="worker")
        self._current = threading.local()

    def submit(self, function, *arguments, **more):
        return super().submit(self._run, time.monotonic_ns(), function, arguments, more)

    def arrival_ns(self):
        return self._current.arrival_ns

    def _run(self, arrival_ns, function, arguments, more):
        self._current.arrival_ns = arrival_ns
        return function(*arguments, **more)


class Servicer(stubs.StockBazaarServicer):
    def __init__(self, market, log, executor):
        self._market = market
        self._log = log
        self._executor = executor

    def Lookup(self, request, context):
        start_ns = time.monotonic_ns()
        price, traded = self._market.lookup(request.name) or (-1, 0)
        reply = messages.LookupReply(price=price, traded=traded)
        self._finish("Lookup", start_ns)
        return reply

    def Trade(self, request, context):
        start_ns = time.monotonic_ns()
        reply = messages.TradeReply(outcome=self._market.trade(request.name, request.count))
        self._finish("Trade", start_ns)
        return reply

    def _finish(self, method, start_ns):
        thread = threading.current_thread().name
        arrival_ns = self._executor.arrival_ns()
        end_ns, waited_ns = time.monotonic_ns(), self._market.lock_wait_ns()
        self._log.add(method, arrival_ns, start_ns, end_ns, "ok", thread, waited_ns)


class GrpcServer:
    def __init__(self, port, threads, market, log):
        executor = StampingExecutor(threads)
        # Without this option, a second server could be started on the same port.
        self._server = grpc.server(executor, options=(("grpc.so_reuseport", 0),))
        stubs.add_StockBazaarServicer_to_server(Servicer(market, log, executor), self._server)
        try:
            self.port = self._server.add_insecure_port(f"0.0.0.0:{port}")
        except RuntimeError:
            raise OSError(f"cannot listen on port {port}") from None
        self._server.start()

    def stop(self):
        self._server.stop(grace=2).wait()


class GrpcClient:
    def __init__(self, host, port):
        self._channel = grpc.insecure_channel(f"{host}:{port}")
        self._stub = stubs.StockBazaarStub(self._channel)

    def lookup(self, name):
        """The price, or None."""
        price = self._call(self._stub.Lookup, messages.LookupRequest(name=name)).price
        return None if price < 0 else price

    def trade(self, name, count):
        request = messages.TradeRequest(name=name, count=count)
        return Outcome(self._call(self._stub.Trade, request).outcome)

    def close(self):
        self._channel.close()

    @staticmethod
    def _call(method, request):
        try:
            return method(request)
        except grpc.RpcError as error:
            raise OSError(f"{error.code().name}: {error.details()}") from None
