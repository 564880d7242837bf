# SPDX-License-Identifier: Apache-2.0
"""A program that uses a package as its standard input says (harness/callers.py): Python's for
threads and for asyncio and, by ctypes, the C library.

    caller.py threads|asyncio|library
"""

import asyncio
import concurrent.futures
import ctypes
import os
import pathlib
import queue
import signal
import sys
import threading
import time
from urllib.parse import unquote

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "proxy/client/python")]

import stockade  # noqa: E402
from harness.library import Library, StkError  # noqa: E402


class Cancelled(BaseException):
    pass


class Python:
    """What the calls are; they return values or, in asyncio, what is to be awaited."""

    package = stockade

    def __init__(self):
        self.shops, self.leases, self.baskets, self.losses = {}, {}, {}, {}
        self.error = None

    @staticmethod
    def enter(block):
        return block.__enter__()

    @staticmethod
    def leave_block(block):
        return block.__exit__(None, None, None)

    def open(self, shop, uri):
        self.shops[shop] = self.package.connect(uri, timeout=20)
        return self.shops[shop].ping()

    def timeout(self, shop, ms):
        self.shops[shop]._timeout = int(ms) / 1000

    def close(self, shop):
        return self.shops.pop(shop).close()

    def acquire(self, shop, lease, resource, ttl, wait):
        self.leases[lease] = self.shops[shop].lease(resource, ttl=int(ttl) / 1000,
                                                    wait=int(wait) / 1000)
        return self.leases[lease].acquire()

    def acquire_all(self, shop, lease, resources, ttl, wait):
        basket = self.shops[shop].leases(*resources.split(","), ttl=int(ttl) / 1000,
                                         wait=int(wait) / 1000)
        self.leases[lease], self.baskets[lease] = basket._leases[0], basket
        return self.enter(basket)

    def lead(self, shop, lease, name, ttl, wait):
        """The term; wait -1: without end."""
        self.leases[lease] = self.stand(shop, lease, name, ttl, wait).__enter__()
        return self.leases[lease]

    def stand(self, shop, lease, name, ttl, wait):
        self.losses.pop(lease, None)
        self.baskets[lease] = self.shops[shop].lead(
            name, int(ttl) / 1000, None if int(wait) < 0 else int(wait) / 1000,
            on_lost=lambda _: self.losses.setdefault(lease, round(time.time() * 1000)))
        return self.baskets[lease]

    def lost_at(self, lease):
        """When the leader was told, in milliseconds since 1970."""
        while lease not in self.losses:
            time.sleep(0.003)
        return self.losses[lease]

    def renew(self, lease, ttl):
        return self.leases[lease].renew(int(ttl) / 1000)

    def release(self, lease):
        return self.leases[lease].release()

    def leave(self, lease):
        return self.leave_block(self.baskets.get(lease) or self.leases[lease])

    def put(self, _, lease, __):
        return self.leases[lease].put(1)

    def multi(self, shop, lease, _):
        sale = self.shops[shop].transaction(self.leases[lease])
        sale.put(self.leases[lease], 1)
        return self.leave_block(sale)

    def sql(self, shop, lease, _, statement):
        return self.shops[shop].sql(unquote(statement), leases=[self.leases[lease]])

    def multi_sql(self, shop, lease, _, statement):
        sale = self.shops[shop].transaction(self.leases[lease])
        sale.sql(unquote(statement))
        return self.leave_block(sale)

    def read(self, shop, key):
        return self.shops[shop].get(key)

    def receipt(self, shop, *_):
        return self.shops[shop].was_applied(self.error)

    def revoke(self, shop, resource):
        return self.shops[shop].revoke(resource)

    def bare(self, shop, key):
        return self.shops[shop].command("INCR", key)

    def lost(self, lease):
        return self.leases[lease].lost.wait()

    def name(self, error):
        self.error = error
        return "Stale" if isinstance(error, stockade.Stale) else type(error).__name__


class Threads(Python):
    """Each call is the main thread's, so that a signal can interrupt it."""

    def __init__(self):
        super().__init__()

        def on_signal(*_):
            raise Cancelled
        signal.signal(signal.SIGUSR1, on_signal)

    @staticmethod
    def cancel():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def timeout(self, shop, ms):
        super().timeout(shop, ms)
        for each in self.shops[shop]._idle:
            each._sock.settimeout(int(ms) / 1000)

    @staticmethod
    def settle(call, args):
        return call(*args)


class Tasks(Python):
    """Each call is a task."""

    package = stockade.aio

    def __init__(self):
        super().__init__()
        self.loop, self.task = asyncio.new_event_loop(), None
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    @staticmethod
    def enter(block):
        return block.__aenter__()

    @staticmethod
    def leave_block(block):
        return block.__aexit__(None, None, None)

    async def lead(self, shop, lease, name, ttl, wait):
        self.leases[lease] = await self.stand(shop, lease, name, ttl, wait).__aenter__()
        return self.leases[lease]

    async def lost_at(self, lease):
        while lease not in self.losses:
            await asyncio.sleep(0.003)
        return self.losses[lease]

    def cancel(self):
        self.loop.call_soon_threadsafe(self.task.cancel)

    async def run(self, call, args):
        self.task = asyncio.current_task()
        result = call(*args)
        return await result if asyncio.iscoroutine(result) else result

    def settle(self, call, args):
        return asyncio.run_coroutine_threadsafe(self.run(call, args), self.loop).result()


class C(Threads):
    """The library: leases are the main thread's, and an eventfd ends its calls."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.shops, self.leases = {}, {}
        self.write_id = ""  # of the last one, for its receipt
        self.library = Library()
        self.library.so.stk_client_set_timeout.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.cancels = os.eventfd(0, os.EFD_NONBLOCK)
        self.library.so.stk_cancel_on(self.cancels)

    def cancel(self):
        os.eventfd_write(self.cancels, 1)

    def settle(self, call, args):
        try:
            return call(*args)
        finally:
            try:
                os.eventfd_read(self.cancels)
            except BlockingIOError:
                pass

    def name(self, error):
        self.write_id = self.library.so.stk_last_id().decode()
        names = {"TIMEOUT": "Unreachable", "LEASEDOWN": "LeaseDown"}
        return names.get(error.code, error.code.capitalize())

    def open(self, shop, uri):
        self.shops[shop] = self.library.open(uri, timeout_ms=20000)

    def timeout(self, shop, ms):
        self.library.so.stk_client_set_timeout(self.shops[shop].handle, int(ms))

    def acquire(self, shop, lease, resources, ttl, wait):
        held = self.shops[shop].acquire(*resources.split(","), ttl_ms=int(ttl), wait_ms=int(wait))
        if held is None:
            raise StkError("HELD", "")
        self.leases[lease] = held
        return held.token

    acquire_all = acquire

    def lead(self, shop, lease, name, ttl, wait):
        if wait == "0":  # here that is without end
            return self.acquire(shop, lease, name, ttl, wait)
        self.leases[lease] = self.shops[shop].lead(name, int(ttl), max(0, int(wait)))
        return self.leases[lease].token

    def lost_at(self, lease):
        self.lost(lease)
        return round((time.time() - time.monotonic() + self.leases[lease].lost[0][1]) * 1000)

    def renew(self, lease, ttl):
        self.leases[lease].renew(int(ttl))

    def leave(self, lease):
        try:
            self.leases[lease].release()
        except StkError:
            pass  # as most programs do

    def put(self, shop, lease, resource):
        return self.shops[shop].fenced(self.leases[lease], "INCRBY", resource, 1)

    def multi(self, shop, lease, resource):
        self.shops[shop].transaction((self.leases[lease], "INCRBY", resource, 1))

    def sql(self, shop, lease, _, statement):
        self.shops[shop].fenced(self.leases[lease], "SQL", unquote(statement))

    def multi_sql(self, shop, lease, _, statement):
        self.shops[shop].transaction((self.leases[lease], "SQL", unquote(statement)))

    def read(self, shop, key):
        return self.shops[shop].get(key)

    def receipt(self, shop, lease, resource):
        outcome = self.shops[shop].receipt(resource, self.leases[lease].token, self.write_id)
        return {"applied": True, "not applied": False, "not yet": None}[outcome]

    def revoke(self, shop, resource):
        return self.shops[shop].revoke(resource)

    def bare(self, shop, key):
        return self.shops[shop].command("INCR", key)

    def lost(self, lease):
        while not self.leases[lease].lost:
            time.sleep(0.003)
        return True


def word(value):
    """A result as one word."""
    if isinstance(value, (stockade.Lease, stockade.aio.Lease)):
        value = value.token
    if isinstance(value, (tuple, list)):
        value = word(value[0])
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value


def main(kind):
    caller = {"threads": Threads, "asyncio": Tasks, "library": C}[kind]()
    calls = queue.SimpleQueue()

    def read():
        for line in sys.stdin:
            if line == "cancel\n":
                caller.cancel()
            else:
                calls.put(line.split())
        calls.put(None)
    threading.Thread(target=read, daemon=True).start()
    while call := calls.get():
        verb, *args = call
        try:
            said = word(caller.settle(getattr(caller, verb), args))
        except (Cancelled, concurrent.futures.CancelledError):
            said = "Cancelled"
        except (stockade.StockadeError, StkError) as error:
            said = caller.name(error)
        print(said, flush=True)


main(sys.argv[1])
