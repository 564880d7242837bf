# SPDX-License-Identifier: Apache-2.0
"""P7 Guards by column in SQLite: what inserts or updates a row assigns the token."""

import json
import re
import sqlite3

import pytest

from harness.maintenance import Maintenance, execute, query
from harness.resp import ReplyError, mapped
from harness.rig import Rig
from harness.shop import Connection, attempt, guards, present, program, under

pytestmark = [pytest.mark.interpreted, pytest.mark.xdist_group("sqlite_column")]

# Rows with the key 1 are mine, those with 2 another's.
TABLES = """
CREATE TABLE inventory(sku INTEGER PRIMARY KEY, stock INT NOT NULL DEFAULT 0 CHECK(stock > -100));
INSERT INTO inventory VALUES(1, 10), (2, 10);
CREATE TABLE lines(id INTEGER PRIMARY KEY, sku TEXT NOT NULL, amount INT NOT NULL, token BIGINT,
                   twice AS (amount * 2), thrice AS (amount * 3) STORED);
INSERT INTO lines(id, sku, amount) WITH n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
  WHERE i < 1999) SELECT i, 1 + i / 1000, 1 FROM n;
CREATE TABLE articles(sku INTEGER PRIMARY KEY, code TEXT UNIQUE);
INSERT INTO articles VALUES(1, 'a'), (2, 'b'), (3, 'c');
CREATE TABLE shelves(sku INT REFERENCES articles ON UPDATE CASCADE ON DELETE CASCADE, room INT,
                     code TEXT REFERENCES articles(code) ON UPDATE CASCADE, touched INT DEFAULT 0);
INSERT INTO shelves(sku, room, code) VALUES(1, 7, 'a'), (2, 7, 'b');
CREATE TRIGGER touch AFTER UPDATE OF room ON shelves BEGIN
  UPDATE shelves SET touched = touched + 1, stockade_token = NEW.stockade_token
  WHERE rowid = NEW.rowid; END;
CREATE TABLE tree(sku TEXT COLLATE NOCASE, bin INT, n INT, PRIMARY KEY(sku, bin)) WITHOUT ROWID;
INSERT INTO tree VALUES('1', 1, 1), ('1', 2, 1), ('2', 1, 1);
CREATE TABLE exact(sku TEXT PRIMARY KEY, n INT) STRICT;
INSERT INTO exact VALUES('1', 1), ('2', 1);
CREATE TABLE "my ""odd'"(oid INT, rowid INT, "my k""ey'" INT UNIQUE, n INT);
INSERT INTO "my ""odd'" VALUES(NULL, NULL, 1, 1), (NULL, NULL, 2, 1);

-- What the shop has besides: nobody guards these.
CREATE TABLE changes(stock INT);
CREATE TRIGGER note AFTER UPDATE OF stock ON inventory BEGIN
  INSERT INTO changes VALUES(NEW.stock); END;
CREATE TABLE news(sku INT, n INT, token INT);
CREATE TRIGGER apply AFTER INSERT ON news BEGIN
  UPDATE inventory SET stock = stock - NEW.n, stockade_token = NEW.token WHERE sku = NEW.sku; END;
CREATE TABLE poke(n INT);
CREATE TRIGGER poke AFTER INSERT ON poke BEGIN UPDATE inventory SET stock = NEW.n; END;
"""
GUARDS = [("inventory", "sku", "stockade_token"), ("lines", "sku", "token"),
          ("shelves", "sku", "stockade_token"), ("tree", "sku", "Proof"),
          ("exact", "sku", "stockade_token"), ("my \"odd'", "my k\"ey'", "my t\"oken'")]
VIEWS = """
CREATE VIEW seen AS SELECT * FROM inventory;
CREATE TRIGGER seen_u INSTEAD OF UPDATE ON seen BEGIN
  UPDATE inventory SET stock = NEW.stock, stockade_token = NEW.stockade_token
  WHERE sku = OLD.sku; END;
CREATE TRIGGER seen_i INSTEAD OF INSERT ON seen BEGIN
  INSERT INTO inventory VALUES(NEW.sku, NEW.stock, NEW.stockade_token)
  ON CONFLICT DO UPDATE SET stock = NEW.stock, stockade_token = NEW.stockade_token; END;
"""

# What comes of a form with no token, a stale one, one never granted, another row's, the right one.
EACH = ("NOTOKEN", "STALE", "UNKNOWN", "UNKNOWN", None)
TOKENS = ("none", "stale", "never granted", "another row's", "right")


def always(code):
    return (code,) * len(TOKENS)


SET = "SET stock = 5, stockade_token = {t}"
ROW = "INSERT INTO lines(id, sku, amount, token) VALUES"
# name: the statements of one transaction, one a line; and what comes of them.
FORMS = {
    "UPDATE": f"UPDATE inventory {SET} WHERE sku = 1",
    "UPDATE to the same": "UPDATE inventory SET stockade_token = {t} WHERE sku = 1",
    "UPDATE of a list": "UPDATE inventory SET (stock, stockade_token) = (5, {t}) WHERE sku = 1",
    "UPDATE FROM": f"UPDATE inventory {SET} FROM articles a WHERE a.sku = inventory.sku "
                   "AND a.sku = 1",
    "UPDATE RETURNING": f"UPDATE inventory {SET} WHERE sku = 1 RETURNING *",
    "UPDATE with a WITH": f"WITH w AS (SELECT 1 k) UPDATE inventory {SET} "
                          "WHERE sku IN (SELECT k FROM w)",
    "UPDATE by rowid": f"UPDATE inventory {SET} WHERE rowid = 1",
    "UPDATE OR FAIL": f"UPDATE OR FAIL inventory {SET} WHERE sku = 1",
    "UPDATE OR IGNORE": f"UPDATE OR IGNORE inventory {SET} WHERE sku = 1",
    "UPDATE OR REPLACE": f"UPDATE OR REPLACE inventory {SET} WHERE sku = 1",
    "UPDATE OR ROLLBACK": f"UPDATE OR ROLLBACK inventory {SET} WHERE sku = 1",
    "a token from a query": "UPDATE inventory SET stock = 5, stockade_token = (SELECT {t}) "
                            "WHERE sku = 1",
    "a token as text": "UPDATE inventory SET stock = 5, stockade_token = CAST({t} AS TEXT) "
                       "WHERE sku = 1",
    "a token as a float": "UPDATE inventory SET stock = 5, stockade_token = {t} * 1.0 "
                          "WHERE sku = 1",
    "rows of mine and of another": (f"UPDATE inventory {SET}",
                                    ("NOTOKEN", "STALE", "UNKNOWN", "UNKNOWN", "UNKNOWN|STALE")),
    "a thousand rows": "UPDATE lines SET amount = 2, token = {t} WHERE sku = '1'",
    "another primary key": "UPDATE lines SET id = 9000, token = {t} WHERE id = 7",
    "columns that are computed": "UPDATE lines SET amount = 2, token = {t} WHERE twice = 2 "
                                 "AND thrice = 3 AND id = 7",
    "another key": ("UPDATE lines SET sku = '2', token = {t} WHERE id = 7", always("GUARDED")),
    "a key of the same text": "UPDATE lines SET sku = 1, token = {t} WHERE id = 7",
    "a key that is NULL": ("UPDATE shelves SET sku = NULL, stockade_token = {t} WHERE sku = 1",
                           always("GUARDED")),
    "INSERT": ROW + "(9000, '1', 1, {t})",
    "INSERT of many": ROW + "(9000, '1', 1, {t}), (9001, '1', 1, {t})",
    "INSERT SELECT": "INSERT INTO lines(id, sku, amount, token) "
                     "SELECT id + 9000, sku, 1, {t} FROM lines WHERE id < 3",
    "INSERT RETURNING": ROW + "(9000, '1', 1, {t}) RETURNING id",
    "INSERT without a list": "INSERT INTO tree VALUES('1', 9, 1, {t})",
    "INSERT OR IGNORE": ROW.replace("INSERT", "INSERT OR IGNORE") + "(9000, '1', 1, {t})",
    "INSERT OR IGNORE of what is there": "INSERT OR IGNORE INTO inventory VALUES(1, 3, {t})",
    "INSERT of a key that SQLite makes": ("INSERT INTO inventory(stock, stockade_token) "
                                          "VALUES(3, {t})", always("GUARDED")),
    "DEFAULT VALUES": ("INSERT INTO inventory DEFAULT VALUES", always("GUARDED")),
    "ON CONFLICT DO UPDATE":
        "INSERT INTO inventory VALUES(1, 3, {t}) ON CONFLICT (sku) "
        "DO UPDATE SET stock = excluded.stock, stockade_token = excluded.stockade_token",
    "ON CONFLICT DO UPDATE without it": (
        "INSERT INTO inventory VALUES(1, 3, {t}) ON CONFLICT DO UPDATE SET stock = 3",
        EACH[:4] + ("NOTOKEN",)),
    "ON CONFLICT DO NOTHING": "INSERT INTO inventory VALUES(1, 3, {t}) ON CONFLICT DO NOTHING",
    "REPLACE": ("REPLACE INTO inventory VALUES(1, 3, {t})", EACH[:4] + ("GUARDED",)),
    "REPLACE of nothing": "REPLACE INTO lines(id, sku, amount, token) VALUES(9000, '1', 1, {t})",
    "UPDATE OR REPLACE over a row": (
        "UPDATE OR REPLACE lines SET id = 8, token = {t} WHERE id = 7", EACH[:4] + ("GUARDED",)),
    "DELETE": ("DELETE FROM inventory WHERE sku = 1", always("GUARDED")),
    "DELETE of all": ("DELETE FROM inventory", always("GUARDED")),
    "without rowid": "UPDATE tree SET n = 2, Proof = {t} WHERE sku = '1'",
    "without rowid, another primary key": "UPDATE tree SET bin = 9, Proof = {t} "
                                          "WHERE sku = '1' AND bin = 1",
    "STRICT": "UPDATE exact SET n = 2, stockade_token = {t} WHERE sku = '1'",
    "STRICT upsert": "INSERT INTO exact VALUES('1', 2, {t}) ON CONFLICT DO UPDATE "
                     "SET n = excluded.n, stockade_token = excluded.stockade_token",
    "odd names": """UPDATE "my ""odd'" SET n = 2, "my t""oken'" = {t} WHERE "my k""ey'" = 1""",
    "a trigger of another table": "INSERT INTO news VALUES(1, 1, {t})",
    "a trigger that assigns none": ("INSERT INTO poke VALUES(3)", always("NOTOKEN")),
    "a trigger that changes the same row": "UPDATE shelves SET room = 8, stockade_token = {t} "
                                           "WHERE sku = 1",
    "a view": "UPDATE seen SET stock = 5, stockade_token = {t} WHERE sku = 1",
    "INSERT into a view": "INSERT INTO seen VALUES(1, 3, {t})",
    "ON UPDATE CASCADE of the key": ("UPDATE articles SET sku = 1001 WHERE sku = 1",
                                     always("GUARDED")),
    "ON UPDATE CASCADE of another column": ("UPDATE articles SET code = 'x' WHERE sku = 1",
                                            always("NOTOKEN")),
    "ON DELETE CASCADE": ("DELETE FROM articles WHERE sku = 1", always("GUARDED")),
    "behind a savepoint": f"SAVEPOINT s\nUPDATE inventory {SET} WHERE sku = 1\nRELEASE s",
    "a row that was inserted just now": ROW + "(9000, '1', 1, {t})\n"
                                        "UPDATE lines SET amount = 2, token = {t} WHERE id = 9000",
    "the same row twice": f"UPDATE inventory {SET} WHERE sku = 1\n"
                          "UPDATE inventory SET stock = 4, stockade_token = {t} WHERE sku = 1",
    "deferred foreign keys": "PRAGMA defer_foreign_keys = ON\n"
                             "UPDATE shelves SET room = 9, stockade_token = {t} WHERE sku = 1",
    "EXPLAIN": ("EXPLAIN " f"UPDATE inventory {SET} WHERE sku = 1", always(None)),
    "no row": (f"UPDATE inventory {SET} WHERE sku = 77", always(None)),
}
CHANGES_NOTHING = ("UPDATE to the same", "a key of the same text", "ON CONFLICT DO NOTHING",
                   "INSERT OR IGNORE of what is there", "EXPLAIN", "no row")
WORDS = ("GUARDED", "NOTOKEN", "STALE", "UNKNOWN", "STORE")


def code_of(error):
    """Of an error's text: its code, or all of it."""
    word = (error or "").split(" ")[0]
    return word if word in WORDS else error


class Stock:
    """A file with these tables, guarded by column; a daemon on it, and tokens."""

    def __init__(self, rig):
        self.rig = rig
        self.file = rig.store
        self.daemon = rig.daemon()
        self.client = self.daemon.client()
        execute(self.file, TABLES)
        for table, column, token in GUARDS:
            assert self.client("GUARD", "CREATE", table, column, "sku:", "TOKEN", token) == "OK"
        execute(self.file, VIEWS)
        for _ in range(5):
            self.client("RELEASE", "sku:2", self.client.token("sku:2"))
        self.other = self.client.token("sku:2")
        self.stale = self.client.token("sku:1")
        self.client("RELEASE", "sku:1", self.stale)
        self.token = self.client.token("sku:1")
        self.tokens = dict(zip(TOKENS, ("NULL", self.stale, self.token + 90, self.other,
                                        self.token)))

    def rows(self, link, schema="main"):
        """Of all tables; and no token is left in any."""
        found = []
        for table, _, token in GUARDS:
            name, column = table.replace('"', '""'), token.replace('"', '""')
            assert link.execute(f'SELECT count(*) FROM {schema}."{name}" '
                                f'WHERE "{column}" IS NOT NULL').fetchall() == [(0,)], table
            found.append(link.execute(f'SELECT * FROM {schema}."{name}"').fetchall())
        return found

    def program(self):
        link = program(self.file)
        link.execute("PRAGMA foreign_keys = ON")
        return link

    def faults(self, link, run, schema="main"):
        """What is wrong with how each form ends, with each token. `run(link, sql)` runs one, and
        returns how it ended."""
        faults, before = [], self.rows(link, schema)
        for name, form in FORMS.items():
            sql, ends = form if isinstance(form, tuple) else (form, EACH)
            for which, code in zip(TOKENS, ends):
                link.execute("BEGIN IMMEDIATE")
                ended = run(link, sql.format(t=self.tokens[which]))
                after = self.rows(link, schema)
                if link.in_transaction:
                    link.execute("ROLLBACK")
                if not (ended in code.split("|") if code else ended is None):
                    faults.append(f"{name}, {which}: {ended}")
                elif code is not None and after != before:
                    faults.append(f"{name}, {which}: it has changed something")
                elif code is None and (after == before) != (name in CHANGES_NOTHING):
                    faults.append(f"{name}, {which}: changed {after != before}")
        assert self.rows(link, schema) == before
        return faults


def run_lines(link, sql):
    for line in sql.split("\n"):
        error = attempt(link, line)
        if error is not None:
            return code_of(error)
    return None


@pytest.fixture(scope="module")
def stock(module_rig):
    return Stock(module_rig)


def test_rows_change_under_the_token_that_they_are_given(stock):
    assert len(FORMS) >= 40
    with stock.program() as link:
        assert not stock.faults(link, run_lines)


def test_an_attached_file_is_guarded_too(stock):
    def attached(link, sql):
        return run_lines(link, re.sub(
            r'\b(UPDATE|INTO|FROM|IGNORE|FAIL|REPLACE|ROLLBACK) '
            r'(inventory|lines|shelves|tree|exact|articles|news|poke|seen|"my )', r"\1 shop.\2",
            sql))

    with program(":memory:") as link:
        link.execute("PRAGMA foreign_keys = ON")
        link.execute("ATTACH ? AS shop", (str(stock.file),))
        assert not stock.faults(link, attached, "shop")


def test_the_daemons_own_sql_is_judged_alike(stock):
    client = stock.daemon.client()
    with Connection(stock.file) as link:
        before = stock.rows(link)
        for which, code in zip(TOKENS[:4], EACH):
            with pytest.raises(ReplyError) as error:
                client("FENCEDALL", 1, "sku:1", stock.token, "SQL",
                       f"UPDATE inventory SET stock = 5, stockade_token = {stock.tokens[which]} "
                       "WHERE sku = 1")
            assert error.value.code == code
        assert stock.rows(link) == before
        for value in (3, 10):
            client("FENCEDALL", 1, "sku:1", stock.token, "SQL", "TYPES", "ii",
                   "UPDATE inventory SET stock = ?, stockade_token = ? WHERE sku = 1", value,
                   stock.token)
            assert stock.rows(link)[0][0] == (1, value, None)
        client.refused("NOPERM", "SQL", "SELECT stockade_assigned('', '', 1, 1, 1, 1, 1, 1, '', 1)")


def test_a_statement_needs_no_transaction_and_can_be_prepared(stock):
    """Python keeps prepared statements by their text, and runs executemany by one."""
    sell = "UPDATE inventory SET stock = stock - 1, stockade_token = ? WHERE sku = ?"
    with stock.program() as link:
        for _ in range(2):
            assert link.execute(sell, (stock.token, 1)).rowcount == 1
            with pytest.raises(sqlite3.Error, match="^STALE token"):
                link.execute(sell, (stock.stale, 1))
        with pytest.raises(sqlite3.Error, match="^UNKNOWN token"):
            link.executemany(sell, [(stock.token, 1), (stock.other, 2), (stock.other, 1)])
        link.executemany("UPDATE inventory SET stock = ?, stockade_token = ? WHERE sku = ?",
                         [(8, stock.other, 2), (10, stock.token, 1), (10, stock.other, 2)])
        assert stock.rows(link)[0] == [(1, 10, None), (2, 10, None)]


def test_a_trigger_of_the_users_runs_once_for_each_change(stock):
    with stock.program() as link:
        link.execute("BEGIN")
        link.execute("DELETE FROM changes")
        link.execute("UPDATE inventory SET stock = 4, stockade_token = ? WHERE sku = 1",
                     (stock.token,))
        assert link.execute("SELECT * FROM changes").fetchall() == [(4,)]
        link.execute("UPDATE shelves SET room = 8, stockade_token = ? WHERE sku = 1",
                     (stock.token,))
        assert link.execute("SELECT touched FROM shelves WHERE sku = 1").fetchall() == [(1,)]
        link.execute("ROLLBACK")


def test_a_statement_that_says_nothing_of_tokens_is_told_what_to_assign(stock):
    with stock.program() as link:
        assert attempt(link, "UPDATE inventory SET stock = 1 WHERE sku = 1") == (
            "NOTOKEN the statement assigns no token to its row of 'sku:1': set its column "
            "stockade_token")
    with Connection(stock.file) as link:
        assert attempt(link, "UPDATE inventory SET stock = 1 WHERE sku = 1") == (
            "no such function: stockade_assigned")
        link.create_function("stockade_assigned", -1, lambda *_: None)
        assert attempt(link, "UPDATE inventory SET stock = 1 WHERE sku = 1") == (
            "GUARDED stockade_assigned is not Stockade's")


def test_presenting_is_no_token_for_an_update_and_the_only_one_for_a_delete(stock):
    with stock.program() as link:
        with under(link, {"sku:1": stock.token}):
            assert code_of(attempt(link, "UPDATE inventory SET stock = 1")) == "NOTOKEN"
            assert code_of(attempt(link, "DELETE FROM inventory WHERE sku = 2")) == "GUARDED"
        link.execute("BEGIN IMMEDIATE")
        present(link, {"sku:1": stock.token})
        link.execute("DELETE FROM tree WHERE sku = '1'")
        link.execute("REPLACE INTO inventory VALUES(1, 3, ?)", (stock.token,))
        link.execute("UPDATE OR REPLACE lines SET id = 8, token = ? WHERE id = 7", (stock.token,))
        assert code_of(attempt(link, "REPLACE INTO inventory VALUES(1, 3, NULL)")) == "NOTOKEN"
        assert stock.rows(link)[0][0] == (1, 3, None)
        link.execute("ROLLBACK")


def test_without_recursive_triggers_even_the_right_token_changes_nothing(stock):
    with stock.program() as link:
        link.execute("PRAGMA recursive_triggers = OFF")
        for sql in ("UPDATE inventory SET stock = 1, stockade_token = {t} WHERE sku = 1",
                    "REPLACE INTO inventory VALUES(1, 3, {t})",
                    "INSERT INTO lines(id, sku, amount, token) VALUES(9000, '1', 1, {t})"):
            assert "recursive_triggers" in attempt(link, sql.format(t=stock.token))


def test_a_transaction_that_has_read_an_older_state_cannot_write_it(stock):
    old = stock.client.token("sku:50")
    with stock.program() as link:
        link.execute("PRAGMA busy_timeout = 100")
        insert = "INSERT INTO lines(id, sku, amount, token) VALUES(9050, '50', 1, ?)"
        link.execute("BEGIN")
        assert link.execute("SELECT * FROM inventory").fetchall()
        stock.client("RELEASE", "sku:50", old)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            link.execute(insert, (old,))
        link.execute("COMMIT")
        with pytest.raises(sqlite3.OperationalError, match="^STALE"):
            link.execute(insert, (old,))


def test_a_grant_waits_for_a_statements_transaction(stock):
    client = stock.daemon.client()
    token = client.token("sku:51")
    with stock.program() as link:
        link.execute("BEGIN")
        link.execute("INSERT INTO lines(id, sku, amount, token) VALUES(9051, '51', 1, ?)", (token,))
        client.send("REVOKE", "sku:51")
        with pytest.raises(TimeoutError):
            client.read(timeout=0.3)
        link.execute("ROLLBACK")
        assert client.read() == token


# Triggers that come before the guard's, because they were made later, and what they do to it.


@pytest.fixture
def late(stock):
    """A function that makes a table `late` with such a trigger, and gives it rows."""
    made = []

    def make(trigger, columns="sku INTEGER PRIMARY KEY, n INT"):
        stock.client("SQL", f"CREATE TABLE late({columns})")
        made.append(stock.client("GUARD", "CREATE", "late", "sku", "sku:", "TOKEN", "t"))
        with stock.program() as link:
            link.execute("INSERT INTO late(sku, n, t) VALUES(1, 1, ?)", (stock.token,))
            link.execute(trigger)

    yield make
    stock.client("GUARD", "DROP", "late")
    stock.client("SQL", "DROP TABLE late")


@pytest.mark.parametrize("action", ["SELECT RAISE(IGNORE)", "SELECT RAISE(FAIL, 'no')",
                                    "INSERT OR FAIL INTO late(sku, n, t) VALUES(1, 1, NEW.t)"])
def test_a_token_that_a_trigger_left_in_its_row_is_nobody_elses(stock, late, action):
    """Whoever assigns nothing looks like one who assigns the same; and NULL is no way round."""
    late(f"CREATE TRIGGER zz AFTER UPDATE OF n ON late WHEN NEW.n = 77 BEGIN {action}; END")
    with stock.program() as link:
        assert code_of(attempt(link, "UPDATE late SET n = 77, t = NULL")) == "NOTOKEN"
        attempt(link, f"UPDATE OR FAIL late SET n = 77, t = {stock.token}")
        assert link.execute("SELECT n, t FROM late").fetchall() == [(77, stock.token)]
        for sql in ("UPDATE late SET n = 2", "UPDATE late SET n = 2, t = NULL",
                    "UPDATE late SET t = NULL", "UPDATE late SET n = 2, t = {t}",
                    "INSERT INTO late VALUES(1, 2, {t}) ON CONFLICT DO UPDATE SET n = 2"):
            assert code_of(attempt(link, sql.format(t=stock.token))) == "GUARDED", sql
        assert code_of(attempt(link, f"UPDATE late SET n = 2, t = {stock.stale}")) == "STALE"
        stock.client("RELEASE", "sku:1", stock.token)
        assert code_of(attempt(link, "UPDATE late SET n = 2")) == "GUARDED"
        stock.token = stock.tokens["right"] = stock.client.token("sku:1")
        link.execute("UPDATE late SET n = 2, t = ?", (stock.token,))
        assert link.execute("SELECT n, t FROM late").fetchall() == [(2, None)]


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("trigger", [
    "BEFORE UPDATE OF n ON late WHEN NEW.n = 5 BEGIN UPDATE late SET sku = 2 WHERE sku = 1; END",
    "BEFORE UPDATE OF n ON late WHEN NEW.n = 5 BEGIN UPDATE late SET n = 6 WHERE sku = 1; END",
    "AFTER UPDATE OF n ON late WHEN NEW.n = 5 BEGIN UPDATE late SET sku = 2 WHERE sku = 1; END",
    "AFTER UPDATE OF n ON late WHEN NEW.n = 5 BEGIN UPDATE late SET n = 6, t = NULL; END",
    "AFTER UPDATE OF n ON late WHEN NEW.n = 5 BEGIN UPDATE late SET n = 6 WHERE sku = 1; END",
    "AFTER UPDATE OF n ON late WHEN NEW.n = 5 BEGIN DELETE FROM late WHERE sku = 1; END"])
def test_a_trigger_in_between_changes_no_row_without_a_token(stock, late, trigger, temporary):
    trigger = f"CREATE TRIGGER zz {trigger}"
    if temporary:
        trigger = trigger.replace("CREATE", "CREATE TEMP").replace(" ON late", " ON main.late")
    late("SELECT 1" if temporary else trigger)
    with stock.program() as link:
        if temporary:
            link.execute(trigger)
        assert code_of(attempt(link, f"UPDATE late SET n = 5, t = {stock.token}")) in (
            "GUARDED", "NOTOKEN")
        assert link.execute("SELECT * FROM late").fetchall() == [(1, 1, None)]


def test_a_row_that_cannot_be_freed_of_its_token_is_not_written(stock, late):
    late("SELECT 1", columns="sku INTEGER PRIMARY KEY, n INT, t INT, CHECK(n = 1 OR t IS NOT NULL)")
    with stock.program() as link:
        for either in ("", "OR IGNORE ", "OR REPLACE ", "OR FAIL "):
            error = attempt(link, f"UPDATE {either}late SET n = 5, t = {stock.token}")
            assert code_of(error) == "GUARDED" or error.startswith("CHECK constraint"), either
            assert link.execute("SELECT * FROM late").fetchall() == [(1, 1, None)] or (
                either == "OR FAIL ")
            assert code_of(attempt(link, "UPDATE late SET n = 6")) in ("NOTOKEN", "GUARDED")


# Making and losing guards.


def test_a_trigger_that_would_run_twice_is_refused_and_noticed(stock):
    client = stock.client
    for number, (when, clean) in enumerate((
            ("AFTER UPDATE ON", False), ("BEFORE UPDATE ON", False), ("UPDATE OF n, t ON", False),
            ("/* OF n */ AFTER -- ON\n UPDATE OF [n], \"T\" ON", False),
            ("AFTER UPDATE OF n ON", True),
            ("AFTER INSERT ON", True), ("DELETE ON", True), ("UPDATE OF `n` ON", True))):
        table = f"twice{number}"
        trigger = f"CREATE TRIGGER \"on {number}\" {when} {table} BEGIN SELECT 1; END"
        for first in (True, False):
            execute(stock.file, f"CREATE TABLE {table}(sku, n, t INT)")
            if first:
                execute(stock.file, trigger)
            made = client.ask("GUARD", "CREATE", table, "sku", "sku:", "TOKEN", "t")
            assert (made == "OK") == (clean or not first), (when, made)
            if not first:
                execute(stock.file, trigger)
                state, = [guard for guard in guards(client) if guard["table"] == table]
                assert state["state"] == ("ok" if clean else "broken"), when
                assert clean or f"on {number} would run twice" in state["problem"]
            elif not clean:
                assert f"on {number} would run twice" in str(made)
            client.ask("GUARD", "DROP", table)
            execute(stock.file, f"DROP TABLE {table}")


def test_what_cannot_take_tokens_is_refused(stock):
    execute(stock.file, """
        CREATE TABLE made(id INT, sku AS (id % 10));
        CREATE TABLE wrong(sku INT, a TEXT, b INT NOT NULL, c INT DEFAULT 1, d INT, e AS (d),
                           f INT, PRIMARY KEY(f));
        INSERT INTO wrong VALUES(1, 1, 1, NULL, 5, 9);
        CREATE TABLE numbers(sku INT, oid INT, rowid INT, _ROWID_ INT, t INT);
        CREATE TABLE narrow(sku INT); CREATE VIEW two(a) AS SELECT * FROM narrow;
        CREATE TABLE full(sku INT); CREATE TABLE source(sku INT);
        CREATE TRIGGER fill AFTER INSERT ON source BEGIN INSERT INTO full VALUES(NEW.sku); END""")
    for table, token, word in (("made", "t", "is computed"), ("wrong", "a", "cannot take tokens"),
                               ("wrong", "b", "cannot take tokens"),
                               ("wrong", "c", "cannot take tokens"), ("wrong", "d", "has values"),
                               ("wrong", "e", "cannot take tokens"),
                               ("wrong", "f", "cannot take tokens"),
                               ("wrong", "sku", "cannot take tokens"),
                               ("numbers", "t", "named rowid"), ("narrow", "t", "view two"),
                               ("full", "t", "a trigger of source")):
        error = stock.client.ask("GUARD", "CREATE", table, "sku", "sku:", "TOKEN", token)
        assert isinstance(error, ReplyError) and word in str(error), error
    for words in (["TOKEN"], ["TOKEN", ""], ["TOKE", "t"], ["TOKEN", "t", "t"],
                  ["TOKEN", "x" * 513]):
        stock.client.refused("ERR", "GUARD", "CREATE", "wrong", "sku", "sku:", *words)
    assert query(stock.file, "SELECT name FROM pragma_table_info('narrow')") == [("sku",)]
    assert {guard["table"] for guard in guards(stock.client)} == {table for table, *_ in GUARDS}


def test_a_guard_takes_with_it_what_it_has_added(stock):
    client = stock.client

    def columns():
        return [name for name, in query(stock.file, "SELECT name FROM pragma_table_info('own')")]

    execute(stock.file, "CREATE TABLE own(sku INT, given INT)")
    assert client("GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "added") == "OK"
    for words in ([], ["TOKEN", "given"], ["TOKEN", "added"]):
        client.refused("ERR", "GUARD", "CREATE", "own", "sku", "sku:", *words,
                       text="guarded already")
    assert columns() == ["sku", "given", "added"]
    assert client("GUARD", "DROP", "own") == "OK"
    assert columns() == ["sku", "given"]
    assert client("GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "GIVEN") == "OK"
    assert [guard["token_column"] for guard in guards(client) if guard["table"] == "own"] == [
        "given"]
    assert client("GUARD", "DROP", "own") == "OK"
    assert columns() == ["sku", "given"]
    assert client("GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "kept") == "OK"
    execute(stock.file, "CREATE VIEW reads AS SELECT kept FROM own")
    assert client("GUARD", "DROP", "own") == "OK"
    assert columns() == ["sku", "given", "kept"]
    execute(stock.file, "INSERT INTO own VALUES(1, 5, 6); DROP VIEW reads; DROP TABLE own")
    assert query(stock.file, "SELECT name FROM sqlite_schema WHERE tbl_name = 'own'") == []
    assert query(stock.file, "SELECT * FROM stockade_token_column WHERE name = 'own'") == []


@pytest.mark.parametrize("damage", [
    *(f"DROP TRIGGER stockade_guard_{part}_hurt" for part in
      ("insert", "inserted", "update", "updated", "delete")),
    "ALTER TABLE hurt RENAME COLUMN t TO u", "ALTER TABLE hurt RENAME COLUMN sku TO u"])
def test_damage_is_told_and_healed(stock, damage):
    client = stock.client
    execute(stock.file, "CREATE TABLE hurt(sku INT, n INT); INSERT INTO hurt VALUES(1, 1)")
    assert client("GUARD", "CREATE", "hurt", "sku", "sku:", "TOKEN", "t") == "OK"
    execute(stock.file, damage)
    state, = [guard for guard in guards(client) if guard["table"] == "hurt"]
    assert state["state"] == "broken" and "stockade_guard_" in state["problem"]
    client.refused("GUARDED", "FENCEDALL", 1, "sku:1", stock.token, "SQL",
                   "UPDATE hurt SET n = 2")
    if "RENAME" in damage:  # nothing passes
        with stock.program() as link:
            assert code_of(attempt(link, "UPDATE hurt SET n = 2")) == "NOTOKEN"
        execute(stock.file, damage.replace(" t TO u", " u TO t").replace(" sku TO u", " u TO sku"))
    else:
        assert client("GUARD", "CREATE", "hurt", "sku", "sku:", "TOKEN", "t") == "OK"
    with stock.program() as link:
        assert code_of(attempt(link, "UPDATE hurt SET n = 2")) == "NOTOKEN"
        link.execute("UPDATE hurt SET n = 2, t = ?", (stock.token,))
    assert client("GUARD", "DROP", "hurt") == "OK"
    execute(stock.file, "DROP TABLE hurt")


@pytest.mark.parametrize("sql, whole", [
    ("VACUUM", True), ("ANALYZE", True), ("REINDEX", True),
    ("ALTER TABLE inventory ADD COLUMN price INT; ALTER TABLE inventory DROP COLUMN price", True),
    ("ALTER TABLE tree ADD COLUMN price INT", True), ("CREATE INDEX by_n ON tree(n)", True),
    ("ALTER TABLE shelves ADD COLUMN rowid INT", False),  # the guard finds rows by this word
    ("ALTER TABLE exact RENAME TO sharp", False)])
def test_schema_changes_of_others_leave_no_row_open(sql, whole, rig):
    stock = Stock(rig)
    with Connection(stock.file) as link:
        for each in sql.split("; "):
            link.execute(each)
        assert attempt(link, "ALTER TABLE inventory DROP COLUMN stockade_token") is not None
    assert all(guard["state"] == "ok" for guard in guards(stock.client)) == whole
    with stock.program() as link:
        for table in ("inventory", "lines", "tree", "sharp" if "sharp" in sql else "exact"):
            key = "sku = '1'"
            column = {"lines": "token", "tree": "Proof"}.get(table, "stockade_token")
            other = {"inventory": "stock", "lines": "amount"}.get(table, "n")
            sell = f"UPDATE {table} SET {other} = 2{{}} WHERE {key}"
            assert code_of(attempt(link, sell.format(""))) == "NOTOKEN"
            link.execute(sell.format(f", {column} = ?"), (stock.token,))
        if "rowid" in sql:
            assert "GUARD LIST" in attempt(link, "UPDATE shelves SET room = 2, stockade_token = "
                                                 f"{stock.token} WHERE sku = 1")


# Copies, backups, and what people read.


def test_a_copy_accepts_nothing_before_a_daemon(stock, rig, tmp_path):
    copy = tmp_path / "copy.db"
    sell = "UPDATE {}inventory SET stock = stock - 1, stockade_token = {} WHERE sku = 1"
    with stock.program() as link, Connection(copy) as other:
        link.backup(other)
    with program(copy) as link:
        error = attempt(link, sell.format("", stock.token))
        assert code_of(error) == "STORE" and "is a copy" in error
        # Neither file can be told from the other by what is in it.
        link.execute("ATTACH ? AS shop", (str(stock.file),))
        assert code_of(attempt(link, sell.format("main.", stock.token))) == "STORE"
        served = rig.daemon(store=f"sqlite:{copy}").client()
        assert code_of(attempt(link, sell.format("main.", stock.token))) == "STALE"
        link.execute(sell.format("main.", served.token("sku:1")))
        link.execute(sell.format("shop.", stock.token))
        link.execute("UPDATE shop.inventory SET stock = 10, stockade_token = ? WHERE sku = 1",
                     (stock.token,))


def test_a_copy_attached_beside_its_file_accepts_nothing(stock, tmp_path):
    """Both have the same mark, and the same note of the file that was served."""
    with stock.program() as link, Connection(tmp_path / "copy.db") as other:
        link.backup(other)
        link.execute("ATTACH ? AS copied", (str(tmp_path / "copy.db"),))
        for schema in "copied", "main":
            error = attempt(link, f"UPDATE {schema}.inventory SET stock = 1, stockade_token = "
                                  f"{stock.token} WHERE sku = 1")
            assert code_of(error) == "STORE" and "copy.db is a copy" in error
        link.execute("DETACH copied")
        link.execute("UPDATE inventory SET stock = 10, stockade_token = ? WHERE sku = 1",
                     (stock.token,))


def test_a_file_of_two_names_takes_no_token(stock, tmp_path):
    (tmp_path / "second.db").hardlink_to(stock.file)
    with stock.program() as link:
        error = attempt(link, f"UPDATE inventory SET stockade_token = {stock.token} WHERE sku = 1")
        assert code_of(error) == "STORE" and "hard links" in error
    (tmp_path / "second.db").unlink()


def test_backup_restore_and_check_keep_and_know_them(rig, tmp_path):
    stock, maintenance = Stock(rig), Maintenance(rig)
    count = len(GUARDS)
    maintenance.do("backup", maintenance.copy)
    assert stock.client("GUARD", "DROP", "inventory") == "OK"
    maintenance.do("restore", maintenance.copy)
    assert maintenance.do("check").endswith(f", {count} guards\n")
    listed = {guard["table"]: guard for guard in guards(stock.client)}
    assert {table: guard["token_column"] for table, guard in listed.items()} == {
        table: token for table, _, token in GUARDS}
    assert query(rig.store, "SELECT * FROM stockade_guards WHERE \"table\" = 'tree'") == [
        ("tree", "sku", "sku:", "Proof")]
    with stock.program() as link:
        assert code_of(attempt(link, "UPDATE inventory SET stock = 1 WHERE sku = 1")) == "NOTOKEN"
        assert code_of(attempt(link, "UPDATE inventory SET stock = 1, stockade_token = "
                                     f"{stock.token} WHERE sku = 1")) in ("STALE", "UNKNOWN")
        fresh = stock.client.token("sku:1", 600000, "WAIT", 10000)
        link.execute("UPDATE inventory SET stock = 1, stockade_token = ? WHERE sku = 1", (fresh,))
    execute(rig.store, "CREATE TRIGGER more AFTER UPDATE ON tree BEGIN SELECT 1; END")
    assert "trigger more would run twice" in maintenance.ask("check").stdout


def test_a_daemon_that_starts_anew_finds_them(rig, tmp_path):
    """And the file of the version before, which knows of no such guard."""
    stock = Stock(rig)
    shown = guards(stock.client)
    stock.daemon.close_clients()
    stock.daemon.stop()
    with Connection(rig.store) as link, Connection(tmp_path / "old.db") as copy:
        link.backup(copy)
    client = rig.daemon().client()
    assert guards(client) == shown and all(guard["state"] == "ok" for guard in shown)
    execute(tmp_path / "old.db", "DROP VIEW stockade_guards; DROP TABLE stockade_token_column;"
                                 "CREATE VIEW stockade_guards(\"table\", \"column\", prefix) AS"
                                 "  SELECT name, key, prefix FROM stockade_guard;"
                                 "PRAGMA user_version = 4")
    done = Maintenance(rig).ask("check", store=tmp_path / "old.db")
    assert done.stdout.count("was altered") == len(GUARDS), done.stdout


def test_the_tool_makes_and_lists_guards_by_column(tool, tmp_path):
    (tmp_path / "tooled").mkdir()
    rig = Rig(tmp_path / "tooled")
    client = rig.daemon().client()
    client("SQL", "CREATE TABLE tooled(sku TEXT, n INT)")
    where = ["--store", f"sqlite:{rig.store}"]
    try:
        assert tool.output("guard", "create", "tooled", "sku", "sku:", "--token-column", "proof",
                           *where) == ""
        listed = json.loads(tool.output("guard", "list", "--json", *where))
        assert listed == [{"table": "tooled", "column": "sku", "prefix": "sku:",
                           "token_column": "proof", "state": "ok"}]
        assert tool.output("guard", "list", *where).split()[:5] == [
            "TABLE", "COLUMN", "PREFIX", "TOKEN", "STATE"]
        assert mapped(client("GUARD", "LIST")[0])[b"token_column"] == b"proof"
        assert tool.output("guard", "drop", "tooled", *where) == ""
    finally:
        rig.close()
