# SPDX-License-Identifier: Apache-2.0
"""A lease as far as it is the same for threads and for tasks: how long it is good for, by this
machine's clock, and how it ends.

    new ──granted──▶ live ──left──▶ over
                      └──lost──▶ lost
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional

from stockade import _flow
from stockade._flow import Ask, now
from stockade.errors import Deadlock, Misuse, Stale, StockadeError, from_postgresql, from_sqlite

if TYPE_CHECKING:
    from stockade._election import Standing
    from stockade._keeper import Keeper

NEW, LIVE, LOST, OVER = range(4)
HEARS_AFTER = 0.1  # a lease that is held for a moment costs no renewal


class Blocks:
    """Who is in the block of which lease, so that whoever would wait there for itself is told. A
    block may be left by another thread or task than it was entered by, or never."""

    def __init__(self) -> None:
        self._leases: weakref.WeakValueDictionary[str, LeaseBase] = weakref.WeakValueDictionary()

    def check(self, lease: LeaseBase, me: Any, what: str) -> None:
        """Called before `me`, a thread or a task, waits for the lease."""
        if self._has(lease.resource, me):
            raise Deadlock(f"this {what} holds {lease.resource!r}, for which it would wait")

    def enter(self, lease: LeaseBase, me: Any) -> None:
        """The block of an owner that enters again is inside another, which has it still."""
        if me is not None and not self._has(lease.resource, me):
            lease._holder = weakref.ref(me)
            self._leases[lease.resource] = lease

    def leave(self, lease: LeaseBase) -> None:
        if self._leases.get(lease.resource) is lease:
            self._leases.pop(lease.resource, None)

    def _has(self, resource: str, me: Any) -> bool:
        held = self._leases.get(resource)
        return held is not None and held._state == LIVE and held._holder() is me is not None


class LeaseBase:
    def __init__(self, keeper: Keeper, resource: str, ttl: float, owner: Optional[str],
                 renew: bool) -> None:
        if not resource:
            raise Misuse("a resource has a name")
        self.resource = resource
        self.ttl = ttl
        self.owner = owner
        self._ttl_ms = _flow.milliseconds(ttl, "ttl", _flow.TTL_MS_MIN)
        self._keeper = keeper
        self._renews = renew
        self._pid = os.getpid()
        self._token = 0
        self._state = NEW
        self._asking: Optional[Ask] = None
        self._standing: Optional[Standing] = None  # in an election
        self._holder: Callable[[], Any] = lambda: None  # the thread or task in its block
        self._until = 0.0  # it has time for certain
        self._why = ""
        self._retired = False  # the daemon says so; else only this program believes that it is lost
        # The keeper's.
        self._due: Optional[float] = None
        self._renew_at = 0.0
        self._renewing = False
        self._renewal_asked = 0.0
        self._news = ""
        self._again = False  # news came while it was being renewed

    @property
    def token(self) -> int:
        """What a write is judged by. It stays readable when the lease is over."""
        if self._state == NEW:
            raise Misuse(f"the lease on {self.resource!r} has not been acquired")
        return self._token

    @property
    def left(self) -> float:
        """The seconds that the lease has left for certain; 0 where it was lost or given back. The
        time counts from before the request was sent, less a hundredth and 2 ms for drift."""
        return max(0.0, self._until - now()) if self._state == LIVE else 0.0

    @property
    def valid(self) -> bool:
        """Has it time left? For what happens outside the store: writes in it are judged there."""
        return self.left > 0

    def present(self, connection: Any) -> None:
        """Put the token into a transaction of this connection: to the store's SQLite file, with
        stockade_guard.so loaded, or to its PostgreSQL database, by psycopg without autocommit.
        Begins the transaction where none is open; the program ends it."""
        self._check_usable()
        if isinstance(connection, sqlite3.Connection):
            self._present_to_sqlite(connection)
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT stockade.present(%s, %s)", (self.resource, self.token))
        except Exception as error:  # of psycopg, or of psycopg2
            refusal = from_postgresql(error)
            if refusal is None:
                raise
            raise self._refused(refusal) from error

    def _present_to_sqlite(self, connection: sqlite3.Connection) -> None:
        begins = not connection.in_transaction
        try:
            if begins:
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT stockade_present(?, ?)",
                               (self.resource, self.token)).fetchall()
        except sqlite3.Error as error:
            if begins and connection.in_transaction:
                connection.rollback()
            raise self._refused(from_sqlite(error)) from error

    def _refused(self, refusal: StockadeError) -> StockadeError:
        if isinstance(refusal, Stale):
            self._keeper.on_stale([self])
        return refusal

    def __repr__(self) -> str:
        state = ("new", "live", "lost", "over")[self._state]
        return f"<{type(self).__name__} on {self.resource!r}: token {self._token}, {state}>"

    def _check_usable(self) -> None:
        if self._state == NEW:
            raise Misuse(f"the lease on {self.resource!r} has not been acquired")
        if self._pid != os.getpid():
            raise Misuse("this lease belongs to the process that took it")

    def _check_new(self, keeper: Keeper) -> None:
        if self._state != NEW:
            raise Misuse("a lease is acquired once: ask shop.lease() for another")
        keeper.begin()
        self._keeper, self._pid = keeper, os.getpid()  # it may have been made before a fork

    def _keep(self) -> None:
        """It was granted: have it looked after."""
        if not self._keeper.add(self):
            raise Misuse(f"the shop was closed while the lease on {self.resource!r} was waited for")

    def _granted(self, token: int, asked: float, left: float) -> None:
        self._token = token
        self._state = LIVE
        self._extend(asked, left)
        self._renew_at = min(self._renew_at, max(now(), asked) + HEARS_AFTER)

    def _extend(self, asked: float, left: float) -> None:
        good = min(left, self.ttl)
        self._until = asked + good - good / 100 - 0.002
        self._renew_at = asked + good / 3

    def _renewed(self, asked: float, ttl: float, left: float) -> None:
        if self._state == LIVE:
            self.ttl, self._ttl_ms = ttl, round(ttl * 1000)
            due = self._renew_at  # not put off: it may be the first one, which asks for news
            self._extend(asked, left)
            self._renew_at = min(self._renew_at, due)
            if self._due is not None:
                self._keeper.add(self)

    def _ends_at(self) -> float:
        """When it counts as lost."""
        return self._until - self.ttl / 10

    def _set_lost(self, why: str, retired: bool) -> None:
        self._state, self._why, self._retired = LOST, why, retired

    def _end(self) -> None:
        """It is given back, or about to be."""
        self._state = OVER
        self._keeper.forget(self)

    def _give_back(self) -> None:
        """By the keeper, whatever becomes of this thread or task."""
        if not self._retired:
            self._keeper.owe(_flow.release_words(self), self.ttl)

    def _settle(self) -> None:
        """An acquire broke off. It may have been granted: then it is given back."""
        ask, self._asking = self._asking, None
        if self._state == LIVE:
            self._end()
            self._give_back()
        elif ask is not None and ask.sent:
            self._keeper.owe(ask.commands[0], self.ttl)

    def _lost_error(self) -> str:
        return f"the lease on {self.resource!r} was lost: {self._why}"

    def _tell_lost(self) -> None:
        """Called once, by the keeper's thread."""
        raise NotImplementedError
