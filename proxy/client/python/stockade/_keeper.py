# SPDX-License-Identifier: Apache-2.0
"""The keeper: one thread per Stockade, with a connection of its own. It renews leases, hears of
their loss, and gives back what nobody is left to give back.

A thread, for asyncio too: it goes on while the event loop stands still. Where the process itself
stood still, or the daemon is silent, the clock says when a lease is over: with a tenth of its TTL
to go it counts as lost, and its holder is told.

- A heap orders leases by what comes next: the renewal, a third of the TTL after the last one; the
  time limit of a renewal under way; the end of the lease. Outdated entries stay in it, and are
  skipped when their time comes. The thread is not woken for a lease that is held for a moment.
- A renewal asks the daemon to report a loss (NOTIFY). The report comes between replies; the lease
  is then renewed at once, and the answer to that decides. One that comes during a renewal, whose
  reply may be of before, has it renewed once more.
- What is owed (a release, or an acquire that broke off) is sent until it was answered, at most for
  as long as the lease would have lasted.

Everything but sending, waiting and telling happens under the lock."""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import logging
import os
import random
import select
import selectors
import threading
import time
import weakref
from typing import Any, Deque, List, Optional, Sequence, Tuple, Union

import redis

from stockade._flow import BROKEN, PAUSE_MAX, PAUSE_MIN, Words, now
from stockade._lease import LIVE, LeaseBase
from stockade._target import Target
from stockade.errors import Stale, StockadeError, Unknown, from_text

log = logging.getLogger("stockade")

PATIENCE_MIN = 0.02
CONNECT_MIN = 0.05
IDLE = 3600.0
LAST_WORDS = 1.0  # what is owed at the end of the program may take so long


class Debt:
    """RELEASE, or the repeat of an ACQUIRE whose grant has to be given back."""

    def __init__(self, words: Words, until: float) -> None:
        self.words, self.until = words, until

    def releases(self, reply: Any) -> List[Words]:
        """What is owed instead, once this was answered."""
        if self.words[0] == "ACQUIRE" and isinstance(reply, list):
            return [("RELEASE", self.words[1], reply[0])]
        if self.words[0] == "ACQUIREALL" and isinstance(reply, list):
            return [("RELEASE", name, token) for name, token in zip(self.words[3:], reply)]
        return []


class Renewal:
    """A renewal under way. Its reply is ignored where the lease has ended or is renewed anew."""

    def __init__(self, lease: LeaseBase) -> None:
        self.lease, self.asked = weakref.ref(lease), lease._renewal_asked

    def target(self) -> Optional[LeaseBase]:
        lease = self.lease()
        current = lease is not None and lease._renewing and lease._renewal_asked == self.asked
        return lease if current and lease is not None and lease._state == LIVE else None


class Keeper:
    def __init__(self, target: Target, timeout: float) -> None:
        self._target, self._timeout = target, timeout
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        weakref.finalize(self, _close, self._wake_read, self._wake_write)
        self._stop_at: Optional[float] = None
        # Under the lock.
        self._heap: List[Tuple[float, int, weakref.ref[LeaseBase]]] = []
        self._numbers = itertools.count()
        self._wakes_at = 0.0  # the thread looks then by itself
        self._owed: Deque[Debt] = collections.deque()
        self._refused: List[LeaseBase] = []  # their holders are to be told
        # The thread's.
        self._connection: Any = None
        self._flight: Deque[Union[Debt, Renewal]] = collections.deque()
        self._retry_at = 0.0
        self._pause = PAUSE_MIN

    # For other threads.

    def begin(self) -> None:
        """Called before a lease is asked for, so that none is granted that nobody could renew:
        RuntimeError where no thread can be started. The next one who needs it tries again."""
        with self._lock:
            self._stop_at = None
            self._start()

    def add(self, lease: LeaseBase) -> bool:
        """Look after it until forget(). False: it was stopped since begin()."""
        with self._lock:
            if self._stop_at is not None:
                return False
            self._schedule(lease)
            self._wake(lease._due or 0.0)
            return True

    def forget(self, lease: LeaseBase) -> None:
        lease._due = None

    def on_stale(self, leases: Sequence[LeaseBase]) -> None:
        """Under these leases something was refused as stale. A single one is lost with that; of
        several, the daemon is asked which one it was."""
        with self._lock:
            for lease in leases:
                if lease._state == LIVE and len(leases) == 1:
                    self._lose(lease, lease._news or "its token was retired", True, self._refused)
                elif lease._state == LIVE and lease._due is not None:
                    self._ask_about(lease)
            with contextlib.suppress(RuntimeError):  # no thread: the lease was never looked after
                self._wake(0.0)

    def owe(self, words: Words, seconds: float) -> None:
        with self._lock:
            self._owed.append(Debt(words, now() + seconds))
            try:
                self._wake(0.0)
            except RuntimeError as error:
                log.warning("%s is sent when the next lease is taken: %s", words[0], error)

    def stop(self) -> None:
        """Give back what is owed, if that is quickly done, and end the thread."""
        with self._lock:
            thread, self._stop_at = self._thread, now() + LAST_WORDS
            self._tap()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * LAST_WORDS)

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._main, name="stockade", daemon=True)
            thread.start()
            self._thread, self._wakes_at = thread, 0.0
            if self._stop_at is not None:  # for what is owed since
                self._stop_at = now() + LAST_WORDS

    def _wake(self, at: float) -> None:
        self._start()
        if at < self._wakes_at:
            self._wakes_at = at
            self._tap()

    def _tap(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of taps
            os.write(self._wake_write, b"x")

    # When what is due.

    def _schedule(self, lease: LeaseBase) -> None:
        if lease._renewing:
            due = lease._renewal_asked + max(lease.ttl / 4, PATIENCE_MIN)
        else:
            due = lease._renew_at if lease._renews else IDLE + now()
        lease._due = due = min(due, lease._ends_at())
        heapq.heappush(self._heap, (due, next(self._numbers), weakref.ref(lease)))

    def _try_again(self, lease: LeaseBase) -> None:
        """No answer, or none of use: again in a moment."""
        lease._renewing = False
        lease._renew_at = now() + min(lease.ttl / 20, PAUSE_MAX)
        self._schedule(lease)

    def _lose(self, lease: LeaseBase, why: str, retired: bool, lost: List[LeaseBase]) -> None:
        lease._set_lost(why, retired)
        if lease._due is not None:  # else it is still being acquired: that fails
            lost.append(lease)
        lease._due = None

    def _ask_about(self, lease: LeaseBase) -> None:
        """Renew it at once; and once more where a renewal is under way, whose reply may be of
        before."""
        lease._again, lease._renew_at = lease._renewing, now()
        self._schedule(lease)

    def _run_due(self, lost: List[LeaseBase]) -> List[Words]:
        """Do what is due; returns what is to be sent. Whose loss is to be told joins `lost`."""
        commands: List[Words] = []
        moment = now()
        hangs = False
        lost += self._refused
        self._refused.clear()
        while self._heap and self._heap[0][0] <= moment:
            due, _, reference = heapq.heappop(self._heap)
            lease = reference()
            if lease is None or lease._due != due or lease._state != LIVE:
                continue
            if moment >= lease._ends_at():
                self._lose(lease, lease._why or "it could not be renewed in time", False, lost)
            elif lease._renewing:
                hangs = True
                lease._why = "the daemon does not answer"
                self._try_again(lease)
            elif moment < self._retry_at:
                lease._renew_at = self._retry_at
                self._schedule(lease)
            else:
                lease._renewing, lease._renewal_asked = True, moment
                lease._again = False
                self._flight.append(Renewal(lease))
                commands.append(("RENEW", lease.resource, lease._token, lease._ttl_ms, "NOTIFY"))
                self._schedule(lease)
        if hangs:
            self._hang_up()
            return []
        while self._owed and moment >= self._retry_at:
            debt = self._owed.popleft()
            if moment < debt.until:
                self._flight.append(debt)
                commands.append(debt.words)
        return commands

    def _next_at(self) -> float:
        at = self._heap[0][0] if self._heap else now() + IDLE
        return min(at, self._retry_at) if self._owed else at

    # The thread.

    def _main(self) -> None:
        while True:
            lost: List[LeaseBase] = []
            with self._lock:
                if self._ends():
                    self._thread = None
                    break
                commands = self._run_due(lost)
                self._wakes_at = wakes_at = self._next_at()
            for lease in lost:
                self._tell(lease)
            try:
                if commands:
                    self._send(commands, wakes_at)
                self._receive(wakes_at)
            except Exception as error:  # whatever it is, renewals go on
                if not isinstance(error, BROKEN):
                    log.exception("the connection that renews leases is made again")
                    time.sleep(PAUSE_MAX)  # it may be so each time, and does not wait by itself
                with self._lock:
                    self._break_off(str(error))
        if self._connection is not None:
            self._connection.disconnect()

    def _ends(self) -> bool:
        if self._stop_at is None:
            return False
        owes = self._owed or any(isinstance(each, Debt) for each in self._flight)
        return not owes or now() >= self._stop_at

    def _tell(self, lease: LeaseBase) -> None:
        try:
            lease._tell_lost()
        except BaseException:  # the program's own callback, sys.exit() in it: renewals go on
            log.exception("on_lost failed")

    def _send(self, commands: List[Words], wakes_at: float) -> None:
        if self._connection is None:
            limit = min(self._timeout, max(CONNECT_MIN, wakes_at - now()))
            self._connection = self._target.connection(limit, now() + limit)
        self._connection.connect()
        self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _receive(self, wakes_at: float) -> None:
        """Wait for an answer, for news, or until something is due, and take in what has come."""
        socket = self._connection._sock if self._connection is not None else None
        if self._stop_at is not None:
            wakes_at = min(wakes_at, self._stop_at)
        with _selector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            if socket is not None:
                selector.register(socket, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(
                max(0, min(wakes_at - now(), IDLE)) + 0.001)}
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if socket is None or socket not in ready:
            return
        while self._connection.can_read(0):
            try:
                reply = self._connection.read_response()
            except redis.AuthenticationError:
                raise
            except redis.ResponseError as error:
                reply = from_text(str(error))
            self._pause = PAUSE_MIN
            lost: List[LeaseBase] = []
            with self._lock:
                self._take_in(reply, lost)
            for lease in lost:
                self._tell(lease)

    def _take_in(self, reply: Any, lost: List[LeaseBase]) -> None:
        if isinstance(reply, list) and len(reply) == 4 and reply[0] == "stockade:lost":
            self._on_news(reply[1], reply[2], reply[3])
            return
        if not self._flight:
            raise redis.ConnectionError("an answer to nothing")
        asked = self._flight.popleft()
        if isinstance(asked, Debt):
            if isinstance(reply, StockadeError) and reply.code in ("BUSY", "LEASEDOWN", "STORE"):
                self._owed.append(asked)
                self._retry_at = now() + PAUSE_MAX
            self._owed.extend(Debt(words, asked.until) for words in asked.releases(reply))
            return
        lease = asked.target()
        if lease is None:
            return
        if isinstance(reply, (Stale, Unknown)):
            self._lose(lease, lease._news or "its token was retired", True, lost)
        elif isinstance(reply, int):
            lease._renewing, lease._why = False, ""
            lease._extend(lease._renewal_asked, reply / 1000)
            if lease._again:  # the reply may be of before
                lease._renew_at = now()
            else:
                lease._news = ""
            self._schedule(lease)
        else:
            lease._why = str(reply)
            self._try_again(lease)

    def _on_news(self, resource: str, token: int, reason: str) -> None:
        for _, _, reference in list(self._heap):
            lease = reference()
            if (lease is not None and lease._token == token and lease.resource == resource and
                    lease._state == LIVE and lease._due is not None):
                lease._news = reason
                self._ask_about(lease)

    def _hang_up(self) -> None:
        """Close the connection. What was owed over it is still owed."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
        flight, self._flight = self._flight, collections.deque()
        for each in flight:
            if isinstance(each, Debt):
                self._owed.append(each)
                continue
            lease = each.target()
            if lease is not None:
                self._try_again(lease)

    def _break_off(self, why: str) -> None:
        for each in self._flight:
            lease = each.target() if isinstance(each, Renewal) else None
            if lease is not None:
                lease._why = why
        self._hang_up()
        self._retry_at = now() + self._pause * (0.5 + random.random() / 2)
        self._pause = min(2 * self._pause, PAUSE_MAX)


def _selector() -> selectors.BaseSelector:
    """poll(2) costs no descriptor; gevent and eventlet take it away."""
    return selectors.PollSelector() if hasattr(select, "poll") else selectors.SelectSelector()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
