# SPDX-License-Identifier: Apache-2.0
"""Lock keys (--lock-keys): Redis's lock commands become leases, whose value stands for the token.
The libraries themselves are in test_lock_libraries.py."""

import re
import signal

import pytest

from harness.limits import wait_until
from harness.resp import ReplyError, mapped
from harness.rig import refusal

LOCKS = ("--lock-keys", "lock:*")
GIVE = "c3f8721cbb97f72bc19e972846bd7aaf91901658"  # redis-py's
EXTEND = "1cac51482acf5858da00f6d685d68f886cd6b6b2"
TAKE_ALL = "96da70f7716f27d278a5218544df37fd8b0a5e4c"  # node-redlock's
TAKE_BATCH = "514d8d1b08387624661da2a9098d3949b633eb3a"  # redlock-universal's
EXTEND_IN_TIME = "c000e088bd4aca36ab429d3b7a16fc736f4cb6f1"
# The text that Redis's page on locks gives, which nearly everybody sends in some layout.
CLASSIC = ('if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) '
           'else return 0 end')


@pytest.fixture
def daemon(rig, lease):
    return rig.daemon(*LOCKS, lease=lease)


def take(client, key, value, px=60000):
    """A short lock may run out before anybody is told of it."""
    command = ("SET", f"lock:{key}", value, "NX", "PX", px)
    if px < 1000:
        wait_until(lambda: client(*command) == "OK", "a grant of that TTL")
    else:
        assert client(*command) == "OK"
    return value


def give(client, key, value):
    return client("EVALSHA", GIVE, 1, f"lock:{key}", value)


# What a value is worth.

def test_a_value_is_presented_for_its_token(client):
    value = take(client, "sku", "v-1")
    assert client.fenced(value, "SET", "sku", 10) == "OK"
    assert client.fenced(value, "DECRBY", "sku", 1, "MIN", 0) == 9
    assert client.fenced(value, "GET", "sku") == b"9"
    assert client("FENCEDALL", 1, "sku", value, "SET", "sku", 8) == "OK"
    assert client("FENCEDALL", 1, "sku", value, "SQL", "SELECT 1")
    token = client.lease("sku")["token"]
    assert client.fenced(token, "SET", "sku", 7) == "OK"
    assert client("RECEIPT", "sku", token, "none") is None


def test_a_value_is_fenced_by_the_next_grant_and_not_by_its_first_write(client):
    old = take(client, "sku", "old", 30)
    wait_until(lambda: client("EXISTS", "lock:sku") == 0, "the lock runs out")
    assert client.fenced(old, "SET", "sku", 1) == "OK"  # nobody else has it: no harm
    new = take(client, "sku", "new")
    client.refused("STALE", "FENCED", old, "SET", "sku", 2)
    assert client("GET", "sku") == b"1"
    assert client.fenced(new, "SET", "sku", 3) == "OK"


def test_a_value_is_stale_once_it_is_given_back_or_taken_away(client):
    given, taken = take(client, "a", "v-1"), take(client, "b", "v-2")
    assert give(client, "a", given) == 1
    client.refused("STALE", "FENCED", given, "SET", "a", 1)
    assert client("DEL", "lock:b") == 1
    client.refused("STALE", "FENCED", taken, "SET", "b", 1)
    assert client.lease("b")["state"] == "free"


def test_a_value_is_known_after_a_restart_and_at_another_daemon(rig, lease, daemon):
    client = daemon.client()
    value = take(client, "sku", "v-1")
    other = rig.daemon(*LOCKS, lease=lease).client()
    assert other.fenced(value, "SET", "sku", 1) == "OK"
    give(client, "gone", take(client, "gone", "v-2"))
    other.refused("STALE", "FENCED", "v-2", "SET", "gone", 1)
    daemon.close_clients()
    daemon.stop()
    client = rig.daemon(*LOCKS, lease=lease).client()
    assert client.fenced(value, "SET", "sku", 2) == "OK"
    client.refused("STALE", "FENCED", "v-2", "SET", "gone", 1)
    client.refused("UNKNOWN", "FENCED", "v-3", "SET", "gone", 1, text="no lease on this resource")


def test_a_value_that_was_granted_twice_stands_for_no_token(client):
    for _ in range(3):
        give(client, "sku", take(client, "sku", "again"))
    take(client, "sku", "again")
    client.refused("UNKNOWN", "FENCED", "again", "SET", "sku", 1, text="more than one lease")
    lease = client("LEASE", "sku", "OWNER", "again")
    token = lease[lease.index(b"token") + 1]
    assert client.fenced(token, "SET", "sku", 1) == "OK"
    take(client, "other", "again")  # another resource is another matter
    assert client.fenced("again", "SET", "other", 1) == "OK"


def test_a_value_belongs_to_the_resource_that_it_was_granted(client):
    value = take(client, "a", "v-1")
    client.refused("UNKNOWN", "FENCED", value, "SET", "b", 1)
    take(client, "b", "v-2")
    client.refused("UNKNOWN", "FENCEDALL", 2, "a", value, "b", value, "MSET", "a", 1, "b", 1)
    assert client("FENCEDALL", 2, "a", value, "b", "v-2", "MSET", "a", 1, "b", 1) == "OK"


def test_values_and_tokens_are_presented_together_in_a_transaction(client):
    value, token = take(client, "a", "v-1"), client.token("b")
    client.multi(("FENCED", value, "SET", "a", 1), ("FENCED", token, "SET", "b", 2))
    assert client("EXEC") == ["OK", "OK"]
    give(client, "a", value)
    client.multi(("FENCED", token, "SET", "b", 3), ("FENCED", value, "SET", "a", 3))
    client.refused("STALE", "EXEC")
    client.multi(("FENCED", token, "SET", "b", 3), ("FENCED", "never", "SET", "a", 3))
    client.refused("UNKNOWN", "EXEC")
    assert client("MGET", "a", "b") == [b"1", b"2"]


def test_a_write_with_a_value_and_an_id_is_applied_once(client):
    value = take(client, "sku", "v-1")
    command = ("FENCED", value, "ID", "sale-1", "INCRBY", "sku", 5)
    assert client(*command) == client(*command) == 5
    give(client, "sku", value)
    assert client(*command) == 5
    client.refused("ERR", "FENCED", value, "ID", "stockade:value:\nv-1", "INCRBY", "sku", 1)


@pytest.mark.parametrize("value", ["7", "0", "1234567890123456"])
def test_a_value_that_reads_as_a_token_is_refused(client, value):
    client.refused("ERR", "SET", "lock:sku", value, "NX", "PX", 60000, text="token")
    client.refused("ERR", "EVALSHA", TAKE_ALL, 1, "lock:sku", value, 60000, text="token")
    assert client("EXISTS", "lock:sku") == 0


def test_seventeen_digits_are_a_value(client):
    value = take(client, "sku", "12345678901234567")
    assert client.fenced(value, "SET", "sku", 1) == "OK"


def test_any_bytes_are_a_value_up_to_496_of_them(client):
    for value in (b"\x00\xff\r\n", b"x" * 496):
        take(client, "sku", value)
        assert client("GET", "lock:sku") == value
        assert client.fenced(value, "SET", "sku", 1) == "OK"
        give(client, "sku", value)
    for value in (b"", b"x" * 497):
        client.refused("ERR", "SET", "lock:sku", value, "NX", "PX", 60000, text="1 to 496 bytes")


# The lease behind the lock.

def test_a_lock_is_a_lease_for_everybody_else(client, daemon):
    take(client, "sku", "v-1")
    other = daemon.client()
    assert other("ACQUIRE", "sku", 60000) is None
    lease = client.lease("sku")
    assert lease["owner"] == b"v-1" and lease["holds"] == 1
    client("DEL", "lock:sku")
    token = other.token("sku")
    assert client("SET", "lock:sku", "v-2", "NX", "PX", 60000) is None
    assert client("EXISTS", "lock:sku") == 1
    assert other("RELEASE", "sku", token) == 0
    take(client, "sku", "v-3")


def test_who_is_refused_a_lock_does_not_make_it_last_longer(client):
    take(client, "sku", "v-1", 20000)
    for value in ("v-1", "v-2"):
        assert client("SET", "lock:sku", value, "NX", "PX", 60000) is None
        assert client("PTTL", "lock:sku") <= 20000


def test_lease_owner_shows_the_lease_only_while_that_owner_has_it(client):
    assert client("LEASE", "sku", "OWNER", "v-1") is None
    take(client, "sku", "v-1", 30)
    wait_until(lambda: client("LEASE", "sku", "OWNER", "v-1") is None, "the lock runs out")
    take(client, "sku", "v-2")
    assert client("LEASE", "sku", "OWNER", "v-1") is None
    shown = mapped(client("LEASE", "sku", "OWNER", "v-2"))
    assert shown[b"owner"] == b"v-2" and shown[b"token"] > 1 and shown[b"state"] == b"held"
    client.refused("ERR", "LEASE", "sku", "OWNER")
    assert client("LEASE", "sku", "OWNER", "v-2", "TOKEN") == shown[b"token"]
    assert client("LEASE", "sku", "OWNER", "v-1", "TOKEN") is None
    client.refused("ERR", "LEASE", "sku", "OWNER", "v-2", "TOKEN", "x")
    client.refused("ERR", "LEASE", "sku", "OWNER", "v-2", "state")
    client.refused("ERR", "LEASE", "sku", "HOLDER", "v-2")


def test_several_keys_are_taken_together_or_not_at_all(daemon):
    clients = [daemon.client() for _ in range(4)]
    names = ["lock:a", "lock:b", "lock:c"]
    for round_ in range(30):
        for i, client in enumerate(clients):
            client.send("EVALSHA", TAKE_ALL, 3, *names[i % 3:], *names[:i % 3], f"v-{round_}-{i}",
                        60000)
        taken = [client.read() for client in clients]
        assert set(taken) <= {0, 3} and taken.count(3) <= 1
        held = {clients[0]("GET", name) for name in names}
        if 3 in taken:
            assert held == {f"v-{round_}-{taken.index(3)}".encode()}
        else:
            wait_until(lambda: clients[0]("EXISTS", *names) == 0, "all went back")
        clients[0]("DEL", *names)


def test_an_unlock_is_published_to_those_who_wait(client, daemon):
    listener = daemon.client()
    listener("SUBSCRIBE", "redisson_lock__channel:{lock:sku}")
    lock = ("EVALSHA", "149c5a8bf18676fd99e9e6e24923bd64d9b62f94", 1, "lock:sku", 60000, "u:1")
    unlock = ("EVALSHA", "6866459238a13a701d42f4971f12d9f3a50e2442", 3, "lock:sku",
              "redisson_lock__channel:{lock:sku}", "latch", 0, 60000, "u:1", "publish", 9000)
    assert client(*lock) is None and client(*lock) is None
    assert client(*unlock) == 0 and client(*unlock) == 1
    assert listener.read() == [b"message", b"redisson_lock__channel:{lock:sku}", b"0"]
    assert client(*lock) is None
    token = client.lease("sku")["token"]
    assert client.fenced(token, "SET", "sku", 1) == "OK"
    assert client("EVALSHA", "605e338249a7a1d40df83b04f7658354f883b41b", 2, "lock:sku",
                  "redisson_lock__channel:{lock:sku}", 0, "publish") == 1
    assert listener.read()[2] == b"0"
    client.refused("STALE", "FENCED", token, "SET", "sku", 2)


def test_no_script_publishes_on_the_daemons_own_channels(client):
    take(client, "sku", "u:1")
    for channel, code in (("stockade:events", "NOPERM"), ("c" * 1025, "ERR")):
        client.refused(code, "EVALSHA", "7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1", 2, "lock:sku",
                       channel, 0)
    assert client("EXISTS", "lock:sku") == 1


def test_rfencedlocks_token_is_the_leases(client):
    lock = ("EVALSHA", "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45", 2, "lock:sku", "tok", 60000)
    state, token = client(*lock, "u:1")
    assert state == -1 and token == client.lease("sku")["token"]
    assert client(*lock, "u:1") == [-1, token]  # entered again: the outer frame's stays good
    assert client.fenced(token, "SET", "sku", 1) == "OK"
    left, none = client(*lock, "u:2")
    assert 0 < left <= 60000 and none == -1


@pytest.mark.parametrize("words", [("ACQUIRE", "lock:a", 60000),
                                   ("ACQUIREALL", 60000, 2, "a", "lock:b"),
                                   ("ACQUIREALL", 60000, 1, "lock:b", "OWNER", "me")])
def test_lease_commands_take_the_resource(client, words):
    client.refused("ERR", *words, text=f"{words[0]} takes the resource, not its lock key")


# What libraries keep beside a lock key.

def test_rfencedlocks_token_can_be_asked_for(client):
    for name in ("redisson_lock_token:{lock:sku}", "redisson_lock_token:lock:{sku}"):
        assert client("GET", name) is None
    take(client, "sku", "v-1")
    take(client, "{sku}", "v-2")
    for resource, name in (("sku", "redisson_lock_token:{lock:sku}"),
                           ("{sku}", "redisson_lock_token:lock:{sku}")):
        token = client.lease(resource)["token"]
        assert client("GET", name) == b"%d" % token
        client("DEL", f"lock:{resource}")
        assert client("GET", name) == b"%d" % token  # as a counter
    client.refused("NOTOKEN", "SET", "redisson_lock_token:{lock:sku}", 5)


def test_redissons_and_python_redis_locks_leftovers_are_none(client, daemon):
    for name in ("redisson_unlock_latch:{lock:sku}:4f6e", "redisson_unlock_latch:lock:{sku}:4f6e",
                 "lock-signal:sku"):
        assert client("DEL", name) == 0
    client.refused("NOTOKEN", "DEL", "redisson_unlock_latch:{sku}:4f6e")
    client.refused("NOTOKEN", "DEL", "lock-signal:sku", "b")
    assert client.counter("refused_notoken") == 2


def test_python_redis_lock_waits_for_an_unlock(client, daemon):
    waiters = [daemon.client() for _ in range(2)]
    wait = ("BLPOP", "lock-signal:sku", 60)
    assert client(*wait) == [b"lock-signal:sku", b"1"]  # nobody has it
    take(client, "sku", "v-1")
    for waiter in waiters:
        waiter.send(*wait)
    assert client("BLPOP", "lock-signal:sku", "0.05") is None
    unlock = ("EVALSHA", "90da91872223f85eb1376a17e3c4df21ace8c54b", 2, "lock:sku",
              "lock-signal:sku")
    assert client(*unlock, "v-1", 1000) == 0
    assert waiters[0].read() == [b"lock-signal:sku", b"1"]  # in order of arrival
    take(waiters[0], "sku", "v-2", 300)
    assert waiters[1].read() == [b"lock-signal:sku", b"1"]  # it ran out
    take(waiters[1], "sku", "v-3")


def test_blpop_ends_with_its_connection_and_with_the_daemon(rig):
    daemon = rig.daemon(*LOCKS)
    client, gone, stays = (daemon.client() for _ in range(3))
    take(client, "sku", "v-1")
    for waiter in (gone, stays):
        waiter.send("BLPOP", "lock-signal:sku", 0)
    wait_until(lambda: b"blpop" in client("CLIENT", "LIST"), "they wait")
    gone.reset()
    daemon.signal(signal.SIGTERM)
    assert stays.read().code == "BUSY"
    assert daemon.wait() == 0


@pytest.mark.parametrize("words", [("b", 1), ("lock-signal:a", -1), ("lock-signal:a", "x"),
                                   ("lock-signal:a", ""), ("lock-signal:a", "nan"),
                                   ("lock-signal:a", "lock-signal:b", 1), ("lock:a", 1)])
def test_blpop_is_for_nothing_else(client, words):
    client.refused("ERR", "BLPOP", *words)


def test_blpop_on_a_lock_key_is_told_what_it_is_for(client):
    client.refused("ERR", "BLPOP", "lock:a", 1, text="lock-signal:NAME")


# Scripts.

def test_a_text_is_known_in_any_layout_and_then_by_its_own_sha1(client):
    text = CLASSIC.replace(" then ", "\n\t then\r\n").replace('"', "'")
    sha1 = client("SCRIPT", "LOAD", text).decode()
    assert re.fullmatch("[0-9a-f]{40}", sha1)
    assert client("SCRIPT", "EXISTS", sha1, sha1.upper(), "0" * 40) == [1, 1, 0]
    take(client, "sku", "v-1")
    assert client("EVALSHA", sha1, 1, "lock:sku", "v-2") == 0
    assert client("EVALSHA", sha1.upper(), 1, "lock:sku", "v-1") == 1
    take(client, "sku", "v-3")
    assert client("EVAL", CLASSIC.replace("get", "GET") + "\n", 1, "lock:sku", "v-3") == 1


def test_a_text_that_is_not_known_is_refused_with_the_way_out(client):
    for command in (("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return redis.call('get')")):
        client.refused("ERR", *command, text="no Lua runs here.*ACQUIRE")
    client.refused("NOSCRIPT", "EVALSHA", "0" * 40, 1, "lock:sku", "v-1")
    client.refused("ERR", "EVALSHA", "b121d3548d693116c3851b63befe947e49f28c7c", 0,
                   text="REVOKE")
    client.refused("ERR", "SCRIPT", "FLUSH", text="unknown subcommand")


def test_a_script_is_refused_on_keys_that_are_no_locks(client):
    client.refused("ERR", "EVALSHA", GIVE, 1, "sku", "v-1", text="no lock key")
    client.refused("ERR", "EVALSHA", TAKE_ALL, 2, "lock:a", "sku", "v-1", 60000,
                   text="no lock key")
    assert client("EXISTS", "lock:a") == 0


@pytest.mark.parametrize("words, text", [
    ((GIVE, 0), "more keys"), ((GIVE, 1, "lock:a"), "more keys"), ((EXTEND, 1, "lock:a", "v"),
                                                                   "more keys"),
    ((EXTEND, 1, "lock:a", "v", "x"), "time"), ((EXTEND, 1, "lock:a", "v", 9), "time"),
    ((EXTEND, 1, "lock:a", "v", 86400001), "time"), ((TAKE_BATCH, 1, "lock:a", 60000), "more keys"),
    ((TAKE_BATCH, 2, "lock:a", "lock:b", "v-1", 60000), "more keys"),
    ((TAKE_BATCH, 1, "lock:a", "v-1", 9), "time"),
    ((EXTEND_IN_TIME, 1, "lock:a", "v-1", "x", 60000), "not an integer"),
    ((GIVE, "x", "lock:a"), "not an integer"),
    ((GIVE, 3, "lock:a", "v"), "greater than number of args"), ((GIVE, -1, "a"), "negative")])
def test_a_script_that_is_called_wrongly_is_refused(client, words, text):
    client.refused("ERR", "EVALSHA", *words, text=text)


def test_a_lock_keeps_its_value(client):
    take(client, "a", "v-1")
    for value in ("v-2", "v-1 ", ""):
        client.refused("ERR", "SET", "lock:a", value, "IFEQ", "v-1", "PX", 60000,
                       text="keeps its value")
    assert client("GET", "lock:a") == b"v-1"


def test_what_is_given_back_by_its_value_is_fenced(client):
    for give_back in (("DELIFEQ", "lock:a"), ("DELEX", "lock:a", "IFEQ")):
        value = take(client, "a", f"v-{give_back[0]}")
        assert client("SET", "lock:a", value, "IFEQ", value, "PX", 90000) == "OK"
        assert client.fenced(value, "SET", "a", 1) == "OK"
        assert client(*give_back, value) == 1
        client.refused("STALE", "FENCED", value, "SET", "a", 2)
        assert client("SET", "lock:a", value, "IFEQ", value, "PX", 90000) is None


def test_a_script_that_names_another_database_is_refused(client):
    take_all = ("EVALSHA", "1b77b94aa78451d55dfa97e18819bfbfc596cb5b", 1, "lock:a")  # sesamecare's
    for database in (1, "", "x", "00"):
        client.refused("ERR", *take_all, database, "v-1", 60000, text="database 0 only")
    assert client("EXISTS", "lock:a") == 0
    assert client(*take_all, 0, "v-1", 60000) == 1


def test_a_semaphore_is_told_what_to_use_instead(client):
    acquire = "43ebdb49120d170e08af560cb4e46e36f8585936"  # redis-semaphore's
    client.refused("ERR", "EVALSHA", acquire, 1, "lock:a", 5, "v-1", 60000, 1,
                   text="lease of its own")


def test_without_lock_keys_scripts_and_their_keys_are_what_they_were(rig):
    client = rig.daemon("--unfenced-writes", "allow").client()
    for command in (("EVAL", CLASSIC, 1, "lock:a", "v"), ("SCRIPT", "LOAD", CLASSIC)):
        client.refused("ERR", *command, text="--lock-keys")
    client.refused("NOSCRIPT", "EVALSHA", GIVE, 1, "lock:a", "v")
    for command in (("DELIFEQ", "lock:a", "v"), ("DELEX", "lock:a", "IFEQ", "v")):
        client.refused("ERR", *command, text="--lock-keys")
    assert client("SCRIPT", "EXISTS", GIVE) == [0]
    assert client("SET", "lock:a", "data") == "OK" and client("GET", "lock:a") == b"data"
    assert client("TTL", "lock:a") == client("PTTL", "lock:a") == -1
    assert client("TTL", "none") == client("PTTL", "none") == -2
    client.refused("ERR", "FENCED", "v-1", "SET", "a", 1, text="a token is a number")


# Lock keys are not data.

@pytest.mark.parametrize("command", [
    "HSET lock:a f v", "APPEND lock:a x", "INCR lock:a", "SETNX lock:a v", "GETSET lock:a v",
    "MGET lock:a", "MGET lock:a b", "MSET lock:a 1", "STRLEN lock:a", "TYPE lock:a",
    "HGETALL lock:a", "EXISTS lock:a b", "DEL b lock:a", "FENCED {token} SET lock:a 1",
    "FENCED {token} GET lock:a", "FENCEDALL 1 a {token} SET lock:a 1",
    "FENCEDALL 1 lock:a {token} SET a 1", "FENCEDALL 1 a {token} MSET a 1 lock:b 2",
    "ACQUIRE lock:a 60000", "RENEW lock:a 1 60000", "RELEASE lock:a 1", "REVOKE lock:a",
    "LEASE lock:a", "RECEIPT lock:a 1 x", "SET lock:a v", "SET lock:a v NX",
    "SET lock:a v PX 60000",
    "SET lock:a v XX PX 60000", "SET lock:a v NX PX 60000 GET", "SET lock:a v NX KEEPTTL",
    "SET lock:a v NX PX", "SET lock:a v NX PX x", "SET lock:a v NX PX 9", "SET lock:a v NX PX -1",
    "SET lock:a v NX PX 86400001", "SET lock:a v NX EX 86401", "SET lock:a v NX EX 0",
    "SET lock:a v NX PX 60000 EX 60", "SET lock:a v NX EX 9223372036854775807",
    "SET lock:a v IFEQ v", "SET lock:a v IFEQ", "SET lock:a v NX IFEQ v PX 60000",
    "SET lock:a v IFEQ v IFEQ v PX 60000", "SET lock:a v IFEQ v PX 9",
    "SET lock:a v IFNE v PX 60000",
    "DELEX lock:a", "DELEX lock:a IFNE v", "DELEX lock:a IFEQ v v", "DELEX lock:a IFEQ",
    "DELIFEQ lock:a", "DELIFEQ a v", "DELEX a IFEQ v"])
def test_any_other_command_on_a_lock_key_is_refused(client, command):
    token = client.token("a")
    client.refused("ERR", *command.format(token=token).split())
    assert client("DBSIZE") == 0 and client("GET", "lock:b") is None


def test_a_transaction_takes_no_lock_keys(client):
    token = client.token("a")
    for command in (("SET", "lock:a", "v", "NX", "PX", 1000), ("GET", "lock:a"), ("DEL", "lock:a"),
                    ("FENCED", token, "SET", "lock:a", 1), ("EVALSHA", GIVE, 1, "lock:a", "v")):
        assert client("MULTI") == "OK"
        client.refused("ERR", *command)
        client.refused("EXECABORT", "EXEC")


def test_other_keys_are_data_as_ever(client):
    token = client.token("a")
    assert client.fenced(token, "SET", "a", 1) == "OK"
    assert client("EXISTS", "a") == 1 and client("GET", "a") == b"1" and client("TTL", "a") == -1
    client.refused("NOTOKEN", "SET", "a", "v", "NX", "PX", 1000)
    client.refused("NOTOKEN", "DEL", "a")
    client.refused("NOTOKEN", "SET", "lock:", "v")  # nothing stands for the resource


@pytest.mark.parametrize("pattern, key, resource", [
    ("*:lock", "sku:1:lock", "sku:1"), ("{lock}*", "{lock}a", "a"), ("a*b", "a/x/b", "/x/"),
    ("lock?*", "lock?x", "x")])
def test_the_star_stands_for_the_resource(rig, pattern, key, resource):
    client = rig.daemon("--lock-keys", pattern).client()
    assert client("SET", key, "v-1", "NX", "PX", 60000) == "OK"
    assert client.lease(resource)["owner"] == b"v-1"


def test_patterns_come_from_the_environment_and_the_config_file_too(rig):
    config = rig.folder / "conf"
    config.write_text("lock-keys = lock:*\nlock-keys = job-lock:*\n")
    client = rig.daemon("--config", config).client()
    for key in ("lock:a", "job-lock:b"):
        assert client("SET", key, "v-1", "NX", "PX", 60000) == "OK"
    assert client("CONFIG", "GET", "lock-keys") == [b"lock-keys", b"lock:* job-lock:*"]
    client = rig.daemon(env={"STOCKADE_LOCK_KEYS": "x:* y:*"},
                        store=f"sqlite:{rig.folder}/b").client()
    assert client("SET", "y:a", "v-1", "NX", "PX", 60000) == "OK"


@pytest.mark.parametrize("pattern", ["*", "lock:", "a*b*", "**", "x" * 256 + "*", ""])
def test_a_pattern_that_is_none_is_refused(rig, pattern):
    assert "--lock-keys" in refusal(rig, "--lock-keys", pattern)


def test_a_store_with_data_under_lock_keys_is_refused(rig):
    daemon = rig.daemon("--unfenced-writes", "allow")
    client = daemon.client()
    client("SET", "b", 1)
    client("HSET", "lock:a", "f", "v")
    daemon.close_clients()
    daemon.stop()
    process = rig.start(*LOCKS)
    assert process.wait() == 1
    process.expected_status = 1
    assert 'data under "lock:a"' in process.stderr()
    daemon = rig.daemon("--lock-keys", "mutex:*")
    daemon.close_clients()
    daemon.stop()
    daemon = rig.daemon("--unfenced-writes", "allow")
    daemon.client()("DEL", "lock:a")
    daemon.close_clients()
    daemon.stop()
    assert rig.daemon(*LOCKS).client()("EXISTS", "lock:a") == 0


# What the operator sees, and what fails.

def test_who_locks_and_presents_no_tokens_is_named_once(rig):
    daemon = rig.daemon(*LOCKS)
    fenced, bare = daemon.client(name="fenced"), daemon.client(name="bare")
    for i in range(3):
        fenced.fenced(take(fenced, "a", f"v-{i}"), "SET", "a", i)
        give(fenced, "a", f"v-{i}")
        give(bare, "b", take(bare, "b", f"v-{i}"))
    wait_until(lambda: bare.counter("locks_unpresented") == 3, "the store has said what is guarded")
    info = bare.info("lockkeys")
    assert info["lock_keys"] == "1"
    lines = sorted(value for name, value in info.items() if name.startswith("lock_client"))
    assert lines == ["taken=3,without_token=0,client=127.0.0.1 name=fenced",
                     "taken=3,without_token=3,client=127.0.0.1 name=bare"]
    assert daemon.log().count("presented no token") == 1
    assert "name=bare has locked \"b\" and presented no token" in daemon.log()
    assert bare.counter("locks_taken") == 6 and bare.counter("locks_unpresented") == 3


def test_locks_that_a_guard_covers_are_not_said_to_write_unfenced(rig):
    """Its programs present the token in SQL of their own, where no daemon sees it."""
    daemon = rig.daemon(*LOCKS)
    client = daemon.client(name="shop")
    client("SQL", "CREATE TABLE inventory (sku int PRIMARY KEY, pieces int)")
    client("GUARD", "CREATE", "inventory", "sku", "sku:")
    for i in range(3):
        give(client, "sku:7", take(client, "sku:7", f"v-{i}"))
    for other in "box:7", "sk":
        give(client, other, take(client, other, "v-1"))
    wait_until(lambda: client.counter("locks_unpresented") == 2, "the others are counted")
    assert 'has locked "box:7" and presented no token' in daemon.log()
    assert client.info("lockkeys")["lock_client0"].startswith("taken=5,without_token=2,")
    client("GUARD", "DROP", "inventory")


def test_lock_keys_need_a_login_where_there_is_a_password(rig):
    password = rig.folder / "password"
    password.write_text("secret")
    client = rig.daemon(*LOCKS, "--password-file", password).client()
    for command in (("SET", "lock:a", "v-1", "NX", "PX", 60000), ("GET", "lock:a"),
                    ("EVALSHA", GIVE, 1, "lock:a", "v-1"), ("SCRIPT", "EXISTS", GIVE)):
        client.refused("NOAUTH", *command)
    assert client("AUTH", "secret") == "OK"
    take(client, "a", "v-1")


def test_a_lease_service_that_is_down_is_told_at_once_and_holders_write_on(rig, redis):
    client = rig.daemon(*LOCKS, lease=redis.uri).client()
    value = take(client, "sku", "v-1")
    take(client, "b", "v-2")
    redis.kill()
    wait_until(lambda: isinstance(client.ask("GET", "lock:sku"), ReplyError), "Redis is missed")
    for command in (("SET", "lock:a", "v-3", "NX", "PX", 60000), ("GET", "lock:sku"),
                    ("PTTL", "lock:sku"), ("EXISTS", "lock:sku"),
                    ("EVALSHA", GIVE, 1, "lock:b", "v-2"),
                    ("EVALSHA", EXTEND, 1, "lock:b", "v-2", 60000), ("DEL", "lock:b")):
        client.refused("LEASEDOWN", *command)
    assert client.fenced(value, "SET", "sku", 1) == "OK"
