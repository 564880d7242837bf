# SPDX-License-Identifier: Apache-2.0
"""Election: whoever holds the lease on a name leads, and what the leader writes is judged by its
token. A candidate waits for that lease without end, and nothing that may pass ends its wait:

    standing ──granted──▶ leading ──left, or lost──▶ over
        │ ▲                                (stands again: the next block)
        └─┘ no answer, no lease service, no room: again, after a pause that grows

The leader hears of its loss from the keeper, before its TTL is over and anybody else may lead."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Type

from stockade import _flow
from stockade._flow import now
from stockade.errors import (Busy, Held, LeaseDown, Misuse, Stale, StockadeError, StoreFailed,
                             Unknown, Unreachable, Withdrawn)

if TYPE_CHECKING:
    from stockade.client import Lease, Stockade

LOOK = 30.0  # seconds of one wait in line: a daemon that is silent for ever is noticed after it
PAUSE_MIN, PAUSE_MAX = 0.02, 1.0
# Stale, Unknown: the lease was granted, and revoked before the block had it.
PASSES = (Busy, Held, LeaseDown, Stale, StoreFailed, Unknown, Unreachable)


class Standing:
    """A candidate's wait: how long it has, and when it asks again."""

    def __init__(self, wait: Optional[float]) -> None:
        limit = None if wait is None else _flow.milliseconds(wait, "wait", 0) / 1000
        self._until = None if limit is None else now() + limit
        self._pause = PAUSE_MIN
        self._withdrawn = threading.Event()
        self._socket: Optional[socket.socket] = None  # on which an answer is waited for

    def _left(self) -> float:
        return LOOK if self._until is None else max(0.0, self._until - now())

    def next_wait(self) -> float:
        """How long to wait in line this time."""
        return min(LOOK, self._left())

    def pause_after(self, error: StockadeError) -> float:
        """How long to pause before the next try; raises what will not pass, and the last error when
        the time is up."""
        if not isinstance(error, PASSES) or self._left() == 0:
            raise error
        if isinstance(error, Held):  # it was waited for already
            self._pause = PAUSE_MIN
            return 0
        pause = self._pause * (0.5 + random.random() / 2)  # so that a crowd spreads out
        self._pause = min(2 * self._pause, PAUSE_MAX)
        return min(pause, self._left())

    # For threads, which nobody can cancel otherwise.

    def withdraw(self) -> None:
        self._withdrawn.set()
        waited_on = self._socket
        if waited_on is not None:
            with contextlib.suppress(OSError):  # TLS has nothing to say to it
                socket.socket.shutdown(waited_on, socket.SHUT_RDWR)

    def check(self) -> None:
        if self._withdrawn.is_set():
            raise Withdrawn("this election was withdrawn from")

    @contextlib.contextmanager
    def watching(self, connection: Any) -> Iterator[None]:
        """Withdrawing ends what is waited for on this connection."""
        self._socket = connection._sock
        try:
            self.check()  # it may have been just before
            yield
        finally:
            self._socket = None

    def rest(self, seconds: float) -> None:
        self._withdrawn.wait(seconds)
        self.check()


class Election:
    """See Stockade.lead(). One block at a time; after it, it may be entered again."""

    def __init__(self, shop: Stockade, name: str, ttl: float, wait: Optional[float],
                 on_lost: Optional[Callable[[Lease], object]]) -> None:
        self.name = name
        self._shop, self._ttl, self._wait, self._on_lost = shop, ttl, wait, on_lost
        self._withdrawn = False
        self._standing: Optional[Standing] = None
        self._term: Optional[Lease] = None
        self._candidate(Standing(wait))  # what makes no sense is told here

    def _candidate(self, standing: Standing) -> Lease:
        term = self._shop.lease(self.name, self._ttl, standing.next_wait(), on_lost=self._on_lost)
        term._standing = standing
        return term

    def withdraw(self) -> None:
        """From any thread: who waits to lead raises Withdrawn, and so does the next one. Who leads
        is not disturbed."""
        self._withdrawn = True
        standing = self._standing
        if standing is not None:
            standing.withdraw()

    def __enter__(self) -> Lease:
        if self._standing is not None:
            raise Misuse(f"an election has one block at a time: ask shop.lead({self.name!r}) for "
                         "another")
        self._standing = standing = Standing(self._wait)
        try:
            if self._withdrawn:
                standing.withdraw()
            self._term = self._stand(standing)
        except BaseException:
            self._standing = None
            raise
        return self._term

    def _stand(self, standing: Standing) -> Lease:
        while True:
            standing.check()
            term = self._candidate(standing)
            try:
                term.__enter__()
            except StockadeError as error:
                standing.rest(standing.pause_after(error))
                continue
            if not self._withdrawn:
                return term
            term.__exit__(None, None, None)  # it was granted at that very moment

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        """Steps down. Raises nothing of its own, as leaving a lease's block does."""
        term, self._term, self._standing = self._term, None, None
        if term is not None:
            term.__exit__(kind, error, trace)
