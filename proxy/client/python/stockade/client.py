# SPDX-License-Identifier: Apache-2.0
"""For threads: each call blocks its own thread. See aio.py for asyncio."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

import redis

from stockade import _flow
from stockade._election import Election
from stockade._flow import BROKEN, Ask, Attempts, Flow, Rows, SqlValue, Word, now
from stockade._keeper import Keeper
from stockade._lease import LIVE, LOST, Blocks, LeaseBase
from stockade._target import Target
from stockade.errors import Misuse, Stale, StockadeError, Unsure

log = logging.getLogger("stockade")

T = TypeVar("T")
IDLE_MAX = 64
TIME_MIN = 0.001
WAITING_MAX = 100


def connect(uri: str = "stockade://127.0.0.1:7379", timeout: float = 5.0,
            waiting_max: int = WAITING_MAX, client_name: Optional[str] = None) -> Stockade:
    """A way to the daemon: stockade://[user:password@]host[:port] or stockade+unix:PATH. The first
    call connects. `timeout`: seconds that a call may take, beside what it waits for a lease.
    `waiting_max`: connections at most on which this process waits for leases; who comes then waits
    for one of them. `client_name`: who this is, at the daemon's page and in `stockade why`; by
    default PROGRAM-PID@HOST. Each process needs one of its own."""
    return Stockade(uri, timeout, waiting_max, client_name)


class Stockade:
    """One daemon. Any number of threads may use it; a forked child gets connections of its own."""

    def __init__(self, uri: str, timeout: float, waiting_max: int,
                 client_name: Optional[str]) -> None:
        self._target = Target(uri, client_name)
        self._timeout = timeout
        self._waiting_max = waiting_max
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: Deque[Any] = collections.deque()
        self._waiting = threading.Semaphore(self._waiting_max)
        self._keeper = Keeper(self._target, self._timeout)
        self._blocks = Blocks()
        self._closing = weakref.finalize(self, _close, self._pid, self._keeper, self._idle)

    def lease(self, resource: str, ttl: float = 30, wait: float = 0, *,
              owner: Optional[str] = None, renew: bool = True,
              on_lost: Optional[Callable[[Lease], object]] = None) -> Lease:
        """The lease on a resource, for a `with` block; acquire() and release() do without one.

        ttl      seconds that it lasts; it is renewed in the background until it is released
        wait     seconds to wait in line for it; then Held
        owner    the same owner enters again, with the same token
        renew    False: it ends with its TTL
        on_lost  called with the lease, at once when it is lost, on the thread that renews: be brief
        """
        self._check_process()
        return Lease(self, resource, ttl, wait, owner, renew, on_lost)

    def lead(self, name: str, ttl: float = 30, wait: Optional[float] = None, *,
             on_lost: Optional[Callable[[Lease], object]] = None) -> Election:
        """Stand for election: the block runs while this program is the one that leads.

            while True:
                with shop.lead("nightly", ttl=10) as term:
                    while not term.lost.wait(60):
                        term.set(work())         # Stale where another leads by now

        It waits as long as it takes, or `wait` seconds, through outages of the daemon and of the
        lease service. `term` is a Lease on `name`: its `lost` is set, and `on_lost` called, with a
        tenth of the TTL to go (and 2 ms and a hundredth), so before anybody else may lead; the end
        of the block steps down. `withdraw()` ends the wait, from another thread.
        """
        self._check_process()
        return Election(self, name, ttl, wait, on_lost)

    def leases(self, *resources: str, ttl: float = 30, wait: float = 0,
               on_lost: Optional[Callable[[Lease], object]] = None) -> Leases:
        """All of them or none, in one order for everybody, so that two that cross never deadlock:
        `with shop.leases("sku:1", "sku:2", wait=10) as (first, second):`"""
        self._check_process()
        return Leases(self, [Lease(self, each, ttl, wait, None, True, on_lost)
                             for each in resources], wait)

    def leased(self, template: str, ttl: float = 30, wait: float = 0
               ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Decorates a function that runs under a lease: @shop.leased("sku:{sku}"). The template
        names the function's parameters; one that is called `lease` is given the lease."""
        def decorate(function: Callable[..., T]) -> Callable[..., T]:
            leased = _flow.Leased(template, function, is_async=False)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> T:
                with self.lease(leased.resource(args, kwargs), ttl, wait) as lease:
                    result: T = leased.call(function, lease, args, kwargs)
                    return result
            call.__signature__ = leased.outer  # type: ignore[attr-defined]
            return call
        return decorate

    def transaction(self, *leases: Lease, id: Optional[str] = None) -> Transaction:
        """What the block adds is sent together at its end, and applied whole or not at all, while
        all these leases are current:

            with shop.transaction(first, second) as sale:
                sale.take(first)
                sale.take(second, 2)
                sale.sql("INSERT INTO orders VALUES (?)", 17)
            left, left_of_second, _ = sale.results
        """
        return Transaction(self, leases, id)

    def sql(self, statement: str, *params: SqlValue, leases: Sequence[Lease] = (),
            id: Optional[str] = None) -> Rows:
        """One statement. To write takes the leases of what it writes."""
        rows: Rows = self._drive(_flow.sql(statement, params, leases, id))
        return rows

    def get(self, key: str) -> Optional[str]:
        value: Optional[str] = self.command("GET", key)
        return value

    def hget(self, key: str, field: str) -> Optional[str]:
        value: Optional[str] = self.command("HGET", key, field)
        return value

    def hgetall(self, key: str) -> Dict[str, str]:
        return _flow.pairs(self.command("HGETALL", key))

    def command(self, *words: Word) -> Any:
        """Any command that needs no token, such as reads. Only reads are sent again where the
        connection breaks."""
        reads = str(words[0]).upper() in _flow.READS
        return self._drive(_flow.one([tuple(map(_flow.encode, words))], repeatable=reads,
                                     changes=not reads))

    def query(self, resource: str) -> Optional[Dict[str, Any]]:
        """Who holds it: state, token, owner, ttl_ms, holds, waiters. None: never granted."""
        reply = self._drive(_flow.one([("LEASE", resource)]))
        return None if reply is None else _flow.pairs(reply)

    def revoke(self, resource: str) -> Optional[int]:
        """End the lease, whoever has it: the holder's next write is Stale. Returns its token."""
        token: Optional[int] = self._drive(_flow.one([("REVOKE", resource)], repeatable=False,
                                                     changes=True))
        return token

    def was_applied(self, error: Unsure) -> Optional[bool]:
        """Was the write applied that got no answer? None: not yet, and it still could be."""
        applied: Optional[bool] = self._drive(_flow.was_applied(error))
        return applied

    def ping(self) -> None:
        """Is the daemon there?"""
        self._drive(_flow.one([("PING",)]))

    def close(self) -> None:
        """Close the connections. Leases that were not released end with their TTL."""
        if self._pid == os.getpid():
            self._closing()
            self._start()

    def __enter__(self) -> Stockade:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stockade at {self._target.name}>"

    # How a flow is run.

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._closing.detach()
            self._start()

    def _drive(self, flow: Flow) -> Any:
        try:
            ask = next(flow)
            while True:
                try:
                    replies = self._call(ask)
                except StockadeError as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(replies)
        except StopIteration as end:
            return end.value

    def _call(self, ask: Ask) -> List[Any]:
        """The replies to one ask, within its time. Error replies are among them."""
        self._check_process()
        if not ask.wait_until or ask.standing is not None:  # nobody waits behind a candidate
            return self._attempt(ask)
        if not self._waiting.acquire(blocking=False):
            ask.waits = False
            replies = self._attempt(ask)
            if replies != [None]:
                return replies
            if not self._waiting.acquire(timeout=max(0.0, ask.wait_until - now())):
                return replies
        ask.waits = True
        try:
            return self._attempt(ask)
        finally:
            self._waiting.release()

    def _attempt(self, ask: Ask) -> List[Any]:
        attempts = Attempts(ask, self._timeout)
        limited = False  # a socket that idled has the time limit of a call that begins
        while True:
            if ask.standing is not None:
                ask.standing.check()
            connection, aged = self._take(ask, attempts)
            limited = limited or not aged
            try:
                replies = self._exchange(connection, ask, attempts if limited else None)
            except BaseException as error:
                with contextlib.suppress(Exception):
                    connection.disconnect()
                if isinstance(error, (redis.AuthenticationError, redis.ResponseError)):
                    pause = attempts.pause_when_refused(error)
                elif isinstance(error, BROKEN):
                    pause = attempts.pause_after(error, aged)
                else:
                    raise
            else:
                if limited:
                    connection._sock.settimeout(self._timeout)
                self._give(connection)
                busy = _flow.first_busy(replies)
                if busy is None:
                    return replies
                pause = attempts.pause_when_busy(busy, replies[-1])
            time.sleep(pause)

    def _take(self, ask: Ask, attempts: Attempts) -> Tuple[Any, bool]:
        """A connection, and whether it idled: the one used last, which is likely still good."""
        with contextlib.suppress(IndexError):
            connection = self._idle.pop()
            if ask.repeatable:
                return connection, True
            connection.disconnect()  # which may be dead: a new one in its place
        until = min(attempts.deadline, now() + self._timeout)
        return self._target.connection(self._timeout, until), False

    def _give(self, connection: Any) -> None:
        if len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.disconnect()

    def _exchange(self, connection: Any, ask: Ask, limits: Optional[Attempts]) -> List[Any]:
        connection.connect()
        if limits is not None:
            connection._sock.settimeout(max(TIME_MIN, limits.time_left()))
        connection.send_packed_command(ask.compose(connection))
        if ask.waits:
            with ask.standing.watching(connection) if ask.standing else contextlib.nullcontext():
                if not connection.can_read(max(0.0, ask.wait_until - now()) + self._timeout):
                    raise redis.TimeoutError("no answer in time")
        return [_read(connection) for _ in ask.commands]


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return _flow.error_of(error)


def _close(pid: int, keeper: Keeper, idle: Deque[Any]) -> None:
    if pid == os.getpid():
        keeper.stop()
        while idle:
            idle.pop().disconnect()


class Lease(LeaseBase):
    """A lease on a resource, and what is written under its token: the key of the same name.

    `lost` is set when it is lost: revoked, taken, or not renewed in time. Any number of threads may
    use it. Values are text; bytes that are no UTF-8 come as surrogates (surrogateescape)."""

    def __init__(self, shop: Stockade, resource: str, ttl: float, wait: float,
                 owner: Optional[str], renew: bool,
                 on_lost: Optional[Callable[[Lease], object]]) -> None:
        super().__init__(shop._keeper, resource, ttl, owner, renew)
        self.lost = threading.Event()
        self._shop = shop
        self._wait = _flow.milliseconds(wait, "wait", 0) / 1000
        self._on_lost = on_lost

    def acquire(self) -> Lease:
        """Held: another has it, and had it for all of `wait`."""
        self._shop._check_process()
        self._check_new(self._shop._keeper)
        try:
            self._shop._drive(_flow.acquire(self, now() + self._wait if self._wait else 0))
            self._keep()
        except BaseException:
            self._settle()
            raise
        return self

    def release(self) -> None:
        """Give it back. Stale: it was lost, or given back before."""
        self._check_usable()
        self._end()
        try:
            self._shop._drive(_flow.one([_flow.release_words(self)]))
        except BaseException as error:
            if not isinstance(error, Stale):
                self._give_back()
            raise

    def renew(self, ttl: Optional[float] = None) -> None:
        """Renew it now, with another TTL from here on."""
        self._check_usable()
        ttl_ms = self._ttl_ms if ttl is None else _flow.milliseconds(ttl, "ttl", _flow.TTL_MS_MIN)
        self._shop._drive(_flow.renew(self, ttl_ms))

    def __enter__(self) -> Lease:
        if self._wait and not self.owner:
            self._shop._blocks.check(self, threading.current_thread(), "thread")
        self.acquire()
        self._shop._blocks.enter(self, threading.current_thread())
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        """Raises nothing of its own: what was written was judged when it was written."""
        if self._pid != os.getpid():
            return
        self._shop._blocks.leave(self)
        self._leave()

    def _leave(self) -> None:
        if self._state == LOST:
            self._give_back()
        elif self._state == LIVE:
            try:
                self._shop._drive(_flow.leave(self))
            except StockadeError as error:
                log.info("%r was not released: %s", self, error)
            except BaseException:
                self._give_back()
                raise

    def _tell_lost(self) -> None:
        self.lost.set()
        if self._on_lost is not None:
            self._on_lost(self)

    def _run(self, name: str, *args: Any, id: Optional[str] = None) -> Any:
        return self.fenced(name, self.resource, *args, id=id)

    def fenced(self, *words: Word, id: Optional[str] = None) -> Any:
        """Any command, with its key: lease.fenced("SETNX", lease.resource, "x"). An `id` of your
        own, such as an order's number, makes a repeat harmless that this program, or the next one,
        makes."""
        ask = _flow.fenced(self, words, id)
        try:
            return _flow.judged([self], self._shop._call(ask))
        except Unsure as error:
            _flow.name_write(error, self, ask)
            raise

    def get(self) -> Optional[str]:
        """The value; None where there is none. Stale where the lease has passed on."""
        value: Optional[str] = self._run("GET")
        return value

    def set(self, value: Word, *, id: Optional[str] = None) -> None:
        self._run("SET", value, id=id)

    def delete(self, *, id: Optional[str] = None) -> bool:
        """Was it there?"""
        return bool(self._run("DEL", id=id))

    def take(self, n: int = 1, min: int = 0, *, id: Optional[str] = None) -> int:
        """Take n from a number; returns what is left. SoldOut: that would be below `min`."""
        return int(self._run("DECRBY", _flow.count(n), "MIN", min, id=id))

    def put(self, n: int = 1, max: Optional[int] = None, *, id: Optional[str] = None) -> int:
        """Add n to a number; returns what there is then."""
        return int(self._run("INCRBY", _flow.count(n), *_flow.bounds(None, max), id=id))

    def hget(self, field: str) -> Optional[str]:
        value: Optional[str] = self._run("HGET", field)
        return value

    def hgetall(self) -> Dict[str, str]:
        return _flow.pairs(self._run("HGETALL"))

    def hset(self, field: Optional[str] = None, value: Optional[Word] = None,
             mapping: Optional[Dict[str, Word]] = None, *, id: Optional[str] = None) -> int:
        """How many fields are new."""
        return int(self._run("HSET", *_flow.hset_args(field, value, mapping), id=id))

    def hdel(self, *fields: str, id: Optional[str] = None) -> int:
        """How many fields were there."""
        return int(self._run("HDEL", *fields, id=id))

    def hincrby(self, field: str, n: int = 1, min: Optional[int] = None,
                max: Optional[int] = None, *, id: Optional[str] = None) -> int:
        """SoldOut: that would be below `min` or above `max`."""
        return int(self._run("HINCRBY", field, n, *_flow.bounds(min, max), id=id))


class Leases:
    """Several leases for one block: all or none."""

    def __init__(self, shop: Stockade, leases: List[Lease], wait: float) -> None:
        if not leases:
            raise Misuse("which leases?")
        self._shop, self._leases = shop, leases
        self._wait = wait

    def __enter__(self) -> Tuple[Lease, ...]:
        self._shop._check_process()
        me = threading.current_thread()
        for lease in self._leases:
            if self._wait:
                self._shop._blocks.check(lease, me, "thread")
            lease._check_new(self._shop._keeper)
        try:
            self._shop._drive(_flow.acquire_all(self._leases,
                                                now() + self._wait if self._wait else 0))
            for lease in self._leases:
                lease._keep()
        except BaseException:
            for lease in self._leases:
                lease._settle()
            raise
        for lease in self._leases:
            self._shop._blocks.enter(lease, me)
        return tuple(self._leases)

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        with contextlib.ExitStack() as stack:  # each of them, whatever becomes of the others
            for lease in self._leases:
                stack.push(lease.__exit__)


class Transaction(_flow.TransactionBase):
    """See Stockade.transaction()."""

    def __init__(self, shop: Stockade, leases: Sequence[Lease], id: Optional[str]) -> None:
        super().__init__(leases, id)
        self._shop = shop

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self._shop._drive(self._flow())
        else:
            self._done = True
