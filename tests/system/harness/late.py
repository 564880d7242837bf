# SPDX-License-Identifier: Apache-2.0
"""Tests that missed an interval because the machine stood still are tried again.

A machine that others use stands still now and then, for half a second and more. So a test that
fails with Late (harness/limits.py: a wait or a measurement that took longer than allowed) runs
again, fixtures and all, up to twice, where the machine stood still in that very interval for so
long that this explains it (harness/stalls.py). What was late is told in the report, and tools/check
fails a run with more than a few. Everything else that fails, fails at once, whatever the machine
did: a wrong value, a reply too many, a crash, a sanitizer's report.
"""

import functools

import pytest
from _pytest.runner import runtestprotocol

from harness.limits import Late
from harness.stalls import Stalls

TRIES = 3
failures = []  # of the test that runs now


@functools.lru_cache(maxsize=None)
def stalls():
    return Stalls().watch()


def excuse():
    """Why all that failed may be tried again, in words; "" where it may not."""
    words = []
    for failure in failures:
        late = isinstance(failure, Late)
        stood = stalls().excuse(failure.begun, failure.ended, failure.allowed) if late else 0
        if not stood:
            return ""
        words.append(f"{failure.ended - failure.begun:.2f} s instead of {failure.allowed:.2f} s, "
                     f"with a stall of {stood:.2f} s")
    return "; ".join(words)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    stalls()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, TRIES + 1):
        failures.clear()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        why = excuse() if attempt < TRIES else ""
        if not why:
            break
        item.user_properties.append(("late", why))
        item._initrequest()  # new fixtures
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call):
    if (yield).get_result().failed:
        failures.append(call.excinfo.value)
