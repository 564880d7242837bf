# SPDX-License-Identifier: Apache-2.0
"""Limits by user and for all: connections, leases, waiters, commands in a second."""

import signal

import pytest

from harness.limits import Stopwatch, wait_until
from harness.resp import ReplyError
from harness.users import ROOT, login, with_users

USERS = (ROOT, "user a on >pw ~* +@all", "user b on >pw ~* +@all")


def test_connections_of_a_user(rig):
    daemon = with_users(rig, *USERS, args=("--max-connections-per-user", "2"))
    first, second = login(daemon, "a"), login(daemon, "a")
    third = daemon.client()
    third.refused("BUSY", "AUTH", "a", "pw",
                  text=r"too many connections: user 'a' has 2, .* \(max-connections-per-user\)")
    assert third("AUTH", "b", "pw") == "OK"
    assert first("AUTH", "a", "pw") == "OK" # it counts already
    second.close()
    wait_until(lambda: third.ask("AUTH", "a", "pw") == "OK", "there is room again")


def test_connections_without_a_login(rig):
    daemon = rig.daemon("--max-connections-per-user", "2")
    clients = [daemon.client() for _ in range(3)]
    assert clients[0]("PING") == clients[1]("PING") == "PONG"
    clients[2].refused("BUSY", "PING", text="too many connections: user 'default' has 2")
    assert clients[2].is_closed()


def test_a_connection_too_many_stays_one_after_reset_or_auth(rig):
    daemon = with_users(rig, ROOT, "user default on nopass ~* +@all",
                        args=("--max-connections-per-user", "2"))
    clients = [daemon.client() for _ in range(4)]
    assert [client("PING") for client in clients[:2]] == ["PONG"] * 2
    assert clients[2]("RESET") == "RESET"
    clients[2].refused("BUSY", "PING", text="too many connections: user 'default'")
    clients[3].refused("BUSY", "AUTH", "default", "any", text="too many connections")
    clients[3].refused("BUSY", "PING")
    assert clients[0]("RESET") == "RESET" and clients[0]("PING") == "PONG"


def test_leases_of_a_user(rig, lease):
    daemon = with_users(rig, *USERS, args=("--max-leases-per-user", "2"), lease=lease)
    a, b = login(daemon, "a"), login(daemon, "b")
    token = a("ACQUIRE", "r1", 60000, "OWNER", "me", "ID", "one")[0]
    assert a.token("r2")
    a.refused("BUSY", "ACQUIRE", "r3", 60000,
              text=r"too many leases: user 'a' has 2, .* \(max-leases-per-user\)")
    a.refused("BUSY", "ACQUIREALL", 60000, 2, "r3", "r4", text="too many leases")
    # To enter again, to repeat and to renew takes no lease more.
    assert a("ACQUIRE", "r1", 60000, "OWNER", "me")[0] == token
    assert a("ACQUIRE", "r1", 60000, "OWNER", "me", "ID", "one")[0] == token
    assert a("RENEW", "r1", token, 60000)
    assert a("ACQUIRE", "r2", 60000) is None # held
    assert b("ACQUIREALL", 60000, 2, "r3", "r4")
    assert a("RELEASE", "r1", token) == 1 and a("RELEASE", "r1", token) == 0
    assert a.token("r5")
    a.refused("BUSY", "ACQUIRE", "r6", 60000, "WAIT", 60000)


# What gets no lease, or not yet. The last ones go on waiting.
WITHOUT_A_LEASE = [
    "ACQUIRE held 60000", "ACQUIRE held 60000 OWNER o ID i", "ACQUIRE held 60000 EPHEMERAL",
    "ACQUIRE held 60000 WAIT 1", "ACQUIRE held 60000 QUEUE ID q", "DEQUEUE held q",
    "ACQUIREALL 60000 2 free held", "ACQUIREALL 60000 2 free held WAIT 1",
    "ACQUIREALL 60000 3 free held other", "SET lock:held value NX PX 60000",
    "BLPOP lock-signal:held 0.001",
    "ACQUIRE held 60000 WAIT 60000", "ACQUIREALL 60000 2 free held WAIT 60000",
    "BLPOP lock-signal:held 60"]


def test_what_gets_no_lease_takes_none_of_its_user_s(rig, lease):
    daemon = with_users(rig, *USERS, lease=lease,
                        args=("--max-leases-per-user", "2", "--lock-keys", "lock:*"))
    holder = login(daemon, "b")
    assert holder("SET", "lock:held", "v-1", "NX", "PX", 60000) == "OK"
    for words in WITHOUT_A_LEASE:
        client, a = login(daemon, "a"), login(daemon, "a")
        client.send(*words.split())
        if words.endswith(" 60000") and "WAIT" in words:
            holder.await_waiters("held")
        elif words.startswith("BLPOP") and words.endswith(" 60"):
            wait_until(lambda: b"cmd=blpop" in holder("CLIENT", "LIST"), "it waits")
        else:
            assert client.read() in (None, 1, [b"queued", 1])
        assert daemon.metric("leases_reserved") == 0, words
        for name in ("r1", "r2"):
            assert a("RELEASE", name, a.token(name)) == 0
        two = a("ACQUIREALL", 60000, 2, "r1", "r2")
        assert two, words
        for name, token in zip(("r1", "r2"), two):
            assert a("RELEASE", name, token) == 0
        client.close()
        holder.await_waiters("held", 0)
    holder("DEL", "lock:held")
    daemon.await_nothing_left()


def test_who_waits_beyond_the_limit_is_told_when_its_turn_comes(rig, lease):
    daemon = with_users(rig, *USERS, args=("--max-leases-per-user", "1"), lease=lease)
    a, b, waiter, next_one = (login(daemon, user) for user in "abab")
    token = b.token("r")
    a.token("mine")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    b.await_waiters("r")
    next_one.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    b.await_waiters("r", 2)
    b("RELEASE", "r", token)
    reply = waiter.read()
    assert isinstance(reply, ReplyError) and reply.code == "BUSY" and "max-leases" in reply.text
    assert next_one.read()[0] > token


def test_leases_in_all(rig):
    daemon = with_users(rig, *USERS, args=("--max-leases", "2"))
    a, b = login(daemon, "a"), login(daemon, "b")
    a.token("r1")
    b.token("r2")
    a.refused("BUSY", "ACQUIRE", "r3", 60000, text=r"there are 2, .* \(max-leases\)")


def test_waiters_of_a_user(rig):
    daemon = with_users(rig, *USERS, args=("--max-waiters-per-user", "2"))
    holder, b = login(daemon, "b"), login(daemon, "b")
    holder.token("r")
    waiter = login(daemon, "a")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    b.await_waiters("r")
    a = login(daemon, "a")
    assert a("ACQUIRE", "r", 60000, "QUEUE", "ID", "x")[0] == b"queued"
    a.refused("BUSY", "ACQUIRE", "r", 60000, "QUEUE", "ID", "y",
              text=r"user 'a' has 2, .* \(max-waiters-per-user\)")
    assert b("ACQUIRE", "r", 60000) is None
    assert a("DEQUEUE", "r", "x") == 1
    assert a("ACQUIRE", "r", 60000, "QUEUE", "ID", "y")[0] == b"queued"


def test_who_waits_by_blpop_is_a_waiter_too(rig):
    daemon = with_users(rig, *USERS, args=("--max-waiters-per-user", "1", "--lock-keys", "lock:*"))
    holder, waiter, a = login(daemon, "b"), login(daemon, "a"), login(daemon, "a")
    assert holder("SET", "lock:r", "v-1", "NX", "PX", 60000) == "OK"
    waiter.send("BLPOP", "lock-signal:r", 60)
    wait_until(lambda: b"cmd=blpop" in holder("CLIENT", "LIST"), "it waits")
    for words in (("BLPOP", "lock-signal:r", 60), ("ACQUIRE", "other", 60000)):
        a.refused("BUSY", *words, text=r"user 'a' has 1, .* \(max-waiters-per-user\)")
    assert holder("DEL", "lock:r") == 1
    assert waiter.read() == [b"lock-signal:r", b"1"]
    assert a("BLPOP", "lock-signal:r", 60) == [b"lock-signal:r", b"1"]


@pytest.mark.parametrize("option, named", [("--max-rate-per-user", "user 'a' may send 50"),
                                           ("--max-rate", "all together may send 50")])
def test_commands_in_a_second(rig, option, named):
    daemon = with_users(rig, *USERS, args=(option, "50"))
    a = login(daemon, "a")
    with Stopwatch() as watch:
        replies = a.pipeline([("PING",)] * 500)
    refused = [reply for reply in replies if isinstance(reply, ReplyError)]
    assert replies[:40] == ["PONG"] * 40
    assert 1 <= len(refused) and len(replies) - len(refused) <= 51 + 50 * watch.seconds
    assert refused[0].code == "BUSY" and named in refused[0].text
    wait_until(lambda: a.ask("PING") == "PONG", "the second is over")
    if option == "--max-rate-per-user":
        assert login(daemon, "b")("PING") == "PONG"


def test_a_transaction_refused_at_its_end_is_over(rig):
    args = ("--max-rate-per-user", "5", "--unfenced-writes", "allow")
    daemon = with_users(rig, *USERS, args=args)
    a = login(daemon, "a")
    replies = a.pipeline([("MULTI",), *[("SET", "k", "v")] * 3, *[("PING",)] * 20, ("EXEC",)])
    assert isinstance(replies[-1], ReplyError) and replies[-1].code == "EXECABORT"
    wait_until(lambda: a.ask("PING") == "PONG", "the second is over")


SLOW_SQL = ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300000) "
            "SELECT count(*) FROM c")


def test_a_transaction_over_the_rate_is_applied_whole_or_not_at_all(rig):
    """Its MULTI is one too many within the second. What follows is not, for it waits for the SQL,
    and by then there is a turn again."""
    daemon = with_users(rig, *USERS, args=("--max-rate-per-user", "100"))
    owner, other = login(daemon, "a"), login(daemon, "b")
    for key in ("a", "b"):
        assert owner.token(key) == 1
        assert owner("FENCED", 1, "SET", key, 100) == "OK"
    replies = other.pipeline([
        *[("PING",)] * 99, ("SQL", SLOW_SQL), ("MULTI",), ("FENCED", 1, "DECRBY", "a", 1),
        ("FENCED", 1, "DECRBY", "b", 1000, "MIN", 0), ("EXEC",)])
    assert replies[:99] == ["PONG"] * 99 and replies[100] == "OK"
    assert replies[-1].code == "EXECABORT"
    assert owner("GET", "a") == b"100"


@pytest.mark.parametrize("word", [("nosuch",), ("GET",)])
def test_what_is_wrong_counts_too(rig, word):
    client = rig.daemon("--max-rate-per-user", "20").client()
    with Stopwatch() as watch:
        replies = client.pipeline([word] * 100)
    assert {reply.code for reply in replies} == {"ERR", "BUSY"}
    assert sum(reply.code == "ERR" for reply in replies) <= 21 + 20 * watch.seconds


def test_bytes_of_a_user(rig):
    daemon = with_users(rig, *USERS, args=("--max-memory-per-user", "1", "--unfenced-writes",
                                           "allow"))
    a, b = login(daemon, "a"), login(daemon, "b")
    a.refused("BUSY", "SET", "k", "v" * (2 << 20), text=r"user 'a' .* \(max-memory-per-user\)")
    assert a("SET", "k", "v" * 900000) == "OK"
    lazy = login(daemon, "a")
    lazy.send_all([("GET", "k")] * 60)
    wait_until(lambda: isinstance(a.ask("PING"), ReplyError), "it does not read")
    assert b("PING") == "PONG"
    replies = [lazy.read() for _ in range(60)]
    assert len(replies[0]) == 900000
    wait_until(lambda: a.ask("PING") == "PONG", "it has read")


def test_limits_change_while_it_runs(rig):
    config = rig.folder / "stockaded.conf"
    config.write_text("max-leases-per-user = 1\n")
    daemon = rig.daemon("--config", config)
    client = daemon.client()
    client.token("r1")
    client.refused("BUSY", "ACQUIRE", "r2", 60000)
    config.write_text("max-leases-per-user = 0\n")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: client.ask("ACQUIRE", "r2", 60000) is not None and
               not isinstance(client.ask("ACQUIRE", "r3", 60000), ReplyError), "it was read")
