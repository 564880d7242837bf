# SPDX-License-Identifier: Apache-2.0
"""ACQUIRE ... QUEUE: many callers on one connection stand in line, and nothing holds it up."""

import json
import time

import pytest

from harness.leases import PROMPT_SECONDS
from harness.limits import LONG_TTL_MS, Stopwatch, patience
from harness.resp import Push
from harness.rig import restart

QUEUED = b"queued"


def ask(client, key, ident, ttl_ms=60000):
    """The reply, and the turns that were told before it."""
    client.send("ACQUIRE", key, ttl_ms, "QUEUE", "ID", ident)
    turns = []
    while isinstance(reply := client.read(), Push):
        turns.append(reply)
    return reply, turns


class Shared:
    """Many callers on one RESP3 connection, as a client library that multiplexes has them: each
    asks, waits for its turn, sells one and releases."""

    def __init__(self, client, key, callers):
        self.client, self.key = client, key
        self.turns, self.served = [], []
        self.waiting = set(callers)
        self.asked = {}  # when

    def command(self, *words):
        self.client.send(*words)
        while isinstance(reply := self.client.read(), Push):
            assert reply[:2] == [b"stockade:turn", self.key.encode()]
            self.turns.append(reply[2].decode())
        return reply

    def ask(self, caller):
        self.asked[caller] = time.monotonic()
        return self.command("ACQUIRE", self.key, LONG_TTL_MS, "QUEUE", "ID", caller)

    def keep_places(self):
        """Of those who have not asked for some time, while it is nobody's turn: else they have an
        end after ten seconds."""
        for caller in sorted(self.waiting, key=self.asked.get):
            if time.monotonic() - self.asked[caller] < 3:
                break
            assert self.ask(caller)[0] == QUEUED

    def serve(self, caller):
        reply = self.ask(caller)
        if reply[0] == QUEUED:
            return
        token = reply[0]
        assert self.command("FENCED", token, "DECRBY", self.key, 1, "MIN", 0) >= 0
        self.waiting.remove(caller)
        self.keep_places()
        assert self.command("RELEASE", self.key, token) == 0
        self.served.append(caller)

    def next_turn(self):
        if not self.turns:
            push = self.client.read()
            assert isinstance(push, Push)
            self.turns.append(push[2].decode())
        return self.turns.pop(0)


def test_forty_callers_on_one_connection_are_served_in_order(daemon, key):
    seller, client = daemon.client(), daemon.client(proto=3)
    token = seller.token(key)
    seller.fenced(token, "SET", key, 40)
    callers = [f"caller-{i}" for i in range(40)]
    shared = Shared(client, key, callers)
    for caller in callers:
        shared.serve(caller)
    shared.keep_places()
    assert shared.served == [] and shared.command("GET", key) == b"40"
    seller("RELEASE", key, token)
    while shared.waiting:
        shared.serve(shared.next_turn())
    assert shared.served == callers
    assert shared.command("GET", key) == b"0"


def test_the_turn_comes_promptly_and_is_an_event_too(daemon, key):
    holder, client, listener = daemon.client(), daemon.client(proto=3), daemon.client()
    listener("SUBSCRIBE", f"stockade:events:{key}")
    token = holder.token(key)
    assert json.loads(listener.read()[2])["event"] == "granted"
    assert ask(client, key, "a") == ([QUEUED, 1], [])
    with Stopwatch() as watch:
        holder("RELEASE", key, token)
        assert client.read() == [b"stockade:turn", key.encode(), b"a"]
    assert watch.seconds < patience(PROMPT_SECONDS)
    events = [json.loads(listener.read()[2]) for _ in range(2)]
    assert sorted(event["event"] for event in events) == ["released", "turn"]
    turn = next(event for event in events if event["event"] == "turn")
    assert list(turn) == ["event", "resource", "id", "time_ms"] and turn["id"] == "a"
    reply, _ = ask(client, key, "a")
    assert reply[0] == token + 1


def test_places_stand_in_one_line_with_those_who_wait(daemon, key):
    holder, client, waiter = daemon.client(), daemon.client(proto=3), daemon.client()
    token = holder.token(key)
    assert ask(client, key, "first")[0] == [QUEUED, 1]
    waiter.send("ACQUIRE", key, 60000, "WAIT", 30000)
    holder.await_waiters(key, 2)
    assert ask(client, key, "last")[0] == [QUEUED, 3]
    holder("RELEASE", key, token)
    assert client.read()[2] == b"first"
    first = ask(client, key, "first")[0][0]
    holder("RELEASE", key, first)
    second = waiter.read()[0]
    assert second > first
    waiter("RELEASE", key, second)
    assert client.read()[2] == b"last"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_vanished_is_passed_over_at_once(daemon, key, how):
    holder, gone, client = daemon.client(), daemon.client(proto=3), daemon.client(proto=3)
    token = holder.token(key)
    assert ask(gone, key, "gone")[0] == [QUEUED, 1]
    assert ask(client, key, "here")[0] == [QUEUED, 2]
    gone.close() if how == "close" else gone.reset()
    holder.await_waiters(key, 1)
    with Stopwatch() as watch:
        holder("RELEASE", key, token)
        assert client.read()[2] == b"here"
    assert watch.seconds < patience(PROMPT_SECONDS)


def test_a_turn_that_nobody_takes_passes_on_after_a_second(daemon, key):
    holder, client = daemon.client(), daemon.client(proto=3)
    token = holder.token(key)
    assert ask(client, key, "asleep")[0] == [QUEUED, 1]
    assert ask(client, key, "awake")[0] == [QUEUED, 2]
    with Stopwatch() as watch:
        holder("RELEASE", key, token)
        assert client.read()[2] == b"asleep"
        assert client.read()[2] == b"awake"
    assert 0.95 < watch.seconds < 1 + patience(PROMPT_SECONDS)
    assert ask(client, key, "awake")[0][0] == token + 1


def test_a_restart_loses_the_line_and_nothing_else(rig):
    daemon = rig.daemon()
    holder, client = daemon.client(), daemon.client(proto=3)
    token = holder.token("r")
    assert ask(client, "r", "a")[0] == [QUEUED, 1]
    assert ask(client, "r", "b")[0] == [QUEUED, 2]
    daemon = restart(rig, daemon)
    client = daemon.client(proto=3)
    assert ask(client, "r", "b")[0] == [QUEUED, 1]
    daemon.client()("RELEASE", "r", token)
    assert client.read()[2] == b"b"
    assert ask(client, "r", "b")[0][0] == token + 1
