# SPDX-License-Identifier: Apache-2.0
"""Leases count by the monotonic clock: the wall clock may be set as one likes."""

import pathlib
import time

import pytest

from harness.limits import Seconds, patience, sanitized
from harness.resp import refused

FAKETIME = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class Wall:
    """A wall clock for one daemon."""

    def __init__(self, folder):
        self.file = folder / "wall"
        self.set("+0")
        self.env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.file),
                    "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset):
        fresh = self.file.with_name("wall.new")
        fresh.write_text(offset + "\n")
        fresh.rename(self.file)


@pytest.fixture(params=["local:", "redis"])
def clocked(request, rig):
    """A daemon and its wall clock."""
    if sanitized():
        pytest.skip("a sanitizer and libfaketime both want to be loaded first")
    assert FAKETIME, "libfaketime is missing: tools/setup --tests"
    wall = Wall(rig.folder)
    lease = rig.redis().uri if request.param == "redis" else request.param
    return rig.daemon(lease=lease, env=wall.env), wall


def told(daemon):
    """The daemon's wall clock, in seconds."""
    return int(daemon.client()("TIME")[0])


@pytest.mark.parametrize("offset", ["-1h", "+1h"])
def test_a_wall_clock_set_an_hour_back_or_forth_ends_no_lease_and_prolongs_none(clocked, offset):
    daemon, wall = clocked
    kept, short = daemon.client(), daemon.client()
    token = kept.token("kept", 60000)
    begun = time.monotonic()
    old = short.token("short", 1000)
    waiter = daemon.client()
    waiter.send("ACQUIRE", "short", 60000, "WAIT", 30000)
    wall.set(offset)
    hour = 3600 if offset[0] == "+" else -3600
    assert abs(told(daemon) - time.time() - hour) < 60, "the clock was set"
    assert kept.lease("kept")["state"] == "held"
    assert kept("RENEW", "kept", token, 60000) == 60000
    assert kept.fenced(token, "SET", "kept", "1") == "OK"
    assert waiter.read()[0] == old + 1, "woken by the end of the lease"
    assert 0.99 <= Seconds(begun) < patience(3)
    with refused("STALE"):
        short("RENEW", "short", old, 1000)
    assert kept("RELEASE", "kept", token) == 0


def test_an_answer_is_remembered_though_the_clock_was_set_back(clocked):
    daemon, wall = clocked
    client = daemon.client()
    token = client.token("r")
    assert client("FENCED", token, "ID", "sale", "INCRBY", "r", 5) == 5
    wall.set("-1h")
    assert client("FENCED", token, "ID", "sale", "INCRBY", "r", 5) == 5
    assert client("RECEIPT", "r", token, "sale") == [1, 5]
    assert client("GET", "r") == b"5"
