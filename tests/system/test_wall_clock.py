# SPDX-License-Identifier: Apache-2.0
"""Leases count by the monotonic clock: the wall clock may be set as one likes."""

import pathlib
import time

import pytest

from harness.limits import Seconds, patience, sanitized, wait_until
from harness.process import Process

FAKETIME = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class Clocked:
    """A daemon with a wall clock of its own."""

    def __init__(self, rig, lease):
        self.rig, self.lease = rig, lease
        self.file = rig.folder / "wall"
        self.env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.file),
                    "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.set("+0")
        self.daemon = self.another()

    def another(self):
        """Start a daemon on the same store, with the same clock."""
        return self.rig.daemon(lease=self.lease, env=self.env)

    def set(self, offset):
        fresh = self.file.with_name("wall.new")
        fresh.write_text(offset + "\n")
        fresh.rename(self.file)

    def restart(self, offset, how=Process.stop):
        """Restart under another wall clock."""
        how(self.daemon)
        self.set(offset)
        self.daemon = self.another()
        return self.daemon.client()

    def await_sweep(self):
        """Wait for a clean-up that began and ended with the clock as it is now."""
        then = self.daemon.metric("sweeps_total")
        wait_until(lambda: self.daemon.metric("sweeps_total") >= then + 2, "a clean-up")


@pytest.fixture
def clocked(rig, lease):
    if sanitized():
        pytest.skip("a sanitizer and libfaketime both want to be loaded first")
    assert FAKETIME, "libfaketime is missing: tools/setup --tests"
    return Clocked(rig, lease)


def told(daemon):
    """Return the daemon's wall clock, in seconds."""
    return int(daemon.client()("TIME")[0])


@pytest.mark.parametrize("offset", ["-1h", "+1h"])
def test_a_wall_clock_set_an_hour_back_or_forth_ends_no_lease_and_prolongs_none(clocked, offset):
    daemon = clocked.daemon
    kept, short = daemon.client(), daemon.client()
    token = kept.token("kept", 60000)
    begun = time.monotonic()
    old = short.token("short", 1000)
    waiter = daemon.client()
    waiter.send("ACQUIRE", "short", 60000, "WAIT", 30000)
    clocked.set(offset)
    hour = 3600 if offset[0] == "+" else -3600
    assert abs(told(daemon) - time.time() - hour) < 60, "the clock was set"
    assert kept.lease("kept")["state"] == "held"
    kept.renew("kept", token, 60000)
    assert kept.fenced(token, "SET", "kept", "1") == "OK"
    assert waiter.read()[0] == old + 1, "woken by the end of the lease"
    assert 0.99 <= Seconds(begun) < patience(3)
    short.refused("STALE", "RENEW", "short", old, 1000)
    assert kept("RELEASE", "kept", token) == 0


def test_an_answer_is_remembered_though_the_clock_was_set_back(clocked):
    client = clocked.daemon.client()
    token = client.token("r")
    assert client("FENCED", token, "ID", "sale", "INCRBY", "r", 5) == 5
    clocked.set("-1h")
    assert client("FENCED", token, "ID", "sale", "INCRBY", "r", 5) == 5
    assert client("RECEIPT", "r", token, "sale") == [1, 5]
    assert client("GET", "r") == b"5"


DAY_AND_MORE = "+25h"
MONTHS = "+100d"  # more than --forget-after, and a lease's longest time


def sell(client):
    """One sale under token 1, which is released then."""
    token = client.token("s", 60000)
    assert client("FENCED", token, "ID", "w1", "INCRBY", "s", 5) == 5
    assert client("RELEASE", "s", token) == 0


def insist_that_it_was_sold_once(client):
    token = client.token("s", 60000)
    assert client("FENCED", token, "ID", "w1", "INCRBY", "s", 5) == 5, "the first reply"
    assert client("GET", "s") == b"5", "applied once"
    assert client("RECEIPT", "s", 1, "w1") == [1, 5]


@pytest.mark.parametrize("how", [None, Process.stop, Process.kill])
def test_P6_a_wall_clock_that_jumps_a_day_forth_forgets_no_receipt(clocked, how):
    """While the daemon runs (None), or while it is away."""
    client = clocked.daemon.client()
    sell(client)
    if how is None:
        clocked.set(DAY_AND_MORE)
    else:
        client = clocked.restart(DAY_AND_MORE, how)
    clocked.await_sweep()
    insist_that_it_was_sold_once(client)


def test_P6_a_clock_that_was_wrong_at_the_first_start_and_then_set_right_forgets_nothing(clocked):
    sell(clocked.restart("-1000d"))
    clocked.set("+0")
    clocked.await_sweep()
    client = clocked.restart("+0")
    clocked.await_sweep()
    insist_that_it_was_sold_once(client)


def test_P3_a_jump_of_the_wall_clock_leaves_the_row_of_a_live_lease_where_it_is(clocked):
    client = clocked.daemon.client()
    token = client.token("r", 24 * 3600 * 1000)
    client.token("another", 1000)  # behind it, since the last row of a table always stays
    client = clocked.restart(MONTHS)
    clocked.await_sweep()
    assert client.lease("r")["state"] == "held"
    assert client.fenced(token, "SET", "r", "1") == "OK"
    client.renew("r", token, 60000)


def test_a_jump_of_the_wall_clock_frees_no_lease_for_a_second_daemon(clocked):
    ttl_ms = 3000
    second = clocked.another()
    other = second.client()
    # In its first ttl_ms it takes leases that are older than itself as held.
    wait_until(lambda: int(other.info()["uptime_in_seconds"]) * 1000 > ttl_ms, "it ran")
    clocked.daemon.client().token("r", ttl_ms)
    clocked.set(DAY_AND_MORE)
    assert other("ACQUIRE", "r", ttl_ms) is None


def test_dates_that_people_see_are_the_wall_clocks(clocked):
    clocked.set(DAY_AND_MORE)
    client = clocked.daemon.client()
    sell(client)
    [[written_s]] = client.rows("SELECT unixepoch(written) FROM stockade_receipts")
    assert abs(int(written_s) - told(clocked.daemon)) < 60


def test_an_idle_daemon_commits_nothing(clocked):
    client = clocked.daemon.client()
    sell(client)
    client.token("held", 60000)
    clocked.await_sweep()
    before = clocked.daemon.metric("store_commits_total")
    clocked.await_sweep()
    assert clocked.daemon.metric("store_commits_total") == before
