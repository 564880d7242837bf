# SPDX-License-Identifier: Apache-2.0
"""Bounds of the store in PostgreSQL that no client is told of: what is one below, at, and one above
each is whole."""

import sqlite3

import pytest

from harness.resp import mapped

pytestmark = pytest.mark.xdist_group("postgresql_bounds")

ALONG_MAX, PAGE, ROUNDS_MAX, BLOCK_BYTES, PIECE_BYTES = 8192, 1000, 8, 65536, 65536
PAGE_BYTES = 1 << 20
LIKE_IT_MAX = 100


def around(bound):
    return bound - 1, bound, bound + 1


@pytest.fixture
def client(rig, database):
    return rig.daemon("--unfenced-writes", "allow", store=database.uri).client()


def test_values_are_whole_whether_they_come_along_with_their_row_or_not(client):
    """A string, a field, and the reply in a receipt: to a read, and to a write that looks."""
    token = client.token("fenced")
    for size in around(ALONG_MAX):
        value = b"v" * size
        client("SET", "s", value)
        assert client("GET", "s") == value and client("STRLEN", "s") == size
        client("HSET", "h", "f", value)
        assert client("HGET", "h", "f") == value and client("HMGET", "h", "f") == [value]
        assert client("HSETNX", "h", "f", "other") == 0
        for length in {size, size - len(b"$8192\r\n\r\n")}:  # the reply's own bytes
            value = b"v" * length
            client.fenced(token, "SET", "fenced", value)
            for _ in range(2):
                assert client("FENCED", token, "ID", length, "GETSET", "fenced", "x") == value


def walk(client, command, *words):
    """All that SCAN gives."""
    found, cursor = [], b"0"
    while True:
        cursor, names = client(command, *words, cursor, "COUNT", 100)
        found += names
        if cursor == b"0":
            return found


def test_lists_are_whole_around_a_page(client, database):
    """Of leases, of keys, of fields and of rows by SQL. The names are made in one go, so their ids
    come from more than one block."""
    for count in around(PAGE):
        first = 0 if count == PAGE - 1 else count - 1
        names = [f"n{number}" for number in range(first, count)]
        client.send_all([("ACQUIRE", name, 600000) for name in names])
        tokens = [client.read()[0] for _ in names]
        client.send_all([("FENCED", token, "SET", name, "1")
                         for name, token in zip(names, tokens)])
        assert [client.read() for _ in names] == ["OK"] * len(names)
        assert client("DBSIZE") == count and len(set(walk(client, "SCAN"))) == count
        assert database.sql("SELECT count(DISTINCT id), count(*) FROM stockade.resource") == [
            (count, count)]
        assert len(client("LEASES")) == count
    for count in around(PAGE):
        key = f"hash:{count}"
        fields = [word for number in range(count) for word in (f"f{number:04}", number)]
        assert client("HSET", key, *fields) == count
        assert client("HLEN", key) == count and len(mapped(client("HGETALL", key))) == count
        assert len(client("HKEYS", key)) == count
        rows = mapped(client("SQL", f"SELECT n FROM generate_series(1, {count}) AS n"))[b"rows"]
        assert len(rows) == count
        assert client("DEL", key) == 1


def test_a_hash_is_whole_around_the_bytes_of_a_page(client):
    for first in around(PAGE_BYTES):
        client("HSET", "hash", "a", "x" * first, "b", "y", "c", "z")
        assert client("HKEYS", "hash") == [b"a", b"b", b"c"]
        assert mapped(client("HGETALL", "hash")) == {b"a": b"x" * first, b"b": b"y", b"c": b"z"}
        assert set(walk(client, "HSCAN", "hash")) >= {b"a", b"b", b"c"}


def test_what_takes_many_looks_is_done_as_what_takes_few(client):
    """Each field but the first wants another look."""
    for count in around(ROUNDS_MAX) + around(2 * ROUNDS_MAX):
        fields = [f"f{number}" for number in range(count)]
        client("HSET", "h", *[word for field in fields for word in (field, field)])
        assert client("HMGET", "h", *fields) == [field.encode() for field in fields]
        assert client("HDEL", "h", *fields, "none") == count
        assert client("EXISTS", "h") == 0


def test_values_are_whole_whatever_memory_and_pieces_they_are_moved_in(rig, client, database,
                                                                       maintenance):
    values = {f"v{size}": bytes([size % 251]) * size for size in
              {*around(BLOCK_BYTES), *around(PIECE_BYTES), PIECE_BYTES // 2}}
    for key, value in values.items():
        client("SET", key, value)
        assert client("GETSET", key, value) == value and client("GET", key) == value
    copy = rig.folder / "copy.db"
    done = maintenance.run("backup", copy, "--store", database.uri)
    assert done.returncode == 0, done.stderr
    client("FLUSHALL")
    done = maintenance.run("restore", copy, "--store", database.uri)
    assert done.returncode == 0, done.stderr
    for key, value in values.items():
        assert database.sql("SELECT value FROM stockade.resource WHERE name = %s",
                            key.encode())[0][0].tobytes() == value
    with sqlite3.connect(copy) as link:
        assert link.execute("SELECT count(*) FROM stockade_string").fetchone() == (len(values),)


def test_check_counts_what_it_does_not_list(client, database, maintenance):
    database.damaged = True
    client("SET", "r", "1")
    damaged = 0
    for count in *around(LIKE_IT_MAX), LIKE_IT_MAX + 7:
        database.sql("INSERT INTO stockade.field SELECT i, 'f', 'v' FROM generate_series(%s::int8,"
                     " %s) AS i", 1000000 + damaged, 1000000 + count - 1)
        damaged = count
        said = maintenance.run("check", "--store", database.uri).stdout
        assert said.count("fields of a resource that is not there") == min(count, LIKE_IT_MAX)
        more = count - LIKE_IT_MAX
        assert (f" {more} more like the last one" in said) == (more > 0), said
        assert f"{count} problem" in said or f"{count} finding" in said, said[-300:]
