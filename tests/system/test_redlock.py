# SPDX-License-Identifier: Apache-2.0
"""Redlock: a quorum of independent masters decides, a minority may be down, silent or empty."""

import itertools
import statistics

import pytest

from harness.deployment import RECOVERED_SECONDS, granted_again
from harness.leases import (PROMPT_SECONDS, assert_leasedown, assert_rising, cycles, hand_over,
                            lock_key, pair, wait_for)
from harness.limits import Stopwatch, patience, wait_until, within
from harness.load import Load
from harness.redlock import Redlock
from harness.resp import refused

PAIRS = list(itertools.combinations(range(5), 2))
TRIPLES = list(itertools.combinations(range(5), 3))
GRANTS = 300


class Site:
    """Five masters and a daemon before them."""

    def __init__(self, rig, **options):
        self.rig = rig
        self.redlock = Redlock(rig, **options)
        self.daemon = rig.daemon(lease=self.redlock.uri)
        self.await_ready(5)

    def await_ready(self, count, timeout=10):
        client = self.daemon.client()
        wait_until(lambda: f" {count} ready" in client.info()["lease_service_detail"],
                   f"{count} masters are ready", timeout)
        client.close()

    def locks(self, key):
        """Return the token at each master that runs, None where it has none."""
        values = [master.client()("GET", lock_key(key)) for master in self.redlock.masters
                  if master.alive()]
        return [value and int(value.split(b" ")[0]) for value in values]


@pytest.fixture(scope="module")
def shared(module_rig):
    return Site(module_rig)


@pytest.fixture
def site(shared):
    """The test finds all masters up, and so does the next one."""
    yield shared
    for number, master in enumerate(shared.redlock.masters):
        if not master.alive():
            shared.redlock.start(number)
        else:
            master.thaw()
    shared.await_ready(5)
    shared.daemon.close_clients()


@pytest.fixture
def client(site):
    return site.daemon.client()


def test_all_masters_hold_the_same_token_and_let_it_go(site, client, key):
    tokens = [client.token(key)]
    wait_until(lambda: site.locks(key) == tokens * 5, "all five have it")
    client("RELEASE", key, tokens[0])
    wait_until(lambda: site.locks(key) == [None] * 5, "none has it")
    assert_rising(tokens + cycles(client, key, 5))


@pytest.mark.parametrize("silent, furthest", [((), (30, 40)), ((2, 4), (30,)), ((0, 4), (40,))])
def test_counters_that_ran_ahead_are_levelled_by_the_grant(site, client, key, silent, furthest):
    first = client.token(key)
    client("RELEASE", key, first)
    for master, ahead in zip(site.redlock.masters, (30, 7, 40, 3, 40)):
        master.client()("SET", f"stockade:{{{key}}}:token", first + ahead)
    for number in silent:
        site.redlock.masters[number].freeze()
    token = client.token(key)
    assert token - first - 1 in furthest, "the largest of those that answered first"
    for number in silent:
        site.redlock.masters[number].thaw()
    wait_until(lambda: site.locks(key).count(token) >= 3, "a quorum has the largest token")
    wait_until(lambda: set(site.locks(key)) <= {token, None}, "a late grant is given back")
    assert client.fenced(token, "SET", key, "x") == "OK"


@pytest.mark.parametrize("gone", [(0, 1), (2, 4)])
def test_two_masters_that_come_back_empty_give_nothing_away(site, client, token, key, gone):
    other = site.daemon.client()
    wait_until(lambda: site.locks(key) == [token] * 5, "all five have it")
    site.redlock.kill(*gone)
    assert other.acquire(key) is None
    site.redlock.start(*gone)
    site.await_ready(5)
    assert other.acquire(key) is None, "three still know"
    left = [None if number in gone else token for number in range(5)]
    wait_until(lambda: site.locks(key) == left, "what the empty ones granted is given back")
    client.renew(key, token, 60000)
    wait_until(lambda: site.locks(key) == [token] * 5, "the renewal has healed them")
    assert client.fenced(token, "SET", key, "x") == "OK"


def test_three_masters_that_come_back_empty_give_the_lease_away_and_the_fence_holds(site, key):
    client, other = site.daemon.client(), site.daemon.client()
    old = client.token(key)
    wait_until(lambda: site.locks(key) == [old] * 5, "all five have it")
    for number in (0, 2, 3):
        site.redlock.masters[number]("FLUSHALL")
    token = other.token(key)
    assert token > old
    client.refused("STALE", "FENCED", old, "SET", key, "late")
    client.refused("STALE", "RENEW", key, old, 60000)
    assert other.fenced(token, "SET", key, "x") == "OK"


def test_without_a_quorum_it_is_leasedown_with_the_reason_and_it_comes_back(site, client, token,
                                                                            key):
    site.redlock.kill(0, 1)
    client.renew(key, token, 60000)
    site.redlock.kill(4)
    assert_leasedown(client, key + "/new", 2, "no quorum: 3 of 5 masters are down: ")
    assert client.fenced(token, "SET", key, "x") == "OK"
    info = client.info()
    assert info["lease_service"] == "redlock" and info["lease_service_up"] == "0"
    assert "5 masters, 2 ready; redis 127.0.0.1:" in info["lease_service_detail"]
    site.redlock.start(4)
    assert granted_again(client, key + "/new") > 0


def test_masters_that_are_silent_cost_no_more_than_the_timeout(site, client, token, key):
    _, *three, _ = site.redlock.masters
    with three[0].frozen(), three[1].frozen(), three[2].frozen():
        assert_leasedown(client, key + "/new", 3, "no quorum")
        with within(patience(3)):
            assert client("RELEASE", key, token) == 0
    assert granted_again(client, key + "/new") > 0
    wait_until(lambda: site.locks(key) == [None] * 5, "what was released is free everywhere")


def test_a_daemon_that_starts_with_a_minority_down_serves(site, key):
    site.redlock.kill(1, 3)
    late = site.rig.daemon(lease=site.redlock.uri, store=f"sqlite:{site.rig.folder}/late.db")
    client = late.client()
    assert granted_again(client, key + "/first") > 0
    assert_rising(cycles(client, key, 3))
    late.close_clients()
    late.stop()


def test_a_waiter_at_another_daemon_is_woken_at_once(site, key):
    daemons, (holder, waiter) = pair(site.rig, site.redlock.uri, site.redlock.uri)
    token = holder.token(key)
    wait_for(daemons[1], waiter, key)
    hand_over(holder, waiter, key, token, patience(PROMPT_SECONDS))
    for daemon in daemons:
        daemon.close_clients()
        daemon.stop()


def test_a_wrong_password_is_told_and_never_shown(rig):
    redlock = Redlock(rig, count=3, args=["--requirepass", "secret"])
    uri = redlock.uri.replace("redlock://", "redlock://:hunter2@")
    daemon = rig.daemon("--log-level", "debug", lease=uri)
    with refused("LEASEDOWN", "WRONGPASS") as refusal:
        daemon.client()("ACQUIRE", "r", 60000)
    assert "hunter2" not in refusal.value.text
    info = daemon.client()("INFO").decode()
    assert "3 masters, 0 ready" in info and "hunter2" not in info
    daemon.stop()
    assert "hunter2" not in daemon.stderr()
    right = rig.daemon(lease=redlock.uri.replace("redlock://", "redlock://:secret@"))
    assert granted_again(right.client(), "r") > 0


class Daemons:
    """Gives Load its clients, by turns at each of several daemons."""

    def __init__(self, *daemons):
        self.turns = itertools.cycle(daemons)

    def client(self):
        return next(self.turns).client()


def await_grants(load, count, what, timeout=RECOVERED_SECONDS):
    """Wait until there are so many more than now."""
    def granted():
        return sum(map(len, list(load.grants.values())))

    goal = granted() + count
    wait_until(lambda: granted() >= goal or load.failures, what, timeout)


@pytest.fixture
def loaded(site):
    """The site under load at two daemons, which is audited at the end."""
    there = site.rig.daemon(lease=site.redlock.uri)
    with Load(Daemons(site.daemon, there)) as load:
        await_grants(load, 20, "grants with all masters", 10)
        yield site, load
    load.audit()
    there.close_clients()
    there.stop()


@pytest.mark.slow
def test_two_of_five_return_empty_in_every_combination_and_no_stale_write_is_accepted(loaded):
    site, load = loaded
    for gone in PAIRS:
        site.redlock.kill(*gone)
        await_grants(load, 10, f"grants without {gone}")
        site.redlock.start(*gone)
        await_grants(load, 10, f"grants with {gone} empty")
        site.await_ready(5, RECOVERED_SECONDS)


@pytest.mark.slow
def test_a_lost_majority_lets_no_stale_write_through(loaded):
    site, load = loaded
    for gone in TRIPLES:
        refused_so_far = load.refusals["LEASEDOWN"]
        site.redlock.kill(*gone)
        wait_until(lambda: load.refusals["LEASEDOWN"] > refused_so_far, "nothing is granted")
        site.redlock.start(*gone)
        await_grants(load, 10, f"grants with {gone} empty")
        site.await_ready(5, RECOVERED_SECONDS)


def p99_of_a_grant(client, key):
    """Return the 99th percentile and the median of GRANTS grants."""
    taken = []
    for _ in range(GRANTS):
        with Stopwatch() as watch:
            token = granted_again(client, key)
        taken.append(watch.seconds)
        client("RELEASE", key, token)
    return sorted(taken)[GRANTS * 99 // 100], statistics.median(taken)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("number", range(5))
def test_one_stopped_master_adds_at_most_one_timeout_to_the_p99_of_a_grant(site, key, number):
    timeout_ms = int(patience(100))
    uri = site.redlock.uri.replace(f"timeout_ms={site.redlock.timeout_ms}",
                                   f"timeout_ms={timeout_ms}")
    daemon = site.rig.daemon(lease=uri, store=f"sqlite:{site.rig.folder}/p99-{number}.db")
    client = daemon.client()
    granted_again(client, key + "/first")
    normal_p99, normal = p99_of_a_grant(client, key)
    with site.redlock.masters[number].frozen():
        p99, median = p99_of_a_grant(client, key)
    assert p99 < float(normal_p99) + timeout_ms / 1000
    assert median < 2 * float(normal) + 0.01
    daemon.close_clients()
    daemon.stop()
