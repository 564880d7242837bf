# SPDX-License-Identifier: Apache-2.0
"""Tests that failed because something took too long are tried again.

A machine that others use stands still now and then, for half a second and more. A defect that
makes something late does so each time. So a test that fails, and has seen a Stopwatch miss an upper
bound, runs again, fixtures and all, up to twice; what was late at first is told in the report.
Everything else that fails, fails at once.
"""

import pytest
from _pytest.runner import runtestprotocol

from harness.limits import Seconds

TRIES = 3


def failed_late(reports):
    return bool(Seconds.missed) and any(report.failed for report in reports)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, TRIES + 1):
        Seconds.missed.clear()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if attempt == TRIES or not failed_late(reports):
            break
        item.user_properties.append(("late", "; ".join(Seconds.missed)))
        item._initrequest()  # new fixtures
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
