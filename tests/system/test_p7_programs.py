# SPDX-License-Identifier: Apache-2.0
"""P7 No way round, for programs with their own SQLite: how long a token counts, what else than
statements changes rows, and the limits that store/SQL.md names."""

import contextlib
import shutil
import sqlite3
import subprocess
import time

import pytest

from harness.guards import KINDS, fill, table
from harness.limits import HANG_SECONDS, patience
from harness.maintenance import execute, query
from harness.resp import ReplyError
from harness.rig import Rig
from harness.shop import EXTENSION, Connection, attempt, guards, present, program, under
from harness.threads import Beside, at_once

SCHEMA = """
CREATE TABLE stock(sku TEXT PRIMARY KEY, left INTEGER, picture BLOB);
INSERT INTO stock VALUES('a', 10, zeroblob(8)), ('b', 10, zeroblob(8));
"""
SELL = "UPDATE stock SET left = left - 1 WHERE sku = 'a'"


class Store:
    def __init__(self, rig):
        self.rig = rig
        self.daemon = rig.daemon()
        self.client = self.daemon.client()
        execute(rig.store, SCHEMA)
        assert self.client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
        self.tokens = {"sku:a": self.client.token("sku:a"), "sku:b": self.client.token("sku:b")}

    def plain(self):
        return Connection(self.rig.store)

    def program(self, **options):
        return program(self.rig.store, **options)

    def pass_on(self, name="sku:a"):
        """Pass the lease on to somebody else."""
        self.client("RELEASE", name, self.tokens[name])
        self.tokens[name] = self.client.token(name)

    def rows(self):
        return query(self.rig.store, "SELECT * FROM stock ORDER BY sku")

    def left(self):
        return self.rows()[0][1]


@pytest.fixture
def store(rig):
    return Store(rig)


def test_a_sale_under_a_token_and_none_under_an_older_one(store):
    with store.program() as shop:
        old = dict(store.tokens)
        with under(shop, {"sku:a": old["sku:a"]}):
            shop.execute(SELL)
        assert store.left() == 9
        store.pass_on()
        shop.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match=r"^STALE token \d+ of 'sku:a'"):
            present(shop, {"sku:a": old["sku:a"]})
        with pytest.raises(sqlite3.OperationalError, match="^GUARDED the token of 'sku:a'"):
            shop.execute(SELL)
        shop.execute("COMMIT")
        assert store.left() == 9


def test_a_statement_prepared_in_one_transaction_needs_the_token_again_in_the_next(store):
    """Python keeps prepared statements by their text."""
    with store.program() as shop:
        for _ in range(3):
            shop.execute("BEGIN IMMEDIATE")
            assert attempt(shop, SELL).startswith("GUARDED")
            present(shop, store.tokens)
            assert attempt(shop, SELL) is None
            shop.execute("COMMIT")
    assert store.left() == 7


def test_the_lease_cannot_pass_on_between_the_token_and_the_commit(store):
    """The daemon's grant waits for the program's transaction, or comes before it."""
    with store.program() as shop:
        shop.execute("BEGIN")  # not even IMMEDIATE
        present(shop, store.tokens)
        granting = Beside(store.pass_on)
        granting.join(0.3)
        assert granting.is_alive(), "a token was granted inside another program's transaction"
        shop.execute(SELL)
        shop.execute("COMMIT")
        granting.end()
        assert store.left() == 9


def test_a_transaction_that_has_read_an_older_state_cannot_write_it(store):
    with store.program() as shop:
        shop.execute("PRAGMA busy_timeout = 100")
        old = dict(store.tokens)
        shop.execute("BEGIN")
        assert shop.execute("SELECT left FROM stock").fetchall()
        store.pass_on()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            present(shop, old)
        assert "GUARDED" in attempt(shop, SELL) or "locked" in attempt(shop, SELL)
        shop.execute("COMMIT")
        assert store.left() == 10


def test_pythons_implicit_transactions_are_no_transactions_until_the_first_change(store):
    with contextlib.closing(sqlite3.connect(store.rig.store,
                                            timeout=patience(HANG_SECONDS))) as shop:
        shop.enable_load_extension(True)
        shop.load_extension(str(EXTENSION))
        with pytest.raises(sqlite3.OperationalError, match="BEGIN IMMEDIATE"):
            shop.execute("SELECT stockade_present('sku:a', ?)", (store.tokens["sku:a"],))
        with shop:
            shop.execute("BEGIN IMMEDIATE")
            present(shop, store.tokens)
            shop.executemany("UPDATE stock SET left = left - ? WHERE sku = ?",
                             [(1, "a"), (2, "b"), (1, "a")])
        with pytest.raises(sqlite3.OperationalError, match="^GUARDED"):
            shop.execute(SELL)
    assert [row[1] for row in store.rows()] == [8, 8]


def test_two_connections_of_a_program_present_apart(store):
    with store.program(check_same_thread=False) as one, store.program() as other:
        with under(one, store.tokens):
            pass
        other.execute("BEGIN IMMEDIATE")
        assert attempt(other, SELL).startswith("GUARDED")
        other.execute("COMMIT")


def test_a_token_for_one_of_two_attached_files_opens_only_that_one(store, tmp_path):
    """Both files have granted the same tokens for the same resources."""
    (tmp_path / "other").mkdir()
    other = Store(Rig(tmp_path / "other"))
    try:
        assert other.tokens == store.tokens
        with program(":memory:") as shop:
            shop.execute("ATTACH ? AS one", (str(store.rig.store),))
            shop.execute("ATTACH ? AS two", (str(other.rig.store),))
            for mine, theirs in (("one", "two"), ("two", "one")):
                with under(shop, store.tokens, mine):
                    refusal = attempt(shop, f"UPDATE {theirs}.stock SET left = 0")
                    assert refusal.startswith("GUARDED")
                    assert attempt(shop, f"UPDATE {mine}.stock SET left = 5") is None
        assert store.left() == other.left() == 5
    finally:
        other.rig.close()


def test_sellers_beside_the_daemon_and_through_it_sell_each_piece_once(store):
    """Each reads the stock and writes it back, one less, some of them long after their lease."""
    pieces, sold, stale = 60, [], []
    with store.program() as shop, under(shop, store.tokens):
        shop.execute("UPDATE stock SET left = ? WHERE sku = 'a'", (pieces,))
    store.client("RELEASE", "sku:a", store.tokens["sku:a"])

    def beside(shop, token, left):
        try:
            with under(shop, {"sku:a": token}):
                shop.execute("UPDATE stock SET left = ? WHERE sku = 'a'", (left,))
        except sqlite3.OperationalError as error:
            shop.execute("ROLLBACK")
            assert str(error).startswith("STALE"), error
            return False
        return True

    def through(client, token, left):
        reply = client.ask("FENCEDALL", 1, "sku:a", token, "SQL",
                           "UPDATE stock SET left = ? WHERE sku = 'a'", left)
        assert not isinstance(reply, ReplyError) or reply.code == "STALE", reply
        return not isinstance(reply, ReplyError)

    def seller(number):
        client = store.daemon.client()
        with store.program() as shop:
            for sale in range(1000):
                ttl_ms = 40 * (1 + len(stale) // 50)  # longer where the machine is slow
                grant = client.acquire("sku:a", ttl_ms, "WAIT", 10000)
                if grant is None:
                    continue
                left, = shop.execute("SELECT left FROM stock WHERE sku = 'a'").fetchone()
                if left == 0:
                    return
                if sale % 5 == number % 5:
                    time.sleep(2 * ttl_ms / 1000)  # like a process that is paused past its TTL
                sell, where = (through, client) if number % 2 else (beside, shop)
                (sold if sell(where, grant.token, left - 1) else stale).append(number)
                client.ask("RELEASE", "sku:a", grant.token)

    at_once(seller, range(4), seconds=5 * HANG_SECONDS)
    assert store.left() == 0 and len(sold) == pieces
    assert stale and set(sold) == {0, 1, 2, 3}


def test_temporary_objects_deceive_no_guard(store):
    with store.program() as shop:
        shop.executescript(
            "CREATE TEMP TABLE stockade_resource(name, token, state);"
            "INSERT INTO temp.stockade_resource VALUES(CAST('sku:a' AS BLOB), 99, 1);"
            "CREATE TEMP TABLE stockade_meta(key, value); CREATE TEMP TABLE poke(x);"
            "CREATE TEMP TRIGGER sell AFTER INSERT ON poke BEGIN "
            "  UPDATE stock SET left = 0; END;"
            "CREATE TEMP TRIGGER sly BEFORE UPDATE ON main.stock BEGIN"
            "  DELETE FROM stock WHERE sku = 'b'; END;"
            "CREATE TEMP VIEW shelf AS SELECT * FROM main.stock;"
            "CREATE TEMP TRIGGER shelve INSTEAD OF DELETE ON shelf BEGIN"
            "  DELETE FROM stock WHERE sku = OLD.sku; END;")
        with under(shop, {"sku:a": store.tokens["sku:a"]}):
            for sql in ("INSERT INTO poke VALUES(1)", SELL, "DELETE FROM shelf WHERE sku = 'b'"):
                assert attempt(shop, sql).startswith("GUARDED"), sql
    assert [row[1] for row in store.rows()] == [10, 10]


def test_a_function_of_the_same_name_that_knows_nothing_lets_nobody_through(store):
    with store.plain() as shop:
        for answer in (None, 0, ""):
            shop.create_function("stockade_guard", -1, lambda *_, answer=answer: answer)
            assert attempt(shop, SELL) == "GUARDED stockade_guard is not Stockade's"
    assert store.left() == 10


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_incremental_blob_io_cannot_write_a_guarded_row(shop, kind):
    """It fires no triggers; the guard's index keeps it out. Reading goes on."""
    columns = [kind.write, "v", "k"]
    with Connection(shop.file) as connection:
        before = connection.execute(fill("SELECT * FROM {t}", kind)).fetchall()
        for column in columns:
            with pytest.raises(sqlite3.Error, match="cannot open|no such column"):
                connection.blobopen(table(kind), column, 2).close()
        # (SQLite 3.40 reads the wrong column where one before it is computed when read.)
        if "rowid" in kind.traits and kind.name != "generated":
            with connection.blobopen(table(kind), "v", 2, readonly=True) as blob:
                assert blob.read() == b"o"
        assert connection.execute(fill("SELECT * FROM {t}", kind)).fetchall() == before


def test_what_is_not_about_rows_needs_no_token(store):
    with store.plain() as connection:
        for sql in ("VACUUM", "ANALYZE", "REINDEX", "PRAGMA integrity_check", "PRAGMA optimize",
                    "PRAGMA wal_checkpoint", "ALTER TABLE stock ADD COLUMN price",
                    "CREATE INDEX by_left ON stock(left)"):
            assert attempt(connection, sql) is None, sql
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert attempt(connection, SELL) == "no such function: stockade_guard"
    assert [guard["state"] for guard in guards(store.client)] == ["ok"]


def test_a_copy_of_the_file_is_guarded_like_the_file(store, rig, tmp_path):
    """No token of the file is good in it: whether that was passed on meanwhile, it does not know.
    Until a daemon has opened it, none is good at all."""
    with store.plain() as connection, Connection(tmp_path / "copy.db") as copy:
        connection.backup(copy)
        connection.execute("VACUUM INTO ?", (str(tmp_path / "vacuumed.db"),))
    for name in ("copy.db", "vacuumed.db"):
        with Connection(tmp_path / name) as copy:
            assert attempt(copy, SELL) == "no such function: stockade_guard"
        with program(tmp_path / name) as copy:
            assert attempt(copy, SELL).startswith("GUARDED")
            with pytest.raises(sqlite3.OperationalError, match="is a copy"), under(
                    copy, store.tokens):
                pass
            copy.execute("ROLLBACK")
            served = rig.daemon(store=f"sqlite:{tmp_path / name}").client()
            with pytest.raises(sqlite3.OperationalError, match="^STALE"), under(copy, store.tokens):
                pass
            copy.execute("ROLLBACK")
            with under(copy, {"sku:a": served.token("sku:a")}):
                assert attempt(copy, SELL) is None


def test_the_daemon_sees_what_a_program_has_written_under_its_token(store):
    with store.program() as shop:
        for left in (3, 2, 1):
            with under(shop, store.tokens):
                shop.execute("UPDATE stock SET left = ? WHERE sku = 'a'", (left,))
            assert store.client.rows("SELECT left FROM stock WHERE sku = 'a'") == [[b"%d" % left]]
    store.client.refused("GUARDED", "FENCEDALL", 1, "sku:b", store.tokens["sku:b"], "SQL", SELL)


def test_the_extension_loads_under_its_name_only_shows_its_entry_point(tmp_path):
    symbols = subprocess.run(["nm", "-D", "--defined-only", EXTENSION], check=True, text=True,
                             capture_output=True).stdout.split()[2::3]
    assert symbols == ["sqlite3_stockadeguard_init"]
    shutil.copy(EXTENSION, tmp_path / "libstockade_guard.so")
    with Connection(":memory:") as connection:
        connection.enable_load_extension(True)
        connection.load_extension(str(tmp_path / "libstockade_guard"))
        assert connection.execute("PRAGMA recursive_triggers").fetchone() == (1,)


def test_the_limits_that_the_page_names_are_the_limits(store):
    """Whoever means to get round a guard can: these are not accidents, and not promised."""
    done = subprocess.run(["sqlite3", "-init", "/dev/null", "-batch", str(store.rig.store)],
                          input=".timeout 10000\n.dbconfig enable_trigger off\n" + SELL + ";\n",
                          capture_output=True, text=True,
                          timeout=patience(HANG_SECONDS), check=True)
    assert not done.stderr and store.left() == 9
    with store.plain() as connection:
        connection.create_function("stockade_guard", 4, lambda *_: 1)
        connection.execute(SELL)
        assert store.left() == 8
        connection.executescript("".join(
            f"DROP TRIGGER {name};" for name, in connection.execute(
                "SELECT name FROM sqlite_schema WHERE name LIKE 'stockade_guard_%'"
                " AND type = 'trigger'")))
        connection.execute(SELL)
    assert store.left() == 7
    assert [guard["state"] for guard in guards(store.client)] == ["broken"]


def test_sql_goes_by_what_another_program_has_just_changed(rig):
    """A statement that is right by the schema that the daemon read before, and by no other."""
    client = rig.daemon().client()
    client("SQL", "CREATE TABLE rows(a INTEGER)")
    execute(rig.store, "CREATE VIEW seen AS SELECT a FROM rows")
    assert client("SQL", "SELECT * FROM seen")
    execute(rig.store, "CREATE TRIGGER seen_i INSTEAD OF INSERT ON seen BEGIN "
                       "INSERT INTO rows VALUES(NEW.a); END")
    client.refused("NOTOKEN", "SQL", "INSERT INTO seen VALUES(1)")
