# SPDX-License-Identifier: Apache-2.0
"""Guards in tables that a shop has in PostgreSQL: every way in, with every kind of token."""

import collections
import contextlib
import subprocess

import psycopg2
import pytest

from harness.limits import environment, patience
from harness.postgres import OWNER, ask, connect
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql")

STALE, UNKNOWN, GUARDED, NOTOKEN, STORE = "ST001", "ST002", "ST003", "ST004", "ST006"

# Rows with the key 1 are mine, those with 2 another's.
TABLES = """
CREATE TABLE inventory(sku int8 PRIMARY KEY, stock int NOT NULL DEFAULT 0 CHECK(stock > -100));
INSERT INTO inventory VALUES(1, 10), (2, 10);
CREATE TABLE lines(id int8 PRIMARY KEY, sku varchar(20) NOT NULL, amount int NOT NULL);
INSERT INTO lines SELECT i, 1 + i / 1000, 1 FROM generate_series(0, 1999) i;

CREATE TABLE orders(sku text, day int, amount int) PARTITION BY RANGE(day);
CREATE TABLE orders_0 PARTITION OF orders FOR VALUES FROM (0) TO (10);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (10) TO (30) PARTITION BY RANGE(day);
CREATE TABLE orders_10 PARTITION OF orders_1 FOR VALUES FROM (10) TO (20);
INSERT INTO orders VALUES('1', 5, 1), ('2', 5, 1), ('1', 15, 1), ('2', 15, 1);

CREATE TABLE goods(sku int2 NOT NULL, price int);
CREATE TABLE books(pages int) INHERITS (goods);
INSERT INTO goods VALUES(1, 5), (2, 5);
INSERT INTO books VALUES(1, 5, 100), (2, 5, 100);

CREATE TABLE articles(sku int8 PRIMARY KEY);
INSERT INTO articles VALUES(1), (2), (3);
CREATE TABLE shelves(sku int8 REFERENCES articles ON DELETE CASCADE ON UPDATE CASCADE, room int);
INSERT INTO shelves VALUES(1, 7), (2, 7);
CREATE TABLE packs(sku int8 PRIMARY KEY);
INSERT INTO packs VALUES(1);
CREATE TABLE boxes(sku int8 DEFAULT 1 REFERENCES packs ON DELETE SET NULL, n int);
INSERT INTO boxes VALUES(1, 1);

CREATE TABLE bills(id int, net int, sku text GENERATED ALWAYS AS ((id % 10)::text) STORED);
INSERT INTO bills VALUES(11, 5), (12, 5);

-- What the shop has besides: nobody guards these.
CREATE TABLE news(sku int8, n int);
CREATE FUNCTION apply() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN UPDATE inventory SET stock = stock - NEW.n WHERE sku = NEW.sku; RETURN NEW; END$$;
CREATE TRIGGER apply AFTER INSERT ON news FOR EACH ROW EXECUTE FUNCTION apply();
CREATE TABLE later(sku int8, n int);
CREATE CONSTRAINT TRIGGER apply AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION apply();
CREATE FUNCTION sell(int8) RETURNS void LANGUAGE sql AS
  $$UPDATE inventory SET stock = stock - 1 WHERE sku = $1$$;
CREATE FUNCTION sell_as_owner(int8) RETURNS void LANGUAGE sql SECURITY DEFINER AS
  $$UPDATE inventory SET stock = stock - 1 WHERE sku = $1$$;
CREATE PROCEDURE sell_all() LANGUAGE plpgsql AS
  $$BEGIN UPDATE inventory SET stock = stock - 1 WHERE sku = 1; END$$;
CREATE VIEW stock AS SELECT sku, stock FROM inventory;
CREATE VIEW ruled AS SELECT sku, stock FROM inventory OFFSET 0;
CREATE RULE ruled AS ON UPDATE TO ruled DO INSTEAD
  UPDATE inventory SET stock = NEW.stock WHERE sku = OLD.sku;
"""
GUARDS = [("inventory", "sku", "sku:"), ("lines", "sku", "sku:"), ("orders", "sku", "sku:"),
          ("goods", "sku", "sku:"), ("shelves", "sku", "sku:"), ("boxes", "sku", "sku:"),
          ("bills", "sku", "sku:")]

Form = collections.namedtuple("Form", "name sql also", defaults=[()])

FORMS = [
    Form("UPDATE", "UPDATE inventory SET stock = 9 WHERE sku = 1"),
    Form("UPDATE to the same", "UPDATE inventory SET stock = stock WHERE sku = 1"),
    Form("UPDATE FROM", "UPDATE inventory i SET stock = 9 FROM articles a "
                        "WHERE a.sku = i.sku AND i.sku = 1"),
    Form("UPDATE RETURNING", "UPDATE inventory SET stock = 9 WHERE sku = 1 RETURNING *"),
    Form("DELETE", "DELETE FROM inventory WHERE sku = 1"),
    Form("DELETE USING", "DELETE FROM inventory i USING articles a "
                         "WHERE a.sku = i.sku AND i.sku = 1"),
    Form("INSERT", "INSERT INTO lines VALUES(9000, '1', 1)"),
    Form("INSERT SELECT", "INSERT INTO lines SELECT i + 9000, '1', 1 FROM generate_series(1, 3) i"),
    Form("INSERT of a default", "INSERT INTO boxes(n) VALUES(2)"),
    Form("ON CONFLICT DO UPDATE", "INSERT INTO inventory VALUES(1, 3) ON CONFLICT (sku) "
                                  "DO UPDATE SET stock = excluded.stock"),
    Form("MERGE that updates", "MERGE INTO inventory i USING (VALUES(1)) v(sku) ON i.sku = v.sku "
                               "WHEN MATCHED THEN UPDATE SET stock = 9"),
    Form("MERGE that deletes", "MERGE INTO inventory i USING (VALUES(1)) v(sku) ON i.sku = v.sku "
                               "WHEN MATCHED THEN DELETE"),
    Form("MERGE that inserts", "MERGE INTO lines l USING (VALUES(9000)) v(id) ON l.id = v.id "
                               "WHEN NOT MATCHED THEN INSERT VALUES(9000, '1', 1)"),
    Form("a writable CTE", "WITH w AS (UPDATE inventory SET stock = 9 WHERE sku = 1 RETURNING sku) "
                           "SELECT * FROM w"),
    Form("a CTE that nobody reads", "WITH w AS (DELETE FROM inventory WHERE sku = 1) SELECT 1"),
    Form("two writes in one statement",
         "WITH a AS (UPDATE inventory SET stock = 9 WHERE sku = 1), "
         "b AS (DELETE FROM lines WHERE sku = '1') SELECT 1"),
    Form("a thousand rows", "UPDATE lines SET amount = 2 WHERE sku = '1'"),
    Form("PREPARE and EXECUTE", "PREPARE p(int8) AS UPDATE inventory SET stock = 9 WHERE sku = $1; "
                                "EXECUTE p(1); DEALLOCATE p"),
    Form("EXPLAIN ANALYZE", "EXPLAIN ANALYZE UPDATE inventory SET stock = 9 WHERE sku = 1"),
    Form("DO", "DO 'BEGIN UPDATE inventory SET stock = 9 WHERE sku = 1; END'"),
    Form("EXECUTE in plpgsql", "DO $$BEGIN EXECUTE 'DELETE FROM inventory WHERE sku = 1'; END$$"),
    Form("a function", "SELECT sell(1)"),
    Form("a function of the owner's", "SELECT sell_as_owner(1)"),
    Form("a procedure", "CALL sell_all()"),
    Form("a trigger of another table", "INSERT INTO news VALUES(1, 1)"),
    Form("a deferred constraint trigger", "INSERT INTO later VALUES(1, 1)"),
    Form("a view", "UPDATE stock SET stock = 9 WHERE sku = 1"),
    Form("a view's rule", "UPDATE ruled SET stock = 9 WHERE sku = 1"),
    Form("WHERE CURRENT OF", "DECLARE c CURSOR FOR SELECT * FROM inventory WHERE sku = 1 FOR UPDATE;"
                             " FETCH c; UPDATE inventory SET stock = 9 WHERE CURRENT OF c; CLOSE c"),
    Form("behind a savepoint", "SAVEPOINT s; UPDATE inventory SET stock = 9 WHERE sku = 1; "
                               "RELEASE s"),
    Form("ON DELETE CASCADE", "DELETE FROM articles WHERE sku = 1"),
    Form("ON UPDATE CASCADE", "UPDATE articles SET sku = 1001 WHERE sku = 1", ("sku:1001",)),
    Form("a key that changes", "UPDATE shelves SET sku = 3 WHERE sku = 1", ("sku:3",)),
    Form("a generated key", "UPDATE bills SET net = 6 WHERE id = 11"),
    Form("a generated key that changes", "UPDATE bills SET id = 13 WHERE id = 11", ("sku:3",)),
    Form("a partitioned table", "UPDATE orders SET amount = 2 WHERE sku = '1'"),
    Form("INSERT into a partitioned table", "INSERT INTO orders VALUES('1', 16, 3)"),
    Form("a partition", "UPDATE orders_0 SET amount = 2 WHERE sku = '1'"),
    Form("a partition of a partition", "DELETE FROM orders_10 WHERE sku = '1'"),
    Form("a row that moves to another partition",
         "UPDATE orders SET day = 12 WHERE sku = '1' AND day = 5"),
    Form("a partition that is new", "CREATE TABLE orders_20 PARTITION OF orders_1 "
         "FOR VALUES FROM (20) TO (30); INSERT INTO orders_20 VALUES('1', 21, 1)"),
    Form("a table that is attached", "CREATE TABLE extra(sku text, day int, amount int); "
         "ALTER TABLE orders ATTACH PARTITION extra FOR VALUES FROM (30) TO (40); "
         "INSERT INTO extra VALUES('1', 31, 1)"),
    Form("what others inherit", "UPDATE goods SET price = 6 WHERE sku = 1"),
    Form("ONLY", "UPDATE ONLY goods SET price = 6 WHERE sku = 1"),
    Form("a child", "UPDATE books SET price = 6 WHERE sku = 1"),
    Form("SERIALIZABLE", "UPDATE inventory SET stock = 9 WHERE sku = 1"),
    Form("REPEATABLE READ", "UPDATE inventory SET stock = 9 WHERE sku = 1"),
    Form("session_replication_role = replica",
         "SET LOCAL session_replication_role = replica; "
         "UPDATE inventory SET stock = 9 WHERE sku = 1"),
    Form("a partition under session_replication_role = replica",
         "SET LOCAL session_replication_role = replica; DELETE FROM orders_0 WHERE sku = '1'"),
    Form("another search_path", "SET LOCAL search_path = pg_temp, stockade; "
                                "UPDATE public.inventory SET stock = 9 WHERE sku = 1"),
]


class Stock:
    """A database with these tables, guarded; a daemon on it, and tokens of two resources."""

    def __init__(self, rig, database):
        self.database = database
        self.server = database.server
        self.daemon = rig.daemon(store=database.uri)
        self.client = self.daemon.client()
        database.sql(TABLES)
        for guard in GUARDS:
            assert self.client("GUARD", "CREATE", *guard) == "OK"
        self.stale = self.client.token("sku:1", 600000)
        self.client("RELEASE", "sku:1", self.stale)
        self.tokens = {name: self.client.token(name, 600000)
                       for name in ("sku:1", "sku:2", "sku:3", "sku:1001")}

    def of(self, *names):
        return {name: self.tokens[name] for name in names}

    def claims(self, which, form=Form("", "")):
        return {"no token": {}, "another row's": self.of("sku:2"),
                "a stale one": {"sku:1": self.stale},
                "a forged one": {**self.of("sku:1", *form.also), "sku:1": self.stale},
                "the right one": self.of("sku:1", *form.also),
                "one of two": self.of("sku:1")}[which]

    def rows(self, link):
        return [ask(link, f"SELECT * FROM {table} ORDER BY 1, 2, 3")
                for table in ("inventory i(a, b), (VALUES(1)) v", "lines", "orders", "goods g(a, b),"
                              " (VALUES(1)) v", "books", "shelves s(a, b), (VALUES(1)) v",
                              "boxes b(a, b), (VALUES(1)) v", "bills")]


@pytest.fixture(scope="module")
def stock(module_rig, postgres):
    database = postgres.database()
    yield Stock(module_rig, database)


def present(link, tokens):
    for name, token in tokens.items():
        ask(link, "SELECT stockade.present(%s, %s)", name, token)


def forge(link, tokens):
    """Writes what present() notes, past it."""
    ask(link, "SELECT set_config('stockade.claims', %s, true)",
        "".join(f" {name.encode().hex()}={token}" for name, token in tokens.items()))


def code_of(action):
    """The SQLSTATE that ends it; None where it succeeds."""
    try:
        action()
    except psycopg2.Error as error:
        return error.pgcode
    return None


@pytest.mark.parametrize("which, code", [
    ("no token", NOTOKEN), ("a stale one", STALE), ("a forged one", STALE),
    ("another row's", GUARDED), ("the right one", None)])
def test_rows_change_under_their_token_alone(stock, which, code):
    faults = []
    with stock.database.connect(user="postgres") as link:
        before = stock.rows(link)
        for form in FORMS:
            isolated = form.name in ("SERIALIZABLE", "REPEATABLE READ")
            ask(link, f"BEGIN ISOLATION LEVEL {form.name}" if isolated else "BEGIN")

            def act():
                (forge if which == "a forged one" else present)(link, stock.claims(which, form))
                ask(link, form.sql)
                ask(link, "SET CONSTRAINTS ALL IMMEDIATE")

            ended = code_of(act)
            if ended != code:
                faults.append(f"{form.name}: {ended}")
            elif code is None and "the same" not in form.name:
                ask(link, "RESET search_path")
                if stock.rows(link) == before and "new" not in form.name:
                    faults.append(f"{form.name}: nothing changed")
            ask(link, "ROLLBACK")
        assert stock.rows(link) == before
    assert not faults and len(FORMS) >= 40


def test_a_row_that_changes_hands_needs_both_tokens(stock):
    with stock.database.connect(user="postgres") as link:
        for form in [form for form in FORMS if form.also]:
            ask(link, "BEGIN")
            present(link, stock.claims("one of two"))
            assert code_of(lambda form=form: ask(link, form.sql)) == GUARDED, form.name
            ask(link, "ROLLBACK")


def test_a_daemon_lists_guards(stock):
    listed = stock.client("GUARD", "LIST")
    tables = [dict(zip(entry[::2], entry[1::2])) for entry in listed]
    assert [(t[b"table"], t[b"column"], t[b"prefix"], t[b"state"]) for t in tables] == [
        (table.encode(), column.encode(), prefix.encode(), b"ok")
        for table, column, prefix in sorted(GUARDS)]
