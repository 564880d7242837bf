# SPDX-License-Identifier: Apache-2.0
"""HSCAN of large hashes, as clients iterate: all of it, in pages, whatever the names and sizes."""

import pytest

SAFE_INTEGER_MAX = (1 << 53) - 1


def pages(client, key, *options):
    cursor = b"0"
    while True:
        cursor, page = client("HSCAN", key, cursor, *options)
        assert int(cursor) <= SAFE_INTEGER_MAX
        yield dict(zip(page[::2], page[1::2]))
        if cursor == b"0":
            return


def fill(client, key, fields, value):
    token = client.token(key)
    for at in range(0, fields, 500):
        words = [word for i in range(at, min(at + 500, fields))
                 for word in (f"order:2026-11-27T12:00:{i:06}", value)]
        client.fenced(token, "HSET", key, *words)
    return token


def test_fields_that_begin_alike_come_in_pages(client, key):
    fill(client, key, 1200, "x")
    found = {}
    for page in pages(client, key, "COUNT", 50):
        assert len(page) <= 50 and not set(page) & set(found)
        found.update(page)
    assert len(found) == 1200


@pytest.mark.slow
def test_what_is_too_large_for_one_reply_can_be_listed(client, key):
    token = client.token(key)
    for i in range(72):
        client.fenced(token, "HSET", key, f"order:2026-11-27:{i:03}", "x" * (1 << 20))
    client.refused("ERR", "HGETALL", key)
    assert len({field for page in pages(client, key) for field in page}) == 72
