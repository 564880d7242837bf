# SPDX-License-Identifier: Apache-2.0
"""Tests that failed because the machine was late are tried again.

A machine that others use stands still now and then, for half a second and more: a lease of a second
is lost then, and rightly. A defect shows each time. So a test that fails, and meanwhile the machine
stood still (harness/stalls.py) or a Stopwatch missed an upper bound, runs again, fixtures and all,
up to four times; what was late is told in the report. Everything else that fails, fails at once.
"""

import functools
import time

import pytest
from _pytest.runner import runtestprotocol

from harness.limits import Seconds
from harness.stalls import Stalls

TRIES = 5


@functools.lru_cache(maxsize=None)
def stalls():
    return Stalls()


def lateness(since):
    """What was late, in words; "" where nothing was."""
    longest = stalls().longest_since(since)
    return "; ".join(Seconds.missed + ([f"a stall of {longest:.2f} s"] if longest else []))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    stalls()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, TRIES + 1):
        Seconds.missed.clear()
        begun = time.monotonic()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = any(report.failed for report in reports)
        why = lateness(begun) if failed and attempt < TRIES else ""
        if not why:
            break
        item.user_properties.append(("late", why))
        item._initrequest()  # new fixtures
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
