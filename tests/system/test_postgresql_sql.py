# SPDX-License-Identifier: Apache-2.0
"""SQL on the PostgreSQL store: the role that a statement cannot leave, and what this database has
that a file has not. That it answers as the other store does is test_sql.py, in the suite
`postgresql`."""

import threading

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until, within
from harness.postgres import OWNER, SUPERUSER, Postgres
from harness.resp import ReplyError, mapped
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql_sql")


@pytest.fixture(scope="module")
def database(module_rig, postgres):
    database = postgres.database()
    module_rig.ends.append(database.drop)
    database.sql("CREATE SCHEMA bob", user=SUPERUSER)
    database.sql(f"GRANT CREATE, USAGE ON SCHEMA bob TO {OWNER}, stockade_sql", user=SUPERUSER)
    return database


@pytest.fixture(scope="module")
def shared(module_rig, database):
    daemon = module_rig.daemon("--sql-time-limit", "3000", store=database.uri)
    client = daemon.client()
    client("SQL", "CREATE TABLE t(a int PRIMARY KEY, b text)")
    client("SQL", "CREATE TABLE parent(a int PRIMARY KEY)")
    client("SQL", "CREATE TABLE child(a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    return daemon


@pytest.fixture
def client(shared):
    return shared.client()


@pytest.fixture
def token(client, key):
    return client.token(key)


def own(database):
    """Stockade's tables, as they are."""
    return database.sql("SELECT * FROM stockade.resource ORDER BY id", user=SUPERUSER)


# In the schema bob: what somebody else has made, whom the operator trusts with tables, and no more.
FUNCTIONS = {
    "sets_role": "BEGIN SET ROLE none; RETURN current_user; END",
    "resets_role": "BEGIN RESET ROLE; RETURN current_user; END",
    "sets_local_role": "BEGIN SET LOCAL ROLE shop; RETURN current_user; END",
    "sets_session": "BEGIN SET SESSION AUTHORIZATION DEFAULT; RETURN current_user; END",
    "commits": "BEGIN COMMIT; RETURN current_user; END",
    "rolls_back": "BEGIN ROLLBACK; RETURN current_user; END",
    "does": "BEGIN DO 'BEGIN SET ROLE none; END'; RETURN current_user; END",
    "copies": "BEGIN COPY (SELECT 1) TO PROGRAM 'touch /tmp/stockade-out'; RETURN 'out'; END",
    "alters": "BEGIN ALTER TABLE stockade.resource ADD x int; RETURN 'altered'; END",
    "replaces": "BEGIN CREATE OR REPLACE FUNCTION stockade.sql_fetch(most int, room int)"
                " RETURNS SETOF text LANGUAGE sql AS 'SELECT null::text'; RETURN 'new'; END",
    "forges": "BEGIN PREPARE \"COMMIT\" AS UPDATE stockade.resource SET token = 1;"
              " RETURN 'forged'; END",
    "forges_later": "BEGIN DEALLOCATE \"BEGIN\"; PREPARE \"BEGIN\" AS UPDATE stockade.resource"
                    " SET token = 1; RAISE 'and fails'; END",
    "forges_slowly": "BEGIN DEALLOCATE \"BEGIN\"; PREPARE \"BEGIN\" AS UPDATE stockade.resource"
                     " SET token = 1; PERFORM pg_sleep(100); END",
}


@pytest.fixture(scope="module")
def functions(database, shared):
    for name, body in FUNCTIONS.items():
        database.sql(f"CREATE FUNCTION bob.{name}() RETURNS text LANGUAGE plpgsql AS $$ {body} $$",
                     user=SUPERUSER)


ATTEMPTS = {
    "its role": [
        "SET ROLE none", "SET ROLE shop", "RESET ROLE", "SET LOCAL ROLE shop", "RESET ALL",
        "SET SESSION AUTHORIZATION DEFAULT", "SET LOCAL SESSION AUTHORIZATION shop",
        "SELECT set_config('role', 'none', true)", "SELECT set_config('role', 'shop', false)",
        "SELECT set_config('session_authorization', 'shop', true)",
        "SELECT current_setting('role') FROM set_config('role', 'none', false)",
        "DO 'BEGIN SET ROLE none; END'", "DO $$ BEGIN PERFORM 1; END $$", "CALL bob.p()",
        "SELECT set_config('session_replication_role', 'replica', true)", "SHOW role"],
    "its transaction": [
        "COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT x", "ROLLBACK TO SAVEPOINT stockade_savepoint",
        "RELEASE SAVEPOINT stockade_savepoint", "PREPARE TRANSACTION 'x'", "COMMIT AND CHAIN",
        "END",
        "SELECT set_config('transaction_isolation', 'serializable', true)", "VACUUM", "CHECKPOINT",
        "SET CONSTRAINTS ALL DEFERRED", "LOCK TABLE t", "LOCK TABLE stockade.meta"],
    "its session": [
        "PREPARE x AS SELECT 1", "EXECUTE \"MARK\"(1, 1)", "DEALLOCATE ALL", "DISCARD ALL",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH ALL FROM stockade_sql", "CLOSE ALL",
        "LISTEN x", "NOTIFY x", "UNLISTEN *", "LOAD 'auto_explain'", "CREATE TEMP TABLE x(a int)",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'"],
    "one statement": [
        "SELECT 1; SELECT 2", "SELECT 1; SET ROLE none", "SELECT 1; COMMIT; SELECT 2",
        "EXPLAIN SELECT 1; SET ROLE none", "SELECT 1; DROP TABLE t",
        "CREATE TABLE t2(a int); SELECT set_config('role', 'none', true)",
        "CREATE VIEW v AS SELECT 1; CREATE DOMAIN d AS int", "DROP TABLE t;COMMIT;",
        "/* /* */ CREATE TABLE */ CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "/* /* */ SELECT */ DROP TABLE t", "/* /* */ EXPLAIN */ SET ROLE none",
        "CREATE/**/TABLE x(a int)", "-- x\rCREATE TABLE x(a int)", "SELECT 1 INTO x",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "EXPLAIN ANALYSE DELETE FROM t",
        "EXPLAIN/**/ANALYZE SELECT 1 INTO x", "EXPLAIN (COSTS off, ANALYZE) SELECT 1 INTO x",
        "EXPLAIN (\"analyze\") SELECT 1", "EXPLAIN (COSTS/**/off) SELECT 1"],
    "the database": [
        "COPY t TO PROGRAM 'cat'", "COPY t TO '/tmp/stockade-out'", "COPY t FROM STDIN",
        "ALTER SYSTEM SET fsync = off", "CREATE EXTENSION dblink", "SELECT pg_reload_conf()",
        "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('.')", "SELECT pg_switch_wal()",
        "SELECT lo_import('/etc/passwd')", "SELECT lo_export(1, '/tmp/stockade-out')",
        "SELECT pg_create_physical_replication_slot('x')", "SELECT pg_promote()"],
    "what it may define": [
        "CREATE ROLE x", "DROP ROLE shop", "ALTER ROLE stockade_sql SUPERUSER",
        "GRANT shop TO stockade_sql", "REASSIGN OWNED BY shop TO x", "CREATE SCHEMA x",
        "ALTER FUNCTION stockade.sql_fetch(int, int) SECURITY INVOKER",
        "DROP FUNCTION stockade.sql_fetch(int, int)",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE OR REPLACE FUNCTION stockade.may_see() RETURNS boolean LANGUAGE sql AS"
        " 'SELECT true'",
        "CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION"
        " suppress_redundant_updates_trigger()",
        "CREATE RULE x AS ON INSERT TO t DO NOTHING", "CREATE DOMAIN d AS int",
        "CREATE TYPE e AS (a int)", "CREATE INDEX x ON t((set_config('role', 'none', false)))"],
    "Stockade's own": [
        "SELECT * FROM stockade.resource", "TABLE stockade.meta", "SELECT * FROM stockade.field",
        "SELECT count(*) FROM stockade.receipt", "DELETE FROM stockade.mark",
        "UPDATE stockade.resource SET token = 99", "UPDATE stockade.fences SET token = 99",
        "INSERT INTO stockade.strings VALUES('a', 'b')",
        "SELECT nextval('stockade.resource_id')", "SELECT * FROM stockade.sql_fetch(1, 1)",
        "WITH x AS (UPDATE stockade.resource SET token = 99 RETURNING 1) SELECT * FROM x",
        "SELECT query_to_xml('SELECT * FROM stockade.resource', true, true, '')",
        "SELECT stockade.sql_open('define', 'DROP TABLE t', '{}', '{}')",
        "ALTER TABLE stockade.resource ADD x int", "DROP TABLE stockade.resource",
        "CREATE TABLE stockade.x(a int)", "DROP VIEW stockade.fences",
        "CREATE INDEX x ON stockade.mark(void)", "DROP SCHEMA stockade CASCADE"],
    "functions of others": [f"SELECT bob.{name}()" for name in FUNCTIONS],
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_statement_cannot_leave(database, functions, client, key, token, what):
    """Bare, so that what defines is an administrator's, and with a token. Nothing of Stockade's own
    has changed, and SQL goes on."""
    before = own(database)
    for statement in ATTEMPTS[what]:
        for command in (("SQL", statement), under(token, key, statement)):
            reply = client.ask(*command, timeout=patience(HANG_SECONDS))
            assert isinstance(reply, ReplyError), (statement, reply)
            assert reply.code in ("ERR", "NOPERM", "NOTOKEN"), (statement, reply.text)
        assert client.rows("SELECT current_user, session_user, current_setting('role')") == [
            [b"stockade_sql", b"shop", b"none"]], statement
        assert own(database) == before, statement
    assert client.fenced(token, "SET", key, "1") == "OK"
    assert client.rows("SELECT a, b FROM t") == []


def test_triggers_that_others_have_made_run_as_the_role(database, functions, client, key, token):
    """Also deferred ones, whatever they do about that: none of them runs as the daemon."""
    database.sql("CREATE TABLE bob.seen(who text, what text)", user=SUPERUSER)
    database.sql("CREATE TABLE bob.t(a int)", user=SUPERUSER)
    database.sql("GRANT ALL ON bob.t, bob.seen TO stockade_sql, shop", user=SUPERUSER)
    database.sql("CREATE FUNCTION bob.sees() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " INSERT INTO bob.seen VALUES(current_user, TG_NAME); RETURN NULL; END $$",
                 user=SUPERUSER)
    database.sql("CREATE TRIGGER plain AFTER INSERT ON bob.t FOR EACH ROW"
                 " EXECUTE FUNCTION bob.sees()", user=SUPERUSER)
    client(*under(token, key, "INSERT INTO bob.t VALUES(1) RETURNING a"))
    client(*under(token, key, "INSERT INTO bob.t VALUES($1)", 2))
    assert database.sql("SELECT * FROM bob.seen", user=SUPERUSER) == [
        ("stockade_sql", "plain")] * 2
    database.sql("DELETE FROM bob.seen", user=SUPERUSER)
    # It defers itself again when it runs, and would be run by the COMMIT the next time.
    database.sql("CREATE FUNCTION bob.again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " INSERT INTO bob.seen VALUES(current_user, TG_NAME);"
                 " SET CONSTRAINTS ALL DEFERRED;"
                 " IF NEW.a < 9 THEN UPDATE bob.t SET a = 9; END IF; RETURN NULL; END $$",
                 user=SUPERUSER)
    database.sql("CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON bob.t DEFERRABLE"
                 " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION bob.again()", user=SUPERUSER)
    client.refused("NOPERM", *under(token, key, "INSERT INTO bob.t VALUES(3)"), text="late")
    assert database.sql("SELECT * FROM bob.seen", user=SUPERUSER) == []
    database.sql("ALTER FUNCTION bob.again() SECURITY DEFINER", user=SUPERUSER)
    client(*under(token, key, "INSERT INTO bob.t VALUES(3)"))
    assert "shop" not in [who for who, _ in database.sql("SELECT * FROM bob.seen", user=SUPERUSER)]


def test_a_cursor_that_would_outlive_the_statement_is_closed(database, functions, client, key,
                                                             token):
    """WITH HOLD: the COMMIT would run it, as the daemon."""
    database.sql("CREATE TABLE bob.held(who text)", user=SUPERUSER)
    database.sql("GRANT ALL ON bob.held TO stockade_sql, shop", user=SUPERUSER)
    database.sql("CREATE FUNCTION bob.notes() RETURNS text LANGUAGE sql AS"
                 " 'INSERT INTO bob.held VALUES(current_user) RETURNING who'", user=SUPERUSER)
    database.sql("CREATE FUNCTION bob.holds() RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE"
                 " 'DECLARE c CURSOR WITH HOLD FOR SELECT bob.notes()'; RETURN 'held'; END $$",
                 user=SUPERUSER)
    reply = mapped(client(*under(token, key, "SELECT bob.holds()")))
    assert reply[b"rows"] == [[b"held"]]
    assert database.sql("SELECT * FROM bob.held", user=SUPERUSER) == []


# What a statement may leave to the connection, where other clients' statements come after it. `own`
# is a function's body of somebody else's, `bare` a statement of an administrator's.
HELD = {
    "a temporary table by its schema": ("bare", "CREATE TABLE pg_temp.t(a int, b text)"),
    "another name of that schema": ("bare", 'CREATE TABLE "pg_temp" . t()'),
    "CREATE TEMP": ("bare", "CREATE TEMP TABLE t(a int)"),
    "CREATE LOCAL TEMPORARY": ("bare", "CREATE LOCAL TEMPORARY TABLE t(a int)"),
    "ON COMMIT DROP": ("bare", "CREATE TEMP TABLE t(a int) ON COMMIT DROP"),
    "a temporary table of rows": ("bare", "CREATE TABLE pg_temp.t AS SELECT 1 AS a"),
    "a temporary table like another": ("bare", "CREATE TABLE pg_temp.t(LIKE public.numbered)"),
    "a temporary partitioned table": ("bare", "CREATE TABLE pg_temp.t(a int) PARTITION BY LIST(a)"),
    "a temporary view": ("bare", "CREATE VIEW pg_temp.t AS SELECT 1"),
    "CREATE TEMP VIEW": ("bare", "CREATE OR REPLACE TEMP VIEW t AS SELECT 1 AS a"),
    "a temporary recursive view": ("bare", "CREATE TEMP RECURSIVE VIEW t(n) AS VALUES(1)"),
    "a temporary sequence": ("bare", "CREATE SEQUENCE pg_temp.s"),
    "CREATE TEMP SEQUENCE": ("bare", "CREATE TEMPORARY SEQUENCE s"),
    "SELECT INTO TEMP": ("bare", "SELECT 1 AS a INTO TEMP t"),
    "SELECT INTO its schema": ("bare", "SELECT 1 AS a INTO pg_temp.t"),
    "a table in a schema that is set": (
        "own", "PERFORM set_config('search_path', 'pg_temp', false); CREATE TABLE t(a int)"),
    "a function's temporary table": ("own", "CREATE TEMP TABLE t(a int)"),
    "a function's, by name": ("own", "EXECUTE 'CREATE TABLE pg_temp.t(a int)'"),
    "a function's until COMMIT": ("own", "CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1 AS a"),
    "a function's DO": ("own", "EXECUTE 'DO $x$ BEGIN CREATE TEMP TABLE t(a int); END $x$'"),
    "a function's PREPARE": ("own", "EXECUTE 'PREPARE p AS SELECT 1 AS a';"
                                    " EXECUTE 'CREATE TEMP TABLE t AS EXECUTE p';"
                                    " EXECUTE 'DEALLOCATE p'"),
    "a function's sequence": ("own", "CREATE TEMP SEQUENCE s"),
    "a temporary function": ("own", "CREATE FUNCTION pg_temp.abs(int) RETURNS int LANGUAGE sql"
                                    " AS 'SELECT 7'"),
    "a temporary type": ("own", "CREATE TYPE pg_temp.t AS (a int)"),
    "a temporary domain": ("own", "CREATE DOMAIN pg_temp.t AS int"),
    "a temporary operator": ("own", "CREATE OPERATOR pg_temp.=== (LEFTARG = int, RIGHTARG = int,"
                                    " FUNCTION = int4eq)"),
    "a temporary collation": ("own", 'CREATE COLLATION pg_temp.c FROM "C"'),
    "a prepared statement": ("own", "EXECUTE 'PREPARE p AS SELECT 1'"),
    "a cursor": ("own", "EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1'"),
    "a cursor of its own": ("own", "EXECUTE 'DECLARE c CURSOR FOR SELECT 1'"),
    "a channel": ("own", "LISTEN x"),
    "a setting": ("own", "SET work_mem = '65kB'"),
    "a setting of the session": ("own", "SET SESSION work_mem = '65kB'"),
    "set_config": ("bare", "SELECT set_config('work_mem', '65kB', false)"),
    "a setting of somebody's own": ("bare", "SELECT set_config('shop.who', 'me', false)"),
    "what transactions are": ("own", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
    "constraints": ("own", "SET CONSTRAINTS ALL DEFERRED"),
    "an advisory lock": ("bare", "SELECT pg_advisory_lock(7)"),
    "an advisory lock that is shared": ("bare", "SELECT pg_advisory_lock_shared(7)"),
    "an advisory lock that is tried for": ("bare", "SELECT pg_try_advisory_lock(7, 8)"),
    "a sequence's last number": ("bare", "SELECT nextval('public.numbers')"),
    "a sequence's number that is set": ("bare", "SELECT setval('public.numbers', 3)"),
    "an identity's number": ("bare", "INSERT INTO public.numbered VALUES(DEFAULT)"),
}
# All of it in one row, but for the last numbers of sequences.
SHOW_HELD = """SELECT
  (SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass
     AND refobjid IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\\_temp\\_%')),
  (SELECT count(*) FROM pg_prepared_statements WHERE from_sql),
  (SELECT count(*) FROM pg_cursors WHERE name NOT LIKE 'stockade%' AND name <> ''),
  (SELECT count(*) FROM pg_listening_channels()),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
  (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
     WHERE name NOT LIKE 'transaction\\_%' AND name NOT IN ('statement_timeout')),
  coalesce(current_setting('shop.who', true), '')"""


def held(client, token, key, numbers=True):
    """What the connections hold: the one that writes, and one that reads."""
    found = []
    for wrap in (lambda statement: under(token, key, statement)), (lambda text: ("SQL", text)):
        found.append(mapped(client(*wrap(SHOW_HELD)))[b"rows"])
        for last in ("lastval()", "currval('public.numbers')") if numbers else ():
            reply = client.ask(*wrap(f"SELECT {last}"))
            found.append(reply.text if isinstance(reply, ReplyError) else mapped(reply)[b"rows"])
    return found


@pytest.fixture(scope="module")
def leavings(database, shared):
    database.sql("CREATE SEQUENCE public.numbers; CREATE TABLE public.numbered(a serial);"
                 "GRANT ALL ON public.numbers, public.numbered, public.numbered_a_seq TO"
                 " stockade_sql", user=SUPERUSER)
    database.sql(";".join(f"CREATE FUNCTION bob.leaves_{number}() RETURNS text LANGUAGE plpgsql AS"
                          f" $$ BEGIN {text}; RETURN 'left'; END $$"
                          for number, (how, text) in enumerate(HELD.values()) if how == "own"),
                 user=SUPERUSER)


def test_a_statement_leaves_nothing_to_its_connection(leavings, client, key, token):
    """Temporary objects are refused by name; whatever else there is has gone when the next client's
    statement comes."""
    faults = []
    nothing = {numbers: held(client, token, key, numbers) for numbers in (False, True)}
    for number, (name, (how, text)) in enumerate(HELD.items()):
        statement = text if how == "bare" else f"SELECT bob.leaves_{number}()"
        for command in under(token, key, statement), ("SQL", statement):
            reply = client.ask(*command)
            refused = isinstance(reply, ReplyError)
            if ("temp" in text.lower()) > refused:
                faults.append(f"{name}: {reply}")
            elif how == "own" and "temp" in text.lower() and command[0] != "SQL" and (
                    reply.code != "NOPERM" or "no temporary objects here" not in reply.text):
                faults.append(f"{name}: {reply}")
        numbers = "number" in text
        now = held(client, token, key, numbers)
        faults += [f"{name}: {one} has become {other}"
                   for one, other in zip(nothing[numbers], now) if one != other]
    assert not faults, "\n".join(faults)


def test_a_temporary_table_takes_no_rows_from_a_real_one(database, client, key, token):
    client("SQL", "CREATE TABLE bought(a int)")
    client.refused("NOPERM", "SQL", "CREATE TABLE pg_temp.bought(a int)",
                   text="there are no temporary objects here: table bought")
    client(*under(token, key, "INSERT INTO bought VALUES(1)"))
    assert database.sql("SELECT count(*) FROM stockade_sql.bought", user=SUPERUSER) == [(1,)]
    # What has gone when the statement ends is its own affair.
    database.sql("CREATE FUNCTION bob.passes() RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
                 " CREATE TEMP TABLE t(a int); DROP TABLE t; RETURN 'passed'; END $$",
                 user=SUPERUSER)
    assert mapped(client(*under(token, key, "SELECT bob.passes()")))[b"rows"] == [[b"passed"]]


def test_settings_last_for_their_statement(client, key, token):
    """synchronous_commit = off would lose what was acknowledged."""
    forged = {"synchronous_commit": "off", "search_path": "bob", "client_min_messages": "error",
              "lock_timeout": "1", "default_transaction_read_only": "on",
              "idle_in_transaction_session_timeout": "0", "bytea_output": "escape"}
    show = "SELECT " + ", ".join(f"current_setting('{name}')" for name in forged)
    for local in ("true", "false"):
        client.multi(
            under(token, key, show),
            under(token, key, "SELECT " + ", ".join(
                f"set_config('{name}', '{value}', {local})" for name, value in forged.items())),
            under(token, key, show))
        before, _, after = (mapped(reply)[b"rows"][0] for reply in client("EXEC"))
        assert after == before
        assert mapped(client(*under(token, key, show)))[b"rows"][0][0] == b"on"


def test_a_deferred_constraint_is_the_statements_error(client, key, token):
    client.refused("ERR", *under(token, key, "INSERT INTO child VALUES(1)"), text="foreign key")
    client.multi(under(token, key, "INSERT INTO parent VALUES(1)"),
                 under(token, key, "INSERT INTO child VALUES(1)"))
    client("EXEC")
    client.multi(("FENCED", token, "SET", key, "x"), under(token, key, "DELETE FROM parent"))
    client.refused("ERR", "EXEC", text="foreign key")
    assert client("GET", key) is None
    assert client.rows("SELECT (SELECT count(*) FROM parent), (SELECT count(*) FROM child)") == [
        [b"1", b"1"]]
    client(*under(token, key, "DELETE FROM child"))
    client(*under(token, key, "DELETE FROM parent"))


@pytest.mark.parametrize("change", [
    "INSERT INTO t VALUES(1, 'x')", "WITH x AS (INSERT INTO t VALUES(1, 'x') RETURNING a)"
    " SELECT * FROM x", "MERGE INTO t USING (SELECT 1 AS a) s ON s.a = t.a WHEN NOT MATCHED THEN"
    " INSERT VALUES(1, 'x')", "SELECT * FROM t FOR UPDATE", "SELECT bob.writes()"])
def test_without_a_token_it_only_reads(database, client, key, token, change):
    """Alone, and beside writes that have theirs."""
    database.sql("CREATE OR REPLACE FUNCTION bob.writes() RETURNS int LANGUAGE sql AS"
                 " 'INSERT INTO stockade_sql.t VALUES(1, ''x'') RETURNING a'", user=SUPERUSER)
    client.refused("NOTOKEN", "SQL", change, text="FENCEDALL")
    client.multi(("FENCED", token, "SET", key, "x"), ("SQL", change))
    client.refused("NOTOKEN", "EXEC", text="FENCEDALL")
    client.multi(("SQL", "SELECT count(*) FROM t"),
                 under(token, key, "INSERT INTO t VALUES(2, 'y')"),
                 ("SQL", "SELECT a, b FROM t"), under(token, key, "DELETE FROM t"))
    replies = client("EXEC")
    assert mapped(replies[2])[b"rows"] == [[b"2", b"y"]]
    assert mapped(replies[3])[b"changes"] == 1


def test_key_writes_and_sql_are_one_transaction(database, client, key, token):
    """SQL sees what came before it in the views, and both come or go together."""
    see = "SELECT value FROM stockade.strings WHERE key = $1"

    def order(last):
        client.multi(("FENCED", token, "SET", key, "10"),
                     under(token, key, see, key),
                     ("FENCED", token, "DECRBY", key, "1"),
                     under(token, key, "INSERT INTO t SELECT 1, value FROM stockade.strings"
                           " WHERE key = $1", key),
                     ("FENCED", token, "HSET", key + "h", "f", "v") if last == "type" else
                     ("FENCED", token, "INCRBY", key, "1"),
                     under(token, key, last) if last != "type" else ("GET", key))
        return client.ask("EXEC")
    for last in ("INSERT INTO t VALUES(1, 'again')", "SELECT 1 / 0", "SELEC", "type"):
        assert isinstance(order(last), ReplyError)
        assert client("GET", key) is None
        assert client.rows("SELECT * FROM t") == []
    replies = order("SELECT b FROM t")
    assert mapped(replies[1])[b"rows"] == [[b"10"]]
    assert mapped(replies[5])[b"rows"] == [[b"9"]]
    assert client("GET", key) == b"10"
    assert mapped(client(*under(token, key, "DELETE FROM t")))[b"changes"] == 1


def test_a_repeat_is_not_run_again_and_a_refused_one_may_be(client, key, token):
    insert = ("FENCEDALL", 1, key, token, "ID", "one", "SQL",
              "INSERT INTO t VALUES($1, $2) RETURNING *", "7", "seven")
    first = client(*insert)
    assert client(*insert) == first
    assert client("RECEIPT", key, token, "one")[0] == 1
    other = ("FENCEDALL", 1, key, token, "ID", "two", "SQL", "INSERT INTO t VALUES(7, 'x')")
    client.refused("ERR", *other, text="duplicate key")
    client(*under(token, key, "DELETE FROM t"))
    assert mapped(client(*other))[b"changes"] == 1
    client(*under(token, key, "DELETE FROM t"))


def test_types_of_values_and_parameters(shared):
    client = shared.client(proto=3)
    rows = client.rows("SELECT 1::int2, 2::int4, 3::int8, 4::oid, true, false, 1.5::float4,"
                       " '-inf'::float8, 1.50::numeric, '\\x00ff'::bytea, NULL, '', 'a\"b\\c,(d)',"
                       " ARRAY[1,2], ROW(1,'x y'), '{\"a\":1}'::jsonb, date '2024-02-29',"
                       " pg_sleep(0), 'x'::char(3), interval '1 hour'")
    assert rows == [[1, 2, 3, 4, 1, 0, 1.5, -float("inf"), b"1.50", b"\0\xff", None, b"",
                     b"a\"b\\c,(d)", b"{1,2}", b"(1,\"x y\")", b'{"a": 1}', b"2024-02-29", b"",
                     b"x  ", b"01:00:00"]]
    assert client.rows("TYPES", "iiftbn", "SELECT $1, $2, $3, $4, $5, $6", 1, 1 << 40, "0.1", "x",
                       b"\0\xff\\", "") == [[1, 1 << 40, 0.1, b"x", b"\0\xff\\", None]]
    # Where the statement says a type, text is read as that.
    assert client.rows("SELECT $1::int + 1, date '2024-01-01' + $2::int, $3::boolean, $1 = 5",
                       "5", "7", "yes") == [[6, b"2024-01-08", 1, 1]]
    assert client.rows("SELECT a FROM generate_series(1, 3) a WHERE a = $1 OR $1 IS NULL LIMIT $2",
                       "2", "5") == [[2]]
    for args in [("SELECT $1::int", "x"), ("SELECT $1, $2", "1"), ("SELECT 1", "1"),
                 ("SELECT $1", b"\xff"), ("SELECT $1", b"a\0b"), ("EXPLAIN SELECT $1", "1")]:
        client.refused("ERR", "SQL", *args)


def test_explain_takes_options(client):
    for explain in ("EXPLAIN", "explain verbose", "EXPLAIN (COSTS off, FORMAT json)",
                    " EXPLAIN(verbose true)"):
        assert b"Result" in client.rows(explain + " SELECT 1")[0][0]


def test_columns_of_any_name_and_none(client):
    reply = mapped(client("SQL", "SELECT 1, 1 AS \"a \"\"b\", 2 AS \"\u00e4\", 3 AS a, 4 AS a"))
    assert reply[b"columns"] == [b"?column?", b'a "b', "\u00e4".encode(), b"a", b"a"]
    reply = mapped(client("SQL", "SELECT FROM generate_series(1, 3)"))
    assert (reply[b"columns"], reply[b"rows"]) == ([], [[], [], []])
    assert mapped(client("SQL", "SELECT 1 WHERE false"))[b"columns"] == [b"?column?"]


@pytest.mark.slow
def test_a_big_result_comes_in_pages_and_a_bigger_one_is_refused(rig, database):
    daemon = rig.daemon("--sql-time-limit", "60000", store=database.uri)
    client = daemon.client()
    numbers = "SELECT x, repeat('x', $1) FROM generate_series(1, $2) x"
    rows = client("SQL", numbers, "1000", "20000", timeout=patience(HANG_SECONDS))[3]
    assert [int(row[0]) for row in rows] == list(range(1, 20001))
    for args, text in [(("1000", "100000"), "64 MiB"), (("1", "100001"), "100000 rows"),
                       (("70000000", "1"), "64 MiB")]:
        client.refused("ERR", "SQL", numbers, *args, text=text, timeout=patience(HANG_SECONDS))
    assert daemon.peak_rss_bytes() < (512 << 20) * patience(1)


def test_the_time_limit_stops_a_statement_and_nothing_of_it_stays(rig, database, shared, key):
    daemon = rig.daemon("--sql-time-limit", "300", store=database.uri)
    client = daemon.client()
    token = client.token(key)
    for command in (("SQL", "SELECT pg_sleep(20)"), under(token, key, "SELECT pg_sleep(20)"),
                    under(token, key, "INSERT INTO t SELECT 1, pg_sleep(20)::text")):
        with within(patience(5)):
            client.refused("ERR", *command, text="took more than 300 ms")
    client.multi(("FENCED", token, "SET", key, "1"), under(token, key, "SELECT pg_sleep(0.2)"),
                 under(token, key, "SELECT pg_sleep(0.2)"))
    client.refused("ERR", "EXEC", text="took more than 300 ms")  # all of it together
    assert client("GET", key) is None
    with database.connect(user=SUPERUSER) as user, user.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE stockade_sql.t")
        client.refused("ERR", *under(token, key, "DELETE FROM t"), text="took more than 300 ms")
    assert client.fenced(token, "SET", key, "1") == "OK"


def test_advisory_locks_end_with_the_transaction_and_stop_nobody(database, shared, client, key,
                                                                  token):
    other = shared.client()
    for lock in ("pg_advisory_lock(8319395793566789733)", "pg_advisory_lock(1)"):
        for command in (("SQL", f"SELECT {lock}"), under(token, key, f"SELECT {lock}")):
            client(*command)
        client.refused("ERR", "SQL", f"SELECT {lock}, 1 / 0")
        client.refused("ERR", *under(token, key, f"SELECT {lock}, 1 / 0"))
        assert database.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    slow = threading.Thread(target=client.ask, args=under(
        token, key, "SELECT pg_advisory_lock(8319395793566789733), pg_sleep(1)"))
    slow.start()
    wait_until(lambda: database.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
               != [(0,)], "the lock is held")
    assert other.token(key + "o")
    slow.join()


def test_the_role_is_made_or_asked_for_and_has_no_rights_too_many(rig):
    """All else works without it."""
    own_server = Postgres(rig)
    own_server.sql("REVOKE stockade_sql FROM shop")
    own_server.sql("DROP ROLE stockade_sql")
    client = rig.daemon(store=own_server.database().uri).client()
    token = client.token("k")
    for command in (("SQL", "SELECT 1"), under(token, "k", "SELECT 1"),
                    ("SQL", "CREATE TABLE t()")):
        with pytest.raises(ReplyError) as caught:
            client(*command)
        assert caught.value.text.endswith("CREATE ROLE stockade_sql; GRANT stockade_sql TO shop")
    assert client.fenced(token, "SET", "k", "v") == "OK"
    own_server.sql(caught.value.text.partition("has to run: ")[2])
    assert client.rows("SELECT value FROM stockade.strings") == [[b"v"]]
    client("SQL", "CREATE TABLE t(a int)")
    assert mapped(client(*under(token, "k", "INSERT INTO t VALUES(1)")))[b"changes"] == 1
    # A role that may touch Stockade's own tables is none for this.
    own_server.sql("GRANT pg_read_all_data TO stockade_sql")
    second = own_server.database()
    client = rig.daemon(store=second.uri).client()
    client.refused("ERR", "SQL", "SELECT 1", text="may touch")
    own_server.sql("REVOKE pg_read_all_data FROM stockade_sql")
    assert client.rows("SELECT 1") == [[b"1"]]


def test_a_daemon_that_may_make_roles_makes_it(rig, postgres):
    """In a database of its own, in which another role is the owner."""
    database = postgres.database()
    rig.ends.append(database.drop)
    postgres.sql("CREATE ROLE maker LOGIN CREATEROLE")
    rig.ends.append(lambda: postgres.sql("DROP ROLE maker"))
    rig.ends.append(lambda: database.sql("DROP OWNED BY maker CASCADE", user=SUPERUSER))
    database.sql("GRANT CREATE ON DATABASE " + database.name + " TO maker", user=SUPERUSER)
    client = rig.daemon(store=database.uri_with("maker")).client()
    assert client.rows("SELECT current_user, session_user") == [[b"stockade_sql", b"maker"]]


def test_the_views_are_for_those_who_may_see_all(rig, database, shared, key):
    """Whatever way a statement takes to them; its own tables anybody with @sql may use."""
    acl = rig.folder / "users.acl"
    acl.write_text("user some on nopass %W~* %R~some* +@sql +@lease\n"
                   "user all on nopass ~* +@sql\nuser default on nopass ~* +@all\n")
    daemon = rig.daemon("--acl-file", acl, store=database.uri)
    everybody, client = daemon.client(), daemon.client()
    everybody("AUTH", "all", "x")
    client("AUTH", "some", "x")
    token = client.token("some" + key)
    see = "SELECT resource FROM stockade.fences WHERE resource = 'some" + key + "'"
    assert everybody.rows(see) == [[b"some" + key.encode()]]
    for statement in (see, "SELECT count(*) FROM stockade.strings", "TABLE stockade.fields",
                      "SELECT query_to_xml('SELECT * FROM stockade.fences', true, true, '')",
                      "SELECT set_config('role', 'none', true) FROM stockade.fences",
                      "SELECT 1 / length(resource) FROM stockade.fences"):
        for command in (("SQL", statement), under(token, "some" + key, statement)):
            client.refused("NOPERM", *command, text="takes %R~|definer")
    assert client.rows("SELECT count(*) FROM t") == [[b"0"]]
    assert client.rows("SELECT current_user") == [[b"stockade_sql"]]


def test_guards_judge_what_sql_changes(client, key, token):
    client("SQL", "CREATE TABLE guarded(sku text PRIMARY KEY, n int)")
    client("GUARD", "CREATE", "stockade_sql.guarded", "sku", "g:")
    mine = client.token("g:mine")
    insert = "INSERT INTO guarded VALUES($1, 1)"
    client.refused("GUARDED", *under(token, key, insert, "mine"), text="^GUARDED the token of 'g:m")
    client.refused("GUARDED", *under(mine, "g:mine", insert, "other"))
    assert mapped(client(*under(mine, "g:mine", insert, "mine")))[b"changes"] == 1
    client.multi(under(mine, "g:mine", "UPDATE guarded SET n = 2"),
                 under(token, key, "UPDATE guarded SET n = 3 RETURNING n"))
    assert mapped(client("EXEC")[1])[b"rows"] == [[b"3"]]
    for definition in ("DROP TABLE guarded", "ALTER TABLE guarded DISABLE TRIGGER ALL",
                       "ALTER TABLE guarded ADD x int", "ALTER TABLE guarded RENAME TO open"):
        client.refused("GUARDED", "SQL", definition, text="GUARD DROP it first")
    client("SQL", "CREATE INDEX guarded_n ON guarded(n)")
    client("REVOKE", "g:mine")
    client.refused("STALE", *under(mine, "g:mine", "DELETE FROM guarded"))
    client.refused("GUARDED", *under(token, key, "DELETE FROM guarded"))
    client.refused("GUARDED", *under(token, key, "WITH x AS (DELETE FROM guarded RETURNING 1)"
                                     " SELECT count(*) FROM x"))
    client("GUARD", "DROP", "stockade_sql.guarded")
    client("SQL", "DROP TABLE guarded")


def test_a_partition_of_a_guarded_table_is_refused_in_whole_words(database, client):
    client("SQL", "CREATE TABLE parted(a int, sku int) PARTITION BY LIST(a)")
    client("SQL", "CREATE TABLE part(a int, sku int)")
    database.sql("GRANT stockade_sql TO shop", user=SUPERUSER)
    client("GUARD", "CREATE", "stockade_sql.parted", "sku", "sku:")
    for statement in ("ALTER TABLE parted ATTACH PARTITION part DEFAULT",
                      "CREATE TABLE part_1 PARTITION OF parted FOR VALUES IN (1)"):
        client.refused("NOPERM", "SQL", statement, text="GUARD DROP it first; else GRANT EXECUTE")
    client("GUARD", "DROP", "stockade_sql.parted")
    client("SQL", "ALTER TABLE parted ATTACH PARTITION part DEFAULT")


def test_a_guarded_child_is_neither_dropped_nor_let_go(database, client):
    client("SQL", "CREATE TABLE old_one(a int, sku int)")
    client("SQL", "CREATE TABLE young() INHERITS (old_one)")
    client("SQL", "CREATE TABLE younger() INHERITS (young)")
    database.sql("GRANT stockade_sql TO shop", user=SUPERUSER)
    client("GUARD", "CREATE", "stockade_sql.old_one", "sku", "sku:")
    for statement in ("ALTER TABLE young NO INHERIT old_one", "DROP TABLE younger",
                      "DROP TABLE young CASCADE", "ALTER TABLE younger NO INHERIT young",
                      "ALTER TABLE younger RENAME TO x", "DROP TABLE old_one CASCADE"):
        client.refused("GUARDED", "SQL", statement,
                       text="stockade_sql.old_one is guarded: GUARD DROP it first")
    client("GUARD", "DROP", "stockade_sql.old_one")
    client("SQL", "DROP TABLE old_one CASCADE")


def test_tables_of_others_take_a_grant(database, client, key, token):
    database.sql("CREATE TABLE bob.stock(sku text, n int)", user=SUPERUSER)
    client.refused("NOPERM", "SQL", "SELECT * FROM bob.stock",
                   text="permission denied for .*: SQL has the rights that you GRANT to the role "
                        "stockade_sql")
    database.sql("GRANT SELECT, INSERT ON bob.stock TO stockade_sql", user=SUPERUSER)
    client(*under(token, key, "INSERT INTO bob.stock VALUES($1, $2)", "a", "1"))
    assert client.rows("SELECT * FROM bob.stock") == [[b"a", b"1"]]
    client.refused("NOPERM", *under(token, key, "DELETE FROM bob.stock"))


def test_a_connection_lost_during_sql_loses_and_doubles_nothing(rig, database, shared):
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon("--sql-time-limit", "20000", store=database.uri_at(relay.address))
    client = daemon.client()
    token = client.token("lost")
    client("SQL", "CREATE TABLE lost(a int)")
    for cut in range(3):
        relay.hold("down", b"sql" if cut else b"COMMIT")
        client.send(*under(token, "lost", "INSERT INTO lost VALUES($1) RETURNING a", cut))
        wait_until(lambda: relay.kept("down") or cut, "the answer is held")
        relay.cut()
        relay.let("down")
        assert mapped(client.read(timeout=patience(HANG_SECONDS)))[b"rows"] == [[b"%d" % cut]]
    assert client.rows("SELECT a FROM lost ORDER BY a") == [[b"0"], [b"1"], [b"2"]]
    # While it runs.
    client.send(*under(token, "lost", "INSERT INTO lost SELECT 9 FROM pg_sleep(1)"))
    wait_until(lambda: database.sql("SELECT count(*) FROM pg_stat_activity"
                                    " WHERE wait_event = 'PgSleep'", user=SUPERUSER) == [(1,)],
               "it runs")
    relay.cut()
    assert mapped(client.read(timeout=patience(HANG_SECONDS)))[b"changes"] == 1
    assert client.rows("SELECT count(*) FROM lost WHERE a = 9") == [[b"1"]]
