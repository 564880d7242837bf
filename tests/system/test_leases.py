# SPDX-License-Identifier: Apache-2.0
"""Lease commands, reply by reply; repeats with an ID, leases tied to a connection, baskets. What
holds with every lease service is in test_lease_services.py."""

import itertools
import re
import select
import signal
import time

import pytest

from harness.leases import PROMPT_SECONDS, cycles
from harness.limits import Seconds, Stopwatch, patience, wait_until, within
from harness.resp import CLOCK_MS, ReplyError
from harness.rig import restart

LATE_CLOCK_MS = 1000  # a TTL begins when Redis began to read what had come
NAMES = [b"\x00", b"\r\n$5\r\n", b"a b\tc", bytes(range(256)), b"}{", b"{tag}rest", b"x" * 512,
         "\N{SNOWMAN}".encode(), b"%s%n", b"'; DROP TABLE", b"\xff\xfe"]


@pytest.mark.parametrize("proto", [2, 3])
def test_lease_says_what_is_known(daemon, key, proto):
    client = daemon.client(proto=proto)
    assert client.lease(key) is None
    for command in (("RELEASE", key, 1), ("RENEW", key, 1, 60000)):
        client.refused("UNKNOWN", *command)
    begun = time.monotonic()
    token = client.token(key, 60000, "OWNER", "alice")
    lease = client.lease(key)
    left_ms = 60000 - 1000 * Seconds(begun) - LATE_CLOCK_MS
    assert set(lease) >= {"state", "token", "owner", "ttl_ms", "holds", "waiters"}
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"alice")
    assert left_ms <= lease["ttl_ms"] <= 60000 and (lease["holds"], lease["waiters"]) == (1, 0)
    assert isinstance(client("LEASE", key), list if proto == 2 else dict), "flat, or a map"
    client("RELEASE", key, token)
    lease = client.lease(key)
    assert (lease["state"], lease["token"], lease["ttl_ms"]) == ("free", token, 0)


def test_tokens_are_1_2_3_and_so_on(daemon, key):
    assert cycles(daemon.client(), key, 20) == list(range(1, 21))


def test_an_owner_whose_lease_expired_enters_as_anyone(client, key):
    tokens = []
    for _ in range(2):
        tokens.append(client.token(key, 20, "OWNER", "me"))
        client.await_expiry(key)
    first = tokens[1]
    assert first >= tokens[0]
    second = client.token(key, 60000, "OWNER", "you")
    assert client.acquire(key, 60000, "OWNER", "me") is None
    client("RELEASE", key, second)
    third = client.token(key, 60000, "OWNER", "me")
    assert first < second < third
    assert client.lease(key)["holds"] == 1


def test_release_piped_behind_writes_commits_them_first(client, key):
    for _ in range(10):
        token = client.token(key)
        replies = client.pipeline([("FENCED", token, "INCR", key)] * 20 +
                                  [("RELEASE", key, token)])
        assert replies[-1] == 0
        assert not [reply for reply in replies if isinstance(reply, ReplyError)]
    assert client("GET", key) == b"200"


def test_leases_lists_unretired_tokens_by_pattern_and_count(client, key):
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


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n)[:24])
def test_any_bytes_from_1_to_512_make_a_name(client, key, name):
    """As resource, key and field, through the whole life of a lease."""
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
def test_names_of_0_and_513_bytes_are_errors(client, token, key, name):
    for command in (("ACQUIRE", name, 1000), ("RENEW", name, 1, 1000), ("RELEASE", name, 1),
                    ("REVOKE", name), ("LEASE", name), ("FENCED", 1, "SET", name, "v"),
                    ("FENCED", token, "HSET", key, name, "v"),
                    ("FENCED", token, "HINCRBY", key, name, 1)):
        client.refused("ERR", *command)
    assert client("EXISTS", key) == 0
    assert client("PING") == "PONG"


@pytest.mark.parametrize("ttl", ["9", "86400001", "0", "-1", "", "1.5", "10s", str(1 << 63),
                                 str(1 << 64)])
def test_a_ttl_outside_10_ms_to_24_h_is_an_error_and_changes_nothing(client, key, ttl):
    client.refused("ERR", "ACQUIRE", key, ttl)
    assert client.lease(key) is None
    token = client.token(key)
    client.refused("ERR", "RENEW", key, token, ttl)
    assert client.lease(key)["ttl_ms"] > 50000


@pytest.mark.parametrize("ttl", [10, 86400000])
def test_a_ttl_of_10_ms_and_of_24_h_is_granted(client, key, ttl):
    wait_until(lambda: isinstance(client.ask("ACQUIRE", key, ttl), list), "a grant of that TTL")


OPTIONS = {"WAIT": ("WAIT", 0), "QUEUE": ("QUEUE",), "OWNER": ("OWNER", "me"), "ID": ("ID", "i"),
           "EPHEMERAL": ("EPHEMERAL",)}


def test_each_set_of_acquires_options_does_what_each_of_them_says(daemon, key):
    """All 32: on a free lease, once more, on a held one, and when the connection has closed."""
    watch, kept = daemon.client(), {}
    sets = [set(some) for n in range(len(OPTIONS) + 1)
            for some in itertools.combinations(OPTIONS, n)]
    for number, chosen in enumerate(sets):
        free, held = f"{key}/{number}", f"{key}/{number}/held"
        watch.token(held)
        words = [word for option in OPTIONS if option in chosen for word in OPTIONS[option]]
        asker = daemon.client()
        if "QUEUE" in chosen and ("WAIT" in chosen or "ID" not in chosen):
            asker.refused("ERR", "ACQUIRE", free, 60000, *words)
            continue
        token = asker.token(free, 60000, *words)
        again = asker("ACQUIRE", free, 60000, *words)
        is_known = bool(chosen & {"OWNER", "ID"})
        assert (again and again[0]) == (token if is_known else None), chosen
        lease = watch.lease(free)
        assert (lease["owner"] == b"me") == ("OWNER" in chosen), chosen
        assert lease["holds"] == 1 + ("OWNER" in chosen and "ID" not in chosen), chosen
        denied = asker("ACQUIRE", held, 60000, *words)
        assert denied == ([b"queued", 1] if "QUEUE" in chosen else None), chosen
        kept[free] = chosen
        asker.close()
    for free, chosen in kept.items():
        if "EPHEMERAL" in chosen:
            wait_until(lambda name=free: watch.lease(name)["state"] == "free", f"{chosen} ends")
    for free, chosen in kept.items():
        assert (watch.lease(free)["state"] == "free") == ("EPHEMERAL" in chosen), chosen


WRONG_NUMBER = "wrong number of arguments for"
MALFORMED = {f"^ERR {WRONG_NUMBER} '{name}' command$": commands for name, commands in {
    "acquire": "ACQUIRE | ACQUIRE r", "renew": "RENEW r 1",
    "release": "RELEASE r", "revoke": "REVOKE | REVOKE r x", "lease": "LEASE",
    "fenced": "FENCED | FENCED 1 | FENCED 1 GET", "set": "FENCED 1 SET k"}.items()}
MALFORMED |= {f"^ERR syntax error: {name} takes {options}": command for name, command, options in [
    ("RENEW", "RENEW r 1 1000 x", r"\[NOTIFY\]$"), ("RELEASE", "RELEASE r 1 x", r"\[ID id\]$"),
    ("LEASE", "LEASE r x", r"\[OWNER owner\] \[TOKEN\]$")]}
MALFORMED["^ERR "] = f"""
LEASES COUNT | LEASES COUNT x | LEASES COUNT -1 | LEASES MATCH | LEASES SOME thing
ACQUIRE r 60000 WAIT | ACQUIRE r 60000 WAIT -1 | ACQUIRE r 60000 WAIT soon
ACQUIRE r 60000 WAIT {1 << 64} | ACQUIRE r 60000 OWNER | ACQUIRE r 60000 OWNER ""
ACQUIRE r 60000 OWNER {'x' * 513} | ACQUIRE r 60000 SOMETHING
ACQUIRE r 1000 ID "" | ACQUIRE r 1000 ID {'x' * 513}
RELEASE r 1 NOSUCH x | RELEASE r 1 ID ""
ACQUIREALL 1000 2 r r | ACQUIREALL 1000 0 | ACQUIREALL 9 1 r | ACQUIREALL 1000 3 r b
ACQUIREALL 1000 1 "" | ACQUIREALL 1000 1 {'r' * 513} | ACQUIREALL 1000 1 r NOSUCH
FENCED 1 PING | FENCED 1 FENCED 1 GET k | FENCED 1 ACQUIRE r 1000 | FENCED 1 NOSUCH k
FENCED 1 DBSIZE | FENCED 1 SCAN 0 | FENCED 1 INFO k"""


@pytest.mark.parametrize("command, said", [
    pytest.param(command.strip(), said, id=command.strip()[:30])
    for said, commands in MALFORMED.items() for command in re.split(r" \| |\n", commands.strip())])
def test_a_malformed_command_is_an_error_and_changes_nothing(local, command, said):
    client = local.client()
    client.refused("ERR", *[word.strip('"') for word in command.split()], text=said)
    assert client.lease("r") is None
    assert client("PING") == "PONG"


def test_options_are_taken_in_any_order_and_any_case(client, key):
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


# Repeats.


def test_an_acquire_whose_reply_was_lost_is_repeated_without_a_second_count(daemon, client, key):
    client.send("ACQUIRE", key, 60000, "OWNER", "me", "ID", "a1")
    # Before that, the lease service has it: it is given back where the client goes then.
    wait_until(lambda: (daemon.client().lease(key) or {}).get("owner") == b"me", "it is recorded")
    client.reset()
    again = daemon.client()
    token = again.token(key, 60000, "OWNER", "me", "ID", "a1")
    assert again.lease(key)["holds"] == 1 and again.lease(key)["token"] == token
    assert again("RELEASE", key, token, "ID", "r1") == 0
    assert again("RELEASE", key, token, "ID", "r1") == 0


def test_a_repeated_acquire_and_release_count_once(client, key):
    token, = {client.token(key, 60000, "OWNER", "me", "ID", "a") for _ in range(3)}
    assert client.lease(key)["holds"] == 1
    client.token(key, 60000, "OWNER", "me", "ID", "b")
    for ident, holds in (("r1", 1), ("r2", 0)):
        assert client.lease(key)["holds"] == holds + 1
        assert [client("RELEASE", key, token, "ID", ident) for _ in range(3)] == [holds] * 3
    assert client.lease(key)["state"] == "free"


def test_an_acquire_id_survives_kill_9(rig, lease):
    daemon = rig.daemon(lease=lease)
    token = daemon.client().token("r", 60000, "ID", "a1")
    client = restart(rig, daemon, signal.SIGKILL, lease=lease).client()
    assert client.token("r", 60000, "ID", "a1") == token
    assert client.lease("r")["holds"] == 1


def test_an_id_whose_lease_is_over_is_told_so(client, key):
    token = client.token(key, 60000, "ID", "a1")
    client("RELEASE", key, token)
    client.refused("STALE", "ACQUIRE", key, 60000, "ID", "a1")
    assert client.token(key, 60000, "ID", "a2") == token + 1


# Leases and connections.


def test_a_lease_outlives_its_connection_and_its_token_counts_on_any_other(daemon, key):
    holder, other = daemon.client(), daemon.client()
    token = holder.token(key)
    holder.close()
    assert other.acquire(key, 60000, "WAIT", 100) is None
    assert other.fenced(token, "SET", key, "x") == "OK"
    assert other("RELEASE", key, token) == 0


def test_an_ephemeral_lease_ends_with_its_connection_and_wakes_the_next(daemon, key):
    client, waiter = daemon.client(), daemon.client()
    token = client.token(key, 60000, "EPHEMERAL")
    waiter.send("ACQUIRE", key, 60000, "WAIT", 20000)
    client.await_waiters(key)
    with within(patience(PROMPT_SECONDS)):
        client.reset()
        assert waiter.read()[0] > token
    waiter.refused("STALE", "FENCED", token, "SET", key, "x")


def test_an_ephemeral_repeat_moves_the_lease_to_the_new_connection(daemon, key):
    first, second, watcher = daemon.client(name="first"), daemon.client(), daemon.client()
    token = first.token(key, 60000, "EPHEMERAL", "ID", "a1")
    assert second.token(key, 60000, "EPHEMERAL", "ID", "a1") == token
    assert watcher.lease(key)["holds"] == 1, "the same request, counted once"
    first.reset()
    wait_until(lambda: b"name=first" not in watcher("CLIENT", "LIST"), "the daemon noticed")
    assert watcher.lease(key)["state"] == "held"
    assert second.fenced(token, "SET", key, "x") == "OK"
    second.close()
    wait_until(lambda: watcher.lease(key)["state"] == "free", "it is released")


# Baskets.


def test_a_basket_is_taken_whole_or_not_at_all(daemon, key):
    client, other = daemon.client(), daemon.client()
    names = [f"{key}:{i}" for i in (3, 1, 2)]
    tokens = client("ACQUIREALL", 60000, 3, *names)
    assert [client.lease(name)["token"] for name in names] == tokens
    assert other("ACQUIREALL", 60000, 2, f"{key}:0", f"{key}:1") is None
    assert other.acquire(f"{key}:0") is not None, "nothing of the refused basket is held"
    client("FENCEDALL", 3, *[word for pair in zip(names, tokens) for word in pair],
           "MSET", *[word for name in names for word in (name, 1)])


def test_crossing_baskets_never_deadlock(daemon, key):
    one, other = daemon.client(), daemon.client()
    names = [f"{key}:{i}" for i in range(8)]
    for _ in range(50):
        waiting = {one.sock: (one, names), other.sock: (other, names[::-1])}
        for client, order in waiting.values():
            client.send("ACQUIREALL", 60000, 8, *order, "WAIT", 20000)
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], patience(10))
            assert len(ready) == 1, "one at a time, and not none"
            client, order = waiting.pop(ready[0])
            for name, token in zip(order, client.read()):
                assert client("RELEASE", name, token) == 0


def test_a_basket_that_gets_null_fences_nobody(daemon, key):
    last, holder, basket = daemon.client(), daemon.client(), daemon.client()
    a, b = f"{key}:a", f"{key}:b"
    expired = last.token(a, 50)
    last.await_expiry(a)
    holder.token(b)
    assert basket("ACQUIREALL", 1000, 2, a, b) is None
    assert last.fenced(expired, "SET", a, "x") == "OK", "nobody has had it since"
    last.renew(a, expired, 60000)


def test_a_basket_that_waits_holds_nothing(daemon, key):
    holder, basket, other = daemon.client(), daemon.client(), daemon.client()
    a, b = f"{key}:a", f"{key}:b"
    token = holder.token(b)
    basket.send("ACQUIREALL", 60000, 2, a, b, "WAIT", 20000)
    holder.await_waiters(b)
    for n in range(1, 20):
        assert other.token(a) == n
        other("RELEASE", a, n)
    holder("RELEASE", b, token)
    tokens = basket.read()
    assert basket.fenced(tokens[0], "SET", a, 1) == "OK"
    assert basket.fenced(tokens[1], "SET", b, 1) == "OK"


@pytest.mark.parametrize("how", ["first closes", "first's time is up", "repeat closes"])
def test_a_basket_that_is_answered_is_whole_whatever_became_of_its_twin(daemon, key, how):
    holder, first, repeat = daemon.client(), daemon.client(), daemon.client()
    watch = daemon.client()
    names = [f"{key}:a", f"{key}:b"]
    token = holder.token(names[1])

    def ask(client, wait_ms):
        client.send("ACQUIREALL", 60000, 2, *names, "WAIT", wait_ms, "ID", f"{key}:id")

    ask(first, 1000 if how == "first's time is up" else 20000)
    watch.await_waiters(names[1])
    ask(repeat, 20000)
    watch.await_waiters(names[1], 2)  # both wait for the second, and hold nothing
    if how == "repeat closes":
        repeat.close()
    elif how == "first closes":
        first.close()
    else:
        assert first.read() is None
    answered = first if how == "repeat closes" else repeat
    watch.await_waiters(names[1], 1)
    assert holder("RELEASE", names[1], token) == 0
    for name, one in zip(names, answered.read()):
        assert answered.fenced(one, "SET", name, "x") == "OK"
        assert answered("RELEASE", name, one) == 0
