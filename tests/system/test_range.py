# SPDX-License-Identifier: Apache-2.0
"""INCRBY, DECRBY and HINCRBY with MIN and MAX: "sell one if there is one" is one command."""

import pytest

from harness.resp import ReplyError
from harness.threads import at_once


@pytest.fixture
def stock(client, token, key):
    """Try a command on a key that holds 3; return (reply or error code, the value then)."""
    def attempt(name, amount, *options):
        client.fenced(token, "DEL", key)
        if name == "HINCRBY":
            client.fenced(token, "HSET", key, "f", 3)
            reply = client.ask("FENCED", token, name, key, "f", amount, *options)
            value = client("HGET", key, "f")
        else:
            client.fenced(token, "SET", key, 3)
            reply = client.ask("FENCED", token, name, key, amount, *options)
            value = client("GET", key)
        return (reply.code if isinstance(reply, ReplyError) else reply), int(value)

    return attempt


@pytest.mark.parametrize("name", ["INCRBY", "HINCRBY"])
def test_a_result_within_min_and_max_is_stored_and_one_outside_is_range(stock, name):
    assert stock(name, -3, "MIN", 0) == (0, 0)
    assert stock(name, -4, "MIN", 0) == ("RANGE", 3)
    assert stock(name, 2, "MAX", 5) == (5, 5)
    assert stock(name, 3, "MAX", 5) == ("RANGE", 3)
    assert stock(name, 3, "MIN", 0, "MAX", 5) == ("RANGE", 3)
    assert stock(name, -4, "MAX", 5, "MIN", 0) == ("RANGE", 3)
    assert stock(name, 1, "max", 5, "min", 0) == (4, 4)
    assert stock(name, -10, "MIN", -7) == (-7, -7)
    assert stock(name, 0, "MIN", 3, "MAX", 3) == (3, 3)
    assert stock(name, 1, "MAX", (1 << 63) - 1) == (4, 4)
    assert stock(name, -1, "MIN", -(1 << 63)) == (2, 2)


def test_range_says_what_is_there_and_which_bound_it_is(client, token, key):
    client.fenced(token, "SET", key, 3)
    client.refused("RANGE", "FENCED", token, "DECRBY", key, 5, "MIN", 0,
                   text="3 would become -2, less than MIN 0; nothing was changed")
    client.refused("RANGE", "FENCED", token, "INCRBY", key, 5, "MIN", 0, "MAX", 7,
                   text="3 would become 8, more than MAX 7; nothing was changed")


def test_decrby_takes_min_and_max_too(stock):
    assert stock("DECRBY", 3, "MIN", 0) == (0, 0)
    assert stock("DECRBY", 4, "MIN", 0) == ("RANGE", 3)
    assert stock("DECRBY", -3, "MAX", 5) == ("RANGE", 3)


@pytest.mark.parametrize("options", [
    ("MIN",), ("MIN", "x"), ("MAX", ""), ("MIN", "1.5"), ("MID", 1), ("MIN", 0, "MAX"),
    ("MIN", 1 << 63), (5,)], ids=str)
def test_bad_bounds_are_errors_and_change_nothing(stock, options):
    for name in ("INCRBY", "DECRBY", "HINCRBY"):
        assert stock(name, 1, *options) == ("ERR", 3)


def test_overflow_stays_the_error_of_redis_whatever_the_bounds(client, token, key):
    client.fenced(token, "SET", key, (1 << 63) - 1)
    client.refused("ERR", "FENCED", token, "INCRBY", key, 1, "MIN", 0,
                   text="increment or decrement would overflow")
    assert client("GET", key) == b"%d" % ((1 << 63) - 1)


def test_what_does_not_exist_counts_as_0(client, token, key):
    client.refused("RANGE", "FENCED", token, "INCRBY", key, -1, "MIN", 0)
    assert client("EXISTS", key) == 0, "a refused write leaves no trace"
    client.refused("RANGE", "FENCED", token, "HINCRBY", key, "f", -1, "MIN", 0)
    assert client("EXISTS", key) == 0
    assert client.fenced(token, "HINCRBY", key, "f", 1, "MIN", 0) == 1


def test_range_fails_alone_in_a_pipeline(client, token, key):
    client.fenced(token, "SET", key, 5)
    replies = client.pipeline([("FENCED", token, "DECRBY", key, 1, "MIN", 0)] * 8)
    codes = [reply.code if isinstance(reply, ReplyError) else reply for reply in replies]
    assert codes == [4, 3, 2, 1, 0, "RANGE", "RANGE", "RANGE"]


def test_bounds_hold_for_bare_writes_by_many_at_once(unfenced, key):
    """100 pieces, 8 sellers that ask for 200: exactly 100 are sold."""
    clients = [unfenced.client() for _ in range(8)]
    clients[0]("SET", key, 100)
    replies = sum(at_once(lambda client: client.pipeline([("DECRBY", key, 1, "MIN", 0)] * 25),
                          clients), [])
    left = [reply for reply in replies if not isinstance(reply, ReplyError)]
    assert sorted(left) == list(range(100))
    assert {reply.code for reply in replies if isinstance(reply, ReplyError)} == {"RANGE"}
    assert clients[0]("GET", key) == b"0"
