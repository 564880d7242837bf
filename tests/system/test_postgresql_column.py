# SPDX-License-Identifier: Apache-2.0
"""Guards by column in PostgreSQL: what inserts or updates a row assigns the token."""

import collections
import json
import threading

import psycopg2
import pytest

from harness.limits import patience, wait_until
from harness.postgres import ask
from harness.resp import ReplyError, mapped
from test_postgresql_guards import GUARDED, NOTOKEN, STALE, STORE, UNKNOWN, code_of, present

pytestmark = [pytest.mark.interpreted, pytest.mark.xdist_group("postgresql_column")]

# Rows with the key 1 are mine, those with 2 another's.
TABLES = """
CREATE TABLE inventory(sku int8 PRIMARY KEY, stock int NOT NULL DEFAULT 0 CHECK(stock > -100));
INSERT INTO inventory VALUES(1, 10), (2, 10);
CREATE TABLE lines(id int8 PRIMARY KEY, sku varchar(20) NOT NULL, amount int NOT NULL,
                   token int8);
INSERT INTO lines SELECT i, 1 + i / 1000, 1 FROM generate_series(0, 1999) i;
CREATE TABLE articles(sku int8 PRIMARY KEY);
INSERT INTO articles VALUES(1), (2), (3);
CREATE TABLE shelves(sku int8 REFERENCES articles ON UPDATE CASCADE, room int);
INSERT INTO shelves VALUES(1, 7), (2, 7);

-- What the shop has besides: nobody guards these.
CREATE TABLE news(sku int8, n int, token int8);
CREATE FUNCTION apply() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN UPDATE inventory SET stock = stock - NEW.n, stockade_token = NEW.token
          WHERE sku = NEW.sku; RETURN NEW; END$$;
CREATE TRIGGER apply AFTER INSERT ON news FOR EACH ROW EXECUTE FUNCTION apply();
CREATE TABLE later(sku int8, n int, token int8);
CREATE CONSTRAINT TRIGGER apply AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION apply();
CREATE FUNCTION sell(int8, int8) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN UPDATE inventory SET stock = stock - 1, stockade_token = $2 WHERE sku = $1; END$$;
CREATE FUNCTION sell_as_owner(int8, int8) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN UPDATE inventory SET stock = stock - 1, stockade_token = $2 WHERE sku = $1; END$$;
CREATE PROCEDURE sell_all(token int8) LANGUAGE plpgsql AS $$
  BEGIN UPDATE inventory SET stock = stock - 1, stockade_token = token WHERE sku = 1; END$$;
CREATE FUNCTION less() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN NEW.stock = NEW.stock - 1; RETURN NEW; END$$;
CREATE TRIGGER zz_less BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION less();
"""
GUARDS = [("inventory", "sku", "sku:", "stockade_token"), ("lines", "sku", "sku:", "token"),
          ("shelves", "sku", "sku:", "stockade_token")]
VIEWS = """
CREATE VIEW stock AS SELECT * FROM inventory;
CREATE VIEW ruled AS SELECT * FROM inventory OFFSET 0;
CREATE RULE ruled AS ON UPDATE TO ruled DO INSTEAD
  UPDATE inventory SET stock = NEW.stock, stockade_token = NEW.stockade_token WHERE sku = OLD.sku;
"""

SET = "SET stock = 5, stockade_token = {t}"
FORMS = {
    "UPDATE": f"UPDATE inventory {SET} WHERE sku = 1",
    "UPDATE to the same": "UPDATE inventory SET stockade_token = {t} WHERE sku = 1",
    "UPDATE of a list": "UPDATE inventory SET (stock, stockade_token) = (5, {t}) WHERE sku = 1",
    "UPDATE FROM": f"UPDATE inventory i {SET} FROM articles a WHERE a.sku = i.sku AND i.sku = 1",
    "UPDATE RETURNING": f"UPDATE inventory {SET} WHERE sku = 1 RETURNING *",
    "UPDATE ONLY": f"UPDATE ONLY inventory {SET} WHERE sku = 1",
    "a token from a query": "UPDATE inventory SET stock = 5, stockade_token = (SELECT {t}::int8) "
                            "WHERE sku = 1",
    "a token as text": "UPDATE inventory SET stock = 5, stockade_token = '{t}'::text::int8 "
                       "WHERE sku = 1",
    "INSERT": "INSERT INTO lines VALUES(9000, '1', 1, {t})",
    "INSERT SELECT": "INSERT INTO lines SELECT i + 9000, '1', 1, {t} FROM generate_series(1, 3) i",
    "INSERT of many": "INSERT INTO lines VALUES(9000, '1', 1, {t}), (9001, '1', 1, {t})",
    "INSERT RETURNING": "INSERT INTO lines VALUES(9000, '1', 1, {t}) RETURNING id",
    "ON CONFLICT DO UPDATE":
        "INSERT INTO inventory VALUES(1, 3, {t}) ON CONFLICT (sku) "
        "DO UPDATE SET stock = excluded.stock, stockade_token = {t}",
    "ON CONFLICT DO NOTHING": "INSERT INTO inventory VALUES(1, 3, {t}) ON CONFLICT DO NOTHING",
    "MERGE that updates": "MERGE INTO inventory i USING (VALUES(1)) v(sku) ON i.sku = v.sku "
                          "WHEN MATCHED THEN UPDATE " + SET,
    "MERGE that inserts": "MERGE INTO lines l USING (VALUES(9000)) v(id) ON l.id = v.id "
                          "WHEN NOT MATCHED THEN INSERT VALUES(9000, '1', 1, {t})",
    "a writable CTE": f"WITH w AS (UPDATE inventory {SET} WHERE sku = 1 RETURNING sku) "
                      "SELECT * FROM w",
    "a CTE that nobody reads": f"WITH w AS (UPDATE inventory {SET} WHERE sku = 1) SELECT 1",
    "two writes in one statement":
        f"WITH a AS (UPDATE inventory {SET} WHERE sku = 1), "
        "b AS (UPDATE lines SET amount = 2, token = {t} WHERE id = 7) SELECT 1",
    "a thousand rows": "UPDATE lines SET amount = 2, token = {t} WHERE sku = '1'",
    "PREPARE and EXECUTE":
        "PREPARE p(int8, int8) AS UPDATE inventory SET stock = 5, stockade_token = $2 "
        "WHERE sku = $1; EXECUTE p(1, {t}); DEALLOCATE p",
    "EXPLAIN ANALYZE": f"EXPLAIN ANALYZE UPDATE inventory {SET} WHERE sku = 1",
    "DO": f"DO 'BEGIN UPDATE inventory {SET} WHERE sku = 1; END'",
    "EXECUTE in plpgsql": f"DO $$BEGIN EXECUTE 'UPDATE inventory {SET} WHERE sku = 1'; END$$",
    "a function": "SELECT sell(1, {t})",
    "a function of the owner's": "SELECT sell_as_owner(1, {t})",
    "a procedure": "CALL sell_all({t})",
    "a trigger of another table": "INSERT INTO news VALUES(1, 1, {t})",
    "a deferred constraint trigger": "INSERT INTO later VALUES(1, 1, {t})",
    "a view": f"UPDATE stock {SET} WHERE sku = 1",
    "INSERT into a view": "INSERT INTO stock VALUES(1, 3, {t}) ON CONFLICT DO NOTHING",
    "a view's rule": f"UPDATE ruled {SET} WHERE sku = 1",
    "WHERE CURRENT OF":
        "DECLARE c CURSOR FOR SELECT * FROM inventory WHERE sku = 1 FOR UPDATE; FETCH c; "
        f"UPDATE inventory {SET} WHERE CURRENT OF c; CLOSE c",
    "behind a savepoint": f"SAVEPOINT s; UPDATE inventory {SET} WHERE sku = 1; RELEASE s",
    "SERIALIZABLE": f"UPDATE inventory {SET} WHERE sku = 1",
    "REPEATABLE READ": f"UPDATE inventory {SET} WHERE sku = 1",
    "session_replication_role = replica":
        f"SET LOCAL session_replication_role = replica; UPDATE inventory {SET} WHERE sku = 1",
    "another search_path":
        "SET LOCAL search_path = pg_temp, stockade; "
        f"UPDATE public.inventory {SET} WHERE sku = 1",
    "a row that was inserted just now":
        "INSERT INTO lines VALUES(9000, '1', 1, {t}); "
        "UPDATE lines SET amount = 2, token = {t} WHERE id = 9000",
    "the same row twice": f"UPDATE inventory {SET} WHERE sku = 1; "
                          "UPDATE inventory SET stock = 4, stockade_token = {t} WHERE sku = 1",
}


class Stock:
    """A database with these tables, guarded by column; a daemon on it, and tokens."""

    def __init__(self, rig, database):
        self.database = database
        self.daemon = rig.daemon(store=database.uri)
        self.client = self.daemon.client()
        database.sql(TABLES)
        for table, column, prefix, token in GUARDS:
            assert self.client("GUARD", "CREATE", table, column, prefix, "TOKEN", token) == "OK"
        database.sql(VIEWS)
        self.stale = self.client.token("sku:1", 600000)
        self.client("RELEASE", "sku:1", self.stale)
        self.client("RELEASE", "sku:1", self.client.token("sku:1", 600000))
        self.token = self.client.token("sku:1", 600000)
        self.other = self.client.token("sku:2", 600000)

    def rows(self, link):
        return [ask(link, f"SELECT t::text FROM {table} t ORDER BY 1") for table, *_ in GUARDS]


@pytest.fixture(scope="module")
def stock(module_rig, postgres):
    yield Stock(module_rig, postgres.database())


@pytest.mark.parametrize("which, code", [
    ("no token", NOTOKEN), ("a stale one", STALE), ("one never granted", UNKNOWN),
    ("the right one", None)])
def test_rows_change_under_the_token_that_they_are_given(stock, which, code):
    token = {"no token": "NULL", "a stale one": stock.stale, "one never granted": stock.token + 9,
             "the right one": stock.token}[which]
    faults = []
    with stock.database.connect(user="postgres") as link:
        before = stock.rows(link)
        for name, sql in FORMS.items():
            isolated = name in ("SERIALIZABLE", "REPEATABLE READ")
            ask(link, f"BEGIN ISOLATION LEVEL {name}" if isolated else "BEGIN")

            def act(sql=sql):
                ask(link, sql.replace("'{t}'", "{t}").format(t=token))
                ask(link, "SET CONSTRAINTS ALL IMMEDIATE")

            ended = code_of(act)
            if ended != code:
                faults.append(f"{name}: {ended}")
            elif code is None:
                ask(link, "RESET search_path")
                if "CONFLICT DO NOTHING" not in sql and stock.rows(link) == before:
                    faults.append(f"{name}: nothing changed")
                if ask(link, "SELECT EXISTS(SELECT FROM inventory WHERE stockade_token IS NOT NULL)"
                             " OR EXISTS(SELECT FROM lines WHERE token IS NOT NULL)") != [(False,)]:
                    faults.append(f"{name}: the token stayed in the row")
            ask(link, "ROLLBACK")
        assert stock.rows(link) == before
    assert not faults and len(FORMS) >= 40


def test_a_statement_that_says_nothing_of_tokens_is_told_what_to_assign(stock):
    with stock.database.connect() as link:
        for sql in ("UPDATE inventory SET stock = 1 WHERE sku = 1",
                    "INSERT INTO inventory VALUES(1, 2)",
                    "INSERT INTO lines(id, sku, amount) VALUES(9000, '1', 1)"):
            with pytest.raises(psycopg2.Error) as error:
                ask(link, sql)
            assert error.value.pgcode == NOTOKEN
            assert "'sku:1'" in error.value.diag.message_primary
            assert "Assign it in the same statement" in error.value.diag.message_hint


def test_presenting_is_no_token_for_an_update(stock):
    with stock.database.connect() as link:
        ask(link, "BEGIN")
        present(link, {"sku:1": stock.token})
        assert code_of(lambda: ask(link, "UPDATE inventory SET stock = 1")) == NOTOKEN


def test_one_token_stands_for_one_resource(stock):
    with stock.database.connect() as link:
        token = stock.token
        assert code_of(lambda: ask(link, f"UPDATE inventory SET stockade_token = {token}")) in (
            STALE, UNKNOWN)
        for sql in (f"UPDATE lines SET sku = '2', token = {token} WHERE sku = '1'",
                    f"UPDATE lines SET sku = '2', token = {stock.other} WHERE sku = '1'",
                    "UPDATE articles SET sku = 1001 WHERE sku = 1"):
            with pytest.raises(psycopg2.Error) as error:
                ask(link, sql)
            assert error.value.pgcode == GUARDED, sql
        assert code_of(lambda: ask(link, "INSERT INTO shelves VALUES(NULL, 1, %s)",
                                   token)) == GUARDED


def test_rows_are_deleted_under_a_token_that_is_presented(stock):
    with stock.database.connect() as link:
        assert code_of(lambda: ask(link, "DELETE FROM inventory WHERE sku = 1")) == NOTOKEN
        ask(link, "BEGIN")
        present(link, {"sku:2": stock.other})
        assert code_of(lambda: ask(link, "DELETE FROM inventory WHERE sku = 1")) == GUARDED
        ask(link, "ROLLBACK; BEGIN")
        present(link, {"sku:1": stock.token})
        ask(link, "DELETE FROM inventory WHERE sku = 1")
        ask(link, "DELETE FROM inventory WHERE sku = 77")
        ask(link, "ROLLBACK")
        assert code_of(lambda: ask(link, "TRUNCATE inventory")) == GUARDED
    with stock.database.connect(user="postgres") as link:
        ask(link, "SET session_replication_role = replica")
        assert code_of(lambda: ask(link, "DELETE FROM lines WHERE sku = '1'")) == NOTOKEN


def test_a_grant_waits_for_a_statement_and_refuses_its_token(stock):
    client, other = stock.daemon.client(), stock.daemon.client()
    stock.database.sql("INSERT INTO articles VALUES(50)")
    token = client.token("sku:50", 600000)
    with stock.database.connect() as link:
        ask(link, "INSERT INTO shelves VALUES(50, 0, %s)", token)  # a session's first goes slowly
        ask(link, "BEGIN")
        ask(link, "INSERT INTO shelves VALUES(50, 1, %s)", token)
        other.send("REVOKE", "sku:50")
        with pytest.raises(TimeoutError):
            other.read(timeout=0.3)
        ask(link, "COMMIT")
        assert other.read() == token
        assert code_of(lambda: ask(link, "UPDATE shelves SET room = 2, stockade_token = %s "
                                         "WHERE sku = 50", token)) == STALE


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_the_rightful_holder_is_never_the_victim_of_a_deadlock(stock, level):
    """It presents, which locks the fence, and deletes; a stale one has the row, wants the fence.
    The stale one has a snapshot from before the grant, where its level has one."""
    client = stock.daemon.client()
    stock.database.sql("INSERT INTO articles VALUES(60) ON CONFLICT DO NOTHING")
    old = client.token("sku:60", 600000)
    with stock.database.connect() as link, stock.database.connect() as holder, \
            stock.database.connect() as watch:
        ask(link, "INSERT INTO shelves VALUES(60, 1, %s)", old)
        # Who stands still between the row's lock and its trigger: an earlier trigger waits.
        ask(watch, "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                   "PERFORM pg_advisory_xact_lock(60); RETURN NEW; END$$")
        ask(watch, "CREATE TRIGGER a_hold BEFORE UPDATE ON shelves FOR EACH ROW "
                   "EXECUTE FUNCTION hold()")
        for _ in range(3):
            ask(watch, "SELECT pg_advisory_lock(60)")
            ask(link, f"BEGIN ISOLATION LEVEL {level}")
            ask(link, "SELECT * FROM shelves")
            ended = []
            stale = threading.Thread(target=lambda: ended.append(code_of(lambda: ask(
                link, "UPDATE shelves SET room = 2, stockade_token = %s WHERE sku = 60", old))))
            stale.start()
            wait_until(lambda: ask(watch, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' "
                                          "AND NOT granted"), "the stale one has its row")
            client("RELEASE", "sku:60", old)
            new = client.token("sku:60", 600000)
            ask(holder, "BEGIN")
            present(holder, {"sku:60": new})
            gone = []
            delete = threading.Thread(target=lambda: gone.append(code_of(lambda: ask(
                holder, "DELETE FROM shelves WHERE sku = 60"))))
            delete.start()
            wait_until(lambda: ask(watch, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = "
                                          "'Lock' AND query LIKE 'DELETE FROM shelves%'"),
                       "the holder waits for the row")
            ask(watch, "SELECT pg_advisory_unlock(60)")
            delete.join(patience(30))
            stale.join(patience(30))
            assert gone == [None] and ended[0] in (STALE, "40001")
            ask(holder, "ROLLBACK")
            ask(link, "ROLLBACK")
            old = new
        client("RELEASE", "sku:60", old)
        ask(watch, "DROP TRIGGER a_hold ON shelves; DROP FUNCTION hold()")


def test_a_second_statement_of_the_holders_waits_for_the_first(stock):
    """Other rows of the same resource: nobody is refused, however many looks it takes."""
    with stock.database.connect() as first, stock.database.connect() as second, \
            stock.database.connect() as watch:
        ask(first, "BEGIN")
        ask(first, "UPDATE lines SET amount = 3, token = %s WHERE id = 1", stock.token)
        ended = []
        waits = threading.Thread(target=lambda: ended.append(code_of(lambda: ask(
            second, "UPDATE lines SET amount = 3, token = %s WHERE id = 2", stock.token))))
        waits.start()
        wait_until(lambda: ended or ask(
            watch, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query "
                   "LIKE 'UPDATE lines%' AND clock_timestamp() > query_start + interval '0.5 s'"),
            "it has looked more than once")
        assert not ended
        ask(first, "COMMIT")
        waits.join(patience(30))
        assert ended == [None]


def test_a_statement_sets_limits_for_its_transaction_alone(stock):
    names = ("idle_in_transaction_session_timeout", "synchronous_commit")
    with stock.database.connect() as link:
        ask(link, "SET synchronous_commit = off")

        def limits():
            return tuple(ask(link, f"SHOW {name}")[0][0] for name in names)

        ask(link, "BEGIN")
        ask(link, "UPDATE inventory SET stockade_token = %s WHERE sku = 1", stock.token)
        assert limits() == ("10s", "on")
        ask(link, "ROLLBACK")
        assert limits() == ("0", "off")


def test_no_trigger_fires_behind_the_guards(stock):
    client = stock.daemon.client()
    with stock.database.connect() as link:
        ask(link, "CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS "
                  "$$BEGIN NEW.sku = 2; RETURN NEW; END$$")
        ask(link, "CREATE TABLE outrun(sku int8, n int)")
        ask(link, 'CREATE TRIGGER "~~" BEFORE INSERT ON outrun FOR EACH ROW '
                  "EXECUTE FUNCTION move()")
        client.refused("ERR", "GUARD", "CREATE", "outrun", "sku", "sku:", "TOKEN", "t")
        ask(link, 'ALTER TRIGGER "~~" ON outrun RENAME TO earlier')
        assert client("GUARD", "CREATE", "outrun", "sku", "sku:", "TOKEN", "t") == "OK"
        insert = "INSERT INTO outrun VALUES(1, 1, %s)"
        ask(link, insert, stock.other)  # what the earlier trigger has made of it is judged
        assert code_of(lambda: ask(link, insert, stock.token)) in (STALE, UNKNOWN)
        ask(link, 'ALTER TRIGGER earlier ON outrun RENAME TO "~~"')
        assert code_of(lambda: ask(link, insert, stock.token)) == GUARDED
        flaw = [mapped(guard) for guard in client("GUARD", "LIST")
                if mapped(guard)[b"table"] == b"outrun"][0]
        assert flaw[b"state"] == b"broken" and b"fires behind" in flaw[b"problem"]
        ask(link, 'DROP TRIGGER "~~" ON outrun')
        assert client("GUARD", "DROP", "outrun") == "OK"
        ask(link, "DROP TABLE outrun; DROP FUNCTION move()")


def test_what_cannot_take_tokens_is_refused(stock):
    client = stock.daemon.client()
    stock.database.sql("""
        CREATE TABLE tree(sku int8, day int) PARTITION BY RANGE(day);
        CREATE TABLE made(id int, sku text GENERATED ALWAYS AS ((id % 10)::text) STORED);
        CREATE TABLE wrong(sku int8, a int4, b int8 NOT NULL, c int8 DEFAULT 1, d int8);
        INSERT INTO wrong VALUES(1, 1, 1, NULL, 5)""")
    for table, token, word in (("tree", "t", "partitions"), ("made", "t", "generated"),
                               ("wrong", "a", "int8 that may be NULL"),
                               ("wrong", "b", "int8 that may be NULL"),
                               ("wrong", "c", "int8 that may be NULL"),
                               ("wrong", "d", "has values")):
        error = client.ask("GUARD", "CREATE", table, "sku", "sku:", "TOKEN", token)
        assert isinstance(error, ReplyError) and word in str(error), error
    for words in (["TOKEN"], ["TOKEN", ""], ["TOKE", "t"], ["TOKEN", "t", "t"]):
        client.refused("ERR", "GUARD", "CREATE", "wrong", "sku", "sku:", *words)


def test_a_guard_takes_with_it_what_it_has_added(stock):
    client = stock.daemon.client()
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'own'::regclass AND attnum > 0 " \
              "AND NOT attisdropped ORDER BY attnum"
    stock.database.sql("CREATE TABLE own(sku int8, given int8)")
    assert client("GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "added") == "OK"
    client.refused("ERR", "GUARD", "CREATE", "own", "sku", "sku:")
    client.refused("ERR", "GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "given")
    client.refused("ERR", "GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "added")
    assert [name for name, in stock.database.sql(columns)] == ["sku", "given", "added"]
    assert client("GUARD", "DROP", "own") == "OK"
    assert [name for name, in stock.database.sql(columns)] == ["sku", "given"]
    assert client("GUARD", "CREATE", "own", "sku", "sku:", "TOKEN", "given") == "OK"
    assert client("GUARD", "DROP", "own") == "OK"
    assert [name for name, in stock.database.sql(columns)] == ["sku", "given"]
    stock.database.sql("INSERT INTO own VALUES(1, 5); DROP TABLE own")


@pytest.mark.parametrize("damage, word", [
    ("ALTER TABLE hurt DROP CONSTRAINT {c}", "constraint"),
    ("ALTER TABLE hurt DROP COLUMN t", "column"),
    ("ALTER TABLE hurt RENAME COLUMN t TO u", "column"),
    ("ALTER TABLE hurt DISABLE TRIGGER \"~{g}_token\"", "disabled"),
    ("DROP TRIGGER \"~{g}_token\" ON hurt", "no trigger"),
    ("CREATE TABLE child() INHERITS(hurt)", "child")])
def test_damage_is_told_and_healed(stock, damage, word):
    client = stock.daemon.client()
    stock.database.sql("DROP TABLE IF EXISTS hurt CASCADE; CREATE TABLE hurt(sku int8, n int);"
                       "INSERT INTO hurt VALUES(1, 1)")
    assert client("GUARD", "CREATE", "hurt", "sku", "sku:", "TOKEN", "t") == "OK"
    number, = stock.database.sql("SELECT id FROM stockade.guard WHERE relation = 'hurt'::regclass"
                                 )[0]
    guard = f"stockade_guard_{number}"
    stock.database.sql(damage.format(g=guard, c=f"{guard}_token"))
    listed = [mapped(each) for each in client("GUARD", "LIST")
              if mapped(each)[b"table"] == b"hurt"][-1]
    assert listed[b"state"] == b"broken" and word.encode() in listed[b"problem"]
    if "TRIGGER" in damage or "child" in damage:
        stock.database.sql("DROP TABLE IF EXISTS child")
    else:  # nothing passes while the guard cannot judge
        with stock.database.connect() as link:
            assert code_of(lambda: ask(link, "UPDATE hurt SET n = 2")) == GUARDED
    if "child" not in damage:
        assert client("GUARD", "CREATE", "hurt", "sku", "sku:", "TOKEN", "t") == "OK"
    with stock.database.connect() as link:
        assert code_of(lambda: ask(link, "UPDATE hurt SET n = 2, t = %s", stock.stale)) == STALE
        ask(link, "UPDATE hurt SET n = 2, t = %s", stock.token)
    assert client("GUARD", "DROP", "hurt") == "OK"
    stock.database.sql("DROP TABLE hurt")


def test_a_copy_accepts_nothing_before_a_daemon(stock):
    with stock.database.connect(user="postgres") as link:
        ask(link, "BEGIN")
        ask(link, "UPDATE stockade.meta SET identity = 'elsewhere'")
        assert code_of(lambda: ask(link, "UPDATE inventory SET stockade_token = %s WHERE sku = 1",
                                   stock.token)) == STORE
        ask(link, "ROLLBACK")


def test_the_tool_makes_and_lists_guards_by_column(tool, stock):
    stock.database.sql("CREATE TABLE tooled(sku text, n int)")
    where = ["--store", stock.database.uri]
    assert tool.output("guard", "create", "tooled", "sku", "sku:", "--token-column", "proof",
                       *where) == ""
    listed = {each["table"]: each for each in json.loads(tool.output("guard", "list", "--json",
                                                                     *where))}
    assert listed["tooled"] == {"table": "tooled", "column": "sku", "prefix": "sku:",
                                "token_column": "proof", "state": "ok"}
    assert collections.Counter(tool.output("guard", "list", *where).split())["TOKEN"] == 1
    assert tool.output("guard", "drop", "tooled", *where) == ""
