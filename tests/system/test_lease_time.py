# SPDX-License-Identifier: Apache-2.0
"""What is told of a lease's time, and short leases where the store or the lease service takes its
time: never more than is left there, and nobody's error."""

import pytest

from harness.limits import wait_until

LOCK, COUNTER = "stockade:{r}:lock", "stockade:{r}:token"
TTL_MS = 150


@pytest.fixture
def peek(redis):
    return redis.client()


@pytest.fixture
def client(rig, redis):
    return rig.daemon(lease=redis.uri).client()


def ask_late(relay, peek, client, *command):
    """The reply, and what Redis had left when it had answered and nobody knew yet."""
    kept = relay.kept("down")
    relay.hold("down")
    client.send(*command)
    # Not the news of the last release, which come the same way.
    wait_until(lambda: relay.kept("down") > kept and peek("EXISTS", LOCK), "Redis has answered")
    left = peek("PTTL", LOCK)
    relay.let("down")
    return client.read(), left


def test_no_reply_tells_more_than_redis_has_left_whatever_the_phases_of_the_clocks(rig, relay,
                                                                                   peek):
    client = rig.daemon(lease=relay.redis_uri).client()
    client("RELEASE", "r", client.token("r"))
    told = []
    for _ in range(20):
        (token, granted), left = ask_late(relay, peek, client, "ACQUIRE", "r", 60000)
        told.append((granted, left))
        told.append(ask_late(relay, peek, client, "RENEW", "r", token, 50000))
        lease, left = ask_late(relay, peek, client, "LEASE", "r")
        told.append((dict(zip(lease[::2], lease[1::2]))[b"ttl_ms"], left))
        client("RELEASE", "r", token)
    assert not [(i, *pair) for i, pair in enumerate(told) if not 0 < pair[0] <= pair[1]]


def test_a_renewal_that_the_store_holds_up_is_told_what_the_service_has_left(rig, peek, client):
    token = client.token("r")
    with rig.store_locked():
        left = client("RENEW", "r", token, 2000)
        assert 0 < peek("PTTL", LOCK) and left <= 2000
        wait_until(lambda: peek("PTTL", LOCK) == -2, "the renewed lease ran out")
        assert 0 < client("RENEW", "r", token, 1000) <= 1000, "nobody has taken it"
    assert client.fenced(token, "SET", "r", "x") == "OK"


def test_a_renewal_that_another_overtook_is_told_that_its_lease_is_over(rig, peek, client):
    """The store knows of no newer grant: the token still writes, so it is not STALE."""
    token = client.token("r")
    with rig.store_locked():
        assert 0 < client("RENEW", "r", token, 1000) <= 1000
        wait_until(lambda: peek("PTTL", LOCK) == -2, "the renewed lease ran out")
        peek("SET", LOCK, f"{token + 1} {'f' * 32}", "PX", 60000)
        client.refused("BUSY", "RENEW", "r", token, 1000, text="has run out")
    client.refused("BUSY", "RENEW", "r", token, 1000, text="has run out")
    assert client.fenced(token, "SET", "r", "x") == "OK"


def hold_up(rig, peek, client, *options):
    """An ACQUIRE whose lease is over before the store has it."""
    granted = int(peek("GET", COUNTER) or 0)
    with rig.store_locked():
        client.send("ACQUIRE", "r", TTL_MS, *options)
        wait_until(lambda: int(peek("GET", COUNTER) or 0) > granted, "Redis has granted it")
        wait_until(lambda: peek("EXISTS", LOCK) == 0, "and it ran out")
    return client.read()


@pytest.mark.parametrize("options", [(), ("ID", "x"), ("OWNER", "o"), ("OWNER", "o", "ID", "x")])
def test_a_grant_that_ran_out_in_a_slow_store_is_null_and_may_be_asked_for_again(
        rig, peek, client, options):
    assert hold_up(rig, peek, client, *options) is None
    assert client.token("r", 60000, *options) > 1
    client.refused("STALE", "FENCED", 1, "SET", "r", "x")


@pytest.mark.parametrize("options", [(), ("ID", "x"), ("OWNER", "o"), ("OWNER", "o", "ID", "x")])
def test_a_grant_that_ran_out_in_a_slow_store_is_tried_again_within_its_wait(
        rig, peek, client, options):
    token, left = hold_up(rig, peek, client, "WAIT", 20000, *options)
    assert token > 1 and 0 < left <= TTL_MS
    if "ID" in options:
        assert client("ACQUIRE", "r", 60000, *options)[0] >= token, "a repeat, not a stranger"


def test_baskets_at_short_ttls_behind_a_slow_lease_service_are_whole_or_null(rig, relay, peek):
    """Each step takes longer than a third of the TTL, so what was taken first runs out."""
    daemon = rig.daemon(lease=relay.redis_uri)
    client = daemon.client()
    client("RELEASE", "a", client.token("a"))
    relay.hold("down", b"granted")  # what only looks is answered
    client.send("ACQUIREALL", TTL_MS, 2, "a", "b", "ID", "x")
    lock = "stockade:{a}:lock"
    wait_until(lambda: peek("EXISTS", lock) == 1, "the first is taken")
    wait_until(lambda: peek("EXISTS", lock) == 0, "and ran out")
    relay.let("down")
    reply = client.read()
    if reply is not None:  # the machine was quick behind it
        assert len(reply) == 2
        client("FENCEDALL", 2, "a", reply[0], "b", reply[1], "MSET", "a", 1, "b", 2)
    else:
        assert len(client("ACQUIREALL", 60000, 2, "a", "b", "ID", "x")) == 2
