# SPDX-License-Identifier: Apache-2.0
"""SQL over the wire: types both ways, who may do what, transactions, and reading what was written.
Tests run on every store, in words that all of them understand, but for those marked sqlite: its
types, its row numbers, its names and conflict clauses. What an SQLite statement may reach and take
is in tests/unit/store/sql_*_test.c, what one in PostgreSQL in test_postgresql_sql.py."""

import hashlib
import math

import pytest

from harness.limits import HANG_SECONDS
from harness.netns import secluded
from harness.resp import ReplyError, mapped
from harness.threads import at_once


def result(reply):
    """Return the reply as a dict with text keys."""
    fields = mapped(reply)
    assert list(fields) == [b"columns", b"rows", b"changes", b"last_insert_rowid"]
    return {key.decode(): value for key, value in fields.items()}


def under(token, resource, *args):
    return ("FENCEDALL", 1, resource, token, "SQL", *args)


def table_name(prefix, key):
    """Of the test's own, and short enough for every store."""
    return f"{prefix}_{hashlib.md5(key.encode()).hexdigest()[:16]}"


@pytest.fixture
def table(daemon, key):
    """A table of the test's own."""
    name = table_name("t", key)
    daemon.client()("SQL", f"CREATE TABLE {name}(a TEXT PRIMARY KEY, b TEXT)")
    return name


VALUES = [("i", "0"), ("i", str(-(1 << 63))), ("i", str((1 << 63) - 1)), ("t", "text"), ("t", ""),
          ("t", b"a\0b\r\n"), ("t", b"\xff\xfe"), ("b", b"\0\xff"), ("b", b""), ("f", "0.1"),
          ("f", "-1e308"), ("f", "5"), ("f", "inf"), ("n", "")]


@pytest.mark.sqlite  # typeof(), columns without a type, text with any bytes
def test_each_type_survives_the_round_trip_in_resp3(daemon, key):
    client = daemon.client(proto=3)
    table = table_name("u", key)
    client("SQL", f"CREATE TABLE {table}(a PRIMARY KEY, b)")
    token = client.token(key)
    types = "".join(kind for kind, _ in VALUES)
    for number, (kind, value) in enumerate(VALUES):
        client(*under(token, key, "TYPES", "i" + kind, f"INSERT INTO {table} VALUES(?, ?)", number,
                      value))
    back = client.rows(f"SELECT b, typeof(b) FROM {table} ORDER BY a")
    names = {"i": b"integer", "t": b"text", "b": b"blob", "f": b"real", "n": b"null"}
    assert [row[1] for row in back] == [names[kind] for kind in types]
    expected = [0, -(1 << 63), (1 << 63) - 1, b"text", b"", b"a\0b\r\n", b"\xff\xfe", b"\0\xff",
                b"", 0.1, -1e308, 5.0, math.inf, None]
    assert [row[0] for row in back] == expected
    assert [type(row[0]) for row in back] == [type(value) for value in expected]


def test_values_survive_the_round_trip_in_columns_of_their_types(daemon, key):
    client = daemon.client(proto=3)
    table = table_name("v", key)
    client("SQL", f"CREATE TABLE {table}(n INT, i BIGINT, f DOUBLE PRECISION, t TEXT, b BYTEA)")
    token = client.token(key)
    rows = [[0, 5.5, "text\r\n\u00e4", b"\0\xff\r\n"], [-(1 << 63), -1e308, "", b""],
            [(1 << 63) - 1, math.inf, "'; DROP TABLE x --", b"'\\x'"], [None] * 4]
    for number, row in enumerate(rows):
        types = "".join("n" if value is None else kind for kind, value in zip("iftb", row))
        client(*under(token, key, "TYPES", "i" + types,
                      f"INSERT INTO {table} VALUES($1, $2, $3, $4, $5)", number,
                      *("" if value is None else value for value in row)))
    back = client.rows(f"SELECT i, f, t, b FROM {table} ORDER BY n")
    assert back == [[value.encode() if isinstance(value, str) else value for value in row]
                    for row in rows]
    assert [list(map(type, row)) for row in back[:3]] == [[int, float, bytes, bytes]] * 3


@pytest.mark.sqlite  # its literals
def test_in_resp2_rows_hold_text_and_nulls(client):
    reply = result(client("SQL", "SELECT 1, 0.1, 'text', x'00ff', NULL, 1e400, -5.0"))
    assert reply["rows"] == [[b"1", b"0.1", b"text", b"\0\xff", None, b"inf", b"-5"]]
    assert client.reader.raw.startswith(b"*8\r\n$7\r\ncolumns\r\n*7\r\n$1\r\n1\r\n")


def test_in_resp2_numbers_are_text(client):
    reply = result(client("SQL", "SELECT 1 AS one, CAST(0.5 AS DOUBLE PRECISION) AS half, 'text' AS"
                          " t, NULL AS n, CAST(-5 AS DOUBLE PRECISION) AS five"))
    assert reply["columns"] == [b"one", b"half", b"t", b"n", b"five"]
    assert reply["rows"] == [[b"1", b"0.5", b"text", None, b"-5"]]
    assert reply["changes"] == 0 and reply["last_insert_rowid"] == 0
    assert client.reader.raw.startswith(b"*8\r\n$7\r\ncolumns\r\n*5\r\n$3\r\none\r\n")


@pytest.mark.sqlite  # typeof(), and numbers before their time
def test_parameters_are_text_without_types(local):
    client = local.client(proto=3)
    assert client.rows("SELECT typeof(?), ?, ?", 1, 2.5, "") == [[b"text", b"2.5", b""]]
    assert client.rows("TYPES", "itb", "SELECT typeof(?1), typeof(?2), typeof(?3)", 1, 1, 1) == [
        [b"integer", b"text", b"blob"]]
    assert client.rows("SELECT ?2 || ?1", "a", "b") == [[b"ba"]]


def test_parameters_have_the_types_that_are_named(local):
    client = local.client(proto=3)
    assert client.rows("SELECT $1, $2, $3", 1, 2.5, "") == [[b"1", b"2.5", b""]]
    assert client.rows("TYPES", "itbfn", "SELECT $1, $2, $3, $4, $5", 1, 1, 1, 1, "") == [
        [1, b"1", b"1", 1.0, None]]
    assert client.rows("types", "", "SELECT 1") == [[1]]
    assert client.rows("SELECT $1 || 'x' || $1 || $2", "a", "b") == [[b"axab"]]


@pytest.mark.parametrize("args", [
    ("TYPES",), ("TYPES", "i"), ("TYPES", "i", "SELECT $1"), ("TYPES", "", "SELECT $1", 1),
    ("TYPES", "ii", "SELECT $1", 1), ("TYPES", "x", "SELECT $1", 1), ("TYPES", "I", "SELECT $1", 1),
    ("TYPES", "i", "SELECT $1", "1.0"), ("TYPES", "i", "SELECT $1", ""),
    ("TYPES", "i", "SELECT $1", 1 << 63), ("TYPES", "i", "SELECT $1", " 1"),
    ("TYPES", "f", "SELECT $1", "nan"), ("TYPES", "f", "SELECT $1", "1x"),
    ("TYPES", "f", "SELECT $1", ""), ("TYPES", "f", "SELECT $1", "0x10"),
    ("TYPES", "f", "SELECT $1", "1e999"), ("TYPES", "f", "SELECT $1", b"1\0"), ("SELECT $1",),
    ("SELECT 1", 1), ("SELECT 1; SELECT 2",), ("",), ("-- nothing",), (b"SELECT 1\0",),
    ("SELEC 1",), ("SELECT * FROM nowhere",), ("SELECT $1", *["x"] * 40000)],
    ids=lambda args: str(args)[:40])
def test_what_is_wrong_gets_an_error_and_the_connection_lives(client, args):
    client.refused("ERR", "SQL", *args)
    assert client("PING") == "PONG"


def test_without_arguments_it_is_the_wrong_number(daemon):
    daemon.client().refused("ERR", "SQL", text="wrong number of arguments")


@pytest.mark.sqlite  # row numbers
def test_the_last_rowid_is_that_of_the_statement(client, table, token, key):
    insert = f"INSERT INTO {table} VALUES(1, 2), (2, 3)"
    assert result(client(*under(token, key, insert)))["last_insert_rowid"] == 2
    update = f"UPDATE {table} SET b = 0"
    assert result(client(*under(token, key, update)))["last_insert_rowid"] == 0


def test_changes_are_those_of_the_statement(client, table, token, key):
    reply = result(client(*under(token, key, f"INSERT INTO {table} VALUES(1, 2), (2, 3)")))
    assert (reply["columns"], reply["rows"], reply["changes"]) == ([], [], 2)
    reply = result(client(*under(token, key, f"UPDATE {table} SET b = 0 RETURNING a, b")))
    assert reply["columns"] == [b"a", b"b"]
    assert sorted(reply["rows"]) == [[b"1", b"0"], [b"2", b"0"]]
    assert (reply["changes"], reply["last_insert_rowid"]) == (2, 0)
    for statement, changes in [(f"SELECT count(*) FROM {table}", 0),
                               (f"UPDATE {table} SET b = 1 WHERE a = '7'", 0),
                               (f"WITH one AS (SELECT '1' AS a) DELETE FROM {table} WHERE a IN"
                                " (SELECT a FROM one)", 1), (f"DELETE FROM {table}", 1)]:
        assert result(client(*under(token, key, statement)))["changes"] == changes


def test_a_write_needs_a_token_and_one_that_is_current(client, table, key):
    insert = f"INSERT INTO {table} VALUES(1, 1)"
    client.refused("NOTOKEN", "SQL", insert, text="FENCEDALL")
    client.refused("UNKNOWN", *under(1, key, insert))
    token = client.token(key)
    client(*under(token, key, insert))
    client("REVOKE", key)
    client.refused("STALE", *under(token, key, f"DELETE FROM {table}"))
    client.refused("STALE", *under(token, key, f"SELECT * FROM {table}"))
    assert client.rows(f"SELECT * FROM {table}") == [[b"1", b"1"]]


def test_ddl_is_for_administrators_with_or_without_a_token(rig):
    _, cli = secluded(rig)
    for statement in ("CREATE TABLE t(a INT)", "/* */ drop TABLE IF EXISTS t", ";ANALYZE",
                      "REINDEX"):
        assert cli("10.9.8.7", "SQL", statement).startswith("NOPERM "), statement
    assert cli("127.0.0.1", "SQL", "CREATE TABLE t(a INT)").startswith("columns")
    token = cli("10.9.8.7", "ACQUIRE", "r", "60000").split()[0]
    for host in ("10.9.8.7", "127.0.0.1"):
        assert cli(host, "FENCEDALL", "1", "r", token, "SQL", "DROP TABLE t").startswith(
            "NOPERM ")
    assert cli("10.9.8.7", "FENCEDALL", "1", "r", token, "SQL",
                  "INSERT INTO t VALUES(5)").startswith("columns")
    assert "5" in cli("10.9.8.7", "SQL", "SELECT a FROM t")


def test_ddl_without_a_token_is_no_part_of_a_transaction(client, token, key, table):
    client("MULTI")
    assert client(*under(token, key, f"INSERT INTO {table} VALUES('x', 'y')")) == "QUEUED"
    client.refused("ERR", "SQL", f"DROP TABLE {table}", text="DDL is no part of a transaction")
    client.refused("EXECABORT", "EXEC")
    assert client.rows(f"SELECT * FROM {table}") == []


def test_who_has_the_password_is_an_administrator(rig):
    password = rig.folder / "password"
    password.write_text("secret")
    daemon = rig.daemon("--password-file", password)
    client = daemon.client()
    client.refused("NOAUTH", "SQL", "SELECT 1")
    client("AUTH", "secret")
    client("SQL", "CREATE TABLE t(a INT)")
    assert client.rows("SELECT * FROM t") == []


@pytest.mark.sqlite  # its names
@pytest.mark.parametrize("statement", [
    "PRAGMA writable_schema = ON", "ATTACH ':memory:' AS x", "BEGIN", "COMMIT", "SAVEPOINT x",
    "VACUUM INTO '/tmp/stockade-sql-test'", "SELECT * FROM stockade_resource",
    "SELECT * FROM pragma_table_list", "SELECT load_extension('x')", "DROP TABLE stockade_meta",
    "CREATE TABLE stockade_x(a)", "ALTER TABLE stockade_resource ADD COLUMN x",
    "CREATE TEMP TABLE x(a)", "CREATE VIRTUAL TABLE x USING fts5(a)",
    "WITH stockade_fences AS (SELECT * FROM stockade_resource) SELECT * FROM stockade_fences",
    "UPDATE stockade_resource SET token = 99", "DELETE FROM stockade_guard"])
def test_stockades_own_and_other_files_are_out_of_reach(client, token, key, statement):
    """Also for an administrator, and with a token."""
    for command in (("SQL", statement), under(token, key, statement)):
        client.refused("NOPERM", *command)
    assert client.fenced(token, "SET", key, "x") == "OK"


@pytest.mark.sqlite  # their names
def test_the_public_views_show_leases_and_values(client, token, key):
    client.fenced(token, "SET", key, "value")
    assert client.rows("SELECT token, state FROM stockade_fences WHERE resource = ?", key) == [
        [b"%d" % token, b"live"]]
    assert client.rows("SELECT value FROM stockade_values WHERE key = ?", key) == [[b"value"]]


def test_a_read_sees_every_write_that_was_acknowledged(daemon, table, key):
    """On whatever connection, also while others keep the writer busy."""
    writer, readers = daemon.client(), [daemon.client() for _ in range(4)]
    token = writer.token(key)
    noise = daemon.client()
    noise_token = noise.token(key + "n")
    for number in range(200):
        noise.send("FENCED", noise_token, "SET", key + "n", number)
        writer(*under(token, key, f"INSERT INTO {table} VALUES($1, $2)", number, number))
        for reader in readers:
            assert reader.rows(f"SELECT max(CAST(a AS INT)) FROM {table}") == [[b"%d" % number]]
        assert noise.read() == "OK"


def test_a_pipeline_reads_what_it_has_written(client, table, token, key):
    replies = client.pipeline([
        under(token, key, f"INSERT INTO {table} VALUES(1, 1)"), ("SQL", f"SELECT * FROM {table}"),
        under(token, key, f"UPDATE {table} SET b = 2"), ("SQL", f"SELECT b FROM {table}"),
        ("SQL", f"CREATE TABLE {table}_2 AS SELECT * FROM {table}"),
        ("SQL", f"SELECT * FROM {table}_2")])
    assert [result(reply)["rows"] for reply in replies] == [
        [], [[b"1", b"1"]], [], [[b"2"]], [], [[b"1", b"2"]]]


@pytest.mark.parametrize("row", [
    pytest.param("last_insert_rowid()", marks=pytest.mark.sqlite), "(SELECT max(n) FROM {t})"])
def test_a_basket_and_its_order_row_are_one_transaction(client, key, row):
    table = table_name("w", key)
    client("SQL", f"CREATE TABLE {table}(n INTEGER PRIMARY KEY, b TEXT)")
    client("SQL", f"CREATE TABLE {table}_lines(orders INT, sku TEXT)")
    token = client.token(key)
    client.fenced(token, "SET", key, 1)

    def order(number):
        return [("FENCED", token, "DECRBY", key, 1, "MIN", 0),
                under(token, key, "TYPES", "it", f"INSERT INTO {table} VALUES($1, $2)",
                      number, f"order {number}"),
                under(token, key,
                      f"INSERT INTO {table}_lines VALUES({row.format(t=table)}, $1)", key),
                ("SQL", f"SELECT orders, sku FROM {table}_lines")]

    client.multi(*order(70))
    replies = client("EXEC")
    assert replies[0] == 0
    if row == "last_insert_rowid()":
        assert result(replies[1])["last_insert_rowid"] == 70
    assert result(replies[3])["rows"] == [[b"70", key.encode()]]
    # Sold out: nothing of the second order is there.
    for commands in (order(71), reversed(order(71))):
        client.multi(*commands)
        client.refused("RANGE", "EXEC")
    for name in (table, table + "_lines"):
        assert client.rows(f"SELECT count(*) FROM {name}") == [[b"1"]]


@pytest.mark.parametrize("last", [
    "INSERT INTO {} VALUES(1, 1)", "INSERT INTO {} VALUES(7, 1), (1, 1)", "SELEC 1", *(
        pytest.param(last, marks=pytest.mark.sqlite) for last in (
            "INSERT OR ROLLBACK INTO {} VALUES(1, 1)",
            "INSERT OR ABORT INTO {} VALUES(7, 1), (1, 1)",
            "INSERT OR FAIL INTO {} VALUES(7, 1), (1, 1)", "PRAGMA user_version = 3"))])
def test_a_statement_that_fails_undoes_its_transaction_and_no_other(daemon, table, key, last):
    client, other = daemon.client(), daemon.client()
    token, other_token = client.token(key), other.token(key + "o")
    client(*under(token, key, f"INSERT INTO {table} VALUES(1, 0)"))
    for number in range(20):
        other.send("FENCED", other_token, "SET", key + "o", number)
        client.multi(("FENCED", token, "SET", key, number),
                     under(token, key, f"INSERT INTO {table} VALUES(2, 2)"),
                     under(token, key, last.format(table)),
                     ("FENCED", token, "SET", key, "later"))
        other.send("FENCED", other_token, "APPEND", key + "o", "!")
        assert isinstance(client.ask("EXEC"), ReplyError)
        assert other.read() == "OK"
        assert other.read() == len(f"{number}!")
        assert client("GET", key) is None
        assert other("GET", key + "o") == b"%d!" % number
    assert client.rows(f"SELECT * FROM {table}") == [[b"1", b"0"]]


def test_a_repeat_with_its_id_gets_the_first_reply(daemon, client, table, token, key):
    insert = ("FENCEDALL", 1, key, token, "ID", "one", "SQL",
              f"INSERT INTO {table} VALUES(1, 1) RETURNING a, b")
    first = result(client(*insert))
    assert first["rows"] == [[b"1", b"1"]]
    assert result(client(*insert)) == first
    assert result(daemon.client(proto=3)(*insert)) == first
    assert client.rows(f"SELECT count(*) FROM {table}") == [[b"1"]]


def test_eight_clients_count_in_one_row(daemon, client, table, token, key):
    client(*under(token, key, f"INSERT INTO {table} VALUES(1, 0)"))
    client("RELEASE", key, token)

    def count(own):
        for _ in range(20):
            mine = own.token(key, 60000, "WAIT", 30000)
            seen = int(own.rows(f"SELECT b FROM {table}")[0][0])
            own(*under(mine, key, f"UPDATE {table} SET b = $1", seen + 1))
            own("RELEASE", key, mine)

    at_once(count, [daemon.client() for _ in range(8)], seconds=5 * HANG_SECONDS)
    assert client.rows(f"SELECT b FROM {table}") == [[b"160"]]
