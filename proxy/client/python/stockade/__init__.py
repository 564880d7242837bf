# SPDX-License-Identifier: Apache-2.0
"""Leases with fencing tokens that are checked at the data.

    import stockade

    shop = stockade.connect("stockade://127.0.0.1:7379")
    with shop.lease("sku:1042", ttl=30, wait=10) as lease:
        left = lease.take(1)

The same for asyncio is in stockade.aio. Errors are classes of StockadeError."""

from stockade import aio
from stockade._election import Election
from stockade._flow import Rows
from stockade.client import Lease, Leases, Stockade, Transaction, connect
from stockade.errors import (Busy, Deadlock, Denied, Expired, Guarded, Held, LeaseDown, Lost,
                             Misuse, NoToken, Refused, SoldOut, Stale, StockadeError, StoreFailed,
                             Unknown, Unreachable, Unsure, Withdrawn, WrongType)

__version__ = "0.1.0"

__all__ = [
    "connect", "aio", "Stockade", "Election", "Lease", "Leases", "Transaction", "Rows",
    "StockadeError",
    "Busy", "Deadlock", "Denied", "Expired", "Guarded", "Held", "LeaseDown", "Lost", "Misuse",
    "NoToken", "Refused", "SoldOut", "Stale", "StoreFailed", "Unknown", "Unreachable", "Unsure",
    "Withdrawn", "WrongType"]
