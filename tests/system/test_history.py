# SPDX-License-Identifier: Apache-2.0
"""HISTORY and REFUSALS: who held a resource, how each lease ended, and how late who was refused."""

import json
import signal
import time

import pytest

from harness.limits import Seconds, patience, wait_until
from test_log_format import entries

GRANT = ["token", "owner", "user", "client", "address", "granted_ms", "ttl_ms", "ended_ms", "end",
         "reason", "writes", "refused"]
WAITER = ["place", "owner", "client", "address", "waited_ms", "way"]
REFUSAL = ["time_ms", "resource", "token", "code", "command", "user", "client", "address",
           "granted_ms", "late_ms", "ended", "newest", "newest_owner", "newest_address"]


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def maps(client, *words):
    """The maps of the reply, which RESP2 tells as arrays."""
    found = [entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2]))
             for entry in client(*words)]
    return [{text(name): text(value) for name, value in entry.items()} for entry in found]


def address(client):
    host, port = client.sock.getsockname()
    return f"{host}:{port}"


def now_ms():
    return time.time() * 1000


@pytest.mark.parametrize("proto", [2, 3])
def test_waiters_are_told_in_the_order_of_the_line(daemon, key, proto):
    client, reader = daemon.client(), daemon.client(proto=proto)
    line = [daemon.client(name=name) for name in ("till-3", "till-4")]
    assert reader("WAITERS", key) == []
    client.token(key, 60000)
    for waiter, owner in zip(line, ("ben", "ann")):
        waiter.send("ACQUIRE", key, 60000, "WAIT", 50000, "OWNER", owner)
        wait_until(lambda: owner in str(reader("WAITERS", key)), "it stands in line")
    told = maps(reader, "WAITERS", key)
    assert all(list(entry) == WAITER and entry["waited_ms"] >= 0 for entry in told)
    assert [(entry["place"], entry["owner"], entry["client"], entry["address"], entry["way"])
            for entry in told] == [(1, "ben", "till-3", address(line[0]), "wait"),
                                   (2, "ann", "till-4", address(line[1]), "wait")]
    assert maps(reader, "WAITERS", key, "COUNT", 1)[0]["owner"] == "ben"
    reader.refused("ERR", "WAITERS", key, "MATCH", "k")
    client("REVOKE", key)
    wait_until(lambda: [entry["owner"] for entry in maps(reader, "WAITERS", key)] == ["ann"],
               "the next one has it")


@pytest.mark.parametrize("proto", [2, 3])
def test_history_tells_how_each_lease_ended(daemon, key, proto):
    begun_ms = now_ms()
    client, other = daemon.client(name="till-3"), daemon.client(name="till-4")
    reader = daemon.client(proto=proto)
    first = client.token(key, 60000, "OWNER", "ann")
    assert client("FENCED", first, "SET", key, "v") == "OK"
    client("RELEASE", key, first)
    second = client.token(key, 60000, "OWNER", "ben")
    client.refused("STALE", "FENCED", first, "SET", key, "w")
    client("REVOKE", key)
    asked, asked_ms = time.monotonic(), now_ms()
    third = other.token(key, 1000, "OWNER", "cas")
    took_ms = now_ms() - asked_ms
    wait_until(lambda: maps(reader, "HISTORY", key)[0]["end"], "the end is noticed")
    fourth = other.token(key, 60000)
    told = maps(reader, "HISTORY", key)
    assert all(list(entry) == GRANT for entry in told)
    assert [(entry["token"], entry["end"]) for entry in told] == \
        [(fourth, None), (third, "expired"), (second, "revoked"), (first, "released")]
    assert [entry["owner"] for entry in told[1:]] == ["cas", "ben", "ann"]
    assert [entry["ttl_ms"] for entry in told] == [60000, 1000, 60000, 60000]
    assert [entry["writes"] for entry in told] == [0, 0, 0, 1]
    assert [entry["refused"] for entry in told] == [0, 0, 0, 1]
    assert [(entry["client"], entry["address"]) for entry in told] == \
        [("till-4", address(other))] * 2 + [("till-3", address(client))] * 2
    assert {entry["user"] for entry in told} == {"default"}
    times = [at for entry in reversed(told) for at in (entry["granted_ms"], entry["ended_ms"])]
    assert times.pop() is None and times == sorted(times)
    assert begun_ms - 1 <= times[0] and times[-1] <= now_ms() + 1
    # Its time counts where it is kept, from some moment of the grant on; there are two clocks; and
    # a lease service that is asked for its end, and answers late, has it end so much later.
    lasted_ms = told[1]["ended_ms"] - told[1]["granted_ms"]
    longest = patience(1.02) + took_ms / 1000
    assert lasted_ms > 0 and Seconds(asked, asked + lasted_ms / 1000) < longest
    assert maps(reader, "HISTORY", key, "COUNT", 1) == told[:1]


def test_a_paused_holders_refusal_says_how_late_it_was_and_who_overtook_it(daemon, key):
    """In the history, and in the event."""
    listener, late, next_one = (daemon.client() for _ in range(3))
    late("CLIENT", "SETNAME", "till-3")
    listener("SUBSCRIBE", f"stockade:events:{key}")
    token = late.token(key, 200, "OWNER", "ann")
    newest = next_one("ACQUIRE", key, 60000, "WAIT", 10000, "OWNER", "ben")[0]
    ended_ms = maps(next_one, "HISTORY", key)[1]["ended_ms"]
    before_ms = now_ms()
    late.refused("STALE", "FENCED", token, "HSET", key, "f", "v")
    after_ms = now_ms()
    refusal, = maps(late, "REFUSALS", "MATCH", key)
    assert list(refusal) == REFUSAL
    assert before_ms - 2 <= refusal["time_ms"] <= after_ms + 2
    assert before_ms - ended_ms - 5 <= refusal["late_ms"] <= after_ms - ended_ms + 5
    expected = {"resource": key, "token": token, "code": "STALE", "command": "HSET",
                "user": "default", "client": "till-3", "address": address(late),
                "ended": "expired", "newest": newest, "newest_owner": "ben",
                "newest_address": address(next_one)}
    assert {name: refusal[name] for name in expected} == expected
    told = {"event": ""}
    while told["event"] != "refused":
        told = json.loads(listener.read()[2])
    assert told == {"event": "refused", **refusal}


def test_the_json_log_has_the_same_fields(rig):
    daemon = rig.daemon("--log-format", "json")
    client = daemon.client(name="till-3")
    token = client.token("sku:1")
    client("RELEASE", "sku:1", token)
    client.refused("STALE", "FENCED", token, "SET", "sku:1", "v")
    wait_until(lambda: "STALE" in daemon.stderr(), "the refusal is in the log")
    entry, = [entry for entry in entries(daemon.stderr()) if "STALE" in entry["message"]]
    refusal, = maps(client, "REFUSALS")
    assert refusal["ended"] == "released" and refusal["newest_owner"] is None
    assert {name: entry[name] for name in REFUSAL} == refusal and entry["event"] == "refused"


def test_a_write_without_a_token_is_a_refusal_without_one(local, key):
    client = local.client()
    client.refused("NOTOKEN", "SET", key, "v")
    client.refused("UNKNOWN", "FENCED", 7, "SET", key, "v")
    unknown, without = maps(client, "REFUSALS", "MATCH", key)
    assert (unknown["token"], without["token"]) == (7, None)
    assert unknown["late_ms"] is None and unknown["ended"] is None
    assert maps(client, "REFUSALS", "MATCH", key, "COUNT", 1) == [unknown]
    assert maps(client, "REFUSALS", "MATCH", "no such " + key) == []
    assert maps(client, "HISTORY", key) == []


def test_what_another_daemon_granted_is_not_known(rig, redis):
    """Two daemons on one file: each knows its own."""
    here, there = (rig.daemon(lease=redis.uri).client() for _ in range(2))
    token = here.token("r", 60000, "OWNER", "ann")
    here("RELEASE", "r", token)
    newest = there.token("r", 60000, "OWNER", "ben")
    there.refused("STALE", "FENCED", token, "SET", "r", "v")
    here.refused("STALE", "FENCED", token, "SET", "r", "v")
    unknown, = maps(there, "REFUSALS")
    known, = maps(here, "REFUSALS")
    assert (unknown["newest"], unknown["newest_owner"]) == (newest, "ben")
    assert [unknown[name] for name in ("granted_ms", "late_ms", "ended")] == [None] * 3
    assert (known["newest"], known["newest_owner"], known["newest_address"]) == (newest, None, None)
    assert known["ended"] == "released" and known["late_ms"] >= 0
    assert [entry["token"] for entry in maps(here, "HISTORY", "r")] == [token]
    assert [entry["token"] for entry in maps(there, "HISTORY", "r")] == [newest]


def test_history_is_bounded_and_ends_with_the_process(rig):
    daemon = rig.daemon("--history", "20")
    client = daemon.client()
    for number in range(50):
        client.token(f"r{number}")
        client.refused("UNKNOWN", "FENCED", 9, "SET", f"r{number}", "v")
    assert maps(client, "HISTORY", "r29") == [] and len(maps(client, "HISTORY", "r30")) == 1
    assert len(maps(client, "REFUSALS", "COUNT", 1000)) == 20
    assert (client.counter("history_grants"), client.counter("history_refusals")) == (20, 20)
    client.refused("UNKNOWN", "FENCED", 9, "SET", "r0", "v")
    daemon.signal(signal.SIGTERM)
    daemon.wait()
    assert maps(rig.daemon("--history", "20").client(), "REFUSALS") == []


@pytest.mark.parametrize("words", ["HISTORY", "HISTORY r COUNT", "HISTORY r COUNT 0",
                                   "HISTORY r LAST 1", "REFUSALS COUNT x", "REFUSALS MATCH",
                                   "REFUSALS COUNT 10001", "REFUSALS r"])
def test_bad_input_is_an_error(local, words):
    local.client().refused("ERR", *words.split())


def test_a_pattern_has_a_limit(rig):
    client = rig.daemon().client()
    client.refused("NOTOKEN", "SET", "k" * 500, "v")
    assert len(client("REFUSALS", "MATCH", "k*" * 500)) == 1
    longest = "*" * 1023 + "k"
    for command in (["REFUSALS", "MATCH"], ["LEASES", "MATCH"], ["SCAN", 0, "MATCH"],
                    ["HSCAN", "hash", 0, "MATCH"], ["PUBSUB", "CHANNELS"], ["CONFIG", "GET"]):
        assert type(client(*command, longest)) is list
        client.refused("ERR", *command, longest + "k", text="at most 1024 bytes")
    assert client("CONFIG", "GET", *["sav?"] * 64) == [b"save", b""]
    client.refused("ERR", "CONFIG", "GET", *["save"] * 65, text="at most 64 patterns")
