# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as classes of one base. `code` is the first word of the daemon's reply."""

from __future__ import annotations

import re
import sqlite3
from typing import Dict, Optional, Type


class StockadeError(Exception):
    """The base of all errors that this package raises."""

    code = "ERR"


class Stale(StockadeError):
    """The lease passed on, or was released or revoked. Nothing of the command was applied: acquire
    again, read again, decide again."""

    code = "STALE"


class Lost(Stale):
    """The lease was lost while the block ran (asyncio): revoked, taken, or not renewed in time."""


class Unknown(StockadeError):
    """The token was never granted for this resource."""

    code = "UNKNOWN"


class NoToken(StockadeError):
    """A write to a key whose lease was not given."""

    code = "NOTOKEN"


class SoldOut(StockadeError):
    """The result would leave its bounds: there are not so many left. Nothing was changed."""

    code = "RANGE"


class Held(StockadeError):
    """Another holds the lease, and did until `wait` ran out."""

    code = "HELD"


class Deadlock(StockadeError):
    """This thread or task holds the lease that it would wait for."""

    code = "DEADLOCK"


class LeaseDown(StockadeError):
    """The lease service cannot be reached: no new leases. Who holds one may write."""

    code = "LEASEDOWN"


class Busy(StockadeError):
    """The daemon has no room, or is stopping. Nothing was applied: try again later."""

    code = "BUSY"


class StoreFailed(StockadeError):
    """The store failed, such as on a full disk. Nothing of the command was applied."""

    code = "STORE"


class Guarded(StockadeError):
    """SQL touched a guarded row whose token was not presented."""

    code = "GUARDED"


class WrongType(StockadeError):
    """The key holds another kind of value."""

    code = "WRONGTYPE"


class Expired(StockadeError):
    """The receipt may have been removed: nobody knows any more."""

    code = "EXPIRED"


class Denied(StockadeError):
    """The login is missing or wrong, or does not give this right."""

    code = "NOPERM"


class Refused(StockadeError):
    """The daemon refused the command; the message says why."""


class Unreachable(StockadeError):
    """No answer in time. Nothing was applied."""

    code = "UNREACHABLE"


class Unsure(StockadeError):
    """No answer in time to a write that was sent: nobody knows whether it was applied.
    `Stockade.was_applied(error)` asks, when the daemon is back."""

    code = "UNSURE"

    def __init__(self, message: str, resource: str = "", token: int = 0, id: str = "") -> None:
        super().__init__(message)
        self.resource, self.token, self.id = resource, token, id


class Withdrawn(StockadeError):
    """The program withdrew from the election while it waited to lead."""

    code = "WITHDRAWN"


class Misuse(StockadeError, ValueError):
    """The call makes no sense: a mistake in the program."""

    code = "MISUSE"


BY_CODE: Dict[str, Type[StockadeError]] = {
    each.code: each
    for each in (Stale, Unknown, NoToken, SoldOut, Deadlock, LeaseDown, Busy, StoreFailed, Guarded,
                 WrongType, Expired, Denied)}
BY_CODE["NOAUTH"] = BY_CODE["WRONGPASS"] = Denied


def from_text(text: str) -> StockadeError:
    """The error whose reply, or message, begins with a code."""
    code, _, rest = text.partition(" ")
    if code in BY_CODE:
        return BY_CODE[code](rest)
    return Refused(text)


def from_postgresql(error: Exception) -> Optional[StockadeError]:
    """What PostgreSQL's present() said, in an error of psycopg or psycopg2; None: something else
    was wrong."""
    said = re.search(r"\b(?:STALE|UNKNOWN|GUARDED) .*", str(error))
    if said:
        return from_text(said[0])
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state == "42501":
        return Denied(f"{str(error).partition(chr(10))[0]}: the role of this connection may not "
                      "present; GRANT stockade_app TO it")
    return None


def from_sqlite(error: sqlite3.Error) -> StockadeError:
    """What stockade_present said."""
    if "no such function: stockade_present" in str(error):
        return Misuse("this connection has not loaded the extension stockade_guard.so: "
                      "enable_load_extension(True), load_extension(path)")
    return from_text(str(error))
