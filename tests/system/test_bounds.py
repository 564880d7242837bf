# SPDX-License-Identifier: Apache-2.0
"""Every bound of ours has a test at one below, at, and one above.

tests/bounds.toml lists them all, as they stand in the source, each with the test that stands on it
or the reason why none does; a bound without a row fails here. Those that a client meets on the wire
are rows of tables here, and are asked of a real daemon on each store. Those of options are held by
tests/unit/server/options_test.c, which goes over the daemon's own table of options.
"""

import collections
import contextlib
import http.client
import itertools
import json
import re
import tomllib

import pytest

from harness.conversations import CONVERSATIONS, parse
from harness.limits import HANG_SECONDS, REPO, patience
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql")  # they share a server

FOLDERS = "fence", "proxy", "store"  # the rest is tools' and their screens'
# A constant whose name says that it is a bound.
NAME = r"\b((?:[A-Z0-9]+_)*(?:MAX|MIN|LEAST|MOST|LIMIT)(?:_[A-Z0-9]+)*)\b"
NUMBER = r"\(?(\d+)(?: << (\d+)| \* (\d+))?"
NOT_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
TABLE = tomllib.loads((REPO / "tests/bounds.toml").read_text(encoding="utf-8"))

DAY_MS = 24 * 3600 * 1000
NAME_BYTES, ID_BYTES, LOCK_VALUE_BYTES, GLOB_BYTES = 512, 512, 496, 1024
TOKEN_MAX = (1 << 53) - 1
MIB = 1 << 20


def sources():
    """(path, code without comments and texts) of each file."""
    for folder in FOLDERS:
        for path in (REPO / folder).rglob("*.[ch]"):
            yield path.relative_to(REPO), NOT_CODE.sub(" ", path.read_text(encoding="utf-8"))


def in_source():
    """Every bound, as "file NAME"."""
    return {f"{path} {name}" for path, code in sources()
            for name in (re.findall(rf"#define {NAME}[ \t]", code) +
                         re.findall(rf"[{{,]\s*{NAME}\s*=[^=]", code))}


def rows():
    """(what stands on it, "file NAME") for each row of the table."""
    for entry in TABLE["bounds"]:
        for line in entry["of"].strip().splitlines():
            file, *names = line.split()
            for name in names:
                yield entry.get("test") or entry["why"], f"{file} {name}"


def test_each_bound_in_the_source_has_a_row_and_each_row_a_bound():
    listed = collections.Counter(bound for _, bound in rows())
    assert max(listed.values()) == 1, listed.most_common(3)
    new, gone = in_source() - set(listed), set(listed) - in_source()
    assert not new, (f"no row in tests/bounds.toml for {sorted(new)}: write a test at one below, "
                     "at, and one above, and name it there (what clients meet is a row of a table "
                     "of this file); or say there why none is needed")
    assert not gone, f"tests/bounds.toml lists what the source does not have: {sorted(gone)}"


def test_each_test_that_the_table_names_is_there():
    for entry in TABLE["bounds"]:
        assert ("test" in entry) != ("why" in entry), entry
        if "why" in entry:
            assert len(entry["why"].split()) > 5, f"that is no reason: {entry}"
            continue
        text = (REPO / "tests" / entry["file"]).read_text(encoding="utf-8")
        found = re.search(rf"(def |TEST\(){entry['test']}\b", text)
        assert found, f"there is no such test: {entry}"


# What clients meet on the wire.


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def daemon(request, module_rig):
    store = {}
    if request.param == "postgresql":
        database = request.getfixturevalue("postgres").database()
        module_rig.ends.append(database.drop)
        store["store"] = database.uri
    return module_rig.daemon("--lock-keys", "lock:*", "--sql-time-limit", "30000",
                              **store)


@pytest.fixture
def client(daemon):
    client = daemon.client()
    yield client
    client.close()


numbers = itertools.count(1)


class Wire(collections.namedtuple("Wire", "what least most words held", defaults=(False,))):
    """`words(key, n)` is a command in which n is what is bounded. `held`: the lease on `key` is
    held, under the token that takes the place of TOKEN."""

    def ask(self, client, n):
        key = f"bound:{next(numbers)}"
        words = self.words(key, n)
        if self.held:
            token = client.token(key)
            words = [token if word is TOKEN else word for word in words]
        return client.ask(*words)


TOKEN = object()
USED_UP = 999  # a token that nobody has


def text(n):
    return b"x" * n


def many(word, n):
    return [f"{word}{i}" for i in range(n)]


TIMES = [
    Wire("ACQUIRE", 10, DAY_MS, lambda key, n: ["ACQUIRE", key, n]),
    Wire("ACQUIREALL", 10, DAY_MS, lambda key, n: ["ACQUIREALL", n, 1, key]),
    Wire("RENEW", 10, DAY_MS, lambda key, n: ["RENEW", key, TOKEN, n], True),
    Wire("WAIT", 0, DAY_MS, lambda key, n: ["ACQUIRE", key, 60000, "WAIT", n]),
    Wire("SET PX", 10, DAY_MS, lambda key, n: ["SET", "lock:" + key, "v", "NX", "PX", n]),
    Wire("SET EX", 1, DAY_MS // 1000, lambda key, n: ["SET", "lock:" + key, "v", "NX", "EX", n]),
]
TEXTS = [
    *[Wire(f"the name in {words[0]}", 1, NAME_BYTES,
           lambda _, n, words=words: [text(n) if word == "NAME" else word for word in words])
      for words in (("ACQUIRE", "NAME", 60000), ("ACQUIREALL", 60000, 1, "NAME"),
                    ("DEQUEUE", "NAME", "id"), ("RENEW", "NAME", USED_UP, 60000),
                    ("RELEASE", "NAME", USED_UP), ("REVOKE", "NAME"), ("LEASE", "NAME"),
                    ("WAITERS", "NAME"), ("HISTORY", "NAME"), ("RECEIPT", "NAME", USED_UP, "id"),
                    ("FENCED", USED_UP, "SET", "NAME", "v"),
                    ("FENCEDALL", 1, "NAME", USED_UP, "SET", "NAME", "v"), ("GET", "NAME"),
                    ("MGET", "a", "NAME"), ("EXISTS", "NAME"), ("HGET", "NAME", "f"))],
    *[Wire(f"the field of {command}", 1, NAME_BYTES,
           lambda key, n, command=command: ["FENCED", TOKEN, command, key, text(n), 1], True)
      for command in ("HSET", "HMSET", "HSETNX", "HINCRBY", "HINCRBYFLOAT")],
    Wire("a lock key's resource", None, NAME_BYTES,
         lambda _, n: ["SET", b"lock:" + text(n), "v", "NX", "PX", 10]),
    Wire("a lock's value", 1, LOCK_VALUE_BYTES,
         lambda key, n: ["SET", "lock:" + key, text(n), "NX", "PX", 60000]),
    Wire("OWNER", 1, NAME_BYTES, lambda key, n: ["ACQUIRE", key, 60000, "OWNER", text(n)]),
    *[Wire(f"the ID of {words[0]}", 1, ID_BYTES,
           lambda key, n, words=words: [{"KEY": key, "ID!": text(n), "TOKEN": TOKEN}.get(word, word)
                                        for word in words], "TOKEN" in words)
      for words in (("ACQUIRE", "KEY", 60000, "ID", "ID!"),
                    ("ACQUIREALL", 60000, 1, "KEY", "ID", "ID!"),
                    ("ACQUIRE", "KEY", 60000, "QUEUE", "ID", "ID!"), ("DEQUEUE", "KEY", "ID!"),
                    ("RELEASE", "KEY", "TOKEN", "ID", "ID!"),
                    ("FENCED", "TOKEN", "ID", "ID!", "SET", "KEY", "v"),
                    ("FENCEDALL", 1, "KEY", "TOKEN", "ID", "ID!", "SET", "KEY", "v"),
                    ("RECEIPT", "KEY", "TOKEN", "ID!"))],
    *[Wire(f"the pattern of {words[0]}", None, GLOB_BYTES,
           lambda _, n, words=words: [text(n) if word == "GLOB" else word for word in words])
      for words in (("LEASES", "MATCH", "GLOB"), ("REFUSALS", "MATCH", "GLOB"),
                    ("SCAN", 0, "MATCH", "GLOB"), ("HSCAN", "a", 0, "MATCH", "GLOB"),
                    ("CONFIG", "GET", "GLOB"), ("PUBSUB", "CHANNELS", "GLOB"))],
    Wire("a channel", None, 1024, lambda _, n: ["PUBLISH", text(n), "hello"]),
    Wire("a message", None, MIB, lambda _, n: ["PUBLISH", "channel", text(n)]),
    Wire("a connection's name", None, 64, lambda _, n: ["CLIENT", "SETNAME", text(n)]),
    Wire("a name in HELLO", None, 64, lambda _, n: ["HELLO", 2, "SETNAME", text(n)]),
    Wire("a statement", None, MIB, lambda _, n: ["SQL", b"SELECT 1".ljust(n)]),
]
COUNTS = [
    # The last of them is held, so nothing is taken.
    Wire("resources of ACQUIREALL", 1, 256,
         lambda key, n: ["ACQUIREALL", 60000, n, *many(key, n - 1), key], True),
    Wire("tokens of FENCEDALL", 1, 1024,
         lambda key, n: ["FENCEDALL", n, *[word for name in many(key, n)
                                           for word in (name, USED_UP)], "GET", key]),
    Wire("lock keys of EXISTS", 1, 256, lambda key, n: ["EXISTS", *many(f"lock:{key}", n)]),
    Wire("patterns of CONFIG GET", 1, 64, lambda _, n: ["CONFIG", "GET", *many("p", n)]),
    Wire("COUNT of HISTORY", 1, 10000, lambda key, n: ["HISTORY", key, "COUNT", n]),
    Wire("COUNT of WAITERS", 1, 10000, lambda key, n: ["WAITERS", key, "COUNT", n]),
    Wire("COUNT of REFUSALS", 1, 10000, lambda _, n: ["REFUSALS", "COUNT", n]),
    Wire("COUNT of LEASES", 1, None, lambda _, n: ["LEASES", "COUNT", n]),
    Wire("COUNT of SCAN", 1, None, lambda _, n: ["SCAN", 0, "COUNT", n]),
    Wire("COUNT of HSCAN", 1, None, lambda key, n: ["HSCAN", key, 0, "COUNT", n]),
    Wire("words of a command", None, 4095, lambda _, n: ["EXISTS", *many("w", n)]),
    *[Wire(f"the token of {words[0]}", 1, TOKEN_MAX,
           lambda key, n, words=words: [{"KEY": key, "TOKEN": n}.get(word, word) for word in words])
      for words in (("FENCED", "TOKEN", "SET", "KEY", "v"), ("RENEW", "KEY", "TOKEN", 60000),
                    ("FENCEDALL", 1, "KEY", "TOKEN", "SET", "KEY", "v"),
                    ("RELEASE", "KEY", "TOKEN"), ("RECEIPT", "KEY", "TOKEN", "id"))],
]
# PostgreSQL takes a second for so many.
ON_SQLITE = [Wire("parameters of SQL", 1, 32766, lambda _, n: ["SQL", f"SELECT ?{n}", *["p"] * n])]
SCRIPT_TIMES = {60000: (10, DAY_MS), 90000: (10, DAY_MS), 60: (1, DAY_MS // 1000),
                90: (1, DAY_MS // 1000)}


def of_scripts():
    """Each script of a lock library that takes a time, with its least and its longest."""
    for library in CONVERSATIONS.keys() - {"scripts that are refused"}:
        seen = set()
        for words, _ in parse(CONVERSATIONS[library], "KEY"):
            at = next((at for at, word in enumerate(words)
                       if word.isdigit() and int(word) in SCRIPT_TIMES and at > 3), None)
            if words[0] != "EVALSHA" or at is None or words[1] in seen:
                continue
            seen.add(words[1])
            yield Wire(f"{words[1]} of {library}", *SCRIPT_TIMES[int(words[at])],
                       lambda key, n, words=words, at=at:
                       [*(word.replace("KEY", key) for word in words[:at]), n, *words[at + 1:]])


def is_refused(reply):
    """By a bound, and not because ten milliseconds were over on the way."""
    return (isinstance(reply, ReplyError) and reply.code == "ERR" and
            reply.text not in ("ERR", "ERR ERROR") and "ran out" not in reply.text)


def outside(client, table):
    """What is refused at a bound, or is not refused beyond it."""
    wrong = []
    for row in table:
        for bound, beyond in ((row.least, -1), (row.most, 1)):
            if bound is None:
                continue
            reply = row.ask(client, bound)
            if is_refused(reply):
                wrong.append(f"{row.what}, at {bound}: {reply}")
            reply = row.ask(client, bound + beyond)
            if not is_refused(reply):
                wrong.append(f"{row.what}, at {bound + beyond}: {reply!r}")
    return "\n".join(wrong)


def test_what_a_client_sends_is_refused_one_beyond_its_bound(client):
    assert not outside(client, [*TIMES, *TEXTS, *COUNTS, *of_scripts()])


def test_so_is_what_a_client_sends_to_sqlite(local):
    assert not outside(local.client(), ON_SQLITE)


# What the page's parts ask, in the place of {}.
PAGE = [("/api/leases?count={}", 0, 200), ("/api/leases?from={}", 0, 10 ** 9),
        ("/api/refusals?count={}", 0, 200)]


def test_what_the_page_asks_is_refused_one_beyond_its_bound(local):
    for path, least, most in PAGE:
        for n, status in ((least - 1, 400), (least, 200), (most, 200), (most + 1, 400)):
            assert local.get(path.format(n))[0] == status, path.format(n)
    for part, most in (("/api/leases?match=", GLOB_BYTES), ("/api/refusals?match=", GLOB_BYTES)):
        for n, status in ((most, 200), (most + 1, 400)):
            assert local.get(part + "x" * n)[0] == status, (part, n)
    for n, status in ((0, 400), (1, 200), (200, 200), (201, 400)):
        key = f"bound:{next(numbers)}"
        body = {"resource": key, "token": local.client().token(key), "reason": "r" * n}
        assert posted(local, "/api/revoke", body) == status, n


def posted(daemon, path, body):
    page = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS))
    with contextlib.closing(page):
        page.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return page.getresponse().status


EXTEND = "a4e8783852e6b949f9ef3a97212805108459a890"  # redis-py's: "0" behind the time adds it


def test_no_lease_lasts_for_longer_than_a_day_whatever_is_added_to_it(client):
    """The store's clean-up relies on that, and what a lease has left is 32 bits wide."""
    for left_ms, more_ms in ((60000, DAY_MS), (DAY_MS, 10), (DAY_MS, DAY_MS), (10000, 60000)):
        key = f"lock:bound:{next(numbers)}"
        assert client("SET", key, "me", "NX", "PX", left_ms) == "OK"
        assert client("EVALSHA", EXTEND, 1, key, "me", more_ms, 0) == 1
        most = min(left_ms + more_ms, DAY_MS)
        assert most - 30000 < client("PTTL", key) <= most
        assert client.lease(key.removeprefix("lock:"))["ttl_ms"] <= most


def sizes():
    """Lengths at which something may change: those of all numbers in the product's bounds."""
    for _, code in sources():
        for _, number, shift, times in re.findall(rf"{NAME}\s*=?\s*{NUMBER}", code):
            number = (int(number) << int(shift or 0)) * int(times or 1)
            yield from range(max(number - 1, 1), number + 2)
    for bits in range(1, 21):
        yield from ((1 << bits) - 1, 1 << bits, (1 << bits) + 1)


def test_values_of_any_length_are_read_as_they_were_written(client):
    """Strings and fields alike, around each bound that any part of the way may have."""
    text_key, hash_key = (f"bound:{next(numbers)}" for _ in range(2))
    text_token, hash_token = client.token(text_key), client.token(hash_key)
    for size in sorted({size for size in sizes() if size <= MIB + 1}):
        value = (b"%d." % size * (size // 2 + 1))[:size]
        assert client.pipeline([
            ("FENCED", text_token, "SET", text_key, value), ("GET", text_key), ("STRLEN", text_key),
            ("FENCED", hash_token, "HSET", hash_key, size, value), ("HGET", hash_key, size),
            ("HSTRLEN", hash_key, size)]) == ["OK", value, size, 1, value, size], size
