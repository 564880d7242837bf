# SPDX-License-Identifier: Apache-2.0
"""Guards in tables that a shop has in PostgreSQL: every way in, with every kind of token."""

import collections
import contextlib
import json
import sqlite3
import subprocess
import threading

import psycopg2
import pytest
from psycopg2.extensions import AsIs

from harness.limits import HANG_SECONDS, environment, patience, wait_until
from harness.package import connect as connect_package, stockade
from harness.postgres import WAITS_FOR, Postgres, ask, connect, program, run
from harness.resp import ReplyError, mapped

pytestmark = [pytest.mark.interpreted, pytest.mark.xdist_group("postgresql_guards")]

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
    Form("WHERE CURRENT OF",
         "DECLARE c CURSOR FOR SELECT * FROM inventory WHERE sku = 1 FOR UPDATE; FETCH c; "
         "UPDATE inventory SET stock = 9 WHERE CURRENT OF c; CLOSE c"),
    Form("behind a savepoint", "SAVEPOINT s; UPDATE inventory SET stock = 9 WHERE sku = 1; "
                               "RELEASE s"),
    Form("ON DELETE CASCADE", "DELETE FROM articles WHERE sku = 1"),
    Form("ON UPDATE CASCADE", "UPDATE articles SET sku = 1001 WHERE sku = 1", ("sku:1001",)),
    Form("a key that changes", "UPDATE shelves SET sku = 3 WHERE sku = 1", ("sku:3",)),
    Form("a key that changes in a partition", "UPDATE orders_0 SET sku = '3' WHERE sku = '1'",
         ("sku:3",)),
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
         "ALTER TABLE orders ATTACH PARTITION extra FOR VALUES FROM (30) TO (40);"
         " INSERT INTO extra VALUES('1', 31, 1)"),
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

    def next_line(self):
        return self.database.sql("SELECT max(id) + 1 FROM lines")[0][0]

    def claims(self, which, form=Form("", "")):
        return {"no token": {}, "another row's": self.of("sku:2"),
                "a stale one": {"sku:1": self.stale},
                "a forged one": {**self.of("sku:1", *form.also), "sku:1": self.stale},
                "the right one": self.of("sku:1", *form.also)}[which]

    def rows(self, link):
        return [ask(link, f"SELECT t::text FROM {table} t ORDER BY 1") for table, _, _ in GUARDS]


@pytest.fixture(scope="module")
def stock(module_rig, postgres):
    database = postgres.database()
    yield Stock(module_rig, database)


def present(link, tokens):
    """In an open transaction, or one of its own. The first of a session takes a longer way."""
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
        return error.pgcode or str(error)
    return None


@pytest.mark.parametrize("which, code", [
    ("no token", NOTOKEN), ("a stale one", STALE), ("a forged one", STALE),
    ("another row's", GUARDED), ("the right one", None)])
def test_rows_change_under_their_token_alone(stock, which, code):
    faults = []
    with stock.database.connect(user="postgres") as link:
        before = stock.rows(link)
        present(link, stock.of("sku:1"))
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
        present(link, stock.of("sku:1"))
        for form in [form for form in FORMS if form.also]:
            for names in (["sku:1"], form.also):
                ask(link, "BEGIN")
                present(link, stock.of(*names))
                assert code_of(lambda form=form: ask(link, form.sql)) == GUARDED, form.name
                ask(link, "ROLLBACK")


def test_a_daemon_lists_guards(stock):
    listed = [mapped(guard) for guard in stock.client("GUARD", "LIST")]
    assert [(guard[b"table"], guard[b"column"], guard[b"prefix"], guard[b"state"])
            for guard in listed] == [(table.encode(), column.encode(), prefix.encode(), b"ok")
                                     for table, column, prefix in sorted(GUARDS)]


# Ways in. Each runs statements in one session and returns the SQLSTATE of the first error, or None.

def by_psql(stock, statements, *_):
    done = subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=sqlstate",
         stock.database.uri],
        input="".join(statement + ("\n" if statement.endswith("\\.") else ";\n")
                      for statement in statements),
        env=environment(), capture_output=True, text=True,
        timeout=patience(HANG_SECONDS), check=False)
    return done.stderr.split("ERROR:")[1].split()[0] if done.returncode else None


def by_one_message(stock, statements, *_):
    with stock.database.connect() as link:
        return code_of(lambda: ask(link, "; ".join(statements)))


def by_pool(stock, statements, bouncer):
    """pgbouncer gives another backend to each transaction, while others keep it busy."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(connect(dsn=bouncer.uri(stock.database))) for _ in range(5)]
        for link in links[1:]:
            ask(link, "BEGIN")
            ask(link, "SELECT 1")
        ended = code_of(lambda: [ask(links[0], statement) for statement in statements])
        for link in links[1:]:
            assert ask(link, "SELECT current_setting('stockade.claims', true)") in (
                [(None,)], [("",)])
        return ended


def by_program(stock, statements, *_):
    """Of psycopg2, with prepared parameters of the server's."""
    with stock.database.connect() as link:
        ask(link, "PREPARE sell(int8) AS UPDATE inventory SET stock = stock - 1 WHERE sku = $1")
        return code_of(lambda: [ask(link, "EXECUTE sell(1)" if "UPDATE" in statement else statement)
                                for statement in statements])


def by_copy(stock, statements, *_):
    return by_psql(stock, [f"{statement};\nCOPY lines FROM STDIN;\n{stock.next_line()}\t1\t1\n\\."
                           if "UPDATE" in statement else statement for statement in statements])


@pytest.mark.parametrize("way", [by_psql, by_one_message, by_pool, by_program, by_copy])
def test_programs_come_in_by_every_way(stock, bouncer, way):
    def sold():
        return stock.database.sql("SELECT stock FROM inventory WHERE sku = 1")[0][0]

    for which, code in (("no token", NOTOKEN), ("a stale one", STALE), ("another row's", GUARDED),
                        ("the right one", None)):
        before = sold()
        shown = [f"SELECT stockade.present('{name}', {token})"
                 for name, token in stock.claims(which).items()]
        ended = way(stock, ["BEGIN", *shown, "UPDATE inventory SET stock = stock - 1 WHERE sku = 1",
                            "COMMIT"], bouncer)
        assert (ended, before - sold()) == (code, 0 if code else 1), which


def test_the_python_package_presents_to_psycopg(stock):
    with connect_package(stock.daemon) as shop, stock.database.connect() as link:
        link.autocommit = False
        with shop.lease("sku:77") as lease:
            lease.present(link)
            for statement in ("INSERT INTO inventory VALUES (77, 5)",
                              "DELETE FROM inventory WHERE sku = 77"):
                ask(link, statement)
            link.commit()
            shop.revoke("sku:77")
            with pytest.raises(stockade.Stale):
                lease.present(link)
            link.rollback()


def test_the_python_package_says_which_grant_a_programs_role_lacks(stock):
    stock.server.sql("CREATE ROLE passer_by LOGIN")
    try:
        with (connect_package(stock.daemon) as shop, shop.lease("sku:77") as lease,
              stock.database.connect(user="passer_by") as link,
              pytest.raises(stockade.Denied) as refusal):
            lease.present(link)
    finally:
        stock.server.sql("DROP ROLE passer_by")
    assert str(refusal.value) == ("permission denied for schema stockade: the role of this "
                                  "connection may not present; GRANT stockade_app TO it")


def test_what_was_presented_ends_with_its_transaction_or_savepoint(stock):
    sell = "UPDATE inventory SET stock = stock - 1 WHERE sku = 1"
    mine = stock.of("sku:1")
    with stock.database.connect() as link:
        present(link, mine)
        assert code_of(lambda: ask(link, sell)) == NOTOKEN  # autocommit
        ask(link, "BEGIN")
        ask(link, "SAVEPOINT a")
        present(link, mine)
        ask(link, "ROLLBACK TO a")
        assert code_of(lambda: ask(link, sell)) == NOTOKEN
        ask(link, "ROLLBACK")
        ask(link, "BEGIN")
        ask(link, "SAVEPOINT a")
        present(link, mine)
        ask(link, "RELEASE a")
        ask(link, sell)
        ask(link, "COMMIT AND CHAIN")
        assert code_of(lambda: ask(link, sell)) == NOTOKEN


def test_an_error_at_commit_undoes_all_of_it(stock):
    with stock.database.connect() as link:
        ask(link, "BEGIN")
        ask(link, "INSERT INTO later VALUES(1, 1)")
        assert code_of(lambda: ask(link, "COMMIT")) == NOTOKEN
        assert ask(link, "SELECT count(*) FROM later") == [(0,)]


def test_refusals_say_what_to_do_and_tell_no_token(stock):
    for _ in range(7):
        stock.client("RELEASE", "secret", stock.client.token("secret"))
    newest = stock.client.token("secret", 600000)
    with stock.database.connect() as link:
        present(link, {"secret": newest})
        for token, code in ((1, STALE), (1 << 53, UNKNOWN), (AsIs("NULL::int8"), NOTOKEN)):
            with pytest.raises(psycopg2.Error) as caught:
                present(link, {"secret": token})
            said = caught.value.diag
            assert caught.value.pgcode == code and said.message_hint
            assert str(newest) not in f"{said.message_primary}{said.message_hint}"
        for values in (("never", 1), ("", 1), (b"\0\xff", 1), ("x" * 600, 1)):
            assert code_of(lambda values=values: ask(
                link, "SELECT stockade.present(%s, %s)", *values)) == UNKNOWN
        for names, tokens in (("{a}", "{}"), ("{}", "{}"), (None, "{1}"), ("{a,b}", "{1}")):
            assert code_of(lambda names=names, tokens=tokens: ask(
                link, "SELECT stockade.present(%s::text[], %s::int8[])", names, tokens)) == "22023"


def test_several_are_presented_at_once_in_one_order(stock):
    """In whichever order they are named: two who name them in another wait for the same first."""
    names = [f"many:{i}" for i in range(40)]
    tokens = [stock.client.token(name, 600000) for name in names]
    codes = []

    def work(step):
        with stock.database.connect() as link:
            codes.append(code_of(lambda: ask(link, "SELECT stockade.present(%s, %s)",
                                             names[::step], tokens[::step])))

    def waiting():
        return stock.server.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = %s "
                                "AND wait_event_type = 'Lock'", stock.database.name)[0][0]

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, -1)]
    with stock.database.connect() as link:
        ask(link, "BEGIN")
        present(link, {names[20]: tokens[20]})
        for at, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda at=at: waiting() == at, "it waits")
        ask(link, "COMMIT")
    for thread in threads:
        thread.join()
    assert codes == [None, None]
    with stock.database.connect() as link:
        assert code_of(lambda: ask(link, "SELECT stockade.present(%s, %s)", names,
                                   [*tokens[:-1], tokens[-1] - 1])) in (STALE, UNKNOWN)


def test_a_driver_need_not_say_what_types_its_parameters_have(stock):
    with stock.database.connect() as link:
        for token, code in ((str(stock.tokens["sku:1"]), None), (str(stock.stale), STALE),
                            ("x", "22P02"), (None, NOTOKEN)):
            assert code_of(lambda token=token: present(link, {"sku:1": token})) == code


def test_bytes_name_a_resource_as_on_the_wire(stock):
    token = stock.client.token(b"\0\xff", 600000)
    with stock.database.connect() as link:
        ask(link, "SELECT stockade.present(%s, %s)", b"\0\xff", token)


def test_a_grant_waits_for_a_presenter_and_refuses_its_token(stock):
    client, other = stock.daemon.client(), stock.daemon.client()
    token = client.token("race", 600000)
    with stock.database.connect() as link:
        present(link, {"race": token})
        ask(link, "BEGIN")
        present(link, {"race": token})
        other.send("REVOKE", "race")
        with pytest.raises(TimeoutError):
            other.read(timeout=0.3)
        present(link, {"race": token})
        ask(link, "COMMIT")
        assert other.read() == token
        assert code_of(lambda: present(link, {"race": token})) == STALE


def test_presenters_of_one_resource_take_turns(stock):
    token = stock.client.token("turns", 600000)
    with stock.database.connect() as first, stock.database.connect() as second:
        present(first, {"turns": token})
        present(second, {"turns": token})
        ask(first, "BEGIN")
        present(first, {"turns": token})
        ask(second, "SET lock_timeout = '100ms'")
        assert code_of(lambda: present(second, {"turns": token})) == "55P03"


def test_who_pauses_after_present_is_ended(stock):
    client, other = stock.daemon.client(), stock.daemon.client()
    token = client.token("pause", 600000)
    with stock.database.connect() as link:
        ask(link, "SET stockade.idle_timeout = '300ms'")
        ask(link, "BEGIN")
        present(link, {"pause": token})
        assert other("REVOKE", "pause") == token
        assert code_of(lambda: ask(link, "SELECT 1")) and link.closed


def test_a_payment_lies_between_reading_and_present_and_not_behind_it(stock):
    tokens = stock.of("sku:2")
    with stock.database.connect() as paid, stock.database.connect() as paused:
        for link in (paid, paused):
            ask(link, "SET stockade.idle_timeout = '300ms'")
        left = ask(paid, "SELECT stock FROM inventory WHERE sku = 2")[0][0]
        ask(paused, "BEGIN")
        present(paused, tokens)
        backend = paused.info.backend_pid
        wait_until(lambda: not ask(paid, "SELECT 1 FROM pg_stat_activity WHERE pid = %s", backend),
                   "it paused for longer than a transaction may that has presented")
        ask(paid, "BEGIN")
        present(paid, tokens)
        ask(paid, "UPDATE inventory SET stock = %s WHERE sku = 2", left - 1)
        ask(paid, "COMMIT")
        assert ask(paid, "SELECT stock FROM inventory WHERE sku = 2") == [(left - 1,)]
        assert code_of(lambda: ask(paused, "COMMIT")) and paused.closed


def test_present_sets_limits_for_its_transaction_alone(stock):
    names = "idle_in_transaction_session_timeout", "lock_timeout", "synchronous_commit"

    def settings(link, *before):
        ask(link, "RESET ALL")
        for statement in before:
            ask(link, statement)
        ask(link, "BEGIN")
        present(link, stock.of("sku:1"))
        inside = [ask(link, f"SHOW {name}")[0][0] for name in names]
        ask(link, "COMMIT")
        return inside

    with stock.database.connect() as link:
        assert settings(link) == ["10s", "10s", "on"]
        assert [ask(link, f"SHOW {name}")[0][0] for name in names] == ["0", "0", "on"]
        assert settings(link, "SET idle_in_transaction_session_timeout = '5s'",
                        "SET lock_timeout = '1min'") == ["5s", "1min", "on"]
        assert settings(link, "SET idle_in_transaction_session_timeout = '1h'") == [
            "10s", "10s", "on"]
        assert settings(link, "SET stockade.idle_timeout = '30s'") == ["30s", "10s", "on"]
        ask(link, "SET stockade.idle_timeout = 'soon'")
        assert code_of(lambda: present(link, stock.of("sku:1"))) == "22023"


def test_no_guarded_commit_waits_for_less_than_a_standbys_disk(stock):
    """A guarded write's, unless the program says that it knows."""
    def inside(link, *before):
        for statement in before:
            ask(link, statement)
        ask(link, "BEGIN")
        present(link, stock.of("sku:1"))
        waits_for = ask(link, "SHOW synchronous_commit")[0][0]
        ask(link, "COMMIT")
        return waits_for

    with stock.database.connect() as link:
        for value, waits_for in WAITS_FOR.items():
            assert inside(link, f"SET synchronous_commit = {value}") == waits_for
            assert inside(link, "SET stockade.synchronous_commit = 'as it is'") == value
            ask(link, "RESET stockade.synchronous_commit")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_grant_newer_than_the_snapshot_says_try_again(stock, level):
    client = stock.daemon.client()
    old = client.token("snapshot", 600000)
    with stock.database.connect() as link:
        ask(link, f"BEGIN ISOLATION LEVEL {level}")
        ask(link, "SELECT 1")
        ask(link, "SELECT * FROM inventory")
        client("RELEASE", "snapshot", old)
        new = client.token("snapshot", 600000)
        assert code_of(lambda: present(link, {"snapshot": new})) == "40001"
        ask(link, "ROLLBACK")
        present(link, {"snapshot": new})
        client("RELEASE", "snapshot", new)


def test_a_prepared_transaction_keeps_the_fence_and_is_told(stock):
    client, other = stock.daemon.client(), stock.daemon.client()
    token = client.token("twophase", 600000)
    with stock.database.connect() as link:
        ask(link, "BEGIN")
        present(link, {"twophase": token})
        ask(link, "PREPARE TRANSACTION 'mine'")
    other.send("REVOKE", "twophase")
    with pytest.raises(TimeoutError):
        other.read(timeout=0.3)
    kinds = [kind for kind, _ in stock.database.sql("SELECT * FROM stockade.guard_problems()")]
    assert kinds == ["prepared transactions", "prepared transaction"]
    stock.database.sql("ROLLBACK PREPARED 'mine'")
    assert other.read() == token


def test_a_copy_accepts_nothing_before_a_daemon(rig, stock):
    name = stock.database.name
    with stock.server.connect() as link:  # CREATE DATABASE wants the daemon out, which comes back
        ask(link, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        ask(link, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        copy = stock.server.database(template=name)
        ask(link, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    rig.ends.append(copy.drop)
    with copy.connect() as link:
        assert code_of(lambda: present(link, stock.of("sku:1"))) == STORE
        ask(link, "BEGIN")
        forge(link, stock.of("sku:1"))
        assert code_of(lambda: ask(link, "DELETE FROM inventory WHERE sku = 1")) == STORE
        ask(link, "ROLLBACK")
        client = rig.daemon(store=copy.uri).client()
        assert code_of(lambda: present(link, stock.of("sku:1"))) == STALE
        token = client.token("sku:1", 600000)
        ask(link, "BEGIN")
        present(link, {"sku:1": token})
        ask(link, "DELETE FROM inventory WHERE sku = 1")
        ask(link, "COMMIT")
        # A server that was started anew, or promoted.
        ask(link, "UPDATE stockade.meta SET server = '00000009'")
        assert code_of(lambda: present(link, {"sku:1": token})) == STORE


# What it holds against.

APP_ATTEMPTS = [
    # To read tokens.
    "SELECT token FROM stockade.fences", "SELECT * FROM stockade.fences",
    "SELECT f FROM stockade.fences f", "SELECT token FROM stockade.resource",
    "TABLE stockade.receipt", "TABLE stockade.retired", "TABLE stockade.meta",
    "COPY stockade.resource TO STDOUT", "SELECT * FROM stockade.guard",
    # To forge.
    "UPDATE stockade.resource SET token = 1", "UPDATE stockade.resource SET state = 1",
    "INSERT INTO stockade.resource SELECT * FROM stockade.resource",
    "DELETE FROM stockade.resource", "UPDATE stockade.fences SET token = 1",
    "SELECT FROM stockade.resource FOR UPDATE", "DO 'BEGIN LOCK TABLE stockade.resource; END'",
    "UPDATE stockade.meta SET floor = 0", "TRUNCATE stockade.resource",
    "SELECT nextval('stockade.resource_id')",
    "SELECT stockade.claim(' 736b753a31=1')", "SELECT stockade.judge('{}', '{}')",
    "SELECT stockade.claimed('sku:1')", "SELECT stockade.check_keys('sku:', '{1}')",
    # To take guards off.
    "SELECT stockade.guard_drop('inventory')", "SELECT stockade.guard_try('inventory', NULL, NULL)",
    "SELECT stockade.guard_create('news', 'sku', '')", "SELECT stockade.grant_app()",
    "DELETE FROM stockade.guard", "DROP TRIGGER stockade_guard_1_update ON inventory",
    "ALTER TABLE inventory DISABLE TRIGGER ALL", "ALTER TABLE inventory DISABLE TRIGGER USER",
    "SET session_replication_role = replica", "ALTER TABLE inventory RENAME sku TO key",
    "ALTER TRIGGER stockade_guard_1_update ON inventory RENAME TO x", "DROP TABLE inventory",
    "DROP FUNCTION stockade.guard_1() CASCADE", "DROP SCHEMA stockade CASCADE",
    "ALTER FUNCTION stockade.guard_1() SECURITY INVOKER",
    "CREATE TABLE child() INHERITS (inventory)",
    "CREATE OR REPLACE FUNCTION stockade.guard_1() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RETURN NULL; END'",
    "CREATE OR REPLACE FUNCTION stockade.claimed(name bytea) RETURNS int8 LANGUAGE sql AS "
    "'SELECT 1::int8'",
    "CREATE RULE r AS ON UPDATE TO inventory DO INSTEAD NOTHING",
    "CREATE TRIGGER aaa BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION apply()",
    "TRUNCATE inventory", "COPY inventory FROM PROGRAM 'echo 1 1'",
    # To become somebody else.
    "SET ROLE shop", "SET ROLE postgres", "SET SESSION AUTHORIZATION shop", "GRANT shop TO buyer",
    "ALTER ROLE buyer SUPERUSER", "ALTER DATABASE postgres SET session_replication_role = replica",
    # To shadow.
    "CREATE TABLE stockade.x()", "CREATE TABLE pg_catalog.x()", "CREATE SCHEMA mine",
    "CREATE FUNCTION stockade.verdict(int8, int8, int4) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    "CREATE CAST (int8 AS text) WITH INOUT AS IMPLICIT",
    "ALTER ROLE shop SET search_path = pg_temp",
    "CREATE TABLE mine(sku int8); CREATE TRIGGER t AFTER UPDATE ON mine EXECUTE FUNCTION "
    "stockade.guard_1()",
]
# Each leaves something behind in its session, and lets nothing through.
APP_SHADOWS = [
    "SET search_path = pg_temp, public, stockade, pg_catalog",
    "SET stockade.here = 'elsewhere'",
    "SET row_security = off", "SET quote_all_identifiers = on", "SET transform_null_equals = on",
    "SET standard_conforming_strings = off", "SET array_nulls = off", "SET plan_cache_mode = auto",
    "SET default_transaction_isolation = serializable", "SET enable_indexscan = off",
    "SET stockade.claims = ' 736b753a31=1'", "SET stockade.claims = ' 736b753a31=999999'",
    "SET stockade.claims = ' 736b753a31='", "SET stockade.claims = '='",
    "SET stockade.claims = ' 736b753a31=1 736b753a31=2 zz'",
    "CREATE TEMP TABLE resource(id int8, name bytea, token int8, state int2)",
    "CREATE TEMP TABLE meta AS SELECT true AS identity, true AS server, 0 AS ended",
    "CREATE TEMP TABLE new_rows(sku int8); CREATE TEMP TABLE old_rows(sku int8)",
    "CREATE FUNCTION pg_temp.convert_to(text, name) RETURNS bytea LANGUAGE sql AS "
    "'SELECT NULL::bytea'",
    "CREATE FUNCTION pg_temp.concat(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    "CREATE FUNCTION pg_temp.yes(int8, int8) RETURNS boolean LANGUAGE sql AS 'SELECT true'; "
    "CREATE OPERATOR pg_temp.> (LEFTARG = int8, RIGHTARG = int8, FUNCTION = pg_temp.yes)",
]


@pytest.fixture(scope="module")
def buyer(stock):
    """A program's role: it writes the tables, and is in stockade_app."""
    server, name = stock.server, stock.database.name
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'stockade_app'"):
        server.sql("CREATE ROLE stockade_app")
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'buyer'"):
        server.sql("CREATE ROLE buyer LOGIN IN ROLE stockade_app")
    stock.database.sql("SELECT stockade.grant_app()")
    stock.database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public "
                       "TO buyer")
    yield "buyer"
    for role in "buyer", "stockade_app":
        server.sql(f"DROP OWNED BY {role}", database=name)


def test_a_program_of_the_role_stockade_app_may_present_and_look(stock, buyer):
    with stock.database.connect(user=buyer) as link:
        assert ask(link, "SELECT state, owner FROM stockade.fences WHERE resource = 'sku:1'")
        ask(link, "SELECT * FROM stockade.strings")
        ask(link, "SELECT * FROM stockade.fields")
        for statement in ("UPDATE inventory SET stock = stock - 1 WHERE sku = 1",
                          "DELETE FROM orders WHERE sku = '1'"):
            assert code_of(lambda statement=statement: ask(link, statement)) == NOTOKEN
            ask(link, "BEGIN")
            present(link, stock.of("sku:1"))
            ask(link, statement)
            ask(link, "ROLLBACK")


def test_such_a_program_gets_round_nothing(stock, buyer):
    with stock.database.connect(user="postgres") as watch:
        before = stock.rows(watch)
        problems = ask(watch, "SELECT * FROM stockade.guard_problems()")
        with stock.database.connect(user=buyer) as link:
            let = [attempt for attempt in APP_ATTEMPTS
                   if code_of(lambda attempt=attempt: ask(link, attempt)) not in (
                       "42501", "0LP01", "55000", "42710")]
        assert not let
        for shadow in APP_SHADOWS:
            with stock.database.connect(user=buyer) as link:
                with contextlib.suppress(psycopg2.Error):
                    ask(link, shadow)
                for statement in ("UPDATE public.inventory SET stock = 0",
                                  "DELETE FROM public.orders", "DELETE FROM public.lines",
                                  "INSERT INTO public.boxes VALUES(1, 1)"):
                    assert code_of(lambda statement=statement: ask(link, statement)), (
                        shadow, statement)
        assert stock.rows(watch) == before
        assert ask(watch, "SELECT * FROM stockade.guard_problems()") == problems


CORE = "CREATE OR REPLACE FUNCTION stockade.judge(names bytea[], tokens int8[]) RETURNS void " \
       "LANGUAGE plpgsql AS 'BEGIN END'"
# What is told, what did it, and whether GUARD CREATE heals it.
DAMAGES = [
    ("table gone", "DROP TABLE lines", False),
    ("column renamed", "ALTER TABLE lines RENAME sku TO article", False),
    ("column renamed", "ALTER TABLE lines RENAME sku TO old; "
                       "ALTER TABLE lines RENAME amount TO sku", False),
    ("column renamed", "ALTER TABLE lines RENAME sku TO old; ALTER TABLE lines ADD sku text "
                       "NOT NULL DEFAULT '1'", True),
    ("column renamed", "ALTER TABLE orders RENAME sku TO old; "
                       "ALTER TABLE orders ADD sku text", False),
    ("column renamed", "ALTER TABLE goods RENAME sku TO old; ALTER TABLE goods ADD sku int",
     False),
    ("column gone", "ALTER TABLE lines DROP sku CASCADE", False),
    ("column gone", "ALTER TABLE lines DROP sku CASCADE; "
                    "ALTER TABLE lines ADD sku text NOT NULL DEFAULT '1'", True),
    ("table renamed", "ALTER TABLE lines RENAME TO lines_old", False),
    ("table renamed", "ALTER TABLE lines RENAME TO lines_old; CREATE TABLE lines(sku text); "
                      "ALTER TABLE lines OWNER TO shop", False),
    ("table renamed", "CREATE SCHEMA old; ALTER TABLE lines SET SCHEMA old", False),
    ("table renamed", "ALTER TABLE orders RENAME TO orders_old", False),
    ("trigger gone", "DROP TRIGGER stockade_guard_2_update ON lines", True),
    ("trigger gone", "DROP TRIGGER stockade_guard_2_truncate ON lines", True),
    ("trigger gone", "DROP TRIGGER stockade_guard_2_bolt ON lines", True),
    ("trigger gone", "ALTER TRIGGER stockade_guard_2_insert ON lines RENAME TO zzz", True),
    ("trigger disabled", "ALTER TABLE lines DISABLE TRIGGER stockade_guard_2_delete", True),
    ("trigger disabled", "ALTER TABLE lines DISABLE TRIGGER ALL", True),
    ("trigger not always", "ALTER TABLE lines DISABLE TRIGGER ALL; "
                           "ALTER TABLE lines ENABLE TRIGGER ALL", True),
    ("trigger not always", "ALTER TABLE lines ENABLE REPLICA TRIGGER stockade_guard_2_insert",
     True),
    ("trigger altered", "DROP TRIGGER stockade_guard_2_delete ON lines; "
     "CREATE TRIGGER stockade_guard_2_delete AFTER DELETE ON lines "
     "REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT WHEN (pg_trigger_depth() > 9) "
     "EXECUTE FUNCTION stockade.guard_2(); "
     "ALTER TABLE lines ENABLE ALWAYS TRIGGER stockade_guard_2_delete", True),
    ("function gone", "DROP FUNCTION stockade.guard_2() CASCADE", True),
    ("function altered", "CREATE OR REPLACE FUNCTION stockade.guard_2() RETURNS trigger "
     "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp "
     "AS 'BEGIN RETURN NULL; END'", True),
    ("function altered", "ALTER FUNCTION stockade.guard_2() SECURITY INVOKER", True),
    ("function altered", "ALTER FUNCTION stockade.guard_2() RESET search_path", True),
    ("function altered", "ALTER FUNCTION stockade.guard_2() OWNER TO postgres", False),
    ("function altered", CORE, False),
    ("function altered", "ALTER FUNCTION stockade.present(text, bigint) SECURITY INVOKER", False),
    ("child without guard", "CREATE TABLE more() INHERITS (lines); "
                            "ALTER TABLE more OWNER TO shop", True),
    ("child without guard", "CREATE TABLE more() INHERITS (books)", False),
    ("child without guard", "CREATE TABLE more PARTITION OF orders FOR VALUES FROM (50) TO (60)",
     False),
    ("right too many", "GRANT UPDATE ON stockade.resource TO stockade_app", False),
    ("right too many", "GRANT SELECT ON stockade.fences TO stockade_app", False),
    ("right too many", "GRANT SELECT(token) ON stockade.fences TO stockade_app", False),
    ("right too many", "GRANT EXECUTE ON FUNCTION stockade.guard_drop TO PUBLIC", False),
    ("right too many", "GRANT CREATE ON SCHEMA stockade TO PUBLIC", False),
    ("role too mighty", "GRANT shop TO stockade_app", False),
    ("role too mighty", "GRANT postgres TO stockade_app", False),
    ("no right to repair", "ALTER TABLE lines OWNER TO postgres", False),
]


def test_every_damage_is_told_and_healed(stock, buyer):
    assert buyer and len({kind for kind, _, _ in DAMAGES}) >= 10
    faults = []
    with stock.database.connect(user="postgres") as link:
        def kinds():
            return {kind for kind, problem in ask(link, "SELECT * FROM stockade.guard_problems()")
                    if kind != "prepared transactions" and problem}

        assert not kinds()
        for kind, damage, heals in DAMAGES:
            ask(link, "BEGIN")
            ask(link, damage)
            told = kinds()
            if kind not in told:
                faults.append(f"{damage}: {told}")
            code = code_of(lambda: ask(
                link, "SELECT stockade.guard_create('lines', 'sku', 'sku:')"))
            if heals and (code or kinds()):
                faults.append(f"{damage}: not healed: {code}")
            ask(link, "ROLLBACK")
    assert not faults


def test_a_daemon_tells_a_broken_guard_and_heals_it(stock):
    stock.database.sql("ALTER TABLE lines DISABLE TRIGGER stockade_guard_2_insert")
    listed = [mapped(guard) for guard in stock.client("GUARD", "LIST")]
    state = {guard[b"table"]: guard[b"state"] for guard in listed}
    assert state.pop(b"lines") == b"broken" and set(state.values()) == {b"ok"}
    assert stock.client("GUARD", "CREATE", "lines", "sku", "sku:") == "OK"
    stock.client.refused("ERR", "GUARD", "CREATE", "lines", "sku", "sku:", text="guarded already")
PARTED = """
CREATE TABLE plain(sku text NOT NULL, n int);
CREATE TABLE parted(sku text NOT NULL, n int) PARTITION BY LIST(n);
CREATE TABLE parted_1 PARTITION OF parted DEFAULT;
CREATE TABLE parent(sku text NOT NULL, n int);
CREATE TABLE heir() INHERITS (parent);
INSERT INTO plain VALUES('1', 1), ('2', 2);
INSERT INTO parted VALUES('1', 1), ('2', 2);
INSERT INTO heir VALUES('1', 1), ('2', 2);
"""


@pytest.fixture
def parting(rig, database):
    database.sql(PARTED)
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    for table in "plain", "parted", "parent":
        assert client("GUARD", "CREATE", table, "sku", "sku:") == "OK"
    return daemon, client


@pytest.mark.parametrize("table, written", [
    ("plain", "plain"), ("parted", "parted"), ("parted", "parted_1"), ("parent", "heir")])
def test_another_column_of_that_name_guards_nothing(parting, database, table,
                                                                       written):
    """Also in a session that knows the guard already; and by the column's own name again, all goes
    on."""
    _, client = parting
    mine = {"sku:1": client.token("sku:1", 600000)}
    with database.connect() as link:
        def write(text):
            ask(link, "BEGIN")
            try:
                present(link, mine)
                return code_of(lambda: ask(link, text))
            finally:
                ask(link, "ROLLBACK")

        for _ in range(8):
            assert write(f"UPDATE {written} SET n = n WHERE n = 1") is None
        assert write(f"UPDATE {written} SET n = n WHERE n = 2") == GUARDED
        database.sql(f"ALTER TABLE {table} RENAME sku TO real_sku;"
                     f"ALTER TABLE {table} ADD sku text NOT NULL DEFAULT '1'")
        for text in (f"UPDATE {written} SET n = n WHERE n = 2", f"DELETE FROM {written}",
                     f"INSERT INTO {written} VALUES('2', 5)"):
            assert write(text) == GUARDED
            with pytest.raises(psycopg2.Error, match="sku, which is called real_sku now"):
                database.sql(text)
        problem = {mapped(guard)[b"table"]: mapped(guard).get(b"problem")
                   for guard in client("GUARD", "LIST")}
        assert b"column sku, which is called real_sku now" in problem.pop(table.encode())
        assert set(problem.values()) == {None}
        database.sql(f"ALTER TABLE {table} DROP sku; ALTER TABLE {table} RENAME real_sku TO sku")
        assert write(f"UPDATE {written} SET n = n WHERE n = 1") is None
        assert write(f"UPDATE {written} SET n = n WHERE n = 2") == GUARDED
        with pytest.raises(psycopg2.Error, match="depends? on column sku|stockade_guard"):
            database.sql(f"ALTER TABLE {table} DROP sku")


def test_a_table_in_a_guarded_ones_place_is_told(parting, database, tool):
    """As gh-ost, pg_repack and migrations by hand do it. What was guarded still is."""
    daemon, client = parting
    database.sql("CREATE TABLE fresh(sku text NOT NULL, n int); INSERT INTO fresh TABLE plain;"
                 "ALTER TABLE plain RENAME TO plain_old; ALTER TABLE fresh RENAME TO plain")
    said = "the table that was guarded as plain is called plain_old now, and plain is another one"
    assert code_of(lambda: database.sql("UPDATE plain_old SET n = 0")) == NOTOKEN
    shown = [mapped(guard) for guard in client("GUARD", "LIST")]
    assert [guard[b"state"] for guard in shown if guard[b"table"] == b"plain_old"] == [b"broken"]
    listed = tool.run("guard", "list", "--store", database.uri).stdout
    assert "broken" in listed and f"plain_old: {said}" in listed
    checked = tool.run("check", "--store", database.uri)
    assert checked.returncode == 1 and said in checked.stdout + checked.stderr
    wait_until(lambda: said in daemon.stderr(), "the log tells it")
    assert "guard" in client.info()["troubles_detail"]
    client.refused("ERR", "GUARD", "DROP", "plain", text="GUARD DROP plain_old")
    assert client("GUARD", "CREATE", "plain", "sku", "sku:") == "OK"
    assert code_of(lambda: database.sql("UPDATE plain SET n = 0")) == NOTOKEN
    assert client("GUARD", "DROP", "plain_old") == "OK"
    assert {mapped(guard)[b"state"] for guard in client("GUARD", "LIST")} == {b"ok"}
    wait_until(lambda: "the guards are whole again" in daemon.stderr(), "the log tells it")


def test_a_guarded_table_gets_no_parent(stock):
    """A statement that names the parent would fire none of its triggers."""
    with stock.database.connect(user="postgres") as link:
        ask(link, "BEGIN")
        ask(link, "CREATE TABLE parent(id int8 NOT NULL, sku varchar(20) NOT NULL, "
                  "amount int NOT NULL) PARTITION BY LIST (sku)")
        ask(link, "SAVEPOINT s")
        for statement in ("ALTER TABLE parent ATTACH PARTITION lines DEFAULT",
                          "ALTER TABLE lines INHERIT goods"):
            with pytest.raises(psycopg2.Error, match="stockade_guard_2_bolt|prevents|child table"):
                ask(link, statement)
            ask(link, "ROLLBACK TO s")


def test_what_cannot_be_guarded_is_refused(stock):
    with stock.database.connect(user="postgres") as link:
        ask(link, "CREATE DOMAIN code AS int8")
        ask(link, "CREATE COLLATION loose(provider = icu, locale = 'und-u-ks-level2', "
                  "deterministic = false)")
        ask(link, """CREATE TABLE odd(a date, b numeric, c code, d text COLLATE loose, e int8,
                  f text, g int8[], h char(5), i bytea);
                  INSERT INTO odd(e, f) VALUES(NULL, repeat('x', 600));
                  ALTER TABLE odd OWNER TO shop; CREATE TABLE foreigner(sku int8);
                  CREATE TABLE orphan(sku int8); ALTER TABLE orphan OWNER TO shop;
                  CREATE SCHEMA other AUTHORIZATION shop; CREATE TABLE other.orphan(sku int8);
                  CREATE TABLE other.alone(sku int8); ALTER TABLE other.alone OWNER TO shop;
                  ALTER TABLE other.orphan OWNER TO shop""")
    for column, why in (*((column, "a guard takes") for column in "abcghi"),
                        ("d", "not deterministic"), ("e", "names no"), ("f", "names no")):
        stock.client.refused("ERR", "GUARD", "CREATE", "odd", column, "x:", text=why)
    for table, why in (("foreigner", "GRANT postgres TO shop"), ("stock", "not a table"),
                       ("nowhere", "no table"), ("stockade.resource", "no table"),
                       ("pg_class", "no table"), ("", "."), ("a.b.c", "."), (b"\xff", "."),
                       ("inventory; DROP TABLE inventory", ".")):
        stock.client.refused("ERR", "GUARD", "CREATE", table, "sku", "x:", text=why)
    stock.client.refused("ERR", "GUARD", "CREATE", "orphan", "nocolumn", "x:", text="no column")
    stock.client.refused("ERR", "GUARD", "CREATE", "orphan", "sku", "x" * 600, text="400 bytes")
    stock.client.refused("ERR", "GUARD", "DROP", "orphan", text="not guarded")
    # What can.
    for table in "orphan", "other.orphan", "alone":
        assert stock.client("GUARD", "CREATE", table, "sku", "it's:") == "OK"
    listed = [mapped(guard)[b"table"] for guard in stock.client("GUARD", "LIST")]
    assert [table for table in listed if b"o" == table[:1] and table != b"orders"] == [
        b"orphan", b"other.alone", b"other.orphan"]
    for table in "orphan", "other.orphan", "other.alone":
        assert stock.client("GUARD", "DROP", table) == "OK"
    stock.database.sql("INSERT INTO orphan VALUES(1)")


def test_odd_names_are_guarded_like_others(stock):
    token = stock.client.token("o'x%s:1", 600000)
    with stock.database.connect() as link:
        ask(link, 'CREATE TABLE "Odd ""Table"("keys" int8 PRIMARY KEY, "key" text, v int)')
        assert stock.client("GUARD", "CREATE", '"Odd ""Table"', '"keys"', "o'x%s:") == "OK"
        insert = 'INSERT INTO "Odd ""Table" VALUES(1, NULL, 1)'
        assert code_of(lambda: ask(link, insert)) == NOTOKEN
        ask(link, "BEGIN")
        present(link, {"o'x%s:1": token})
        ask(link, insert)
        ask(link, 'UPDATE "Odd ""Table" SET v = 2')
        ask(link, "COMMIT")
        assert code_of(lambda: ask(link, 'DELETE FROM "Odd ""Table"')) == NOTOKEN
        assert code_of(lambda: ask(link, 'TRUNCATE "Odd ""Table"')) == GUARDED
        ask(link, 'DROP TABLE "Odd ""Table"')
    assert stock.client("GUARD", "DROP", '"Odd ""Table"') == "OK"


def test_tables_are_not_truncated(stock):
    with stock.database.connect(user="postgres") as link:
        for table in ("inventory", "orders", "orders_0", "orders_10", "goods", "books", "lines",
                      "articles CASCADE"):
            ask(link, "BEGIN")
            present(link, stock.of("sku:1", "sku:2"))
            assert code_of(lambda table=table: ask(link, f"TRUNCATE {table}")) == GUARDED
            ask(link, "ROLLBACK")


# What else happens to a database.

@pytest.mark.slow
def test_what_logical_replication_brings_is_refused_too(rig):
    """The apply worker presents nothing, so a guarded table takes no part in it."""
    server = Postgres(rig, wal_level="logical")
    source, target = server.database(), server.database()
    client = rig.daemon(store=target.uri).client()
    for database in source, target:
        database.sql("CREATE TABLE plain(sku int8 PRIMARY KEY, n int)")
        database.sql("CREATE TABLE parted(sku int8 PRIMARY KEY, n int) PARTITION BY RANGE (sku)")
        database.sql("CREATE TABLE part PARTITION OF parted DEFAULT")
        database.sql("CREATE TABLE other(sku int8 PRIMARY KEY)")
    for table in "plain", "parted":
        client("GUARD", "CREATE", table, "sku", "sku:")
        source.sql(f"CREATE PUBLICATION {table} FOR TABLE {table}, other", user="postgres")
        source.sql(f"SELECT pg_create_logical_replication_slot('{table}', 'pgoutput')",
                   user="postgres")
        target.sql(f"CREATE SUBSCRIPTION {table} CONNECTION 'host=127.0.0.1 port={server.port} "
                   f"dbname={source.name} user=postgres' PUBLICATION {table} "
                   f"WITH (create_slot = false, slot_name = {table}, copy_data = false, "
                   "disable_on_error = true)", user="postgres")
        source.sql(f"INSERT INTO {table} VALUES(1, 1)")
        wait_until(lambda table=table: target.sql(
            "SELECT subenabled FROM pg_subscription WHERE subname = %s", table,
            user="postgres") == [(False,)], "the subscription has stopped")
        assert target.sql(f"SELECT * FROM {table}") == []
        assert "NOTOKEN" in server.log()
        target.sql(f"DROP SUBSCRIPTION {table}", user="postgres")


def dump(stock, *options):
    return run(program("pg_dump"), "-h", "127.0.0.1", "-p", stock.server.port, "-U", "postgres",
               *options, stock.database.name)


def restore(stock, database, text):
    done = subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", database.uri_with(user="postgres")],
        input=text, env=environment(), capture_output=True, text=True, timeout=patience(60),
        check=False)
    assert done.returncode == 0, done.stderr


def test_guards_go_with_a_dump_and_its_restoring(rig, stock):
    copy = stock.server.database()
    rig.ends.append(copy.drop)
    restore(stock, copy, dump(stock))
    with copy.connect() as link:
        assert code_of(lambda: present(link, stock.of("sku:1"))) == STORE
        assert code_of(lambda: ask(link, "DELETE FROM inventory")) == NOTOKEN
        client = rig.daemon(store=copy.uri).client()
        assert {mapped(guard)[b"state"] for guard in client("GUARD", "LIST")} == {b"ok"}
        assert code_of(lambda: present(link, stock.of("sku:1"))) == STALE


def test_a_restore_without_triggers_is_told(rig, stock):
    """pg_restore --disable-triggers puts them back in another way than they were."""
    copy = stock.server.database(template="template0")
    rig.ends.append(copy.drop)
    restore(stock, copy, dump(stock, "-s"))
    restore(stock, copy, dump(stock, "-a", "--disable-triggers"))
    kinds = {kind for kind, _ in copy.sql("SELECT * FROM stockade.guard_problems()")}
    assert "trigger not always" in kinds and "trigger gone" not in kinds


def test_the_tool_guards_tables(rig, tool, database, tmp_path):
    file = tmp_path / "shop.db"
    tool.output("-u", f"sqlite:{file}", "set", "made", "1")
    with contextlib.closing(sqlite3.connect(file)) as link:
        link.execute("CREATE TABLE inventory(sku TEXT PRIMARY KEY, stock INTEGER)")
    database.sql("CREATE TABLE inventory(sku text PRIMARY KEY, stock int)")
    daemon = rig.daemon()
    daemon.client()("SQL", "CREATE TABLE inventory(sku TEXT PRIMARY KEY, stock INTEGER)")
    for where in (["--store", f"sqlite:{file}"], ["--store", database.uri], ["-u", daemon.uri]):
        assert tool.output("guard", "list", *where) == ""
        assert tool.output("guard", "create", "inventory", "sku", "sku:", *where) == ""
        assert tool.output("guard", "list", *where).split() == [
            "TABLE", "COLUMN", "PREFIX", "STATE", "inventory", "sku", "sku:", "ok"]
        assert json.loads(tool.output("guard", "list", "--json", *where)) == [
            {"table": "inventory", "column": "sku", "prefix": "sku:", "state": "ok"}]
        again = tool.run("guard", "create", "inventory", "sku", "other:", *where)
        assert again.returncode == 1 and "guarded already" in again.stderr
        assert tool.output("guard", "drop", "inventory", *where) == ""
        gone = tool.run("guard", "drop", "inventory", *where)
        assert (gone.returncode, gone.stderr) == (
            1, "stockade guard drop: inventory: table inventory is not guarded\n")
    assert tool.run("guard", "create", "inventory", "sku").returncode == 2


def test_the_tool_shows_no_name_as_it_is(tool, tmp_path):
    """A name may hold what a terminal takes for an order."""
    file, name = tmp_path / "shop.db", "stock\x1b[2J"
    where = ["--store", f"sqlite:{file}"]
    tool.output("-u", f"sqlite:{file}", "set", "made", "1")
    with contextlib.closing(sqlite3.connect(file)) as link:
        link.execute(f'CREATE TABLE "{name}"(sku TEXT PRIMARY KEY)')
    assert tool.output("guard", "create", name, "sku", "sku:", *where) == ""
    assert tool.output("guard", "list", *where).split()[4] == "stock\\x1b[2J"
    assert json.loads(tool.output("guard", "list", "--json", *where))[0]["table"] == name


def test_programs_with_sql_of_their_own_sell_no_more_than_there_is(rig, postgres):
    """20 programs read, decide and write each in a transaction of its own, on leases of two
    daemons, while leases are revoked."""
    database = postgres.database()
    rig.ends.append(database.drop)
    daemons = [rig.daemon(store=database.uri) for _ in range(2)]
    database.sql("CREATE TABLE inventory(sku int8 PRIMARY KEY, stock int)")
    database.sql("CREATE TABLE sales(sku int8, token int8, was int)")
    database.sql("INSERT INTO inventory VALUES(1, 200)")
    assert daemons[0].client()("GUARD", "CREATE", "inventory", "sku", "sku:") == "OK"
    faults = collections.Counter()
    over = threading.Event()

    def sell(daemon, link, client):
        grant = client.acquire("sku:1", 2000, "WAIT", 5000)
        if grant is None:
            return
        for _ in range(3):
            ask(link, "BEGIN")
            present(link, {"sku:1": grant.token})
            left = ask(link, "SELECT stock FROM inventory WHERE sku = 1")[0][0]
            if left == 0:
                over.set()
            else:
                ask(link, "UPDATE inventory SET stock = %s WHERE sku = 1", left - 1)
                ask(link, "INSERT INTO sales VALUES(1, %s, %s)", grant.token, left)
            ask(link, "COMMIT")
        with contextlib.suppress(ReplyError):
            client("RELEASE", "sku:1", grant.token)

    def work(daemon):
        client = daemon.client()
        with database.connect() as link:
            while not over.is_set():
                try:
                    sell(daemon, link, client)
                except psycopg2.Error as error:
                    faults[error.pgcode] += 1
                    ask(link, "ROLLBACK")

    def revoke():
        client = daemons[1].client()
        while not over.wait(0.05):
            client("REVOKE", "sku:1")

    threads = [threading.Thread(target=work, args=(daemons[i % 2],)) for i in range(20)]
    threads.append(threading.Thread(target=revoke))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.sql("SELECT stock FROM inventory") == [(0,)]
    assert database.sql("SELECT count(*), count(DISTINCT was) FROM sales") == [(200, 200)]
    assert database.sql("SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY was DESC) "
                        "AS older FROM sales) s WHERE older") == [(0,)]
    assert set(faults) <= {STALE}
