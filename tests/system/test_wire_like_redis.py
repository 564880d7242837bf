# SPDX-License-Identifier: Apache-2.0
"""Data commands answer as Redis does: the same scripts run on both, and the bytes are compared.

The daemon runs with --unfenced-writes allow. Where the two differ on purpose (names of 0 or over
512 bytes, writes to several keys, expiry), other files test what is right.
"""

import shlex

import pytest

from harness.resp import ReplyError

MAX = (1 << 63) - 1
MIN = -(1 << 63)

STRINGS = """
GET k | SET k v | GET k | SET k | GET | GET k k | STRLEN k | APPEND k w | APPEND n w | STRLEN n
SET k v NX | SET x v NX | SET k v XX | SET y v XX | SET k 2 GET | SET z 2 GET | SET z 3 NX GET
SET new 3 NX GET | SET k 4 XX GET | SET none 4 XX GET | SET k v NX XX | SET k v NX XX GET
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
HINCRBY c n 5 | HINCRBY c n -7 | HINCRBY c n abc | HINCRBY c n | HSET c t text | HINCRBY c t 1
HSET c big {MAX} | HINCRBY c big 1 | HINCRBY c big -1 | HSET c small {MIN} | HINCRBY c small -1
HSET c e "" | HINCRBY c e 1 | HSET c s " 1" | HINCRBY c s 1 | HINCRBY c n {MAX + 1} | HGET c n
HGET c | HSET h dup 1 dup 2 | HGET h dup
HSET one f "" | HGETALL one | HKEYS one | HVALS one | HGETALL | hgetall one x
"""

TYPES = """
SET s v | HSET h f v | GET h | APPEND h x | STRLEN h | INCR h | DECRBY h 1 | GETSET h x | GETDEL h
SETNX h x | SET h x GET | SET h x NX | SET h x NX GET | TYPE s | TYPE h | TYPE none | MGET s h none
HSET s f v | HGET s f | HSETNX s f v | HMGET s f | HMSET s f v | HGETALL s | HDEL s f
HEXISTS s f | HLEN s | HKEYS s | HVALS s | HINCRBY s f 1 | HSTRLEN s f | HSCAN s 0
EXISTS s h | EXISTS s s none | EXISTS | DEL h | DEL h | EXISTS h | HGET h f
SET h string | TYPE h | UNLINK h | UNLINK h | DEL | UNLINK | TYPE | TYPE a b
HSET o f v | SET o x | TYPE o | HGET o f | HINCRBY s f abc | INCRBY h2 abc | HSET h2 f v
INCRBY h2 abc
"""

OTHERS = """
HSET h f v | PING | PING hello | PING a b | ECHO hello | ECHO | ECHO a b
SELECT 0 | SELECT abc | SELECT | SELECT -1
NOSUCH | NOSUCH a b | nosuch "a b" c | GE | GETX k | "" | "a b" c
CLIENT | CLIENT NOSUCH | CLIENT SETNAME | CLIENT GETNAME | CLIENT SETNAME me | CLIENT GETNAME
client setname "a b" | CLIENT SETNAME "" | CLIENT GETNAME
CONFIG | CONFIG NOSUCH | CONFIG GET | COMMAND NOSUCH | AUTH | AUTH secret | AUTH a b c
HELLO 4 | HELLO abc | HELLO 1 | RESET | CLIENT GETNAME | QUITX | TIME x | DBSIZE x | SCAN | SCAN abc
SCAN 0 COUNT | SCAN 0 COUNT 0 | SCAN 0 COUNT abc | SCAN 0 NOSUCH x | HSCAN | HSCAN h | HSCAN h abc
HSCAN none 0 | HSCAN h 0 COUNT 0 | HSCAN h 0 NOSUCH x | CLIENT ID x | CLIENT KILL
"""

SCRIPTS = {"strings": STRINGS, "numbers": NUMBERS, "hashes": HASHES, "types": TYPES,
           "others": OTHERS}
KEYS_OF_NOTHING = {"NOSUCH", "nosuch", "CLIENT", "client", "CONFIG", "COMMAND", "PING", "ECHO",
                   "SELECT", "AUTH", "HELLO", "SCAN", "", "a b"}


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
        if ours.reader.raw != theirs.reader.raw:
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
    if isinstance(mine, list):
        mine, other = (dict(zip(reply[::2], reply[1::2])) for reply in (mine, other))
    assert mine == other and len(mine) == 300


def scan(client, *command, at=1):
    """All pages of SCAN or HSCAN, with the number of pages."""
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
        ours, theirs = (dict(zip(page[::2], page[1::2])) for page in pages)
        assert ours == theirs, options


def test_dbsize_counts_keys_and_flushall_removes_them(rig):
    client = rig.daemon("--unfenced-writes", "allow").client()
    other = rig.redis().client()
    for command in (["DBSIZE"], ["SET", "a", "1"], ["HSET", "h", "f", "v"], ["DBSIZE"],
                    ["SET", "a", "2"], ["DBSIZE"], ["DEL", "a"], ["DBSIZE"], ["HDEL", "h", "f"],
                    ["DBSIZE"], ["SET", "b", "1"], ["FLUSHALL"], ["DBSIZE"], ["EXISTS", "b"]):
        assert client.ask(*command) == other.ask(*command), command


ARITY = ("GET SET SETNX GETSET GETDEL MGET APPEND STRLEN INCR INCRBY DECR DECRBY DEL UNLINK EXISTS "
         "TYPE SCAN HGET HSET HSETNX HMGET HMSET HGETALL HDEL HEXISTS HLEN HKEYS HVALS HINCRBY "
         "HSTRLEN HSCAN ECHO AUTH SELECT CLIENT CONFIG").split()


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
    assert ours("COMMAND", "INFO", "nosuch") == theirs("COMMAND", "INFO", "nosuch") == [None]
    docs = ours("COMMAND", "DOCS", "get")
    docs = docs if isinstance(docs, dict) else dict(zip(docs[::2], docs[1::2]))
    assert list(docs) == [b"get"]


@pytest.mark.parametrize("name", ["ACQUIRE", "RENEW", "RELEASE", "REVOKE", "LEASE", "LEASES",
                                  "FENCED"])
def test_command_info_knows_our_own_commands(unfenced, name):
    entry = unfenced.client()("COMMAND", "INFO", name)[0]
    assert entry[0] == name.lower().encode() and isinstance(entry[1], int)


def test_hello_replies_what_redis_replies_but_for_its_name(pair):
    ours, theirs = pair
    for proto in (2, 3, 2):
        mine, other = ours("HELLO", proto), theirs("HELLO", proto)
        assert type(mine) is type(other)
        if isinstance(mine, list):
            mine, other = (dict(zip(reply[::2], reply[1::2])) for reply in (mine, other))
        assert set(mine) >= set(other)
        assert mine[b"proto"] == proto and mine[b"role"] == b"master"
        assert {k: type(mine[k]) for k in other} == {k: type(v) for k, v in other.items()}


def test_time_is_the_time(pair):
    ours, theirs = (client("TIME") for client in pair)
    assert abs(int(ours[0]) - int(theirs[0])) <= 1
    assert 0 <= int(ours[1]) < 1000000


def test_every_expiry_option_of_set_is_refused_and_sets_nothing(unfenced, key):
    client = unfenced.client()
    for options in (("EX", "10"), ("PX", "10000"), ("EXAT", "9999999999"), ("KEEPTTL",)):
        reply = client.ask("SET", key, "v", *options)
        assert isinstance(reply, ReplyError) and reply.code == "ERR", (options, reply)
    assert client("EXISTS", key) == 0
