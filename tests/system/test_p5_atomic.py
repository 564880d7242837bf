# SPDX-License-Identifier: Apache-2.0
"""P5 Atomic: a transaction applies whole or not at all, all its tokens current at its commit."""

import sqlite3

import pytest

from harness.limits import patience
from harness.resp import Closed, ReplyError, encode

BASKET = 50


def begin(client, *commands):
    assert client("MULTI") == "OK"
    for command in commands:
        assert client(*command) == "QUEUED"


def basket(client, key, count):
    """Resources with a stock of 10 each, and their tokens."""
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
    begin(client, *sale(tokens))
    assert client("EXEC") == [9] * BASKET
    assert stock(client, tokens) == [9] * BASKET


@pytest.mark.parametrize("position", [0, 24, 49])
def test_one_stale_token_among_50_changes_nothing(daemon, client, key, position):
    tokens = basket(client, key, BASKET)
    begin(client, *sale(tokens))
    stale = f"{key}:{position}"
    daemon.client()("REVOKE", stale)  # between the queueing and the EXEC
    client.refused("STALE", "EXEC", text=stale)
    assert stock(client, tokens) == [10] * BASKET


@pytest.mark.parametrize("position", [0, 24, 49])
def test_a_command_that_fails_gives_its_own_error_and_nothing_is_applied(client, key, position):
    tokens = basket(client, key, BASKET)
    sold_out = f"{key}:{position}"
    client.fenced(tokens[sold_out], "SET", sold_out, 0)
    begin(client, *sale(tokens))
    client.refused("RANGE", "EXEC")
    assert stock(client, tokens) == [0 if i == position else 10 for i in range(BASKET)]


def test_a_new_grant_between_queueing_and_exec_refuses_the_old_holder(daemon, key):
    client, other = daemon.client(), daemon.client()
    token = client.token(key)
    begin(client, ("FENCED", token, "SET", key, "mine"))
    other("REVOKE", key)
    assert other.token(key) > token
    client.refused("STALE", "EXEC")
    assert client("GET", key) is None


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
        begin(client, ("FENCED", token, "APPEND", key, "7"), ("FENCED", token, "SET", key,
                                                              (1 << 63) - 1),
              ("FENCED", token, *last))
        client.refused(code, "EXEC")
        assert client("GET", key) == b"9223372036854775807"


def test_a_transactions_size_is_bounded(local, key):
    client = local.client()
    token = client.token(key)
    client("MULTI")
    replies = client.pipeline([("FENCED", token, "SET", key, "x" * (1 << 20))] * 20)
    assert replies[0] == "QUEUED" and isinstance(replies[-1], ReplyError)
    client.refused("EXECABORT", "EXEC")
    assert client("GET", key) is None


def test_a_connection_that_goes_before_exec_leaves_nothing(daemon, key):
    client, other = daemon.client(), daemon.client()
    token = client.token(key)
    begin(client, ("FENCED", token, "SET", key, "x"))
    client.reset()
    assert other("GET", key) is None


def test_redis_py_runs_a_transaction_with_its_own_pipeline(daemon, key):
    import redis
    host, port = daemon.address
    ours = redis.Redis(host=host, port=port, socket_timeout=patience(10))
    token = daemon.client().token(key)
    pipe = ours.pipeline(transaction=True)
    pipe.execute_command("FENCED", token, "SET", key, 5)
    pipe.execute_command("FENCED", token, "INCRBY", key, 2)
    pipe.get(key)
    assert pipe.execute() == [b"OK", 7, b"7"]
    ours.close()


def crash_at(rig, order, number):
    """A daemon that is killed in the middle of a transaction with an ID; then another one. True
    where the transaction is there."""
    daemon = rig.faulty_daemon()
    client = daemon.client()
    names = [f"{number}:{i}" for i in range(3)]
    tokens = {name: client.token(name) for name in names}
    for name, token in tokens.items():
        client.fenced(token, "SET", name, 10)
    commands = [("MULTI",)]
    commands += [("FENCED", tokens[name], "ID", f"sale {number}", "DECRBY", name, 1, "MIN", 0)
                 for name in names]
    commands += [("FENCED", tokens[names[0]], "APPEND", names[0], "0"), ("EXEC",)]
    rig.faults.order(order)
    client.send_bytes(b"".join(encode(*command) for command in commands))
    acknowledged = False
    try:
        replies = [client.read() for _ in commands]
        acknowledged = replies[-1] == [9, 9, 9, 2]
        assert acknowledged, replies
    except Closed:
        pass
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
    with sqlite3.connect(rig.store) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return applied


def test_a_crash_between_any_two_steps_leaves_all_or_nothing_and_receipts_agree_50_times(rig):
    outcomes = [crash_at(rig, f"write kill:{n} -wal", n) for n in range(1, 46)]
    outcomes += [crash_at(rig, f"sync kill:{n}", 100 + n) for n in range(1, 6)]
    assert not outcomes[0], "a crash before the first write leaves nothing"
    assert True in outcomes, "a crash behind the last write leaves all"
