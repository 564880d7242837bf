# SPDX-License-Identifier: Apache-2.0
"""Events: what happens to leases is told as JSON over pub/sub, in Redis's own forms."""

import json
import time

import pytest
import redis as redis_py

from harness.limits import HANG_SECONDS, Wait, patience, sanitized, wait_until
from harness.programs import run_node
from harness.resp import Push, ReplyError, encode, tcp


def subscribed(daemon, *channels, proto=2):
    client = daemon.client(proto=proto)
    client.send("SUBSCRIBE", *channels)
    for _ in channels:
        assert client.read()[0] == b"subscribe"
    return client


def event(client, timeout=None):
    """The next message's (channel, event as a dict)."""
    message = client.read(timeout)
    assert message[0] == b"message" and len(message) == 3, message
    return message[1].decode(), json.loads(message[2])


# Every kind of event.


@pytest.mark.parametrize("proto", [2, 3])
def test_every_kind_of_event_is_told(daemon, key, proto):
    listener = subscribed(daemon, f"stockade:events:{key}", proto=proto)
    client = daemon.client()
    first = client.token(key, 60000, "OWNER", "ann")
    client("RENEW", key, first, 60000)
    client("RELEASE", key, first)
    second = client.token(key, 60000, "OWNER", "ben")
    client.refused("STALE", "FENCED", first, "SET", key, 1)
    client.refused("UNKNOWN", "FENCED", second + 5, "GET", key)
    client("REVOKE", key)
    third = client.token(key, 500, "OWNER", "cas")
    told = []
    for _ in range(8):
        channel, what = event(listener)
        assert channel == f"stockade:events:{key}"
        assert abs(what.pop("time_ms") - time.time() * 1000) < 60000
        assert what.pop("resource") == key
        told.append(what)
    for refused in told[3:5]:  # test_history.py looks at the rest
        for field in list(refused):
            if field not in ("event", "code", "token", "newest", "newest_owner"):
                del refused[field]
    expected = [
        {"event": "granted", "token": first, "owner": "ann", "ttl_ms": told[0].get("ttl_ms")},
        {"event": "released", "token": first, "owner": "ann"},
        {"event": "granted", "token": second, "owner": "ben", "ttl_ms": told[2].get("ttl_ms")},
        {"event": "refused", "token": first, "code": "STALE", "newest": second,
         "newest_owner": "ben"},
        {"event": "refused", "token": second + 5, "code": "UNKNOWN", "newest": second,
         "newest_owner": "ben"},
        {"event": "revoked", "token": second, "owner": "ben"},
        {"event": "granted", "token": third, "owner": "cas", "ttl_ms": told[6].get("ttl_ms")},
        {"event": "expired", "token": third, "owner": "cas"},
    ]
    assert told == expected
    assert 50000 < told[0]["ttl_ms"] <= 60000 and 0 < told[6]["ttl_ms"] <= 500


def test_fields_come_in_one_order(local, key):
    listener = subscribed(local, f"stockade:events:{key}")
    client = local.client()
    token = client.token(key, 60000, "OWNER", 'a"b')
    text = listener.read()[2].decode()
    assert text.startswith(f'{{"event":"granted","resource":"{key}","token":{token},'
                           '"owner":"a\\"b","ttl_ms":')
    assert list(json.loads(text)) == ["event", "resource", "token", "owner", "ttl_ms", "time_ms"]
    client.refused("UNKNOWN", "FENCED", token + 1, "GET", key)
    assert list(json.loads(listener.read()[2])) == [
        "event", "time_ms", "resource", "token", "code", "command", "user", "client", "address",
        "granted_ms", "late_ms", "ended", "newest", "newest_owner", "newest_address"]


def test_names_of_any_bytes_are_told_as_json(local, key):
    client = local.client()
    for name in (key.encode() + b"\xc3\xbc\x00\n", key.encode() + b"\xff\xfe\xc3\xbc"):
        listener = subscribed(local, b"stockade:events:" + name)
        client.token(name)
        _, channel, text = listener.read()
        assert channel == b"stockade:events:" + name
        resource = json.loads(text)["resource"]
        assert resource.encode("utf-8") == name or resource.encode("latin-1") == name


def test_one_channel_tells_of_all_resources_and_patterns_pick(local, key):
    everything = subscribed(local, "stockade:events")
    picky = local.client(proto=3)
    assert picky("PSUBSCRIBE", f"stockade:events:{key}-[0-1]") == \
        Push([b"psubscribe", f"stockade:events:{key}-[0-1]".encode(), 1])
    silent = subscribed(local, "elsewhere", "stockade", f"stockade:events:{key}")
    client = local.client()
    for number in range(3):
        client.token(f"{key}-{number}")
    seen = [event(everything) for _ in range(3)]
    assert [what["resource"] for _, what in seen] == [f"{key}-{n}" for n in range(3)]
    assert {channel for channel, _ in seen} == {"stockade:events"}
    for number in range(2):
        kind, pattern, channel, text = picky.read()
        assert kind == b"pmessage" and channel == f"stockade:events:{key}-{number}".encode()
        assert json.loads(text)["resource"] == f"{key}-{number}"
    for quiet in (picky, silent):
        quiet.send("PING", "over")
        assert b"over" in (quiet.read() if quiet is silent else [quiet.read()])


# The commands are Redis's.

SCRIPT = """
SUBSCRIBE | PSUBSCRIBE | UNSUBSCRIBE | PUNSUBSCRIBE | UNSUBSCRIBE a | SUBSCRIBE a | SUBSCRIBE a a b
PING | PING x | PING a b | GET k | get k v | NOSUCH | ECHO x | SELECT 0 | MULTI | DISCARD
CLIENT | HELLO | HELLO 9 | AUTH x | INFO a b c | COMMAND | SUBSCRIBE
PSUBSCRIBE a | PSUBSCRIBE a* b? [c] | UNSUBSCRIBE c | UNSUBSCRIBE a | PUNSUBSCRIBE a*
PUNSUBSCRIBE nosuch a | SUBSCRIBE "" | UNSUBSCRIBE "" | PING x | RESET | PING x | GET k
subscribe x | RESET | UNSUBSCRIBE | Subscribe q | psubscribe q | unsubscribe | punsubscribe | PING x
SUBSCRIBE z | QUIT
"""
ONLY_RESP2 = {"GET", "get", "ECHO", "SELECT", "DISCARD", "CLIENT", "HELLO", "AUTH", "INFO",
              "COMMAND", "MULTI"}


def until(client, mark):
    """Everything up to the answer to PING mark."""
    raw = b""
    while True:
        value = client.read()
        if value in (mark, [b"pong", mark]):
            return raw
        raw += client.reader.raw


@pytest.mark.parametrize("proto", [2, 3])
def test_replies_are_those_of_redis(shared_unfenced, unfenced, proto):
    ours, theirs = unfenced.client(), shared_unfenced.rig.redis().client()
    differences, fresh = [], True
    for number, command in enumerate(word.split() for line in SCRIPT.strip().splitlines()
                                     for word in line.split(" | ")):
        command = [word.strip('"') for word in command]
        if proto == 3 and command[0] in ONLY_RESP2:
            continue  # allowed there, and answered as ever
        got = []
        for client in (ours, theirs):
            if proto == 3 and fresh:
                client("HELLO", 3)
            client.send(*command)
            if command[0] == "QUIT":
                got.append(client.read())
                assert client.is_closed()
                continue
            client.send("PING", f"mark{number}")
            got.append(until(client, f"mark{number}".encode()))
        fresh = command[0] == "RESET"
        if got[0] != got[1]:
            differences.append(f"{command}: {got[0]!r}, Redis: {got[1]!r}")
    assert not differences, "\n" + "\n".join(differences)


def test_in_resp3_a_subscriber_goes_on_working_and_is_told_meanwhile(local, key):
    both, other = local.client(proto=3), local.client()
    both("SUBSCRIBE", f"stockade:events:{key}")
    assert both("ECHO", "x") == b"x"
    token = other.token(key)
    assert json.loads(both.read()[2])["event"] == "granted"
    both.send("ACQUIRE", key, 60000, "WAIT", 20000)
    other.await_waiters(key)
    other.refused("UNKNOWN", "FENCED", token + 9, "GET", key)
    told = both.read()
    assert isinstance(told, Push) and json.loads(told[2])["event"] == "refused"
    other("RELEASE", key, token)
    values = [both.read() for _ in range(3)]
    pushes = [json.loads(value[2])["event"] for value in values if isinstance(value, Push)]
    replies = [value for value in values if not isinstance(value, Push)]
    assert pushes == ["released", "granted"] and replies[0][0] == token + 1


def test_a_password_comes_first(rig):
    password = rig.folder / "password"
    password.write_text("secret")
    daemon = rig.daemon("--password-file", password)
    client = daemon.client()
    client.refused("NOAUTH", "SUBSCRIBE", "stockade:events")
    client("AUTH", "secret")
    assert client("SUBSCRIBE", "stockade:events")[2] == 1


# Clients that people have.


def test_redis_py_subscribes_unmodified(daemon, key):
    with redis_py.Redis(host=daemon.address[0], port=daemon.address[1],
                        socket_timeout=patience(HANG_SECONDS), decode_responses=True) as r:
        pubsub = r.pubsub()
        heard = []
        pubsub.subscribe("stockade:events")
        pubsub.psubscribe(**{f"stockade:events:{key}*": heard.append})
        token = r.execute_command("ACQUIRE", key, 60000)[0]
        r.execute_command("RELEASE", key, token)
        seen = []
        wait = Wait()
        while len(seen) < 2 or len(heard) < 2:
            wait.check(f"both are told: {seen}, {heard}")
            message = pubsub.get_message(ignore_subscribe_messages=True, timeout=0.2)
            if message and json.loads(message["data"])["resource"] == key:
                seen.append(json.loads(message["data"])["event"])
        assert seen == ["granted", "released"]
        assert [json.loads(message["data"])["event"] for message in heard] == seen
        pubsub.ping("hello")
        pubsub.unsubscribe()
        pubsub.punsubscribe()
        wait_until(lambda: not pubsub.subscribed or pubsub.get_message(timeout=0.1) is not None
                   and not pubsub.subscribed, "all is unsubscribed")
        pubsub.close()


@pytest.mark.parametrize("library", ["node_redis", "ioredis"])
def test_node_clients_subscribe_unmodified(daemon, key, library):
    for told in run_node(library, "events", daemon, key):
        assert [json.loads(text)["event"] for text in told] == ["granted", "released"]


# Many, and slow ones.


def receive(sock, size):
    """So many bytes. (Where a socket has a timeout, MSG_WAITALL waits for nothing.)"""
    with sock.makefile("rb", buffering=0) as file:
        data = b""
        while len(data) < size and (more := file.read(size - len(data))):
            data += more
    return data


def test_1000_subscribers_hear_every_event_in_order(rig):
    daemon = rig.daemon()
    channels = encode("SUBSCRIBE", "stockade:events")
    crowd = [tcp(daemon.address) for _ in range(1000)]
    confirmed = b"*3\r\n$9\r\nsubscribe\r\n$15\r\nstockade:events\r\n:1\r\n"
    for sock in crowd:
        sock.sendall(channels)
    for sock in crowd:
        assert receive(sock, len(confirmed)) == confirmed
    client = daemon.client()
    assert client.counter("subscribers") == 1000
    witness = subscribed(daemon, "stockade:events")
    for number in range(10):
        client("RELEASE", f"r{number}", client.token(f"r{number}"))
    told = []
    for _ in range(20):
        witness.read()
        told.append(witness.reader.raw)
    expected = b"".join(told)
    for sock in crowd:
        assert receive(sock, len(expected)) == expected
        sock.close()
    wait_until(lambda: client.counter("subscribers") == 1, "all are gone")
    assert client.counter("events_delivered") == 20 * 1001


def flood(client, resource, count):
    """Events that are large and many: refusals on a long name."""
    replies = client.pipeline([("FENCED", 7, "GET", resource)] * count)
    assert all(isinstance(reply, ReplyError) and reply.code == "UNKNOWN" for reply in replies)


def test_a_subscriber_that_does_not_read_is_disconnected_and_harms_nobody(rig):
    daemon = rig.daemon()
    client, resource = daemon.client(), "r" * 512
    client.token(resource)
    slow, quick = daemon.client(), subscribed(daemon, "stockade:events")
    slow("PSUBSCRIBE", *(f"stockade:*{'*' * n}" for n in range(20)))
    for _ in range(19):
        slow.read()
    before = daemon.rss_bytes()
    heard = 0
    for _ in range(100):
        flood(client, resource, 20)
        for _ in range(20):
            assert event(quick)[1]["newest"] == 1
        heard += 20
        if client.counter("subscribers_dropped"):
            break
    assert client.counter("subscribers_dropped") == 1 and client.counter("subscribers") == 1
    assert sanitized() or daemon.rss_bytes() - before < 40 << 20
    assert "does not read what it has subscribed to" in daemon.stderr()
    with pytest.raises(ConnectionError):
        while True:
            assert slow.read()[0] == b"pmessage"
    flood(client, resource, 1)
    assert event(quick)[1]["event"] == "refused"


def test_a_subscriber_that_reads_late_is_not(rig):
    daemon = rig.daemon()
    client, late = daemon.client(), subscribed(daemon, "stockade:events")
    client.token("r")
    for _ in range(10):
        flood(client, "r", 500)
    for _ in range(5000 + 1):
        event(late)
    assert client.counter("subscribers_dropped") == 0


def test_subscriptions_are_bounded_on_a_connection_and_in_all(rig):
    daemon = rig.daemon()
    client = daemon.client()
    crowd = [daemon.client() for _ in range(98)]
    for number, one in enumerate(crowd):
        names = [f"{number}-{name}" for name in range(1024)]
        one.send("SUBSCRIBE", *names)
        wanted = 1024 if number < 97 else 100000 - 97 * 1024
        if number < 97:
            assert [one.read()[2] for _ in names] == list(range(1, 1025))
            one.refused("ERR", "SUBSCRIBE", "more", text="at most 1024")
            continue
        assert isinstance(one.read(), ReplyError)
        one.send("SUBSCRIBE", *names[:wanted])
        assert [one.read()[2] for _ in range(wanted)] == list(range(1, wanted + 1))
        one.refused("BUSY", "SUBSCRIBE", "more", text="subscriptions")
    assert client.counter("subscriptions") == 100000
    for one in crowd:
        one.close()
    wait_until(lambda: client.counter("subscriptions") == 0, "the gone listen no more")


def test_where_nobody_listens_nothing_is_sent(rig):
    daemon = rig.daemon()
    client = daemon.client()
    client("RELEASE", "r", client.token("r"))
    assert client.counter("events_published") == 2
    assert client.counter("events_delivered") == 0
    listener = subscribed(daemon, "stockade:events:r")
    client("RELEASE", "other", client.token("other"))
    assert client.counter("events_delivered") == 0
    token = client.token("r")
    assert event(listener)[1]["token"] == token
    metrics = daemon.get("/metrics")[2]
    assert "\nstockade_events_published_total 5\n" in metrics
    assert "\nstockade_subscribers 1\n" in metrics
