# SPDX-License-Identifier: Apache-2.0
"""Leases beyond the plain ones: repeats, leases of a connection, baskets, over real sockets."""

import signal
import time

import pytest

from harness.limits import wait_until
from harness.resp import refused
from harness.rig import restart


def test_an_acquire_whose_reply_was_lost_is_repeated_without_a_second_count(daemon, key):
    client = daemon.client()
    client.send("ACQUIRE", key, 60000, "OWNER", "me", "ID", "a1")
    wait_until(lambda: daemon.client().lease(key), "the grant is there")
    client.reset()
    again = daemon.client()
    token = again.token(key, 60000, "OWNER", "me", "ID", "a1")
    assert again.lease(key)["holds"] == 1 and again.lease(key)["token"] == token
    assert again("RELEASE", key, token, "ID", "r1") == 0
    assert again("RELEASE", key, token, "ID", "r1") == 0


def test_an_acquire_id_survives_kill_9(rig, lease):
    daemon = rig.daemon(lease=lease)
    token = daemon.client().token("r", 60000, "ID", "a1")
    client = restart(rig, daemon, signal.SIGKILL, lease=lease).client()
    assert client.token("r", 60000, "ID", "a1") == token
    assert client.lease("r")["holds"] == 1


def test_an_id_whose_lease_is_over_is_told_so(daemon, key):
    client = daemon.client()
    token = client.token(key, 60000, "ID", "a1")
    client("RELEASE", key, token)
    with refused("STALE"):
        client("ACQUIRE", key, 60000, "ID", "a1")
    assert client.token(key, 60000, "ID", "a2") == token + 1


def test_an_ephemeral_lease_ends_with_its_connection_and_wakes_the_next(daemon, key):
    client, waiter = daemon.client(), daemon.client()
    token = client.token(key, 60000, "EPHEMERAL")
    waiter.send("ACQUIRE", key, 60000, "WAIT", 20000)
    wait_until(lambda: daemon.client().lease(key)["waiters"] == 1, "it waits")
    client.reset()
    grant = waiter.read(5)
    assert grant[0] > token
    with refused("STALE"):
        waiter.fenced(token, "SET", key, "x")


def test_an_ephemeral_repeat_moves_the_lease_to_the_new_connection(daemon, key):
    first, second, watcher = daemon.client(), daemon.client(), daemon.client()
    token = first.token(key, 60000, "EPHEMERAL", "ID", "a1")
    assert second.token(key, 60000, "EPHEMERAL", "ID", "a1") == token
    first.close()
    assert second.fenced(token, "SET", key, "x") == "OK"
    second.close()
    wait_until(lambda: watcher.lease(key)["state"] == "free", "it is released")


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
    left, right = daemon.client(timeout=30), daemon.client(timeout=30)
    names = [f"{key}:{i}" for i in range(8)]
    for _ in range(50):
        left.send("ACQUIREALL", 10000, 8, *names, "WAIT", 20000)
        right.send("ACQUIREALL", 10000, 8, *reversed(names), "WAIT", 20000)
        pending = {left: names, right: names[::-1]}
        while pending:
            for client, order in list(pending.items()):
                try:
                    tokens = client.read(0.05)
                except TimeoutError:
                    continue
                assert isinstance(tokens, list), tokens
                for name, token in zip(order, tokens):
                    assert client("RELEASE", name, token) == 0
                del pending[client]


def test_a_basket_that_waits_keeps_what_it_has(daemon, key):
    holder, basket, other = daemon.client(), daemon.client(timeout=30), daemon.client()
    token = holder.token(f"{key}:b")
    basket.send("ACQUIREALL", 1500, 2, f"{key}:a", f"{key}:b", "WAIT", 20000)
    wait_until(lambda: other.lease(f"{key}:a"), "it has the first")
    until = time.monotonic() + 3  # twice its TTL
    while time.monotonic() < until:
        assert other.acquire(f"{key}:a", 1000) is None
    holder("RELEASE", f"{key}:b", token)
    tokens = basket.read()
    assert basket.fenced(tokens[0], "SET", f"{key}:a", 1) == "OK"
    assert basket.fenced(tokens[1], "SET", f"{key}:b", 1) == "OK"


@pytest.mark.parametrize("how", ["first closes", "first's time is up", "repeat closes"])
def test_a_basket_that_is_answered_is_whole_whatever_became_of_its_twin(daemon, key, how):
    holder, first, repeat = daemon.client(), daemon.client(timeout=30), daemon.client(timeout=30)
    watch = daemon.client()
    names = [f"{key}:a", f"{key}:b"]
    token = holder.token(names[1])

    def ask(client, wait_ms):
        client.send("ACQUIREALL", 60000, 2, *names, "WAIT", wait_ms, "ID", f"{key}:id")

    ask(first, 1000 if how == "first's time is up" else 20000)
    wait_until(lambda: watch.lease(names[1])["waiters"] == 1, "the first waits for the second")
    ask(repeat, 20000)
    wait_until(lambda: watch.lease(names[0])["waiters"] == 1, "its repeat waits for the first")
    if how == "repeat closes":
        repeat.close()
    elif how == "first closes":
        first.close()
    else:
        assert first.read() is None
    answered = first if how == "repeat closes" else repeat
    wait_until(lambda: watch.lease(names[0])["waiters"] == 0 and
               watch.lease(names[1])["waiters"] == 1, "one is left, and waits for the second")
    assert holder("RELEASE", names[1], token) == 0
    for name, one in zip(names, answered.read()):
        assert answered.fenced(one, "SET", name, "x") == "OK"
        assert answered("RELEASE", name, one) == 0


@pytest.mark.parametrize("command", [
    ("ACQUIREALL", 1000, 2, "a", "a"), ("ACQUIREALL", 1000, 0), ("ACQUIREALL", 9, 1, "a"),
    ("ACQUIREALL", 1000, 3, "a", "b"), ("ACQUIREALL", 1000, 1, ""),
    ("ACQUIREALL", 1000, 1, "a" * 513), ("ACQUIREALL", 1000, 1, "a", "NOSUCH"),
    ("ACQUIRE", "a", 1000, "ID", ""), ("ACQUIRE", "a", 1000, "ID", "x" * 513),
    ("RELEASE", "a", 1, "NOSUCH", "x"), ("RELEASE", "a", 1, "ID", "")], ids=str)
def test_malformed_options_are_errors_and_the_connection_stays(local, command):
    client = local.client()
    with refused("ERR"):
        client(*command)
    assert client("PING") == "PONG"
