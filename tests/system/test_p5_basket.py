# SPDX-License-Identifier: Apache-2.0
"""P5 Atomic, with SQL: a basket's stock and its order row come together or not at all."""

import itertools

import pytest

from harness.resp import ReplyError, encode

numbers = itertools.count(1)


@pytest.fixture
def orders(daemon):
    """A table of the test's own."""
    name = f"orders_{next(numbers)}"
    daemon.client()("SQL", f"CREATE TABLE {name}(id TEXT PRIMARY KEY, sku TEXT, n INTEGER)")
    return name


def rows(client, table):
    reply = client("SQL", f"SELECT * FROM {table}")
    return dict(zip(reply[::2], reply[1::2]))[b"rows"]


def buy(client, tokens, table, order, last=None):
    """Queues one of each and an order row for each; then `last`; EXEC's reply, errors as values."""
    commands = [("MULTI",)]
    for sku, token in tokens.items():
        commands.append(("FENCED", token, "ID", order, "DECRBY", sku, 1, "MIN", 0))
    pairs = [word for pair in tokens.items() for word in pair]
    for sku in tokens:
        commands.append(("FENCEDALL", len(tokens), *pairs, "SQL",
                         f"INSERT INTO {table} VALUES(?, ?, 1)", f"{order}/{sku}", sku))
    if last:
        commands.append(last)
    replies = client.pipeline([*commands, ("EXEC",)])
    assert replies[:-1] == ["OK"] + ["QUEUED"] * (len(commands) - 1), replies
    return replies[-1]


def stocked(client, key, *stocks):
    tokens = {}
    for i, stock in enumerate(stocks):
        sku = f"{key}:{i}"
        tokens[sku] = client.token(sku)
        client.fenced(tokens[sku], "SET", sku, stock)
    return tokens


def test_stock_and_order_rows_come_together(client, key, orders):
    tokens = stocked(client, key, 5, 5)
    reply = buy(client, tokens, orders, "o1")
    assert reply[:2] == [4, 4]
    assert len(rows(client, orders)) == 2
    assert buy(client, tokens, orders, "o1") == reply, "a repeat gets the first reply"
    assert len(rows(client, orders)) == 2 and client("MGET", *tokens) == [b"4", b"4"]


def test_where_one_is_sold_out_there_is_no_order_and_nothing_is_sold(client, key, orders):
    tokens = stocked(client, key, 5, 0, 5)
    assert buy(client, tokens, orders, "o1").code == "RANGE"
    assert rows(client, orders) == [] and client("MGET", *tokens) == [b"5", b"0", b"5"]


def test_where_the_order_cannot_be_written_nothing_is_sold(client, key, orders):
    tokens = stocked(client, key, 5, 5)
    taken = f"{key}:1"
    client("FENCEDALL", 1, taken, tokens[taken], "SQL",
           f"INSERT INTO {orders} VALUES(?, '', 0)", f"o1/{taken}")
    reply = buy(client, tokens, orders, "o1")
    assert reply.code == "ERR" and "UNIQUE" in reply.text
    assert len(rows(client, orders)) == 1 and client("MGET", *tokens) == [b"5", b"5"]


@pytest.mark.parametrize("conflict", ["ROLLBACK", "ABORT", "FAIL"])
def test_a_statement_that_ends_sqlites_transaction_ends_this_one_only(daemon, key, orders,
                                                                      conflict):
    client, others = daemon.client(), [daemon.client() for _ in range(4)]
    tokens = stocked(client, key, 5, 5)
    mine = {other: other.token(f"{key}:other:{i}") for i, other in enumerate(others)}
    sku, token = next(iter(tokens.items()))
    for round_ in range(20):
        for i, other in enumerate(others):
            other.send("FENCED", mine[other], "INCR", f"{key}:other:{i}")
        client.send_bytes(b"".join(encode(*command) for command in [
            ("MULTI",), ("FENCED", token, "DECRBY", sku, 1),
            ("FENCEDALL", 1, sku, token, "SQL",
             f"INSERT OR {conflict} INTO {orders} VALUES('a', '', 1), ('a', '', 2)"), ("EXEC",)]))
        for i, other in enumerate(others):
            assert other.read() == round_ + 1
        reply = [client.read() for _ in range(4)][-1]
        assert isinstance(reply, ReplyError) and reply.code == "ERR", reply
    assert rows(client, orders) == [] and client("GET", sku) == b"5"


def test_ddl_is_no_part_of_a_transaction(client, key, orders):
    client("MULTI")
    client.refused("ERR", "SQL", f"DROP TABLE {orders}")
    client.refused("EXECABORT", "EXEC")
    assert rows(client, orders) == []


def test_reads_in_a_transaction_see_its_writes(client, key, orders):
    tokens = stocked(client, key, 5)
    reply = buy(client, tokens, orders, "o1", ("SQL", f"SELECT count(*) FROM {orders}"))
    last = dict(zip(reply[-1][::2], reply[-1][1::2]))
    assert last[b"rows"] == [[b"1"]]
