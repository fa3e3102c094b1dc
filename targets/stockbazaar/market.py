"""The stocks: their prices and traded volumes."""

import threading
import time
from dataclasses import dataclass
from enum import IntEnum


class Outcome(IntEnum):
    """The outcome of a trade; the numbers are those of stockbazaar.proto."""

    DONE = 0
    SUSPENDED = 1
    UNKNOWN_STOCK = 2
    INVALID_COUNT = 3


# The stocks' prices, which never change.
PRICES = {"GameStart": 15.99, "FishCo": 3.25, "BoarCo": 7.10, "MenhirCo": 42.00}


@dataclass
class Stock:
    price: float
    traded: int = 0


class Market:
    """The market; many threads use it at the same time."""

    def __init__(self, most_traded, settle_s=0.0, lookup_s=0.0):
        self._stocks = {name: Stock(price) for name, price in PRICES.items()}
        self._most_traded = most_traded
        self._settle_s = settle_s
        self._lookup_s = lookup_s
        self._lock = threading.Lock()  # protects the traded volumes
        self._own = threading.local()

    def lookup(self, name):
        """Price and traded volume; None if there is no such stock."""
        self._own.lock_wait_ns = 0
        if self._lookup_s:
            time.sleep(self._lookup_s)
        stock = self._stocks.get(name)
        return None if stock is None else (stock.price, stock.traded)

    def trade(self, name, count):
        """Makes a trade. Buying and selling both add to the traded volume."""
        self._own.lock_wait_ns = 0
        stock = self._stocks.get(name)
        if stock is None:
            return Outcome.UNKNOWN_STOCK
        if count <= 0:
            return Outcome.INVALID_COUNT
        begin_ns = time.monotonic_ns()
        with self._lock:
            self._own.lock_wait_ns = time.monotonic_ns() - begin_ns
            if stock.traded + count > self._most_traded:
                return Outcome.SUSPENDED
            traded = stock.traded
            if self._settle_s:
                time.sleep(self._settle_s)
            stock.traded = traded + count
        return Outcome.DONE

    def lock_wait_ns(self):
        """The calling thread's wait for the lock in its last request."""
        return getattr(self._own, "lock_wait_ns", 0)
