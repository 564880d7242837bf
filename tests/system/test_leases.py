# SPDX-License-Identifier: Apache-2.0
"""Lease commands, reply by reply: ACQUIRE, RENEW, RELEASE, REVOKE, LEASE, LEASES."""

import pytest

from harness.limits import Stopwatch, patience, wait_until
from harness.resp import CLOCK_MS, ReplyError, refused
from harness.rig import restart

NAMES = [b"\x00", b"\r\n$5\r\n", b"a b\tc", bytes(range(256)), b"}{", b"{tag}rest", b"x" * 512,
         "\N{SNOWMAN}".encode(), b"%s%n", b"'; DROP TABLE", b"\xff\xfe"]


def test_acquire_replies_token_and_ttl_and_null_to_others(daemon, key):
    a, b = daemon.client(), daemon.client()
    grant = a.acquire(key, 20000)
    assert 15000 < grant.ttl_ms <= 20000
    assert b.acquire(key, 20000) is None
    assert a.acquire(key, 20000) is None, "without OWNER each call is a new owner"


@pytest.mark.parametrize("proto", [2, 3])
def test_lease_says_what_is_known(daemon, key, proto):
    client = daemon.client(proto=proto)
    assert client.lease(key) is None
    token = client.token(key, 60000, "OWNER", "alice")
    lease = client.lease(key)
    assert set(lease) >= {"state", "token", "owner", "ttl_ms", "holds", "waiters"}
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"alice")
    assert 55000 < lease["ttl_ms"] <= 60000 and (lease["holds"], lease["waiters"]) == (1, 0)
    client("RELEASE", key, token)
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("free", token)


def test_lease_is_a_map_in_resp3_and_a_flat_array_in_resp2(daemon, key):
    for proto, kind in ((2, list), (3, dict)):
        client = daemon.client(proto=proto)
        client.acquire(key)
        assert isinstance(client("LEASE", key), kind)


def test_the_same_owner_enters_again_with_the_same_token_counted(daemon, key):
    a, b = daemon.client(), daemon.client()
    token = a.token(key, 20000, "OWNER", "me")
    assert b.acquire(key, 60000, "OWNER", "me").token == token, "from any connection"
    assert b.lease(key)["holds"] == 2 and b.lease(key)["ttl_ms"] > 50000, "TTL restarted"
    assert a.acquire(key, 60000, "OWNER", "me", "WAIT", 1000).token == token
    assert b.acquire(key, 60000, "OWNER", "you") is None
    assert [a("RELEASE", key, token) for _ in range(3)] == [2, 1, 0]
    assert a("RELEASE", key, token) == 0, "repeating the last one"
    with refused("STALE"):
        a.fenced(token, "SET", key, "x")
    assert b.token(key, 60000, "OWNER", "you") > token


def test_a_token_writes_until_its_last_hold_is_released(daemon, key):
    client = daemon.client()
    token = client.token(key, 60000, "OWNER", "me")
    client.acquire(key, 60000, "OWNER", "me")
    assert client("RELEASE", key, token) == 1
    assert client.fenced(token, "SET", key, "inner released") == "OK"
    assert client("RELEASE", key, token) == 0


def test_an_owner_that_released_gets_a_new_token(daemon, key):
    client = daemon.client()
    first = client.token(key, 60000, "OWNER", "me")
    client("RELEASE", key, first)
    assert client.token(key, 60000, "OWNER", "me") > first


def test_an_owner_whose_lease_expired_and_was_taken_enters_as_anyone(daemon, key):
    client = daemon.client()
    first = client.token(key, 20, "OWNER", "me")
    client.await_expiry(key)
    second = client.token(key, 60000, "OWNER", "you")
    assert client.acquire(key, 60000, "OWNER", "me") is None
    client("RELEASE", key, second)
    third = client.token(key, 60000, "OWNER", "me")
    assert first < second < third
    assert client.lease(key)["holds"] == 1


def test_renew_restarts_the_ttl_under_the_same_token(daemon, key):
    client = daemon.client()
    token = client.token(key, 20000)
    client.renew(key, token, 60000)
    assert client.lease(key)["ttl_ms"] > 50000
    client.renew(key, token, 500)
    assert client.lease(key)["ttl_ms"] <= 500
    assert client.lease(key)["token"] == token


def test_renew_takes_an_expired_lease_back_that_nobody_took(daemon, key):
    client = daemon.client()
    token = client.token(key, 20)
    client.await_expiry(key)
    client.renew(key, token, 60000)
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("held", token)
    assert daemon.client().acquire(key) is None
    assert client.fenced(token, "SET", key, "x") == "OK"


def test_renew_of_a_lease_that_another_took_since_is_stale(daemon, key):
    client = daemon.client()
    token = client.token(key, 20)
    client.await_expiry(key)
    other = client.token(key)
    with refused("STALE"):
        client("RENEW", key, token, 60000)
    client("RELEASE", key, other)
    with refused("STALE"):
        client("RENEW", key, token, 60000)
    assert client.lease(key)["state"] == "free"


@pytest.mark.parametrize("how", ["release", "revoke"])
def test_renew_after_a_release_or_revoke_is_stale_and_leaves_the_lease_free(daemon, key, how):
    client = daemon.client()
    token = client.token(key)
    client("RELEASE", key, token) if how == "release" else client("REVOKE", key)
    with refused("STALE"):
        client("RENEW", key, token, 60000)
    assert client.token(key) > token


def test_release_by_a_token_that_is_no_longer_the_holders_is_stale(daemon, key):
    client = daemon.client()
    old = client.token(key, 20)
    client.await_expiry(key)
    new = client.token(key)
    with refused("STALE"):
        client("RELEASE", key, old)
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("held", new)


def test_release_piped_behind_writes_commits_them_first(daemon, key):
    client = daemon.client()
    for _ in range(10):
        token = client.token(key)
        replies = client.pipeline([("FENCED", token, "INCR", key)] * 20 +
                                  [("RELEASE", key, token)])
        assert replies[-1] == 0
        assert not [reply for reply in replies if isinstance(reply, ReplyError)]
    assert client("GET", key) == b"200"


def test_revoke_replies_the_retired_token_and_frees_the_lease(daemon, key):
    client = daemon.client()
    assert client("REVOKE", key) is None
    token = client.token(key, 60000, "OWNER", "me")
    client.acquire(key, 60000, "OWNER", "me")
    assert daemon.client()("REVOKE", key) == token, "all holds, by anyone"
    assert client.lease(key)["state"] == "free"
    assert client.token(key, 60000, "OWNER", "me") > token, "re-entry does not revive it"


def test_leases_lists_unretired_tokens_by_pattern_and_count(daemon, key):
    client = daemon.client()
    tokens = {f"{key}/{n}": client.token(f"{key}/{n}") for n in range(12)}
    names = sorted(name.encode() for name in tokens)
    assert sorted(client("LEASES", "MATCH", key + "/*")) == names
    assert set(names) <= set(client("LEASES"))
    assert len(client("LEASES", "MATCH", key + "/*", "COUNT", 5)) == 5
    assert client("LEASES", "MATCH", key + "/[0-3]", "COUNT", 100) and \
        sorted(client("LEASES", "MATCH", key + "/[0-3]")) == names[:2] + names[4:6]
    client("RELEASE", f"{key}/0", tokens[f"{key}/0"])
    client("REVOKE", f"{key}/1")
    left = sorted(set(names) - {f"{key}/0".encode(), f"{key}/1".encode()})
    assert sorted(client("LEASES", "MATCH", key + "/*")) == left
    assert client("LEASES", "MATCH", "no such*") == []


@pytest.mark.parametrize("options", [("COUNT",), ("COUNT", "x"), ("COUNT", "-1"), ("MATCH",),
                                     ("SOME", "thing")], ids=" ".join)
def test_leases_with_bad_options_is_an_error(local, options):
    with refused("ERR"):
        local.client()("LEASES", *options)


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n)[:24])
def test_any_bytes_from_1_to_512_make_a_name(daemon, key, name):
    """As resource, key and field, through the whole life of a lease."""
    client = daemon.client()
    name = (key.encode() + name)[-512:]
    token = client.token(name, 60000, "OWNER", name)
    assert client.acquire(name, 60000, "OWNER", name).token == token
    assert client.lease(name)["owner"] == name
    assert client.fenced(token, "HSET", name, name, name) == 1
    assert client("HGETALL", name) == [name, name]
    assert name in client("LEASES")
    client.renew(name, token, 5000)
    assert client("RELEASE", name, token) == 1
    assert client("RELEASE", name, token) == 0
    assert client("HGET", name, name) == name


@pytest.mark.parametrize("name", [b"", b"x" * 513], ids=["0 bytes", "513 bytes"])
def test_names_of_0_and_513_bytes_are_errors(daemon, key, name):
    client = daemon.client()
    token = client.token(key)
    for command in (("ACQUIRE", name, 1000), ("RENEW", name, 1, 1000), ("RELEASE", name, 1),
                    ("REVOKE", name), ("LEASE", name), ("FENCED", 1, "SET", name, "v"),
                    ("FENCED", token, "HSET", key, name, "v"),
                    ("FENCED", token, "HINCRBY", key, name, 1)):
        with refused("ERR"):
            client(*command)
    assert client("EXISTS", key) == 0
    assert client("PING") == "PONG"


@pytest.mark.parametrize("ttl", ["9", "86400001", "0", "-1", "", "1.5", "10s", str(1 << 63),
                                 str(1 << 64)])
def test_a_ttl_outside_10_ms_to_24_h_is_an_error_and_changes_nothing(daemon, key, ttl):
    client = daemon.client()
    with refused("ERR"):
        client("ACQUIRE", key, ttl)
    assert client.lease(key) is None
    token = client.token(key)
    with refused("ERR"):
        client("RENEW", key, token, ttl)
    assert client.lease(key)["ttl_ms"] > 50000


@pytest.mark.parametrize("ttl", [10, 86400000])
def test_a_ttl_of_10_ms_and_of_24_h_is_granted(daemon, key, ttl):
    client = daemon.client()
    wait_until(lambda: isinstance(client.ask("ACQUIRE", key, ttl), list), "a grant of that TTL")


@pytest.mark.parametrize("options", [
    ("WAIT",), ("WAIT", "-1"), ("WAIT", "soon"), ("WAIT", str(1 << 64)), ("OWNER",),
    ("OWNER", ""), ("OWNER", "x" * 513), ("SOMETHING",)], ids=lambda o: " ".join(o)[:30])
def test_acquire_with_bad_options_is_an_error_and_grants_nothing(local, key, options):
    client = local.client()
    with refused("ERR"):
        client("ACQUIRE", key, 60000, *options)
    assert client.lease(key) is None


@pytest.mark.parametrize("command", ["ACQUIRE", "ACQUIRE r", "RENEW r 1", "RENEW r 1 1000 x",
                                     "RELEASE r", "REVOKE", "REVOKE r x", "LEASE", "LEASE r x",
                                     "FENCED", "FENCED 1", "FENCED 1 GET", "FENCED 1 SET k"])
def test_wrong_arity_is_an_error_in_redis_words(local, command):
    name = command.split()[0].lower()
    inner = command.split()[2].lower() if command.count(" ") > 1 and name == "fenced" else name
    with refused("ERR", f"^ERR wrong number of arguments for '({name}|{inner})' command$"):
        local.client()(*command.split())


@pytest.mark.parametrize("command", [
    "FENCED 1 PING", "FENCED 1 FENCED 1 GET k", "FENCED 1 ACQUIRE r 1000", "FENCED 1 NOSUCH k",
    "FENCED 1 DBSIZE", "FENCED 1 SCAN 0", "FENCED 1 INFO k"])
def test_fenced_takes_only_commands_that_have_a_key(local, command):
    with refused("ERR"):
        local.client()(*command.split())


def test_options_are_taken_in_any_order_and_any_case(daemon, key):
    client = daemon.client()
    reply = client("aCqUiRe", key, 60000, "wait", 100, "owner", "me")
    assert client("acquire", key, 60000, "OWNER", "me", "WAIT", 100)[0] == reply[0]
    assert client("fenced", reply[0], "sEt", key, "v") == "OK"


def test_local_holds_unreleased_leases_for_their_full_ttl_after_a_restart(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("held", 3000, "OWNER", "me")
    client("RELEASE", "released", client.token("released"))
    wait_until(lambda: client.lease("held")["ttl_ms"] < 1500, "part of the TTL passed")
    daemon = restart(rig, daemon)
    with Stopwatch() as watch:
        client = daemon.client()
        lease = client.lease("held")
        assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"me")
        assert 1500 < lease["ttl_ms"] <= 3000
        assert client.token("released") > 0
        assert client.acquire("held") is None
        assert daemon.client().token("held", 60000, "WAIT", 10000) > token
    assert (lease["ttl_ms"] - CLOCK_MS) / 1000 < watch.seconds < 3 + patience(1)


def test_a_hold_count_survives_a_restart(rig, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token = client.token("r", 60000, "OWNER", "me")
    client.acquire("r", 60000, "OWNER", "me")
    client = restart(rig, daemon, lease=lease).client()
    assert client.lease("r")["holds"] == 2
    assert [client("RELEASE", "r", token) for _ in range(2)] == [1, 0]


def test_many_resources_are_leased_at_once_in_one_pipeline(daemon, key):
    client = daemon.client()
    grants = client.pipeline([("ACQUIRE", f"{key}/{n}", 60000) for n in range(1000)])
    assert all(isinstance(grant, list) for grant in grants)
    writes = client.pipeline([("FENCED", grant[0], "SET", f"{key}/{n}", n)
                              for n, grant in enumerate(grants)])
    assert set(writes) == {"OK"}
    releases = client.pipeline([("RELEASE", f"{key}/{n}", grant[0])
                                for n, grant in enumerate(grants)])
    assert set(releases) == {0}
