# SPDX-License-Identifier: Apache-2.0
"""What is asked of the daemon, in which order, and what the answers mean. No I/O: a flow is a
generator that yields an Ask and is sent the replies, by threads (client.py) and by tasks (aio.py)
alike.

An Ask that breaks off is sent again until its time is up. That is harmless: what changes something
carries an ID, and the daemon answers a repeat with the first reply."""

from __future__ import annotations

import functools
import inspect
import os
import random
import time
from typing import (TYPE_CHECKING, Any, Callable, Dict, Generator, Iterator, List, Optional,
                    Sequence, Tuple, Union)

import redis

from stockade.errors import (Busy, Denied, Held, Misuse, Refused, Stale, StockadeError,
                             StoreFailed, Unreachable, Unsure, from_text)

if TYPE_CHECKING:
    from stockade._election import Standing
    from stockade._lease import LeaseBase

Word = Union[str, bytes, int, float]
SqlValue = Union[None, str, bytes, int, float]
Words = Tuple[Word, ...]
Flow = Generator["Ask", List[Any], Any]

BROKEN = (redis.ConnectionError, redis.TimeoutError, OSError)
TTL_MS_MIN, TTL_MS_MAX = 10, 24 * 3600 * 1000
PAUSE_MIN, PAUSE_MAX = 0.004, 0.256
DISCARDED = "EXECABORT"  # EXEC's own error where a command before it was refused
# test_reads.py holds this list to the daemon's, and to those of the other packages.
READS = frozenset("DBSIZE ECHO EXISTS GET GETRANGE HEXISTS HGET HGETALL HISTORY HKEYS HLEN HMGET "
                  "HSCAN HSTRLEN HVALS INFO LEASE LEASES MGET PING PTTL RECEIPT REFUSALS SCAN "
                  "STRLEN TIME TTL TYPE WAITERS".split())
# Without a token the daemon runs these read-only, whatever they say further on.
SQL_READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN"))

# Nobody sets this clock, and it goes on while the machine sleeps.
if hasattr(time, "CLOCK_BOOTTIME"):
    now: Callable[[], float] = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic


def new_id() -> str:
    return os.urandom(12).hex()


def milliseconds(seconds: float, what: str, least: int) -> int:
    try:
        fits = 0 <= seconds <= TTL_MS_MAX / 1000 and round(seconds * 1000) >= least
    except TypeError:  # "30", None
        fits = False
    if not fits:
        raise Misuse(f"{what} is {least / 1000:g} to {TTL_MS_MAX // 1000} seconds, not {seconds!r}")
    return round(seconds * 1000)


class Ask:
    """Commands that go together, and how far they have come."""

    __slots__ = ("commands", "id", "wait_until", "waits", "repeatable", "changes", "patient",
                 "standing", "asked", "sent")

    def __init__(self, commands: Sequence[Words], *, id: str = "", wait_until: float = 0,
                 repeatable: bool = True, changes: bool = False, patient: bool = True,
                 standing: Optional[Standing] = None) -> None:
        self.commands = commands
        self.id = id  # of the write among them
        self.wait_until = wait_until  # the daemon may hold the reply back so long; 0: it does not
        self.waits = bool(wait_until)  # this time
        self.repeatable = repeatable
        self.changes = changes  # without an answer nobody knows whether it was applied
        self.patient = patient  # sent again where the daemon cannot be reached
        self.standing = standing  # whose it is, in an election
        self.asked = 0.0  # when it was sent last
        self.sent = False

    def compose(self, connection: Any) -> List[bytes]:
        """The commands as they are to be sent now. What cannot be sent does not count as sent."""
        self.asked = now()
        commands = self.commands
        left_ms = round((self.wait_until - self.asked) * 1000) if self.waits else 0
        if left_ms > 0:
            commands = [self.commands[0] + ("WAIT", left_ms)]
        try:
            data: List[bytes] = connection.pack_commands(commands)
        except (UnicodeEncodeError, redis.DataError) as error:
            raise Misuse(f"this cannot be sent: {error}") from None
        self.sent = True
        return data


class Attempts:
    """How often, and when, an Ask is sent."""

    def __init__(self, ask: Ask, timeout: float) -> None:
        self.ask = ask
        self.deadline = (max(now(), ask.wait_until) if ask.waits else now()) + timeout
        self.pause = PAUSE_MIN
        self.unheard = False  # an attempt may have been applied, and its answer was lost

    def time_left(self) -> float:
        return self.deadline - now()

    def pause_after(self, error: Exception, aged: bool) -> float:
        """How long to wait before the next attempt, after a connection broke. A connection that
        idled (`aged`) may have ended long ago: that says nothing of the daemon."""
        ask = self.ask
        late = ask.sent and isinstance(error, redis.TimeoutError)
        if late or ask.sent and not ask.repeatable or not (ask.patient or aged):
            raise self.unanswered(error) from error
        self.unheard = ask.sent
        return 0 if aged else self._pause(self.unanswered(error))

    def pause_when_refused(self, error: Exception) -> float:
        """The same after a login was refused: where that is not for good."""
        refusal = from_text(str(error))
        if not isinstance(refusal, Busy):
            raise Denied(str(error)) from None
        return self.pause_when_busy(refusal)

    def pause_when_busy(self, busy: Busy, last: Any = None) -> float:
        """The same after the daemon said that it is busy, or stopping: this time nothing was
        applied. Of several replies the last one, a transaction's outcome, has to agree."""
        if last is not None and not is_undone(last):
            raise self.unanswered(busy)
        error = self.unanswered(busy) if self.unheard and self.ask.changes else busy
        if not self.ask.patient:
            raise error
        return self._pause(error)

    def _pause(self, error: StockadeError) -> float:
        # Half of it is left to chance, so that a crowd spreads out.
        pause = self.pause * (0.5 + random.random() / 2)
        self.pause = min(2 * self.pause, PAUSE_MAX)
        if pause >= self.time_left():
            raise error
        return pause

    def unanswered(self, error: Exception) -> StockadeError:
        why = str(error).rstrip(".") or "no answer in time"
        if self.ask.sent and self.ask.changes:
            return Unsure(f"{why}; it may have been applied")
        return Unreachable(f"{why}; nothing was applied")


def first_busy(replies: Sequence[Any]) -> Optional[Busy]:
    return next((reply for reply in replies if isinstance(reply, Busy)), None)


def error_of(reply: redis.ResponseError) -> StockadeError:
    """redis-py takes those codes off the text that it knows."""
    if isinstance(reply, redis.exceptions.NoPermissionError):
        return Denied(str(reply))
    if isinstance(reply, redis.exceptions.ExecAbortError):
        return Refused(f"{DISCARDED} {reply}")
    return from_text(str(reply))


def is_undone(outcome: Any) -> bool:
    return isinstance(outcome, Busy) or (isinstance(outcome, Refused)
                                         and str(outcome).startswith(DISCARDED))


def checked(replies: Sequence[Any]) -> Any:
    """The last reply; the first error is raised."""
    for reply in replies:
        if isinstance(reply, StockadeError):
            raise reply
    return replies[-1]


def judged(leases: Sequence[LeaseBase], replies: Sequence[Any]) -> Any:
    """The same, of what was done under these leases: they know of a Stale before the program."""
    try:
        return checked(replies)
    except Stale:
        leases[0]._keeper.on_stale(leases)
        raise


def one(commands: Sequence[Words], **options: Any) -> Flow:
    replies = yield Ask(commands, **options)
    return checked(replies)


# Leases.

def grant_words(lease: LeaseBase, id: str) -> Words:
    words: Words = ("ACQUIRE", lease.resource, lease._ttl_ms, "ID", id)
    return words + ("OWNER", lease.owner) if lease.owner else words


def ask_for_grant(lease: LeaseBase, words: Callable[[str], Words], wait_until: float) -> Flow:
    """Ask until the daemon has granted or refused; returns its reply and when that was asked for.
    Meanwhile lease._asking is the request: where it breaks off, _settle() gives back its grant."""
    ask = Ask([words(new_id())], wait_until=wait_until, standing=lease._standing)
    again = False
    while True:
        lease._asking = ask
        reply, = yield ask
        lease._asking = None
        if isinstance(reply, Stale) and not (again and ask.asked >= wait_until):
            # The lease was granted before, but the reply got lost, and it has ended by now.
            again = True
            ask = Ask([words(new_id())], wait_until=wait_until, standing=lease._standing)
        elif isinstance(reply, StockadeError):
            raise reply
        else:
            return reply, ask.asked


def acquire(lease: LeaseBase, wait_until: float) -> Flow:
    reply, asked = yield from ask_for_grant(lease, lambda id: grant_words(lease, id), wait_until)
    if reply is None:
        raise Held(f"another holds {lease.resource!r}")
    lease._granted(reply[0], asked, reply[1] / 1000)
    if now() - asked > lease.ttl / 4:
        # Nobody here knows when it was granted, so let its time count from a new request.
        yield from renew(lease, lease._ttl_ms)


def acquire_all(leases: Sequence[LeaseBase], wait_until: float) -> Flow:
    """All or none, in one order for everybody."""
    first = leases[0]
    words: Words = ("ACQUIREALL", first._ttl_ms, len(leases), *(each.resource for each in leases))
    reply, asked = yield from ask_for_grant(first, lambda id: (*words, "ID", id), wait_until)
    if reply is None:
        raise Held("another holds " + " or ".join(repr(each.resource) for each in leases))
    for lease, token in zip(leases, reply):
        lease._granted(token, asked, first.ttl)
    if now() - asked > first.ttl / 4:
        for lease in leases:
            yield from renew(lease, lease._ttl_ms)


def renew(lease: LeaseBase, ttl_ms: int) -> Flow:
    ask = Ask([("RENEW", lease.resource, lease.token, ttl_ms)])
    left_ms = judged([lease], (yield ask))
    lease._renewed(ask.asked, ttl_ms / 1000, left_ms / 1000)


def release_words(lease: LeaseBase) -> Words:
    words: Words = ("RELEASE", lease.resource, lease.token)
    return words + (("ID", new_id()) if lease.owner else ())  # a repeat without is counted twice


def leave(lease: LeaseBase) -> Flow:
    """A block ends. What was written was judged when it was written, so nothing that goes wrong
    here is news to the program: the keeper gives back what could not be."""
    lease._end()
    try:
        reply, = yield Ask([release_words(lease)], patient=False)
        released = not isinstance(reply, StoreFailed)
    except (Unreachable, Busy):
        released = False
    if not released:
        lease._give_back()


# Data.

def fence(leases: Sequence[LeaseBase], id: Optional[str], words: Words) -> Words:
    """The command under the tokens of these leases. Not FENCED: that does not say whose token it
    is, and a token of one resource may happen to be another's number."""
    head: Words = ("FENCEDALL", len(leases))
    for lease in leases:
        head += (lease.resource, lease.token)
    return head + (("ID", id) if id else ()) + words


def encode(word: Any) -> Word:
    if isinstance(word, (str, bytes, int, float)) and not isinstance(word, bool):
        return word
    raise Misuse(f"{word!r} is neither str, bytes, int nor float")


def fenced(lease: LeaseBase, words: Sequence[Any], id: Optional[str]) -> Ask:
    """A command, its key among its words, under the lease's token."""
    lease._check_usable()
    words = tuple(map(encode, words))
    if words and str(words[0]).upper() in READS:
        return Ask([fence([lease], None, words)])
    id = id or new_id()
    return Ask([fence([lease], id, words)], id=id, changes=True)


def name_write(error: Unsure, lease: LeaseBase, ask: Ask) -> None:
    """Say which write it was, for was_applied()."""
    error.resource, error.token, error.id = lease.resource, lease.token, str(ask.id)


def pairs(flat: Optional[Sequence[Any]]) -> Dict[str, Any]:
    """A map of RESP2."""
    return dict(zip(flat[::2], flat[1::2])) if flat else {}


def hset_args(field: Optional[str], value: Optional[Word],
              mapping: Optional[Dict[str, Word]]) -> List[Word]:
    args: List[Word] = [] if field is None else [field, encode(value)]
    for name, each in (mapping or {}).items():
        args += [name, each]
    if not args:
        raise Misuse("hset() takes a field and its value, or a mapping")
    return args


def bounds(min: Optional[int], max: Optional[int]) -> Words:
    words: Words = ()
    if min is not None:
        words += ("MIN", min)
    if max is not None:
        words += ("MAX", max)
    return words


def count(n: int) -> int:
    """Not a text either, such as a form's "-3": what is taken would be added."""
    if not isinstance(n, int) or n < 0:
        raise Misuse(f"how many is a whole number from 0 on, not {n!r}")
    return n


class Rows(Sequence[Tuple[Optional[str], ...]]):
    """What an SQL statement gave: a sequence of rows. Values are text, or None for NULL."""

    def __init__(self, reply: Sequence[Any]) -> None:
        parts = pairs(reply)
        self.columns: Tuple[str, ...] = tuple(parts["columns"])
        self.changes: int = parts["changes"]
        self.last_insert_rowid: int = parts["last_insert_rowid"]
        self._rows: List[Tuple[Optional[str], ...]] = [tuple(row) for row in parts["rows"]]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Tuple[Optional[str], ...]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Rows({self._rows!r})"


def sql_words(statement: str, params: Sequence[SqlValue]) -> Words:
    """SQL TYPES itfbn... statement param ..."""
    types = ""
    values: List[Word] = []
    for value in params:
        if isinstance(value, bool):
            value = int(value)
        kind = {type(None): "n", int: "i", float: "f", str: "t", bytes: "b"}.get(type(value))
        if kind is None:
            raise Misuse(f"{value!r} is neither None, str, bytes, int, float nor bool")
        types += kind
        values.append("" if value is None else value)
    return ("SQL", "TYPES", types, statement, *values) if types else ("SQL", statement)


def sql(statement: str, params: Sequence[SqlValue], leases: Sequence[LeaseBase],
        id: Optional[str]) -> Flow:
    words = sql_words(statement, params)
    if not leases:
        reads = statement.split(None, 1)[:1][0].upper() in SQL_READS if statement.split() else True
        return Rows((yield from one([words], repeatable=reads, changes=not reads)))
    for lease in leases:
        lease._check_usable()
    id = id or new_id()
    ask = Ask([fence(leases, id, words)], id=id, changes=True)
    try:
        return Rows(judged(leases, (yield ask)))
    except Unsure as error:
        name_write(error, leases[0], ask)
        raise


class TransactionBase:
    """Commands that are collected in a block, and sent together at its end."""

    def __init__(self, leases: Sequence[LeaseBase], id: Optional[str]) -> None:
        if not leases:
            raise Misuse("a transaction needs the leases that it writes under")
        self.results: List[Any] = []
        self.id = id or new_id()
        self._leases = leases
        self._commands: List[Tuple[Sequence[LeaseBase], Words]] = []
        self._convert: List[Optional[Callable[[Any], Any]]] = []
        self._done = False

    def _add(self, leases: Sequence[LeaseBase], words: Words,
             convert: Optional[Callable[[Any], Any]] = None) -> None:
        if self._done:
            raise Misuse("this transaction is over")
        for lease in leases:
            if lease not in self._leases:
                raise Misuse(f"the lease on {lease.resource!r} is not one of the transaction's")
        self._commands.append((leases, words))
        self._convert.append(convert)

    def fenced(self, lease: LeaseBase, *words: Word) -> None:
        """Any command, with its key: fenced(lease, "SETNX", lease.resource, "x")."""
        self._add([lease], tuple(map(encode, words)))

    def _on_key(self, lease: LeaseBase, name: str, *args: Word) -> None:
        self.fenced(lease, name, lease.resource, *args)

    def get(self, lease: LeaseBase) -> None:
        self._on_key(lease, "GET")

    def set(self, lease: LeaseBase, value: Word) -> None:
        self._on_key(lease, "SET", value)

    def delete(self, lease: LeaseBase) -> None:
        self._add([lease], ("DEL", lease.resource), bool)

    def take(self, lease: LeaseBase, n: int = 1, min: int = 0) -> None:
        self._on_key(lease, "DECRBY", count(n), "MIN", min)

    def put(self, lease: LeaseBase, n: int = 1, max: Optional[int] = None) -> None:
        self._on_key(lease, "INCRBY", count(n), *bounds(None, max))

    def hget(self, lease: LeaseBase, field: str) -> None:
        self._on_key(lease, "HGET", field)

    def hgetall(self, lease: LeaseBase) -> None:
        self._add([lease], ("HGETALL", lease.resource), pairs)

    def hset(self, lease: LeaseBase, field: Optional[str] = None, value: Optional[Word] = None,
             mapping: Optional[Dict[str, Word]] = None) -> None:
        self._on_key(lease, "HSET", *hset_args(field, value, mapping))

    def hdel(self, lease: LeaseBase, *fields: str) -> None:
        self._on_key(lease, "HDEL", *fields)

    def hincrby(self, lease: LeaseBase, field: str, n: int = 1, min: Optional[int] = None,
                max: Optional[int] = None) -> None:
        self._on_key(lease, "HINCRBY", field, n, *bounds(min, max))

    def sql(self, statement: str, *params: SqlValue) -> None:
        """Under the tokens of all the transaction's leases."""
        self._add(self._leases, sql_words(statement, params), Rows)

    def _flow(self) -> Flow:
        self._done = True
        commands, count = self._commands, len(self._commands)
        if not commands:
            return
        # One that nothing is written under has to be current all the same.
        named = {id(lease) for leases, _ in commands for lease in leases}
        commands = commands + [([lease], ("EXISTS", lease.resource)) for lease in self._leases
                               if id(lease) not in named]
        for lease in self._leases:
            lease._check_usable()
        words = [fence(leases, self.id if at == 0 else None, words)
                 for at, (leases, words) in enumerate(commands)]
        ask = Ask([("MULTI",), *words, ("EXEC",)], id=self.id, changes=True)
        try:
            replies = judged(self._leases, (yield ask))
        except Unsure as error:
            name_write(error, commands[0][0][0], ask)
            raise
        if not isinstance(replies, list) or len(replies) != len(commands):
            raise Refused(f"EXEC answered {replies!r}")
        self.results += [convert(reply) if convert else reply
                         for reply, convert in zip(replies[:count], self._convert)]


def was_applied(error: Unsure) -> Flow:
    if not error.id:
        raise Misuse("this was no write that has a receipt")
    reply = yield from one([("RECEIPT", error.resource, error.token, error.id)])
    return None if reply is None else reply[0] == 1


# The decorator.

class Leased:
    """How a decorated function's resource is named, and how it is given its lease."""

    def __init__(self, template: str, function: Callable[..., Any], is_async: bool) -> None:
        generates = (inspect.isgeneratorfunction(function) or
                     inspect.isasyncgenfunction(function))
        if generates or inspect.iscoroutinefunction(function) != is_async:
            wanted = "an async def function" if is_async else "a plain function"
            raise Misuse(f"{getattr(function, '__name__', function)!r} is not {wanted}; "
                         "for async def functions there is stockade.aio")
        self._template = template
        self._signature = inspect.signature(function)
        self._passes = "lease" in self._signature.parameters
        rest = [each for name, each in self._signature.parameters.items() if name != "lease"]
        self.outer = self._signature.replace(parameters=rest)

    def resource(self, args: Sequence[Any], kwargs: Dict[str, Any]) -> str:
        bound = self.outer.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._template.format(**bound.arguments)

    def call(self, function: Callable[..., Any], lease: Any, args: Sequence[Any],
             kwargs: Dict[str, Any]) -> Any:
        """The call; `lease` goes by its name, and what stands behind it, too."""
        if not self._passes:
            return function(*args, **kwargs)
        bound = self.outer.bind(*args, **kwargs)
        return function(*bound.args, **bound.kwargs, lease=lease) if self._last() else \
            function(**{**bound.arguments, "lease": lease})

    def _last(self) -> bool:
        """No positional parameter stands behind `lease`."""
        names = list(self._signature.parameters)
        behind = names[names.index("lease") + 1:]
        kinds = {self._signature.parameters[name].kind for name in behind}
        return not kinds & {inspect.Parameter.POSITIONAL_ONLY,
                            inspect.Parameter.POSITIONAL_OR_KEYWORD}
