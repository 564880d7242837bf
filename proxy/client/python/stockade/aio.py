# SPDX-License-Identifier: Apache-2.0
"""For asyncio: the same as client.py with `async` and `await`.

    shop = stockade.aio.connect("stockade://127.0.0.1:7379")
    async with shop.lease("sku:1042", ttl=30, wait=10) as lease:
        left = await lease.take(1)

A lease that is lost cancels the task in whose block it is held, and the block raises Lost; where
`on_lost` was given, that is called instead. A write under that lease which is under way ends first:
the daemon says whether it counted. A thread renews the leases, so a loop that stands still loses
none."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import inspect
import logging
import os
import sys
import weakref
from types import TracebackType
from typing import (Any, Awaitable, Callable, Deque, Dict, Generator, Iterator, List, Optional,
                    Sequence, Set, Tuple, Type, TypeVar)

import redis

from stockade import _flow
from stockade._election import Standing
from stockade._flow import BROKEN, Ask, Attempts, Flow, Rows, SqlValue, Word, now
from stockade._keeper import Keeper
from stockade._lease import LIVE, LOST, Blocks, LeaseBase
from stockade._target import Target
from stockade.errors import Lost, Misuse, Stale, StockadeError, Unsure

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit

log = logging.getLogger("stockade")

T = TypeVar("T")
IDLE_MAX = 64
WAITING_MAX = 100


def connect(uri: str = "stockade://127.0.0.1:7379", timeout: float = 5.0,
            waiting_max: int = WAITING_MAX, client_name: Optional[str] = None) -> Stockade:
    """A way to the daemon: stockade://[user:password@]host[:port] or stockade+unix:PATH. The first
    call connects, or `await connect(uri)`. `timeout`: seconds that a call may take, beside what it
    waits for a lease. `waiting_max`: connections at most on which this process waits for leases;
    who comes then waits for one of them. `client_name`: who this is, at the daemon's page and in
    `stockade why`; by default PROGRAM-PID@HOST. Each process needs one of its own."""
    return Stockade(uri, timeout, waiting_max, client_name)


class Stockade:
    """One daemon. Any number of tasks of one loop may use it."""

    def __init__(self, uri: str, timeout: float, waiting_max: int,
                 client_name: Optional[str]) -> None:
        self._target = Target(uri, client_name)
        self._timeout = timeout
        self._waiting_max = waiting_max
        self._start(None)

    def _start(self, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        self._pid, self._loop = os.getpid(), loop
        self._idle: Deque[Any] = collections.deque()
        self._waiting: Optional[asyncio.Semaphore] = None
        self._keeper = Keeper(self._target, self._timeout)
        self._blocks = Blocks()
        self._callbacks: Set[asyncio.Future[Any]] = set()
        self._closing = weakref.finalize(self, _close, self._pid, self._keeper)

    def lease(self, resource: str, ttl: float = 30, wait: float = 0, *,
              owner: Optional[str] = None, renew: bool = True,
              on_lost: Optional[Callable[[Lease], object]] = None) -> Lease:
        """The lease on a resource, for an `async with` block; acquire() and release() do without.

        ttl      seconds that it lasts; it is renewed in the background until it is released
        wait     seconds to wait in line for it; then Held
        owner    the same owner enters again, with the same token
        renew    False: it ends with its TTL
        on_lost  called with the lease, in the loop, when it is lost; may be async. The task is not
                 cancelled then
        """
        self._check_loop()
        return Lease(self, resource, ttl, wait, owner, renew, on_lost)

    def lead(self, name: str, ttl: float = 30, wait: Optional[float] = None, *,
             on_lost: Optional[Callable[[Lease], object]] = None) -> Election:
        """Stand for election: the block runs while this program is the one that leads.

            while True:
                with contextlib.suppress(stockade.Lost):
                    async with shop.lead("nightly", ttl=10) as term:
                        await work(term)

        It waits as long as it takes, or `wait` seconds, through outages of the daemon and of the
        lease service; to cancel the task ends the wait. `term` is a Lease on `name`: its loss
        cancels the block, which raises Lost, or calls `on_lost`, with a tenth of the TTL to go (and
        2 ms and a hundredth), so before anybody else may lead; the end of the block steps down.
        """
        self._check_loop()
        return Election(self, name, ttl, wait, on_lost)

    def leases(self, *resources: str, ttl: float = 30, wait: float = 0,
               on_lost: Optional[Callable[[Lease], object]] = None) -> Leases:
        """All of them or none, in one order for everybody, so that two that cross never deadlock:
        `async with shop.leases("sku:1", "sku:2", wait=10) as (first, second):`"""
        self._check_loop()
        return Leases(self, [Lease(self, each, ttl, wait, None, True, on_lost)
                             for each in resources], wait)

    def leased(self, template: str, ttl: float = 30, wait: float = 0
               ) -> Callable[[Callable[..., Awaitable[T]]], Callable[..., Awaitable[T]]]:
        """Decorates an async function that runs under a lease: @shop.leased("sku:{sku}"). The
        template names the function's parameters; one that is called `lease` is given the lease."""
        def decorate(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
            leased = _flow.Leased(template, function, is_async=True)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> T:
                async with self.lease(leased.resource(args, kwargs), ttl, wait) as lease:
                    result: T = await leased.call(function, lease, args, kwargs)
                    return result
            call.__signature__ = leased.outer  # type: ignore[attr-defined]
            return call
        return decorate

    def transaction(self, *leases: Lease, id: Optional[str] = None) -> Transaction:
        """What the block adds is sent together at its end, and applied whole or not at all, while
        all these leases are current:

            async with shop.transaction(first, second) as sale:
                sale.take(first)
                sale.take(second, 2)
                sale.sql("INSERT INTO orders VALUES (?)", 17)
            left, left_of_second, _ = sale.results
        """
        return Transaction(self, leases, id)

    async def sql(self, statement: str, *params: SqlValue, leases: Sequence[Lease] = (),
                  id: Optional[str] = None) -> Rows:
        """One statement. To write takes the leases of what it writes."""
        with _writing(leases):
            rows: Rows = await self._drive(_flow.sql(statement, params, leases, id))
        return rows

    async def get(self, key: str) -> Optional[str]:
        value: Optional[str] = await self.command("GET", key)
        return value

    async def hget(self, key: str, field: str) -> Optional[str]:
        value: Optional[str] = await self.command("HGET", key, field)
        return value

    async def hgetall(self, key: str) -> Dict[str, str]:
        return _flow.pairs(await self.command("HGETALL", key))

    async def command(self, *words: Word) -> Any:
        """Any command that needs no token, such as reads. Only reads are sent again where the
        connection breaks."""
        reads = str(words[0]).upper() in _flow.READS
        return await self._drive(_flow.one([tuple(map(_flow.encode, words))], repeatable=reads,
                                           changes=not reads))

    async def query(self, resource: str) -> Optional[Dict[str, Any]]:
        """Who holds it: state, token, owner, ttl_ms, holds, waiters. None: never granted."""
        reply = await self._drive(_flow.one([("LEASE", resource)]))
        return None if reply is None else _flow.pairs(reply)

    async def revoke(self, resource: str) -> Optional[int]:
        """End the lease, whoever has it: the holder's next write is Stale. Returns its token."""
        token: Optional[int] = await self._drive(
            _flow.one([("REVOKE", resource)], repeatable=False, changes=True))
        return token

    async def was_applied(self, error: Unsure) -> Optional[bool]:
        """Was the write applied that got no answer? None: not yet, and it still could be."""
        applied: Optional[bool] = await self._drive(_flow.was_applied(error))
        return applied

    async def ping(self) -> None:
        """Is the daemon there?"""
        await self._drive(_flow.one([("PING",)]))

    async def close(self) -> None:
        """Close the connections. Leases that were not released end with their TTL."""
        if self._pid != os.getpid():
            return
        idle, closing = self._idle, self._closing
        self._start(self._loop)
        try:
            await asyncio.get_running_loop().run_in_executor(None, closing)
        finally:
            while idle:
                await _disconnect(idle.pop())

    async def __aenter__(self) -> Stockade:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Stockade]:
        yield from self.ping().__await__()
        return self

    def __repr__(self) -> str:
        return f"<stockade.aio.Stockade at {self._target.name}>"

    # How a flow is run.

    def _check_loop(self) -> None:
        """Connections belong to a process and a loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._pid != os.getpid():
            self._closing.detach()
            self._start(loop)
        elif self._loop is not loop:
            self._idle, self._waiting, self._loop = collections.deque(), None, loop

    async def _drive(self, flow: Flow) -> Any:
        try:
            ask = next(flow)
            while True:
                try:
                    replies = await self._call(ask)
                except StockadeError as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(replies)
        except StopIteration as end:
            return end.value

    async def _call(self, ask: Ask) -> List[Any]:
        """The replies to one ask, within its time. Error replies are among them."""
        self._check_loop()
        if not ask.wait_until or ask.standing is not None:  # nobody waits behind a candidate
            return await self._attempt(ask)
        if self._waiting is None:
            self._waiting = asyncio.Semaphore(self._waiting_max)
        waiting = self._waiting
        if waiting.locked():
            ask.waits = False
            replies = await self._attempt(ask)
            if replies != [None]:
                return replies
        try:
            async with time_limit(max(0.0, ask.wait_until - now())):
                await waiting.acquire()
        except asyncio.TimeoutError:
            return [None]
        ask.waits = True
        try:
            return await self._attempt(ask)
        finally:
            waiting.release()

    async def _attempt(self, ask: Ask) -> List[Any]:
        attempts = Attempts(ask, self._timeout)
        while True:
            connection, aged = await self._take(ask)
            try:
                async with time_limit(max(0.0, attempts.time_left())):
                    replies = await self._exchange(connection, ask)
            except BaseException as error:
                await _disconnect(connection)
                if isinstance(error, asyncio.TimeoutError):
                    error = redis.TimeoutError("no answer in time")
                if isinstance(error, (redis.AuthenticationError, redis.ResponseError)):
                    pause = attempts.pause_when_refused(error)
                elif isinstance(error, BROKEN):
                    pause = attempts.pause_after(error, aged)
                else:
                    raise
            else:
                if len(self._idle) < IDLE_MAX:
                    self._idle.append(connection)
                else:
                    await _disconnect(connection)
                busy = _flow.first_busy(replies)
                if busy is None:
                    return replies
                pause = attempts.pause_when_busy(busy, replies[-1])
            await asyncio.sleep(pause)

    async def _take(self, ask: Ask) -> Tuple[Any, bool]:
        """A connection, and whether it idled: the one used last, which is likely still good."""
        if self._idle:
            connection = self._idle.pop()
            if ask.repeatable:
                return connection, True
            await _disconnect(connection)  # which may be dead: a new one in its place
        return self._target.aio_connection(), False

    async def _exchange(self, connection: Any, ask: Ask) -> List[Any]:
        await connection.connect()
        await connection.send_packed_command(ask.compose(connection))
        return [await _read(connection) for _ in ask.commands]


async def _read(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except redis.ResponseError as error:
        return _flow.error_of(error)


async def _disconnect(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await connection.disconnect()


@contextlib.contextmanager
def _writing(leases: Sequence[Lease]) -> Iterator[None]:
    """A loss cancels nobody meanwhile: who is told that it is lost has to know what was written."""
    for lease in leases:
        lease._writes += 1
    try:
        yield
    finally:
        for lease in leases:
            lease._writes -= 1
            if lease.lost.is_set():
                lease._cancel()


def _close(pid: int, keeper: Keeper) -> None:
    if pid == os.getpid():
        keeper.stop()


class Lease(LeaseBase):
    """A lease on a resource, and what is written under its token: the key of the same name.

    `lost` is set when it is lost: revoked, taken, or not renewed in time. Values are text; bytes
    that are no UTF-8 come as surrogates (surrogateescape)."""

    def __init__(self, shop: Stockade, resource: str, ttl: float, wait: float,
                 owner: Optional[str], renew: bool,
                 on_lost: Optional[Callable[[Lease], object]]) -> None:
        super().__init__(shop._keeper, resource, ttl, owner, renew)
        self.lost = asyncio.Event()
        self._shop = shop
        self._loop = asyncio.get_running_loop()
        self._wait = _flow.milliseconds(wait, "wait", 0) / 1000
        self._on_lost = on_lost
        self._task: Optional[asyncio.Task[Any]] = None  # the block's, while it runs
        self._cancels_before = 0
        self._cancelled = False  # by us, for the loss
        self._writes = 0  # under way

    async def acquire(self) -> Lease:
        """Held: another has it, and had it for all of `wait`."""
        self._shop._check_loop()
        self._check_new(self._shop._keeper)
        try:
            await self._shop._drive(_flow.acquire(self, now() + self._wait if self._wait else 0))
            self._keep()
        except BaseException:
            self._settle()
            raise
        return self

    async def release(self) -> None:
        """Give it back. Stale: it was lost, or given back before."""
        self._check_usable()
        self._end()
        try:
            await self._shop._drive(_flow.one([_flow.release_words(self)]))
        except BaseException as error:
            if not isinstance(error, Stale):
                self._give_back()
            raise

    async def renew(self, ttl: Optional[float] = None) -> None:
        """Renew it now, with another TTL from here on."""
        self._check_usable()
        ttl_ms = self._ttl_ms if ttl is None else _flow.milliseconds(ttl, "ttl", _flow.TTL_MS_MIN)
        await self._shop._drive(_flow.renew(self, ttl_ms))

    async def __aenter__(self) -> Lease:
        if self._wait and not self.owner:
            self._shop._blocks.check(self, asyncio.current_task(), "task")
        await self.acquire()
        self._arm()
        self._shop._blocks.enter(self, asyncio.current_task())
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        """Raises nothing of its own but Lost, for the cancellation that a loss was: what was
        written was judged when it was written. Where it is cancelled, the keeper releases."""
        if self._pid != os.getpid():
            return
        self._shop._blocks.leave(self)
        task, self._task = self._task, None
        if self._state == LOST:
            self._give_back()
        elif self._state == LIVE:
            try:
                await self._shop._drive(_flow.leave(self))
            except StockadeError as failure:
                log.info("%r was not released: %s", self, failure)
            except BaseException:
                self._give_back()
                raise
        if self._cancelled and task is not None:
            await self._take_back_cancel(task, error)

    def _arm(self) -> None:
        """From here on a loss cancels this task."""
        self._task = task = asyncio.current_task()
        if task is not None and hasattr(task, "cancelling"):
            self._cancels_before = task.cancelling()
        if self.lost.is_set():
            self._cancel()

    def _cancel(self) -> None:
        if self._task is None or self._on_lost is not None or self._cancelled or self._writes:
            return
        self._cancelled = True
        self._task.cancel()

    async def _take_back_cancel(self, task: asyncio.Task[Any],
                                error: Optional[BaseException]) -> None:
        """The cancellation was ours. Somebody else's, if there is one, too, goes on."""
        others = False
        if hasattr(task, "uncancel"):
            others = task.uncancel() > self._cancels_before
        if isinstance(error, asyncio.CancelledError):
            if not others:
                raise Lost(self._lost_error()) from error
        elif not others:
            with contextlib.suppress(asyncio.CancelledError):  # the one that was on its way
                await asyncio.sleep(0)

    def _tell_lost(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._take_loss)

    def _take_loss(self) -> None:
        self.lost.set()
        self._cancel()
        if self._on_lost is not None:
            result = self._on_lost(self)
            if inspect.isawaitable(result):
                future = asyncio.ensure_future(result)
                self._shop._callbacks.add(future)
                future.add_done_callback(self._shop._callbacks.discard)

    async def _run(self, name: str, *args: Any, id: Optional[str] = None) -> Any:
        return await self.fenced(name, self.resource, *args, id=id)

    async def fenced(self, *words: Word, id: Optional[str] = None) -> Any:
        """Any command, with its key: lease.fenced("SETNX", lease.resource, "x"). An `id` of your
        own, such as an order's number, makes a repeat harmless that this program, or the next one,
        makes."""
        ask = _flow.fenced(self, words, id)
        try:
            with _writing([self] if ask.changes else []):
                return _flow.judged([self], await self._shop._call(ask))
        except Unsure as error:
            _flow.name_write(error, self, ask)
            raise

    async def get(self) -> Optional[str]:
        """The value; None where there is none. Stale where the lease has passed on."""
        value: Optional[str] = await self._run("GET")
        return value

    async def set(self, value: Word, *, id: Optional[str] = None) -> None:
        await self._run("SET", value, id=id)

    async def delete(self, *, id: Optional[str] = None) -> bool:
        """Was it there?"""
        return bool(await self._run("DEL", id=id))

    async def take(self, n: int = 1, min: int = 0, *, id: Optional[str] = None) -> int:
        """Take n from a number; returns what is left. SoldOut: that would be below `min`."""
        return int(await self._run("DECRBY", _flow.count(n), "MIN", min, id=id))

    async def put(self, n: int = 1, max: Optional[int] = None, *, id: Optional[str] = None) -> int:
        """Add n to a number; returns what there is then."""
        return int(await self._run("INCRBY", _flow.count(n), *_flow.bounds(None, max), id=id))

    async def hget(self, field: str) -> Optional[str]:
        value: Optional[str] = await self._run("HGET", field)
        return value

    async def hgetall(self) -> Dict[str, str]:
        return _flow.pairs(await self._run("HGETALL"))

    async def hset(self, field: Optional[str] = None, value: Optional[Word] = None,
                   mapping: Optional[Dict[str, Word]] = None, *, id: Optional[str] = None) -> int:
        """How many fields are new."""
        return int(await self._run("HSET", *_flow.hset_args(field, value, mapping), id=id))

    async def hdel(self, *fields: str, id: Optional[str] = None) -> int:
        """How many fields were there."""
        return int(await self._run("HDEL", *fields, id=id))

    async def hincrby(self, field: str, n: int = 1, min: Optional[int] = None,
                      max: Optional[int] = None, *, id: Optional[str] = None) -> int:
        """SoldOut: that would be below `min` or above `max`."""
        return int(await self._run("HINCRBY", field, n, *_flow.bounds(min, max), id=id))


class Election:
    """See Stockade.lead(). One block at a time; after it, it may be entered again."""

    def __init__(self, shop: Stockade, name: str, ttl: float, wait: Optional[float],
                 on_lost: Optional[Callable[[Lease], object]]) -> None:
        self.name = name
        self._shop, self._ttl, self._wait, self._on_lost = shop, ttl, wait, on_lost
        self._busy = False
        self._term: Optional[Lease] = None
        self._candidate(Standing(wait))  # what makes no sense is told here

    def _candidate(self, standing: Standing) -> Lease:
        term = self._shop.lease(self.name, self._ttl, standing.next_wait(), on_lost=self._on_lost)
        term._standing = standing
        return term

    async def __aenter__(self) -> Lease:
        if self._busy:
            raise Misuse(f"an election has one block at a time: ask shop.lead({self.name!r}) for "
                         "another")
        self._busy = True
        try:
            self._term = await self._stand(Standing(self._wait))
        except BaseException:
            self._busy = False
            raise
        return self._term

    async def _stand(self, standing: Standing) -> Lease:
        while True:
            term = self._candidate(standing)
            try:
                return await term.__aenter__()
            except StockadeError as error:
                pause = standing.pause_after(error)
            await asyncio.sleep(pause)

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        """Steps down. Raises nothing of its own but Lost, as leaving a lease's block does."""
        term, self._term, self._busy = self._term, None, False
        if term is not None:
            await term.__aexit__(kind, error, trace)


class Leases:
    """Several leases for one block: all or none."""

    def __init__(self, shop: Stockade, leases: List[Lease], wait: float) -> None:
        if not leases:
            raise Misuse("which leases?")
        self._shop, self._leases = shop, leases
        self._wait = wait

    async def __aenter__(self) -> Tuple[Lease, ...]:
        self._shop._check_loop()
        me = asyncio.current_task()
        for lease in self._leases:
            if self._wait:
                self._shop._blocks.check(lease, me, "task")
            lease._check_new(self._shop._keeper)
        try:
            await self._shop._drive(_flow.acquire_all(
                self._leases, now() + self._wait if self._wait else 0))
            for lease in self._leases:
                lease._keep()
        except BaseException:
            for lease in self._leases:
                lease._settle()
            raise
        for lease in self._leases:
            lease._arm()
            self._shop._blocks.enter(lease, me)
        return tuple(self._leases)

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:  # each, whatever the others do
                for lease in self._leases:
                    stack.push_async_exit(lease.__aexit__)
                if error is not None:
                    raise error
        except BaseException as failure:
            if failure is not error:
                raise


class Transaction(_flow.TransactionBase):
    """See Stockade.transaction()."""

    def __init__(self, shop: Stockade, leases: Sequence[Lease], id: Optional[str]) -> None:
        super().__init__(leases, id)
        self._shop, self._held = shop, leases

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            with _writing(self._held):
                await self._shop._drive(self._flow())
        else:
            self._done = True
