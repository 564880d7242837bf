# SPDX-License-Identifier: Apache-2.0
"""What `stockade demo` prints: the rows of its tables by their first column."""

import collections
import re

Row = collections.namedtuple("Row", "sold left oversold tried refused rate")
SqlRow = collections.namedtuple("SqlRow", "sold left oversold tried refused rate busy_ms stood_ms")
BasketRow = collections.namedtuple(
    "BasketRow", "baskets pieces left oversold twice orders_off stale refused rate")


def table(text, row=Row, last="sales/s"):
    """The rows by their first column."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if "oversold" in line and last in line)
    rows = {}
    for line in lines[head + 1:]:
        match = re.fullmatch(rf"(\S.*?)((?:  +-?[\d,]+){{{len(row._fields)}}})", line)
        if not match:
            break
        rows[match[1]] = row(*(int(cell.replace(",", "")) for cell in match[2].split()))
    return rows


def in_postgresql(text):
    return table(text, SqlRow, "standstill ms")


def baskets(text):
    return table(text, BasketRow, "baskets/s")
