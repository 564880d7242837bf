# SPDX-License-Identifier: Apache-2.0
"""P8 Live: a dead lease service gives a clear error at once and never stops current holders."""

import pytest

from harness import services
from harness.deployment import token_when_up
from harness.leases import (AT_ONCE_SECONDS, SILENT_SECONDS, assert_holder_writes, assert_leasedown,
                            line_up)
from harness.limits import patience, wait_until, within
from harness.ports import free_port
from harness.resp import ReplyError
from harness.rig import restart

@pytest.fixture
def daemon(rig, redis):
    return rig.daemon(lease=redis.uri)


@pytest.fixture
def token(client):
    """Of a lease on `held`."""
    return client.token("held")


@pytest.fixture
def far(rig, relay):
    """A client of a daemon that reaches Redis through a relay."""
    return rig.daemon(lease=relay.redis_uri).client()


def is_denied(client, owner):
    """False: the service was late, on a loaded machine. It is never granted."""
    reply = client.ask("ACQUIRE", "r", 60000, "OWNER", owner)
    late = isinstance(reply, ReplyError) and reply.code == "LEASEDOWN"
    assert late or reply is None, reply
    return not late


def locked(redis):
    return redis.client()("EXISTS", "stockade:{r}:lock")


def test_with_redis_missing_at_start_the_daemon_starts_and_recovers_by_itself(rig, redis, daemon,
                                                                              token):
    redis.kill()
    daemon = restart(rig, daemon, lease=redis.uri)
    client = daemon.client()
    assert_leasedown(client, "r", AT_ONCE_SECONDS)
    assert_holder_writes(client, token)
    assert client("RELEASE", "held", token) == 0
    client.refused("STALE", "FENCED", token, "SET", "held", "late")
    rig.redis(port=redis.address[1])
    assert client.fenced(token_when_up(client, "r"), "SET", "r", "x") == "OK"


def test_a_redis_that_was_never_there_says_leasedown_within_a_second(rig):
    client = rig.daemon(lease=f"redis://127.0.0.1:{free_port()}").client()
    for _ in range(3):
        assert_leasedown(client, "r", AT_ONCE_SECONDS)
    assert_leasedown(client, "r", SILENT_SECONDS, None, "WAIT", 20000)
    assert client("PING") == "PONG"


def test_a_redis_that_dies_under_way_says_leasedown_and_comes_back(rig, redis, client, token):
    redis.kill()
    assert_leasedown(client, "r", AT_ONCE_SECONDS)
    assert_holder_writes(client, token)
    rig.redis(port=redis.address[1])
    assert token_when_up(client, "r") > 0
    assert_holder_writes(client, token)


def test_a_redis_that_accepts_and_is_silent_says_leasedown_in_bounded_time(redis, client,
                                                                           token):
    with redis.frozen():
        assert_leasedown(client, "r", SILENT_SECONDS)
        assert_holder_writes(client, token)
        assert_leasedown(client, "r", SILENT_SECONDS)
    assert token_when_up(client, "r") > 0


def test_current_holders_write_while_an_acquire_hangs_on_a_silent_redis(redis, daemon, token):
    waiter, holder = daemon.client(), daemon.client()
    redis.freeze()
    waiter.send("ACQUIRE", "r", 60000)
    for _ in range(20):
        assert_holder_writes(holder, token)
    assert waiter.read().code == "LEASEDOWN"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_network_that_swallows_bytes_says_leasedown_in_bounded_time(relay, far, direction):
    token = far.token("held")
    relay.hold(direction)
    assert_leasedown(far, "r", SILENT_SECONDS)
    assert_holder_writes(far, token)
    relay.cut()
    relay.let(direction)
    fresh = token_when_up(far, "r", 60000, "WAIT", 100)
    assert far.fenced(fresh, "SET", "r", "x") == "OK"


def test_connections_to_redis_that_are_cut_are_made_again(redis, relay, far):
    for _ in range(5):
        token = token_when_up(far, "r")
        assert far.fenced(token, "SET", "r", "x") == "OK"
        relay.cut()
        far("RELEASE", "r", token)
        wait_until(lambda: locked(redis) == 0, "the unlock follows when Redis is back")


def test_a_relay_that_refuses_and_then_accepts_is_found_again(rig, relay):
    relay.refuse()
    client = rig.daemon(lease=relay.redis_uri).client()
    assert_leasedown(client, "r", AT_ONCE_SECONDS)
    relay.accept()
    assert token_when_up(client, "r") > 0


def test_release_succeeds_while_redis_is_down_and_the_unlock_follows(redis, relay, far):
    token = far.token("r")
    relay.refuse()
    relay.cut()
    with within(patience(SILENT_SECONDS)):
        assert far("RELEASE", "r", token) == 0
    far.refused("STALE", "FENCED", token, "SET", "r", "late")
    assert locked(redis) == 1
    relay.accept()
    wait_until(lambda: locked(redis) == 0, "the unlock")
    assert far.token("r") > token


@pytest.mark.parametrize("name", ["redis", "redlock", "zookeeper"])
def test_what_one_daemon_owes_does_not_unlock_what_its_owner_took_at_another(rig, name):
    """A service that stands still makes the owner go to another daemon. When it goes on, both
    grants happen; the first daemon, which comes back last, lets go of what nobody heard of."""
    service = services.start(name, rig)
    servers = service.masters if name == "redlock" else [service.server]
    relays = [rig.relay(server.address) for server in servers]

    def client_of(places, timeout_ms):
        hosts = ",".join(f"127.0.0.1:{place.address[1]}" for place in places)
        options = "&session_ms=30000" if name == "zookeeper" else ""
        uri = f"{name}://{hosts}?timeout_ms={timeout_ms}{options}"
        client = rig.daemon(lease=uri).client()
        wait_until(lambda: client.counter("lease_service_up") == 1, "the service is reached")
        return client

    here, there = client_of(relays, int(patience(500))), client_of(servers, 30000)
    for server in servers:
        server.freeze()
    here.refused("LEASEDOWN", "ACQUIRE", "r", 60000, "OWNER", "job1")
    for relay in relays:
        relay.refuse()
        relay.cut()
    there.send("ACQUIRE", "r", 60000, "OWNER", "job1")
    for server in servers:
        server.thaw()
    token, _ = there.read()
    for relay in relays:
        relay.accept()
    wait_until(lambda: here.counter("lease_service_up") == 1, "the first daemon is back")
    for client in (here, there):  # the first daemon pays what it owes before it asks
        wait_until(lambda: is_denied(client, "job2"), "the service answers")
    assert here.fenced(token, "SET", "r", "job1's") == "OK"
    assert there("RELEASE", "r", token) == 0
    assert here.token("r", 60000, "OWNER", "job2") > token


def test_revoke_fences_at_once_while_redis_is_down(redis, client, token):
    redis.kill()
    assert client("REVOKE", "held") == token
    client.refused("STALE", "FENCED", token, "SET", "held", "late")


def test_renew_while_redis_is_down_is_leasedown_and_the_token_still_writes(redis, client,
                                                                           token):
    redis.kill()
    client.refused("LEASEDOWN", "RENEW", "held", token, 60000)
    assert_holder_writes(client, token)


def test_a_wrong_redis_password_is_leasedown_and_in_no_log_line_and_the_right_one_works(rig):
    redis = rig.redis(args=["--requirepass", "secret"])
    address = "{}:{}".format(*redis.address)
    for user_info in ("", ":hunter2secret@", "nobody:secret@"):
        daemon = rig.daemon("--log-level", "debug", lease=f"redis://{user_info}{address}")
        assert_leasedown(daemon.client(), "r", AT_ONCE_SECONDS)
        assert daemon.client()("PING") == "PONG"
        daemon.stop()
        assert "hunter2secret" not in daemon.stderr()
    for user_info in (":secret@", "default:secret@"):
        client = rig.daemon(lease=f"redis://{user_info}{address}").client()
        client("RELEASE", "r", client.token("r"))


def test_scripts_that_redis_forgot_are_loaded_again(redis, client, token):
    redis.client()("SCRIPT", "FLUSH")
    client.renew("held", token, 60000)
    redis.client()("SCRIPT", "FLUSH")
    fresh = client.token("r")
    redis.client()("SCRIPT", "FLUSH")
    assert client("RELEASE", "r", fresh) == 0
    assert locked(redis) == 0


def test_waiters_are_told_or_served_when_redis_dies_and_comes_back(redis, daemon, token):
    waiter, = line_up(daemon, "held", 1)
    redis.kill()
    assert waiter.read(10).code == "LEASEDOWN"


def test_a_reply_that_was_late_carries_the_ttl_that_is_left(redis, relay, far):
    peek = redis.client()
    far("RELEASE", "r", far.token("r"))
    relay.hold("down")
    far.send("ACQUIRE", "r", 10000)
    wait_until(lambda: 0 < peek("PTTL", "stockade:{r}:lock") < 9800, "a fifth of a second passed")
    left = peek("PTTL", "stockade:{r}:lock")
    relay.let("down")
    token, ttl_ms = far.read()
    assert token > 0 and 0 < ttl_ms <= left


def test_a_lease_that_ran_out_before_the_reply_is_never_handed_out_as_held(rig, redis, relay):
    daemon = rig.daemon(lease=relay.redis_uri)
    client, other, peek = daemon.client(), daemon.client(), redis.client()
    newest = client.token("r")
    client("RELEASE", "r", newest)
    relay.hold("down")
    client.send("ACQUIRE", "r", 100)
    wait_until(lambda: int(peek("GET", "stockade:{r}:token")) > newest, "Redis has granted")
    wait_until(lambda: locked(redis) == 0, "and the lease ran out")
    relay.let("down")
    reply = client.read()
    assert reply is None or reply[0] > newest + 1 and 0 < reply[1] <= 100, reply
    assert other.token("r", 60000, "WAIT", 5000) > newest + 1
    other.refused("STALE", "FENCED", newest + 1, "SET", "r", "x")


@pytest.mark.parametrize("option", ["prefix", "db", "unix"])
def test_the_lease_uri_chooses(rig, option):
    path = rig.folder / "redis.sock"
    redis = rig.redis(args=["--unixsocket", path])
    uri, prefix, db = {"prefix": (redis.uri + "?prefix=shop", "shop", 0),
                       "db": (redis.uri + "/3", "stockade", 3),
                       "unix": (f"redis+unix:{path}", "stockade", 0)}[option]
    client = rig.daemon(lease=uri).client()
    token = client.token("r")
    peek = redis.client()
    peek("SELECT", db)
    assert sorted(peek("KEYS", "*")) == [f"{prefix}:{{r}}:lock".encode(),
                                         f"{prefix}:{{r}}:token".encode()]
    assert peek("GET", f"{prefix}:{{r}}:lock").split(b" ")[0] == b"%d" % token
    assert client("RELEASE", "r", token) == 0
    assert peek("EXISTS", f"{prefix}:{{r}}:lock") == 0
