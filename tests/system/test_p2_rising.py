# SPDX-License-Identifier: Apache-2.0
"""P2 Rising: a resource's tokens rise strictly for its whole life, whatever Redis forgets."""

import shutil
import signal

import pytest

from harness.deployment import token_when_up
from harness.leases import assert_rising, cycles, lock_key, token_key
from harness.limits import wait_until
from harness.resp import ReplyError
from harness.rig import restart

OWNED = ("OWNER", "me")


def again(rig, redis, **options):
    """Start the same Redis again on its port, with its files unless another folder is given."""
    if redis.alive():
        redis.stop()
    return rig.redis(port=redis.address[1], folder=options.pop("folder", redis.folder), **options)


def test_tokens_rise_with_every_grant(client, key):
    assert_rising(cycles(client, key, 20))


@pytest.mark.parametrize("how", ["FLUSHALL", "restarted empty"])
def test_tokens_rise_over_a_redis_that_forgets_all(rig, redis, how):
    client = rig.daemon(lease=redis.uri).client()
    tokens = cycles(client, "r", 3)
    if how == "FLUSHALL":
        redis("FLUSHALL")
    else:
        redis.kill()
        redis = again(rig, redis)
    assert redis.client()("DBSIZE") == 0
    tokens += cycles(client, "r", 3)
    assert_rising(tokens)
    client.refused("STALE", "FENCED", tokens[2], "SET", "r", "old")


def test_a_holder_is_fenced_out_by_the_grant_that_flushall_made_possible(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    a, b = daemon.client(), daemon.client()
    cycles(a, "r", 4)
    first = a.token("r")
    redis("FLUSHALL")
    assert a.fenced(first, "SET", "r", 10) == "OK"
    second = b.token("r")
    assert second > first
    a.refused("STALE", "FENCED", first, "SET", "r", 9)
    assert b.fenced(second, "DECR", "r") == 9


def test_tokens_rise_over_a_redis_restored_from_an_older_aof(rig):
    redis = rig.redis(appendonly=True)
    client = rig.daemon(lease=redis.uri).client()
    tokens = cycles(client, "r", 2)
    redis.stop()
    backup = rig.folder / "older-aof"
    shutil.copytree(redis.folder, backup)
    redis = again(rig, redis, appendonly=True)
    tokens += cycles(client, "r", 5)
    redis = again(rig, redis, appendonly=True, folder=backup)
    assert int(redis.client()("GET", token_key("r"))) == tokens[1], "the old state is back"
    tokens += cycles(client, "r", 3)
    assert_rising(tokens)


def test_a_lock_restored_from_an_older_aof_is_not_handed_out_again(rig):
    """The owner's first lock, released since, is back in Redis; re-entry must not trust it."""
    redis = rig.redis(appendonly=True)
    client = rig.daemon(lease=redis.uri).client()
    old = client.token("r", 60000, *OWNED)
    redis.stop()
    backup = rig.folder / "older-aof"
    shutil.copytree(redis.folder, backup)
    redis = again(rig, redis, appendonly=True)
    wait_until(lambda: not isinstance(client.ask("RENEW", "r", old, 60000), ReplyError),
               "Redis is reached again")
    client("RELEASE", "r", old)
    again(rig, redis, appendonly=True, folder=backup)
    fresh = token_when_up(client, "r", 60000, *OWNED, "WAIT", 3000)
    assert fresh > old
    client.refused("STALE", "FENCED", old, "SET", "r", "old")
    assert client.fenced(fresh, "SET", "r", "new") == "OK"


@pytest.fixture
def counted(shared_redis, key):
    """A client of a daemon, one of its Redis, and three tokens of `key`, given back."""
    client = shared_redis.client()
    return client, shared_redis.service.server.client(), cycles(client, key, 3)


@pytest.mark.parametrize("value", ["banana", "-5", "0", "", "1.5", "1e3", str(1 << 52),
                                   str((1 << 53) - 1), str(1 << 53), "9" * 25, None],
                         ids=lambda v: v or "empty" if v is not None else "deleted")
def test_a_counter_set_by_hand_never_lowers_or_poisons_the_tokens(counted, key, value):
    client, redis, tokens = counted
    redis("DEL", token_key(key)) if value is None else redis("SET", token_key(key), value)
    tokens += cycles(client, key, 3)
    assert_rising(tokens)
    assert tokens[-1] < 1 << 48, "a counter far above the floor is not believed"


def test_a_counter_of_the_wrong_type_never_lowers_the_tokens(counted, key):
    client, redis, tokens = counted
    redis("DEL", token_key(key))
    redis("RPUSH", token_key(key), "a", "b")
    reply = client.ask("ACQUIRE", key, 60000)
    if isinstance(reply, ReplyError):
        assert reply.code == "LEASEDOWN", reply.text
    else:
        assert reply[0] > tokens[-1]
        client("RELEASE", key, reply[0])
    redis("DEL", token_key(key))
    assert_rising(tokens + cycles(client, key, 3))


@pytest.mark.parametrize("value", ["garbage", "", "1 someone", f"{(1 << 53) - 1} someone"],
                         ids=lambda v: v or "empty")
def test_a_lock_set_by_hand_holds_until_it_expires_and_hands_out_nothing(counted, key, value):
    client, redis, tokens = counted
    redis("SET", lock_key(key), value, "PX", 400)
    assert client.acquire(key) is None
    tokens.append(client.token(key, 60000, "WAIT", 5000))
    assert_rising(tokens)
    assert tokens[-1] < 1 << 40


def test_tokens_rise_when_the_lease_service_changes_to_redis_and_back(rig, redis):
    daemon = rig.daemon(lease="local:")
    tokens = cycles(daemon.client(), "r", 3)
    for service in (redis.uri, "local:", redis.uri, "local:"):
        daemon = restart(rig, daemon, lease=service)
        tokens += cycles(daemon.client(), "r", 3)
    assert_rising(tokens)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill -9"])
def test_tokens_rise_over_restarts_of_the_daemon(rig, lease, how):
    daemon = rig.daemon(lease=lease)
    tokens = cycles(daemon.client(), "r", 3)
    for _ in range(3):
        daemon = restart(rig, daemon, how, lease=lease)
        tokens += cycles(daemon.client(), "r", 3)
    assert_rising(tokens)


def lost_grant(rig, redis, ttl_ms, *options):
    """Kill a daemon after Redis has granted and before the store has heard of it. Return a client
    of another daemon on the same store, and the token that was lost."""
    relay = rig.relay(redis.address)
    daemon = rig.daemon(lease=relay.redis_uri)
    client = daemon.client()
    cycles(client, "r", 2)
    peek = redis.client()
    newest = int(peek("GET", token_key("r")))
    relay.hold("down")
    client.send("ACQUIRE", "r", ttl_ms, *options)
    wait_until(lambda: int(peek("GET", token_key("r"))) > newest, "Redis has granted")
    lost = int(peek("GET", token_key("r")))
    assert peek("EXISTS", lock_key("r")) == 1
    daemon.kill()
    relay.let("down")
    return rig.daemon(lease=redis.uri).client(), lost


def test_the_same_owner_never_gets_a_token_that_a_crash_lost_before_its_commit(rig):
    client, lost = lost_grant(rig, rig.redis(), 60000, *OWNED)
    client.refused("UNKNOWN", "FENCED", lost, "SET", "r", "lost")
    fresh = client.token("r", 60000, *OWNED, "WAIT", 3000)
    assert fresh > lost
    client.refused("STALE", "FENCED", lost, "SET", "r", "lost")
    assert client("GET", "r") is None
    assert client.fenced(fresh, "SET", "r", "right") == "OK"


def test_another_owner_waits_out_a_grant_that_a_crash_lost_and_gets_a_larger_token(rig):
    client, lost = lost_grant(rig, rig.redis(), 700)
    fresh = client.token("r", 60000, "WAIT", 5000)
    assert fresh > lost
    client.refused("STALE", "FENCED", lost, "SET", "r", "lost")


def test_flushall_on_the_daemon_forgets_data_but_never_a_fence(unfenced, key):
    client = unfenced.client()
    tokens = cycles(client, key, 3)
    client("SET", key, "bare")
    assert client("FLUSHALL") == "OK"
    assert client("GET", key) is None
    tokens += cycles(client, key, 1)
    assert_rising(tokens)
    client.refused("STALE", "FENCED", tokens[0], "SET", key, "old")
