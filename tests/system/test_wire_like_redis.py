# SPDX-License-Identifier: Apache-2.0
"""Data commands answer as Redis does: the same scripts run on both, and the bytes are compared.

The daemon runs with --unfenced-writes allow. Where the two differ on purpose (names of 0 or over
512 bytes, writes to several keys, expiry), other files test what is right.
"""

import re
import shlex

import pytest

from harness.resp import encode, mapped

MAX = (1 << 63) - 1
MIN = -(1 << 63)

STRINGS = """
GET k | SET k v | GET k | SET k | GET | GET k k | STRLEN k | APPEND k w | APPEND n w | STRLEN n
SET k v NX | SET x v NX | SET k v XX | SET y v XX | SET k 2 GET | SET z 2 GET | SET z 3 NX GET
SET new 3 NX GET | SET k 4 XX GET | SET none 4 XX GET | SET k v NX XX | SET k v NX XX GET
SET k v KEEPTTL | SET kept v keepttl | GET kept | SET k v NX KEEPTTL | SET k 7 KEEPTTL XX GET
SET k v BAD | SET k v GET GET | SET k v nx | SETNX k v | SETNX s v | SETNX s
GETSET k 5 | GETSET g 5 | GETSET g | GETDEL k | GETDEL k | GETDEL | GET k
MGET k s x none | MGET | SET e "" | GET e | STRLEN e | APPEND e "" | APPEND fresh ""
EXISTS fresh | TYPE fresh | STRLEN | APPEND k | strlen none
"""

NUMBERS = f"""
INCR n | INCR n | DECR n | INCRBY n 40 | DECRBY n 2 | GET n | DECR m | INCRBY n -100 | DECRBY n -7
SET n {MAX} | INCR n | INCRBY n 1 | DECR n | INCRBY n 1 | GET n
SET n {MIN} | DECR n | DECRBY n 1 | INCR n
INCRBY n {MAX} | DECRBY n {MIN} | INCRBY n {MAX + 1} | INCRBY n {MIN - 1} | DECRBY n {MAX + 1}
SET z 0 | DECRBY z {MIN} | INCRBY z {MIN} | GET z
INCRBY n 1.5 | INCRBY n abc | INCRBY n "" | INCRBY n " 1" | INCRBY n "1 " | INCRBY n +1
INCRBY n 01 | INCRBY n -0 | INCRBY n 1e3 | INCRBY n | INCRBY | INCR | INCR n n | DECRBY n abc
SET a abc | INCR a | DECRBY a 1 | SET a " 1" | INCR a | SET a 1.0 | INCR a | SET a "" | INCR a
SET a 007 | INCR a | SET a +1 | INCR a | SET a -0 | INCR a | SET a {MAX + 1} | INCR a
INCRBY n 1 2 | DECRBY n 1 MIM 0 | INCRBY n abc x | INCRBY n 1 x 2 y
SET a -5 | INCR a | SET a 99999999999999999999999999999 | DECR a | GET a
"""

HASHES = f"""
HSET h f v | HSET h f w g x | HGET h f | HGET h none | HGET none f
HSET h | HSET h f | HSET h f v g | HMSET h f 1 i 2 | HMSET h f | HMSET h f v g
HMGET h f none g i | HMGET none f | HMGET h | HSETNX h f v | HSETNX h new v | HSETNX h f
HLEN h | HLEN none | HLEN | HEXISTS h f | HEXISTS h none | HEXISTS none f
HSTRLEN h f | HSTRLEN h none | HSTRLEN none f | HSTRLEN h
HDEL h none | HDEL h f g none | HDEL none f | HDEL h | HGET h f
HSET d a 1 b 2 | HDEL d a b | EXISTS d | TYPE d | HGETALL none | HKEYS none | HVALS none
HINCRBY c n 5 | HINCRBY c n -7 | HINCRBY c n abc | HINCRBY c n | HINCRBY c n 1 2
HINCRBY c n 1 MIM 0 | HSET c t text | HINCRBY c t 1
HSET c big {MAX} | HINCRBY c big 1 | HINCRBY c big -1 | HSET c small {MIN} | HINCRBY c small -1
HSET c e "" | HINCRBY c e 1 | HSET c s " 1" | HINCRBY c s 1 | HINCRBY c n {MAX + 1} | HGET c n
HGET c | HSET h dup 1 dup 2 | HGET h dup
HSET one f "" | HGETALL one | HKEYS one | HVALS one | HGETALL | hgetall one x
"""

FLOATS = f"""
INCRBYFLOAT n 1.5 | INCRBYFLOAT n 0.1 | GET n | INCRBYFLOAT n -1.6 | INCRBYFLOAT n -0
INCRBYFLOAT n 3 | INCRBYFLOAT n 3.0e3 | INCRBYFLOAT n 1e-3 | INCRBYFLOAT n 1e-18
INCRBYFLOAT n 0x1p4 | INCRBYFLOAT n +2 | INCRBYFLOAT n .5 | INCRBYFLOAT n 5. | INCRBYFLOAT n inf
INCRBYFLOAT n -Infinity | INCRBYFLOAT n nan | INCRBYFLOAT n abc | INCRBYFLOAT n ""
INCRBYFLOAT n " 1" | INCRBYFLOAT n "1 " | INCRBYFLOAT n 1,5 | INCRBYFLOAT n 1e5000
INCRBYFLOAT n 1e-5000 | INCRBYFLOAT n | INCRBYFLOAT n 1 MIN 0 | INCRBYFLOAT | GET n
INCRBYFLOAT n "1\x00" | INCRBYFLOAT n 0x | INCRBYFLOAT n 1e | INCRBYFLOAT n - | INCRBYFLOAT n --1
SET b 1e4000 | INCRBYFLOAT b 1 | STRLEN b | SET b 1e4932 | INCRBYFLOAT b 1e4932 | STRLEN b
SET a abc | INCRBYFLOAT a 1 | INCRBYFLOAT a abc | SET a "" | INCRBYFLOAT a 1 | SET a inf
INCRBYFLOAT a 1 | SET a " 1" | INCRBYFLOAT a 1 | SET a "1 " | INCRBYFLOAT a 1 | SET a 5.0e3
INCRBYFLOAT a 200 | INCR a | SET i {MAX} | INCRBYFLOAT i 1 | INCR i | SET z -1 | INCRBYFLOAT z 1
INCRBYFLOAT z -0.0 | GET z | SET r 10.50 | INCRBYFLOAT r 0.1 | INCRBYFLOAT r 0.00000000000000001
INCRBYFLOAT r 0.000000000000000001 | SET t 3 | INCRBYFLOAT t 0.33333333333333333333
INCRBYFLOAT t 1e17 | INCRBYFLOAT t -1e17 | SET p nan | INCRBYFLOAT p 1 | SET p 0x10
INCRBYFLOAT p 1 | SET p 1e-4940 | INCRBYFLOAT p 1 | HINCRBYFLOAT h f 1.5 | HINCRBYFLOAT h f 0.1
HGET h f | HINCRBYFLOAT h f -1.6 | HINCRBYFLOAT h f 3.0e3 | HINCRBYFLOAT h f abc
HINCRBYFLOAT h f "" | HINCRBYFLOAT h f inf | HINCRBYFLOAT h f nan | HINCRBYFLOAT h f
HINCRBYFLOAT h | HINCRBYFLOAT h f 1 MAX 2 | HGET h f | HSET h t text | HINCRBYFLOAT h t 1
HINCRBYFLOAT h t abc | HSET h e "" | HINCRBYFLOAT h e 1 | HSET h s " 1" | HINCRBYFLOAT h s 1
HSET h big 1e4932 | HINCRBYFLOAT h big 1e4932 | HINCRBYFLOAT none f -0 | INCRBYFLOAT h 1
INCRBYFLOAT h abc | HINCRBYFLOAT a f 1 | HINCRBYFLOAT a f abc | HINCRBY h f 1
"""

RANGES = f"""
SETRANGE k 0 hello | SETRANGE k 6 world | GET k | SETRANGE k 1 E | GET k | SETRANGE k 0 "" | GET k
SETRANGE k 100 "" | STRLEN k | SETRANGE none 5 "" | EXISTS none | SETRANGE new 5 x | GET new
SETRANGE k -1 x | SETRANGE k abc x | SETRANGE k | SETRANGE k 0 | SETRANGE k 0 x y | SETRANGE k 1.5 x
SETRANGE k "" x | SETRANGE k 11 ! | GET k | SETRANGE k {1 << 32} x | SETRANGE k {MAX} x | STRLEN k
SETRANGE none2 {MAX} "" | SETRANGE none2 -1 "" | EXISTS none2 | SETRANGE k {MAX + 1} x
GETRANGE k 0 -1 | GETRANGE k 0 3 | GETRANGE k -3 -1 | GETRANGE k 3 1 | GETRANGE k 100 200
GETRANGE k -100 2 | GETRANGE k 2 100 | GETRANGE k -1 -3 | GETRANGE k -200 -100 | GETRANGE none 0 -1
GETRANGE k 0 0 | GETRANGE k 5 5 | GETRANGE k abc 1 | GETRANGE k 0 abc | GETRANGE k 0 | GETRANGE k
GETRANGE k {MIN} {MAX} | GETRANGE k {MAX} {MIN} | GETRANGE k {MIN} {MIN} | GETRANGE k {MAX} {MAX}
GETRANGE k 0 -100 | GETRANGE k 0 1 2 | GETRANGE k 1.0 2 | SET e "" | GETRANGE e 0 -1
SETRANGE e 0 ""
HSET h f v | SETRANGE h 0 x | SETRANGE h 0 "" | SETRANGE h abc x | GETRANGE h 0 -1 | GETRANGE h a b
"""

TYPES = """
SET s v | HSET h f v | GET h | APPEND h x | STRLEN h | INCR h | DECRBY h 1 | GETSET h x | GETDEL h
SETNX h x | SET h x GET | SET h x NX | SET h x NX GET | TYPE s | TYPE h | TYPE none | MGET s h none
HSET s f v | HGET s f | HSETNX s f v | HMGET s f | HMSET s f v | HGETALL s | HDEL s f
HEXISTS s f | HLEN s | HKEYS s | HVALS s | HINCRBY s f 1 | HSTRLEN s f | HSCAN s 0
EXISTS s h | EXISTS s s none | EXISTS | DEL h | DEL h | EXISTS h | HGET h f
SET h string | TYPE h | UNLINK h | UNLINK h | DEL | UNLINK | TYPE | TYPE a b
INCRBYFLOAT h abc | INCRBYFLOAT h nan | HINCRBYFLOAT s f abc | HINCRBYFLOAT s f nan | HINCRBY s f x
HSET s f | HMSET s f | DECRBY h abc | SETRANGE h x y | SETRANGE h -1 y | GETRANGE h x 1
SET h x BAD
HSET o f v | SET o x | TYPE o | HGET o f | HINCRBY s f abc | INCRBY h2 abc | HSET h2 f v
INCRBY h2 abc
"""

OTHERS = """
HSET h f v | PING | PING hello | PING a b | ECHO hello | ECHO | ECHO a b
SELECT 0 | SELECT abc | SELECT | SELECT -1
NOSUCH | NOSUCH a b | nosuch "a b" c | GE | GETX k | "" | "a b" c
CLIENT | CLIENT NOSUCH | CLIENT SETNAME | CLIENT GETNAME | CLIENT SETNAME me | CLIENT GETNAME
client setname "a b" | CLIENT SETNAME "" | CLIENT GETNAME
CLIENT HELP x | CONFIG HELP x | COMMAND HELP x | PUBSUB HELP x
CONFIG | CONFIG NOSUCH | CONFIG GET | COMMAND NOSUCH | AUTH | AUTH secret | AUTH a b c
HELLO 4 | HELLO abc | HELLO 1 | RESET | CLIENT GETNAME | QUITX | TIME x | DBSIZE x | SCAN | SCAN abc
SCAN 0 COUNT | SCAN 0 COUNT 0 | SCAN 0 COUNT abc | SCAN 0 NOSUCH x | HSCAN | HSCAN h | HSCAN h abc
HSCAN none 0 | HSCAN h 0 COUNT 0 | HSCAN h 0 NOSUCH x | CLIENT ID x | CLIENT KILL
FLUSHDB x | FLUSHDB ASYNC SYNC | FLUSHALL x | FLUSHALL SYNC ASYNC | WATCH | UNWATCH x
PUBSUB | PUBSUB NOSUCH | PUBSUB NUMPAT x | PUBSUB CHANNELS a b | PUBSUB NUMSUB | PUBSUB numpat
PUBSUB CHANNELS none* | PUBSUB NUMSUB a b | PUBLISH | PUBLISH a | PUBLISH a b c | PUBLISH nobody x
"""

HINT = re.compile(rb"\(did you mean [A-Z]+\?\)")  # behind the words of Redis
SCRIPTS = {"strings": STRINGS, "numbers": NUMBERS, "floats": FLOATS, "ranges": RANGES,
           "hashes": HASHES, "types": TYPES, "others": OTHERS}
KEYS_OF_NOTHING = {"NOSUCH", "nosuch", "CLIENT", "client", "CONFIG", "COMMAND", "PING", "ECHO",
                   "SELECT", "AUTH", "HELLO", "SCAN", "", "a b", "FLUSHDB", "FLUSHALL", "PUBSUB",
                   "PUBLISH"}


def commands(script):
    return [shlex.split(command) for line in script.strip().splitlines()
            for command in line.split(" | ")]


@pytest.fixture(scope="module")
def redis(shared_unfenced):
    return shared_unfenced.rig.redis()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def pair(request, redis, unfenced):
    return unfenced.client(proto=request.param), redis.client(proto=request.param)


@pytest.mark.parametrize("script", SCRIPTS)
def test_replies_and_errors_are_those_of_redis(pair, key, script):
    ours, theirs = pair
    differences = []
    for command in commands(SCRIPTS[script]):
        sent = list(command)
        if len(sent) > 1 and sent[0] not in KEYS_OF_NOTHING:
            several = sent[0] in ("MGET", "EXISTS")
            sent[1:] = [f"{key}/{word}" for word in sent[1:]] if several else \
                [f"{key}/{sent[1]}", *sent[2:]]
        ours.ask(*sent), theirs.ask(*sent)
        if HINT.sub(b"", ours.reader.raw) != theirs.reader.raw:
            differences.append(f"{command}: {ours.reader.raw!r}, Redis: {theirs.reader.raw!r}")
    assert not differences, "\n" + "\n".join(differences)


def test_whole_hashes_are_those_of_redis_in_some_order(pair, key):
    ours, theirs = pair
    for client in pair:
        client("HSET", key, *(word for i in range(300) for word in (f"f{i}", f"v{i}")))
    assert sorted(ours("HKEYS", key)) == sorted(theirs("HKEYS", key))
    assert sorted(ours("HVALS", key)) == sorted(theirs("HVALS", key))
    mine, other = ours("HGETALL", key), theirs("HGETALL", key)
    assert type(mine) is type(other)
    assert mapped(mine) == mapped(other) and len(mapped(mine)) == 300


def scan(client, *command, at=1):
    """Return what all pages of SCAN or HSCAN hold, and the number of pages."""
    found, cursor, pages = [], b"0", 0
    while True:
        words = list(command)
        words.insert(at, cursor)
        cursor, page = client(*words)
        found += page
        pages += 1
        assert isinstance(cursor, bytes) and pages < 5000
        if cursor == b"0":
            return found, pages


def test_scan_finds_every_key_once_by_pattern_and_type(pair, key):
    for client in pair:
        for i in range(120):
            client("SET", f"{key}:s{i}", i)
        for i in range(30):
            client("HSET", f"{key}:h{i}", "f", i)
    for options in (("MATCH", key + ":*"), ("MATCH", key + ":s1?"), ("MATCH", key + ":[sh]2"),
                    ("MATCH", key + ":*", "COUNT", 7), ("MATCH", key + ":*", "TYPE", "hash"),
                    ("TYPE", "string", "MATCH", key + ":s*", "COUNT", 1000),
                    ("MATCH", key + ":*", "TYPE", "list"), ("MATCH", "none*")):
        ours, theirs = (scan(client, "SCAN", *options)[0] for client in pair)
        assert sorted(ours) == sorted(set(theirs)), options
    assert scan(pair[0], "SCAN", "COUNT", 10)[1] > 10, "it goes in pages"


def test_hscan_finds_every_field_with_its_value(pair, key):
    for client in pair:
        client("HSET", key, *(word for i in range(700) for word in (f"f{i}", i)))
    for options in ((), ("COUNT", 50), ("MATCH", "f1*"), ("MATCH", "none")):
        pages = [scan(client, "HSCAN", key, *options, at=2)[0] for client in pair]
        assert mapped(pages[0]) == mapped(pages[1]), options


def test_dbsize_counts_keys_and_flushall_and_flushdb_remove_them(rig):
    client = rig.daemon("--unfenced-writes", "allow").client()
    other = rig.redis().client()
    for command in (["DBSIZE"], ["SET", "a", "1"], ["HSET", "h", "f", "v"], ["DBSIZE"],
                    ["SET", "a", "2"], ["DBSIZE"], ["DEL", "a"], ["DBSIZE"], ["HDEL", "h", "f"],
                    ["DBSIZE"], ["SET", "b", "1"], ["FLUSHALL"], ["DBSIZE"], ["EXISTS", "b"],
                    ["SET", "b", "1"], ["FLUSHDB"], ["DBSIZE"], ["SET", "b", "1"],
                    ["FLUSHDB", "ASYNC"], ["DBSIZE"], ["SET", "b", "1"], ["flushall", "sync"],
                    ["DBSIZE"]):
        assert client.ask(*command) == other.ask(*command), command


def test_a_transaction_takes_ping_and_floats_and_ranges_as_redis_does(pair, key):
    ours, theirs = pair
    for command in (["MULTI"], ["PING"], ["INCRBYFLOAT", key, "1.25"], ["PING", "hello"],
                    ["SETRANGE", key, "4", "!"], ["GETRANGE", key, "1", "-1"], ["ping", ""],
                    ["HINCRBYFLOAT", key + "h", "f", "-0.5"], ["EXEC"], ["MULTI"], ["PING"],
                    ["EXEC"], ["MULTI"], ["PING"], ["DISCARD"], ["PING"],
                    ["MULTI"], ["SELECT", "0"], ["ECHO", "hello"], ["select", "0"], ["EXEC"],
                    ["MULTI"], ["ECHO"], ["EXEC"], ["MULTI"], ["SELECT", "0", "1"], ["EXEC"],
                    ["MULTI"], ["PING"], ["EXEC", "x"], ["EXEC"], ["EXEC", "x"], ["PING"],
                    ["MULTI"], ["DISCARD", "x"], ["EXEC"], ["DISCARD", "x"], ["PING"],
                    ["MULTI"], ["MULTI", "x"], ["EXEC"], ["PING"]):
        ours.ask(*command), theirs.ask(*command)
        assert ours.reader.raw == theirs.reader.raw, command


def test_messages_are_published_and_listeners_counted_as_in_redis(pair, redis, unfenced, key):
    """Over RESP3 what a connection publishes to itself comes before the reply."""
    before = [client("PUBSUB", "NUMPAT") for client in pair]
    listeners = [server.client(proto=2) for server in (unfenced, redis)]
    for client in listeners:
        client.send("SUBSCRIBE", key, key + "/b")
        client.read(), client.read()
        client.send("PSUBSCRIBE", key + "*", key + "?b", key + "*")
        for _ in range(3):
            client.read()
    ours, theirs = pair
    for command in (["PUBLISH", key, "one"], ["PUBLISH", key + "/b", ""],
                    ["PUBLISH", key + "x", "3"],
                    ["PUBLISH", "other" + key, "4"], ["PUBLISH", key, b"\x00\r\n\xff"],
                    ["PUBSUB", "CHANNELS", key], ["PUBSUB", "CHANNELS", "no" + key],
                    ["PUBSUB", "NUMSUB", key, key + "/b", "none", key], ["pubsub", "numsub"]):
        ours.ask(*command), theirs.ask(*command)
        assert ours.reader.raw == theirs.reader.raw, command
    assert [client("PUBSUB", "NUMPAT") - count for client, count in zip(pair, before)] == [2, 2]
    channels = [set(client("PUBSUB", "CHANNELS", key + "*")) for client in pair]
    assert channels == [{key.encode(), (key + "/b").encode()}] * 2
    heard = [[client.read() for _ in range(8)] for client in listeners]
    assert sorted(map(repr, heard[0])) == sorted(map(repr, heard[1]))
    assert [b"message", key.encode(), b"one"] in heard[0]
    for client in listeners:
        assert client.ask("PUBLISH", key, "x").code == "ERR", "a listener over RESP2 listens"


def test_who_listens_over_resp3_may_publish_to_itself(unfenced, redis, key):
    raws = []
    for server in (unfenced, redis):
        client = server.client(proto=3)
        client.send("SUBSCRIBE", key)
        client.read()
        client.send("PUBLISH", key, "me")
        raws.append([(client.read(), client.reader.raw)[1] for _ in range(2)])
    assert raws[0] == raws[1]


ARITY = ("GET SET SETNX GETSET GETDEL MGET APPEND STRLEN INCR INCRBY DECR DECRBY DEL UNLINK EXISTS "
         "TYPE SCAN HGET HSET HSETNX HMGET HMSET HGETALL HDEL HEXISTS HLEN HKEYS HVALS HINCRBY "
         "HSTRLEN HSCAN ECHO AUTH SELECT CLIENT CONFIG INCRBYFLOAT HINCRBYFLOAT SETRANGE GETRANGE "
         "FLUSHALL FLUSHDB PUBLISH PUBSUB WATCH UNWATCH PING").split()


def test_command_info_and_count_and_docs_know_the_commands(pair):
    ours, theirs = pair
    count = ours("COMMAND", "COUNT")
    assert isinstance(count, int) and count > len(ARITY)
    assert len(ours("COMMAND")) == count
    for name in ARITY:
        mine, other = ours("COMMAND", "INFO", name)[0], theirs("COMMAND", "INFO", name)[0]
        assert mine[0] == other[0] == name.lower().encode()
        extended = name in ("INCRBY", "DECRBY", "HINCRBY")
        assert mine[1] == (-other[1] if extended else other[1]), f"arity of {name}"
        assert mine[3:6] == other[3:6], f"keys of {name}"
    for name in ("ACQUIRE", "RENEW", "RELEASE", "REVOKE", "LEASE", "LEASES", "FENCED"):
        own = ours("COMMAND", "INFO", name)[0]
        assert own[0] == name.lower().encode() and isinstance(own[1], int)
    assert ours("COMMAND", "INFO", "nosuch") == theirs("COMMAND", "INFO", "nosuch") == [None]
    assert list(mapped(ours("COMMAND", "DOCS", "get"))) == [b"get"]


def test_hello_replies_what_redis_replies_but_for_its_name(pair):
    ours, theirs = pair
    for proto in (2, 3, 2):
        mine, other = ours("HELLO", proto), theirs("HELLO", proto)
        assert type(mine) is type(other)
        mine, other = mapped(mine), mapped(other)
        assert set(mine) >= set(other)
        assert mine[b"proto"] == proto and mine[b"role"] == b"master"
        assert {k: type(mine[k]) for k in other} == {k: type(v) for k, v in other.items()}


@pytest.mark.parametrize("name", [
    "CLIENT", "client", "CONFIG", "COMMAND", "PUBSUB", "ACL", "GUARD"])
def test_help_that_an_error_names_is_lines_as_in_redis(pair, name):
    lines = [client(name, "HELP") for client in pair[:1 if name == "GUARD" else 2]]
    assert {type(line).__name__ for part in lines for line in part} == {"Simple"}
    assert f"{name.upper()} HELP" in lines[0] and len(lines[0]) > 3


def test_info_has_what_clients_look_for(pair):
    ours, theirs = ({line.split(":")[0] for line in client("INFO").decode().splitlines()}
                    for client in pair)
    assert {"cluster_enabled", "master_repl_offset", "role", "loading", "connected_slaves",
            "redis_version", "redis_mode"} <= ours & theirs


def test_time_is_the_time(pair):
    ours, theirs = (client("TIME") for client in pair)
    assert abs(int(ours[0]) - int(theirs[0])) <= 1
    assert 0 <= int(ours[1]) < 1000000


def test_every_expiry_option_of_set_is_refused_and_sets_nothing(unfenced, key):
    client = unfenced.client()
    for options in (("EX", "10"), ("PX", "10000"), ("EXAT", "9999999999"), ("KEEPTTL", "EX", "10"),
                    ("NX", "PX", "10000"), ("px", "1", "nx")):
        client.refused("ERR", "SET", key, "v", *options, text="ACQUIRE")
    assert client("EXISTS", key) == 0


def test_the_recipe_for_a_lock_is_told_of_acquire(client, key):
    client.refused("NOTOKEN", "SET", key, "me", "NX", "PX", "30000",
                   text="SET takes NX, XX and GET; for a lock: ACQUIRE")
    token = client.token(key)
    client.refused("ERR", "FENCED", token, "SET", key, "me", "PX", "30000", "NX", text="ACQUIRE")
    client.refused("NOTOKEN", "SET", key, "PX", text="FENCED")


@pytest.mark.parametrize("name", ["WATCH", "UNWATCH"])
def test_watch_is_refused_and_says_what_to_use(unfenced, key, name):
    client = unfenced.client()
    client.refused("ERR", name, *([key] if name == "WATCH" else []),
                   text=f"^ERR {name} .*ACQUIRE.*FENCED")
    assert client("MULTI") == "OK"
    client.refused("ERR", name, *([key] if name == "WATCH" else []),
                   text="no part of a transaction")
    client.refused("EXECABORT", "EXEC")


def test_the_daemons_own_channels_are_not_published_to(unfenced, key):
    listener, client = unfenced.client(), unfenced.client()
    listener("PSUBSCRIBE", "*")
    for channel in ("stockade:events", "stockade:events:" + key, "stockade:", "stockade:x"):
        client.refused("NOPERM", "PUBLISH", channel, "forged",
                       text="stockade: are the daemon's own")
    assert client("PUBLISH", "stockad:e", key) >= 1
    assert listener.read() == [b"pmessage", b"*", b"stockad:e", key.encode()]


def test_what_is_published_is_bounded(unfenced, key):
    """A larger message would disconnect all who listen."""
    client, listener = unfenced.client(), unfenced.client()
    listener("SUBSCRIBE", key)
    assert client("PUBLISH", key, "x" * (1 << 20)) == 1
    assert len(listener.read()[2]) == 1 << 20
    client.refused("ERR", "PUBLISH", key, "x" * ((1 << 20) + 1), text="1 MiB")
    client.refused("ERR", "PUBLISH", "c" * 1025, "x", text="1024 bytes")
    assert client("PUBLISH", key, "y") == 1
    assert listener.read()[2] == b"y"


def test_publish_comes_after_the_writes_before_it(unfenced, key):
    client, listener, reader = (unfenced.client() for _ in range(3))
    listener("SUBSCRIBE", key)
    for i in range(50):
        client.send_bytes(encode("SET", key, i) + encode("PUBLISH", key, i))
        assert listener.read()[2] == reader("GET", key) == b"%d" % i
        assert [client.read(), client.read()] == ["OK", 1]


def test_floats_and_ranges_are_fenced_and_applied_once(client, token, key):
    assert client("FENCED", token, "ID", "a", "INCRBYFLOAT", key, "2.5") == b"2.5"
    assert client("FENCED", token, "ID", "a", "INCRBYFLOAT", key, "2.5") == b"2.5"
    assert client("FENCED", token, "ID", "b", "SETRANGE", key, 3, "1") == 4
    assert client("FENCED", token, "ID", "b", "SETRANGE", key, 3, "1") == 4
    assert client("FENCED", token, "GETRANGE", key, 0, -1) == b"2.51"
    assert client("RECEIPT", key, token, "a") == [1, b"2.5"]
    client("RELEASE", key, token)
    for write in (("INCRBYFLOAT", key, 1), ("SETRANGE", key, 0, "9"),
                  ("HINCRBYFLOAT", key, "f", 1)):
        client.refused("STALE", "FENCED", token, *write)
    assert client("GETRANGE", key, 0, 10) == b"2.51"


def test_setrange_is_bounded_by_the_size_of_a_value(unfenced, key):
    client = unfenced.client()
    limit = 16 << 20
    assert client("SETRANGE", key, limit - 3, "end") == limit
    for offset in (limit - 2, limit, (1 << 63) - 1):
        client.refused("ERR", "SETRANGE", key, offset, "end", text="maximum allowed size")
    assert client("GETRANGE", key, -4, -1) == b"\0end"
    client("DEL", key)


def test_client_list_shows_the_command_that_each_sent_last(unfenced, redis):
    for server in (unfenced, redis):
        other, client = server.client(), server.client()
        number = other("CLIENT", "ID")

        def shown():
            lines = client("CLIENT", "LIST").decode().splitlines()
            line = next(line for line in lines if f"id={number} " in line)
            return dict(field.split("=", 1) for field in line.split(" "))["cmd"]

        assert shown() == "client|id"
        for command, name in ((("GET", "k"), "get"), (("CONFIG", "GET", "save"), "config|get"),
                              (("MULTI",), "multi"), (("Ping",), "ping"), (("EXEC",), "exec"),
                              (("CLIENT", "SETNAME", "x"), "client|setname"),
                              (("PUBSUB", "NUMPAT"), "pubsub|numpat"),
                              (("COMMAND", "COUNT"), "command|count"),
                              (("PUBLISH", "c", "x"), "publish"), (("GET",), "get")):
            other.ask(*command)
            assert shown() == name
        assert "cmd=client|info " in client("CLIENT", "INFO").decode()
