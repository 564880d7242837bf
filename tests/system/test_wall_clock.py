# SPDX-License-Identifier: Apache-2.0
"""Leases count by the monotonic clock: the wall clock may be set as one likes."""

import pathlib
import time

import pytest

from harness.limits import Seconds, patience, sanitized, wait_until
from harness.process import Process

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


class Clocked:
    """A daemon and its wall clock."""

    def __init__(self, rig, lease):
        self.rig, self.lease = rig, lease
        self.wall = Wall(rig.folder)
        self.daemon = rig.daemon(lease=lease, env=self.wall.env)

    def second(self):
        return self.rig.daemon(lease=self.lease, env=self.wall.env)

    def restart(self, offset, how=Process.stop):
        """Under another wall clock."""
        how(self.daemon)
        self.wall.set(offset)
        self.daemon = self.rig.daemon(lease=self.lease, env=self.wall.env)
        return self.daemon.client()


@pytest.fixture(params=["local:", "redis"])
def setting(request, rig):
    if sanitized():
        pytest.skip("a sanitizer and libfaketime both want to be loaded first")
    assert FAKETIME, "libfaketime is missing: tools/setup --tests"
    return Clocked(rig, rig.redis().uri if request.param == "redis" else request.param)


@pytest.fixture
def clocked(setting):
    return setting.daemon, setting.wall


def await_sweep(daemon):
    """Until a clean-up has begun and ended that saw the clock as it is now."""
    then = daemon.metric("sweeps_total")
    wait_until(lambda: daemon.metric("sweeps_total") >= then + 2, "a clean-up", patience(10))


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
    kept.renew("kept", token, 60000)
    assert kept.fenced(token, "SET", "kept", "1") == "OK"
    assert waiter.read()[0] == old + 1, "woken by the end of the lease"
    assert 0.99 <= Seconds(begun) < patience(3)
    short.refused("STALE", "RENEW", "short", old, 1000)
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
def test_P6_a_wall_clock_that_jumps_a_day_forth_forgets_no_receipt(setting, how):
    """While the daemon runs (None), or while it is away."""
    client = setting.daemon.client()
    sell(client)
    if how is None:
        setting.wall.set(DAY_AND_MORE)
    else:
        client = setting.restart(DAY_AND_MORE, how)
    await_sweep(setting.daemon)
    insist_that_it_was_sold_once(client)


def test_P6_a_clock_that_was_wrong_at_the_first_start_and_then_set_right_forgets_nothing(setting):
    sell(setting.restart("-1000d"))
    setting.wall.set("+0")
    await_sweep(setting.daemon)
    client = setting.restart("+0")
    await_sweep(setting.daemon)
    insist_that_it_was_sold_once(client)


def test_P3_a_jump_of_the_wall_clock_leaves_the_row_of_a_live_lease_where_it_is(setting):
    client = setting.daemon.client()
    token = client.token("r", 24 * 3600 * 1000)
    client.token("another", 1000)  # behind it: a table's last row stays anyhow
    client = setting.restart(MONTHS)
    await_sweep(setting.daemon)
    assert client.lease("r")["state"] == "held"
    assert client.fenced(token, "SET", "r", "1") == "OK"
    client.renew("r", token, 60000)


def test_a_jump_of_the_wall_clock_frees_no_lease_for_a_second_daemon(setting):
    ttl_ms = 3000
    second = setting.second()
    other = second.client()
    # For the first ttl_ms of its own it holds what is older than itself.
    wait_until(lambda: second.metric("uptime_seconds") * 1000 > ttl_ms, "it ran", patience(10))
    setting.daemon.client().token("r", ttl_ms)
    setting.wall.set(DAY_AND_MORE)
    assert other("ACQUIRE", "r", ttl_ms) is None


def test_dates_that_people_see_are_the_wall_clocks(setting):
    setting.wall.set(DAY_AND_MORE)
    client = setting.daemon.client()
    sell(client)
    [[written_s]] = client.rows("SELECT unixepoch(written) FROM stockade_receipts")
    assert abs(int(written_s) - told(setting.daemon)) < 60


def test_an_idle_daemon_commits_nothing(setting):
    client = setting.daemon.client()
    sell(client)
    client.token("held", 60000)
    await_sweep(setting.daemon)
    before = setting.daemon.metric("store_commits_total")
    for _ in range(3):
        await_sweep(setting.daemon)
    assert setting.daemon.metric("store_commits_total") == before
