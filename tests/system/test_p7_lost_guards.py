# SPDX-License-Identifier: Apache-2.0
"""P7 No way round: a guard that another program has taken away is noticed and reported, writes to
its table stop, and go on when it is back. And the command GUARD."""

import signal
import sqlite3

import pytest

from harness.limits import wait_until
from harness.maintenance import execute, query
from harness.resp import refused
from harness.rig import restart
from harness.shop import guards

PARTS = ["TRIGGER stockade_guard_insert_stock", "TRIGGER stockade_guard_inserted_stock",
         "TRIGGER stockade_guard_update_stock", "TRIGGER stockade_guard_updated_stock",
         "TRIGGER stockade_guard_delete_stock", "INDEX stockade_guard_blob_stock"]
WHOLE = {"table": "stock", "column": "sku", "prefix": "sku:", "state": "ok"}
BROKEN = {**WHOLE, "state": "broken"}
SCHEMA = """
CREATE TABLE stock(sku TEXT PRIMARY KEY, left INTEGER);
INSERT INTO stock VALUES('a', 10), ('b', 10);
CREATE VIEW shelf AS SELECT * FROM stock;
CREATE TRIGGER shelf_i INSTEAD OF INSERT ON shelf BEGIN
  INSERT INTO stock VALUES(NEW.sku, NEW.left); END;
CREATE TABLE orders(sku TEXT);
CREATE TRIGGER order_i AFTER INSERT ON orders BEGIN
  UPDATE stock SET left = left - 1 WHERE sku = NEW.sku; END;
"""


class Store:
    def __init__(self, rig, daemon):
        self.rig, self.daemon = rig, daemon
        self.client = daemon.client()

    def foreign(self, script):
        """Run the script as another program, which opens the file and closes it."""
        execute(self.rig.store, script)

    def left(self, sku="a"):
        return query(self.rig.store, "SELECT left FROM stock WHERE sku = ?", sku)[0][0]

    def under_token(self, sql):
        token = self.client.token("sku:a", 60000, "OWNER", "me")
        return self.client("FENCEDALL", 1, "sku:a", token, "SQL", sql)

    def sell(self):
        before = self.left()
        self.under_token("UPDATE stock SET left = left - 1 WHERE sku = 'a'")
        assert self.left() == before - 1

    def guards(self):
        """What is wrong with a guard is told by name, and among the daemon's troubles."""
        shown = guards(self.client)
        problems = [guard.pop("problem", None) for guard in shown]
        assert [problem is not None for problem in problems] == [
            guard["state"] == "broken" for guard in shown]
        assert any(problems) == ("a guard is not" in self.client.info()["troubles_detail"])
        return shown

    def log(self):
        return self.daemon.stderr()

    def restarted(self, how=signal.SIGTERM):
        return Store(self.rig, restart(self.rig, self.daemon, how))


@pytest.fixture
def store(rig):
    store = Store(rig, rig.daemon())
    store.foreign(SCHEMA)
    assert store.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    store.sell()
    return store


def assert_stopped(store):
    """No write reaches the table in any way, not even under its token."""
    before = store.left(), store.left("b")
    for sql in ("UPDATE stock SET left = 0 WHERE sku = 'a'", "DELETE FROM stock WHERE sku = 'a'",
                "INSERT INTO stock VALUES('a', 1)", "REPLACE INTO stock VALUES('a', 1)",
                "INSERT INTO stock VALUES('a', 1) ON CONFLICT DO UPDATE SET left = 1",
                "INSERT INTO shelf VALUES('c', 1)", "INSERT INTO orders VALUES('a')",
                "WITH x AS (SELECT 1) UPDATE stock SET left = 0"):
        with refused("GUARDED", "guard of stock .*GUARD CREATE"):
            store.under_token(sql)
    assert (store.left(), store.left("b")) == before


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_dropped_stops_writes_until_it_is_back(store, part):
    store.foreign(f"DROP {part}")
    assert_stopped(store)
    assert store.guards() == [BROKEN]
    assert "another program has changed the schema" in store.log()
    what, name = part.split()
    assert f'table "stock" is broken: its {what.lower()} {name} is gone' in store.log()
    assert store.client("SQL", "SELECT count(*) FROM stock")
    assert store.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    assert store.guards() == [WHOLE]
    assert 'the guard of table "stock" is whole again' in store.log()
    store.sell()


def test_a_trigger_put_back_as_it_was_is_as_good(store):
    (sql,), = query(store.rig.store, "SELECT sql FROM sqlite_schema WHERE name = ?",
                    "stockade_guard_update_stock")
    store.foreign("DROP TRIGGER stockade_guard_update_stock")
    assert_stopped(store)
    store.foreign(sql)
    store.sell()
    store.foreign("DROP TRIGGER stockade_guard_update_stock;"
                  + sql.replace("stockade_guard('", "ifnull('"))
    assert store.guards() == [BROKEN]


def test_the_first_write_after_the_loss_is_stopped(store):
    """Nothing comes between the loss and the first look: not even a statement kept from before."""
    token = store.client.token("sku:a", 60000, "OWNER", "me")
    command = ("FENCEDALL", 1, "sku:a", token, "SQL",
               "UPDATE stock SET left = left - 1 WHERE sku = 'a'")
    for _ in range(3):
        store.client(*command)
    before = store.left()
    store.foreign("DROP TRIGGER stockade_guard_delete_stock")
    replies = store.client.pipeline([command] * 20)
    assert {reply.code for reply in replies} == {"GUARDED"} and store.left() == before


def test_a_table_dropped_and_made_again_is_not_written_until_it_is_guarded_again(store):
    store.foreign("DROP TABLE stock; CREATE TABLE stock(sku TEXT PRIMARY KEY, left INTEGER);"
                  "INSERT INTO stock VALUES('a', 5), ('b', 5)")
    assert_stopped(store)
    assert store.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    store.sell()
    assert store.left() == 4


def test_a_table_replaced_by_a_rename_is_noticed(store):
    """How a program changes a table that ALTER TABLE cannot change."""
    store.foreign("CREATE TABLE fresh(sku TEXT PRIMARY KEY, left INTEGER CHECK(left >= 0));"
                  "INSERT INTO fresh SELECT * FROM stock; DROP TRIGGER order_i; DROP VIEW shelf;"
                  "DROP TABLE stock; ALTER TABLE fresh RENAME TO stock")
    assert store.guards() == [BROKEN]
    with refused("GUARDED"):
        store.under_token("UPDATE stock SET left = 0 WHERE sku = 'a'")
    assert store.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    store.sell()


@pytest.mark.parametrize("sql", ["ALTER TABLE stock RENAME COLUMN sku TO article",
                                 "ALTER TABLE stock RENAME TO goods"])
def test_a_renamed_table_or_key_is_noticed_and_nobody_else_may_write_it_either(store, sql):
    store.foreign("DROP VIEW shelf; DROP TABLE orders;" + sql)
    assert store.guards() == [BROKEN]
    table = "goods" if "goods" in sql else "stock"
    with pytest.raises(sqlite3.Error, match="no such func"):
        store.foreign(f"UPDATE {table} SET left = 0")
    store.client.refused("ERR", "GUARD", "CREATE", "stock", "sku", "sku:",
                         text="no (table stock|column sku)|has no column sku")
    assert store.client("GUARD", "DROP", "stock") == "OK"
    column = "article" if "article" in sql else "sku"
    assert store.client("GUARD", "CREATE", table, column, "sku:") == "OK"
    store.under_token(f"UPDATE {table} SET left = 0 WHERE {column} = 'a'")


@pytest.mark.parametrize("sql", ["ALTER TABLE stock ADD COLUMN price", "VACUUM", "ANALYZE",
                                 "REINDEX", "DROP TABLE orders",
                                 "CREATE INDEX by_left ON stock(left)", "CREATE TABLE new(x)",
                                 "ALTER TABLE orders RENAME TO sales"])
def test_a_foreign_change_that_leaves_the_guard_whole_stops_nothing(store, sql):
    before = len(store.log())
    store.foreign(sql)
    assert store.guards() == [WHOLE]
    store.sell()
    assert "is broken" not in store.log()
    assert ("has changed the schema" in store.log()[before:]) == (sql != "REINDEX")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_guard_outlives_the_daemon_and_its_loss_meanwhile_is_reported(store, how):
    store = store.restarted(how)
    assert store.guards() == [WHOLE]
    store.sell()
    store.daemon.close_clients()
    store.daemon.stop()
    store.foreign("DROP TRIGGER stockade_guard_updated_stock")
    store = Store(store.rig, store.rig.daemon())
    assert 'the guard of table "stock" is broken' in store.log()
    assert_stopped(store)


def test_two_daemons_see_each_others_guards(store, rig):
    second = Store(rig, rig.daemon())
    assert second.guards() == [WHOLE]
    assert second.client("GUARD", "DROP", "stock") == "OK"
    assert store.guards() == []
    assert 'another program has removed the guard of table "stock"' in store.log()
    assert second.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    assert store.guards() == [WHOLE]
    store.foreign("DROP TRIGGER stockade_guard_delete_stock")
    assert_stopped(store)
    assert_stopped(second)


def test_an_idle_daemon_reports_a_loss_by_itself(store):
    store.foreign("DROP TRIGGER stockade_guard_delete_stock")
    wait_until(lambda: "is broken" in store.log(), "the loss is reported")


def test_the_tool_lists_what_is_wrong_with_a_guard(store, tool):
    words = ["-u", store.daemon.uri, "guard", "list"]
    rows = tool.output(*words).splitlines()
    assert [row.split() for row in rows] == [["TABLE", "COLUMN", "PREFIX", "STATE"],
                                             ["stock", "sku", "sku:", "ok"]]
    store.foreign("DROP TRIGGER stockade_guard_delete_stock")
    *_, row, problem = tool.output(*words).splitlines()
    assert row.split() == ["stock", "sku", "sku:", "broken"]
    assert problem.startswith("stock: ") and "stockade_guard_delete_stock" in problem


def test_writes_to_other_tables_go_on_while_a_guard_is_broken(store):
    store.foreign("CREATE TABLE notes(x); DROP TRIGGER stockade_guard_delete_stock")
    token = store.client.token("note", 60000)
    store.client("FENCEDALL", 1, "note", token, "SQL", "INSERT INTO notes VALUES(1)")
    assert store.client("FENCED", token, "SET", "note", "kept") == "OK"


def test_a_table_with_rows_is_guarded_and_rows_that_no_token_could_reach_refuse_it(store):
    store.foreign("CREATE TABLE more(k, v); INSERT INTO more VALUES(1, 1), ('x', 2), (NULL, 3)")
    store.client.refused("ERR", "GUARD", "CREATE", "more", "k", "more:",
                         text="1 rows of more have a k that names no resource")
    assert store.guards() == [WHOLE]
    store.foreign("DELETE FROM more WHERE k IS NULL")
    assert store.client("GUARD", "CREATE", "more", "k", "more:") == "OK"
    with pytest.raises(sqlite3.Error, match="no such func"):
        store.foreign("DELETE FROM more")


def test_guard_tells_what_it_cannot_do(store):
    for words, text in ((["CREATE", "stock", "sku", "sku:"], "guarded already"),
                        (["CREATE", "Stock", "left", "x:"], "guarded already"),
                        (["CREATE", "nosuch", "sku", "sku:"], "no table nosuch"),
                        (["CREATE", "orders", "nosuch", "sku:"], "no column nosuch"),
                        (["CREATE", "shelf", "sku", "sku:"], "shelf is a view"),
                        (["CREATE", "stockade_meta", "key", "sku:"], "not one of your own"),
                        (["CREATE", "orders", "sku", "a\0b"], "zero bytes"),
                        (["CREATE", "orders", "sku", "x" * 513], "at most 512 bytes"),
                        (["CREATE", "orders", "sku"], "wrong number of arguments"),
                        (["DROP"], "wrong number of arguments"),
                        (["DROP", "orders"], "not guarded"),
                        (["LIST", "x"], "wrong number of arguments"),
                        (["NOSUCH"], "unknown subcommand")):
        store.client.refused("ERR", "GUARD", *words, text=text)
    assert store.guards() == [WHOLE]


def test_guard_list_is_a_map_in_resp3(store):
    assert store.daemon.client(proto=3)("GUARD", "LIST") == [
        {key.encode(): value.encode() for key, value in WHOLE.items()}]


def test_guard_drop_lets_everybody_write_again(store):
    assert store.client("GUARD", "DROP", "stock") == "OK"
    assert store.guards() == []
    store.foreign("UPDATE stock SET left = 99")
    assert store.left() == 99
    assert query(store.rig.store, "SELECT count(*) FROM sqlite_schema WHERE name LIKE "
                                  "'stockade_guard__%' AND type <> 'view'") == [(0,)]
