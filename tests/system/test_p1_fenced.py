# SPDX-License-Identifier: Apache-2.0
"""P1 Fenced: once a grant is acknowledged, no write with a smaller token is accepted, ever."""

import signal
import threading
import time

import pytest

from harness.library import Remote
from harness.limits import wait_until
from harness.resp import Closed, ReplyError
from harness.rig import restart

# Commands without their key, by the kind of value that is there.
WRITES = {
    "string": [("SET", "x"), ("SETNX", "x"), ("GETSET", "x"), ("GETDEL",), ("APPEND", "x"),
               ("INCR",), ("INCRBY", 5), ("DECR",), ("DECRBY", 5), ("DEL",), ("UNLINK",),
               ("INCRBY", -1, "MIN", 0)],
    "hash": [("HSET", "f", "x"), ("HSETNX", "new", "x"), ("HMSET", "f", "x"), ("HDEL", "f"),
             ("HINCRBY", "n", 1), ("HINCRBY", "n", -1, "MIN", 0), ("SET", "x"), ("DEL",)],
}


def successor(daemon, key):
    """Return an expired token of A, and the one that B was granted after it."""
    stale = daemon.client().token(key, 30)
    fresh = daemon.client().token(key, 60000, "WAIT", 5000)
    assert fresh > stale
    return stale, fresh


def test_a_stale_token_is_refused_before_the_new_holders_first_write(daemon, key):
    a, b = daemon.client(), daemon.client()
    first = a.token(key, 100)
    a.fenced(first, "SET", key, 10)
    second = b.token(key, 60000, "WAIT", 5000)
    assert b("GET", key) == b"10"
    a.refused("STALE", "FENCED", first, "SET", key, 9)
    assert b("GET", key) == b"10"
    assert b.fenced(second, "DECR", key) == 9


@pytest.mark.parametrize("kind, command", [(kind, c) for kind in WRITES for c in WRITES[kind]],
                         ids=lambda c: c if isinstance(c, str) else " ".join(map(str, c)))
def test_every_write_under_a_stale_token_is_refused(daemon, client, key, kind, command):
    first, read = {"string": (["SET", key, 7], "GET"),
                   "hash": (["HSET", key, "f", "v", "n", 7], "HGETALL")}[kind]
    client.fenced(client.token(key), *first)
    before = client(read, key)
    client("REVOKE", key)
    stale, _ = successor(daemon, key)
    name, *args = command
    client.refused("STALE", "FENCED", stale, name, key, *args)
    assert before and client(read, key) == before


def test_a_released_token_is_retired(client, token, key):
    client.fenced(token, "SET", key, 1)
    assert client("RELEASE", key, token) == 0
    client.refused("STALE", "FENCED", token, "SET", key, 2)
    assert client("GET", key) == b"1"


def test_a_revoked_token_is_retired_at_once(daemon, holder, token, key):
    other = daemon.client()
    holder.fenced(token, "SET", key, 1)
    assert other("REVOKE", key) == token
    holder.refused("STALE", "FENCED", token, "SET", key, 2)
    holder.refused("STALE", "RENEW", key, token, 60000)
    assert other("GET", key) == b"1"
    assert other.token(key) > token


def test_a_read_inside_fenced_answers_only_while_the_token_is_current(client, token, key):
    client.fenced(token, "SET", key, "v")
    assert client.fenced(token, "GET", key) == b"v"
    client("RELEASE", key, token)
    client.refused("STALE", "FENCED", token, "GET", key)
    assert client("GET", key) == b"v"


def test_a_token_of_another_resource_does_not_fit(client, key):
    mine, other = key + "/mine", key + "/other"
    for _ in range(3):
        assert client("RELEASE", mine, client.token(mine)) == 0
    large = client.token(mine)
    small = client.token(other)
    assert large > small
    client.refused("UNKNOWN", "FENCED", large, "SET", other, "poison")
    client.refused("STALE", "FENCED", small, "SET", mine, "old")
    assert client("GET", other) is None and client("GET", mine) is None
    assert client.fenced(small, "SET", other, "right") == "OK"


def test_writes_piped_around_a_revoke_are_judged_in_order(client, token, key):
    write = ("FENCED", token, "INCR", key)
    replies = client.pipeline([write] * 50 + [("REVOKE", key)] + [write] * 50)
    assert replies[:51] == [*range(1, 51), token]
    assert {reply.code for reply in replies[51:]} == {"STALE"}
    assert client("GET", key) == b"50"


def test_a_holder_that_was_stopped_past_its_ttl_cannot_write_when_it_wakes(daemon, key):
    """A real process, stopped by SIGSTOP between its read and its write."""
    with Remote() as holder:
        holder.ask("from harness.resp import Client")
        holder.ask(f"client = Client({daemon.address!r})")
        stale = holder.ask(f"client.token({key!r}, 200)")
        holder.ask(f"client.fenced({stale}, 'SET', {key!r}, 10)")
        holder.process.send_signal(signal.SIGSTOP)
        client = daemon.client()
        fresh = client.token(key, 60000, "WAIT", 5000)
        holder.process.send_signal(signal.SIGCONT)
        assert holder.ask(f"client.ask('FENCED', {stale}, 'SET', {key!r}, 9).code") == "STALE"
    assert fresh > stale
    assert client("GET", key) == b"10"
    client.fenced(fresh, "SET", key, 9)


def test_nothing_of_the_old_holder_lands_after_the_new_grant_is_acknowledged(daemon, key):
    """An old holder writes without pause while others take the resource from it."""
    taker = daemon.client()
    for round_number in range(15):
        holder = daemon.client()
        token = holder.token(key)
        writer = Flood(holder, key, token, round_number)
        writer.start()
        wait_until(lambda: writer.accepted > 3, "the old holder writes")
        taker("REVOKE", key)
        fresh = taker.token(key)
        seen = taker("GET", key)
        marked = writer.sent
        wait_until(lambda: writer.sent > marked + 5 or not writer.is_alive(), "it went on")
        assert taker("GET", key) == seen
        writer.end = True
        writer.join(10)
        assert writer.refused > 0 and writer.accepted_after_refusal == 0
        taker("RELEASE", key, fresh)


class Flood(threading.Thread):
    """Write under one token, one by one, until told to end."""

    def __init__(self, client, key, token, label):
        super().__init__(daemon=True)
        self.client, self.key, self.token, self.label = client, key, token, label
        self.sent = self.accepted = self.refused = self.accepted_after_refusal = 0
        self.end = False

    def run(self):
        deadline = time.monotonic() + 30
        while not self.end and time.monotonic() < deadline:
            self.sent += 1
            try:
                reply = self.client.ask("FENCED", self.token, "SET", self.key,
                                        f"{self.label}:{self.sent}")
            except (Closed, OSError):
                return
            if isinstance(reply, ReplyError):
                self.refused += reply.code == "STALE"
            else:
                self.accepted += 1
                self.accepted_after_refusal += self.refused > 0


def test_an_expired_lease_that_nobody_took_may_still_write(client, key):
    token = client.token(key, 20)
    client.await_expiry(key)
    assert client.fenced(token, "SET", key, "late") == "OK"
    assert client("GET", key) == b"late"


def test_a_stale_token_stays_stale_over_restarts_of_the_daemon(rig, lease):
    daemon = rig.daemon(lease=lease)
    stale, fresh = successor(daemon, "r")
    for how in (signal.SIGTERM, signal.SIGKILL):
        daemon = restart(rig, daemon, how, lease=lease)
        client = daemon.client()
        client.refused("STALE", "FENCED", stale, "SET", "r", "old")
        assert client.fenced(fresh, "SET", "r", "new") == "OK"


def test_with_unfenced_writes_a_held_key_is_still_fenced(unfenced, key):
    client = unfenced.client()
    assert client("SET", key, "bare") == "OK"
    token = client.token(key)
    client.refused("NOTOKEN", "SET", key, "bare again")
    assert client("GET", key) == b"bare"
    client.fenced(token, "SET", key, "fenced")
    client("RELEASE", key, token)
    assert client("SET", key, "bare after release") == "OK"
    client.refused("STALE", "FENCED", token, "SET", key, "old")
