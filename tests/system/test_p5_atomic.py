# SPDX-License-Identifier: Apache-2.0
"""P5 Atomic: a transaction applies whole or not at all, all its tokens current at its commit."""

import contextlib

import pytest
import redis as redis_py

from harness.limits import HANG_SECONDS, patience
from harness.maintenance import query
from harness.resp import Closed, ReplyError

BASKET = 50


def basket(client, key, count):
    """Make resources with a stock of 10 each; return their tokens."""
    tokens = {f"{key}:{i}": client.token(f"{key}:{i}") for i in range(count)}
    for name, token in tokens.items():
        client.fenced(token, "SET", name, 10)
    return tokens


def sale(tokens):
    return [("FENCED", token, "DECRBY", name, 1, "MIN", 0) for name, token in tokens.items()]


def stock(client, tokens):
    return [int(value) for value in client("MGET", *tokens)]


def test_a_basket_of_50_resources_is_sold_whole(client, key):
    tokens = basket(client, key, BASKET)
    client.multi(*sale(tokens))
    assert client("EXEC") == [9] * BASKET
    assert stock(client, tokens) == [9] * BASKET


@pytest.mark.parametrize("position", [0, 24, 49])
def test_one_token_among_50_that_is_stale_by_the_commit_changes_nothing(daemon, client, key,
                                                                       position):
    tokens = basket(client, key, BASKET)
    client.multi(*sale(tokens))
    stale, other = f"{key}:{position}", daemon.client()
    other("REVOKE", stale)  # between the queueing and the EXEC
    assert other.token(stale) > tokens[stale]
    client.refused("STALE", "EXEC", text=stale)
    assert stock(client, tokens) == [10] * BASKET


@pytest.mark.parametrize("position", [0, 24, 49])
def test_a_command_that_fails_gives_its_own_error_and_nothing_is_applied(client, key, position):
    tokens = basket(client, key, BASKET)
    sold_out = f"{key}:{position}"
    client.fenced(tokens[sold_out], "SET", sold_out, 0)
    client.multi(*sale(tokens))
    client.refused("RANGE", "EXEC")
    assert stock(client, tokens) == [0 if i == position else 10 for i in range(BASKET)]


def test_other_clients_see_all_of_a_transaction_or_nothing(daemon, key):
    writer, reader = daemon.client(), daemon.client()
    tokens = basket(writer, key, 8)
    for round_ in range(100):
        for command in [("MULTI",), *sale(tokens), ("EXEC",)]:
            writer.send(*command)
        seen = set(stock(reader, tokens))
        assert len(seen) == 1, seen
        replies = [writer.read() for _ in range(len(tokens) + 2)]
        if round_ < 10:
            assert replies[-1] == [9 - round_] * 8
        else:
            assert replies[-1].code == "RANGE"


def test_overflow_and_wrong_types_undo_the_rest(client, token, key):
    client.fenced(token, "SET", key, (1 << 63) - 1)
    for last, code in ((("INCR", key), "ERR"), (("HSET", key, "f", 1), "WRONGTYPE")):
        client.multi(("FENCED", token, "APPEND", key, "7"),
                     ("FENCED", token, "SET", key, (1 << 63) - 1), ("FENCED", token, *last))
        client.refused(code, "EXEC")
        assert client("GET", key) == b"9223372036854775807"


def test_a_transactions_size_is_bounded(client, token, key):
    client("MULTI")
    replies = client.pipeline([("FENCED", token, "SET", key, "x" * (1 << 20))] * 20)
    assert replies[0] == "QUEUED" and isinstance(replies[-1], ReplyError)
    client.refused("EXECABORT", "EXEC")
    assert client("GET", key) is None


def test_a_connection_that_goes_before_exec_leaves_nothing(daemon, client, token, key):
    client.multi(("FENCED", token, "SET", key, "x"))
    client.reset()
    assert daemon.client()("GET", key) is None


def test_redis_py_runs_a_transaction_with_its_own_pipeline(daemon, token, key):
    host, port = daemon.address
    with redis_py.Redis(host=host, port=port, socket_timeout=patience(HANG_SECONDS)) as ours:
        pipe = ours.pipeline(transaction=True)
        pipe.execute_command("FENCED", token, "SET", key, 5)
        pipe.execute_command("FENCED", token, "INCRBY", key, 2)
        pipe.get(key)
        assert pipe.execute() == [b"OK", 7, b"7"]


def crash_at(rig, order, number):
    """Kill a daemon in the middle of a transaction with an ID, and start another. Return whether
    the transaction is there."""
    daemon = rig.faulty_daemon()
    client = daemon.client()
    tokens = basket(client, number, 3)
    names = list(tokens)
    commands = [("MULTI",), *(("FENCED", tokens[name], "ID", f"sale {number}", "DECRBY", name, 1,
                               "MIN", 0) for name in names),
                ("FENCED", tokens[names[0]], "APPEND", names[0], "0"), ("EXEC",)]
    rig.faults.order(order)
    client.send_all(commands)
    acknowledged = False
    with contextlib.suppress(Closed):
        replies = [client.read() for _ in commands]
        acknowledged = replies[-1] == [9, 9, 9, 2]
        assert acknowledged, replies
    daemon.close_clients()
    daemon.kill()
    rig.faults.clear()
    daemon = rig.daemon()
    client = daemon.client()
    values = client("MGET", *names)
    receipts = [client("RECEIPT", name, tokens[name], f"sale {number}") for name in names]
    assert values in ([b"10"] * 3, [b"90", b"9", b"9"]), values
    applied = values[1] == b"9"
    assert receipts == [[1, [9, 9, 9, 2]] if applied else None] * 3, (values, receipts)
    assert applied or not acknowledged
    # The repeat brings it to the same end, whatever happened.
    assert client.pipeline(commands)[-1] == [9, 9, 9, 2]
    assert client("MGET", *names) == [b"90", b"9", b"9"]
    daemon.stop()
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]
    return applied


@pytest.mark.sqlite
def test_a_crash_between_any_two_steps_leaves_all_or_nothing_and_receipts_agree_50_times(rig):
    outcomes = [crash_at(rig, f"write kill:{n} -wal", n) for n in range(1, 46)]
    outcomes += [crash_at(rig, f"sync kill:{n}", 100 + n) for n in range(1, 6)]
    assert not outcomes[0], "a crash before the first write leaves nothing"
    assert True in outcomes, "a crash behind the last write leaves all"
