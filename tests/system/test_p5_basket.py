# SPDX-License-Identifier: Apache-2.0
"""P5 Atomic, with SQL: a basket's stock and its order row come together or not at all."""

import itertools

import pytest

from harness.resp import mapped

numbers = itertools.count(1)


@pytest.fixture
def orders(daemon):
    """A table of the test's own."""
    name = f"orders_{next(numbers)}"
    daemon.client()("SQL", f"CREATE TABLE {name}(id TEXT PRIMARY KEY, sku TEXT, n INTEGER)")
    return name


def rows(client, table):
    return client.rows(f"SELECT * FROM {table}")


def buy(client, tokens, table, order, *more):
    """Sell one of each, write an order row for each, and run what else is given, in one
    transaction. Return EXEC's reply, errors as values."""
    pairs = [word for pair in tokens.items() for word in pair]
    client.multi(
        *(("FENCED", token, "ID", order, "DECRBY", sku, 1, "MIN", 0)
          for sku, token in tokens.items()),
        *(("FENCEDALL", len(tokens), *pairs, "SQL", f"INSERT INTO {table} VALUES(?, ?, 1)",
           f"{order}/{sku}", sku) for sku in tokens), *more)
    return client.ask("EXEC")


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


def test_ddl_is_no_part_of_a_transaction(client, key, orders):
    client.multi()
    client.refused("ERR", "SQL", f"DROP TABLE {orders}")
    client.refused("EXECABORT", "EXEC")
    assert rows(client, orders) == []


def test_reads_in_a_transaction_see_its_writes(client, key, orders):
    tokens = stocked(client, key, 5)
    reply = buy(client, tokens, orders, "o1", ("SQL", f"SELECT count(*) FROM {orders}"))
    assert mapped(reply[-1])[b"rows"] == [[b"1"]]
