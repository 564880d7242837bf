# SPDX-License-Identifier: Apache-2.0
"""`stockade check`: each kind of damage, planted with plain SQLite, is found and named."""

import array
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import termios

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until
from harness.resp import encode
from harness.rig import Rig
from harness.maintenance import (NO_STORES, each_command, execute, make_newer, make_version_1,
                                 overwrite, query)

WHOLE = "ok: 6 resources, 4 values, 3 receipts, 1 guards\n"
HUGE = 1 << 53


def fill_of(pipe):
    """How many bytes wait in it."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def build_store(rig):
    """Fences in every state, values of both types, receipts, a guarded table, a foreign key."""
    daemon = rig.daemon()
    client = daemon.client()
    live = client.token("live", 60000)
    client.fenced(live, "ID", "one", "SET", "live", "text")
    released = client.token("released", 60000)
    client.fenced(released, "ID", "one", "HSET", "released", "f", 1, "g", 2)
    client("RELEASE", "released", released)
    client.token("revoked", 60000)
    client("REVOKE", "revoked")
    odd = b"odd \x00\xff\\"
    client.fenced(client.token(odd, 60000), "SET", odd, b"\x00")
    sku = client.token("sku:a", 60000)
    client.fenced(sku, "ID", "one", "SET", "sku:a", 5)
    client("FENCED", client.token("empty", 60000), "GET", "empty")
    execute(rig.store, """
        CREATE TABLE stock(sku TEXT PRIMARY KEY, left INTEGER);
        INSERT INTO stock VALUES('a', 5);
        CREATE TABLE orders(id INTEGER PRIMARY KEY, sku TEXT REFERENCES stock);
        INSERT INTO orders VALUES(1, 'a')""")
    assert client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    return daemon


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The path of a store that was closed in good order."""
    rig = Rig(tmp_path_factory.mktemp("template"))
    build_store(rig).stop()
    rig.close()
    return rig.store


@pytest.fixture
def store(rig, template):
    shutil.copy(template, rig.store)
    return rig.store


def tamper(name, old, new):
    """SQL that changes the text of the schema behind SQLite's back."""
    return ("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql ="
            f" replace(sql, '{old}', '{new}') WHERE name = '{name}'")


def update(what, where="name = x'6c697665'"):
    return f"UPDATE stockade_resource SET {what} WHERE {where}"


DAMAGE = {
    # Of SQLite.
    "foreign key": ("INSERT INTO orders VALUES(2, 'nothing')", "sqlite",
                    "table orders, row 2: refers to nothing in stock"),
    # Of the schema.
    "table gone": ("DROP TABLE stockade_retired", "schema", "table stockade_retired is gone"),
    "index gone": ("DROP INDEX stockade_keys", "schema", "index stockade_keys is gone"),
    "view gone": ("DROP VIEW stockade_receipts", "schema", "view stockade_receipts is gone"),
    "view altered": ("DROP VIEW stockade_fences; CREATE VIEW stockade_fences AS SELECT 1", "schema",
                     "view stockade_fences was altered"),
    "column added": ("ALTER TABLE stockade_hash ADD COLUMN more", "schema",
                     "table stockade_hash was altered"),
    "foreign trigger": ("CREATE TRIGGER theirs AFTER INSERT ON stockade_string BEGIN SELECT 1; END",
                        "schema", "trigger theirs is not Stockade's"),
    "foreign index": ("CREATE INDEX theirs ON stockade_hash(value)", "schema",
                      "index theirs is not Stockade's"),
    "foreign table": ("CREATE TABLE stockade_theirs(x)", "schema",
                      "table stockade_theirs is not Stockade's"),
    "no floor": ("DELETE FROM stockade_meta WHERE key = 'floor'", "schema",
                 "no usable floor: NULL"),
    "floor too low": ("UPDATE stockade_meta SET value = -1 WHERE key = 'floor'", "schema",
                      "no usable floor: -1"),
    "floor too high": (f"UPDATE stockade_meta SET value = {HUGE} WHERE key = 'floor'", "schema",
                       f"no usable floor: {HUGE}"),
    "session is text": ("UPDATE stockade_meta SET value = 'x' WHERE key = 'session'", "schema",
                        "no usable session: 'x'"),
    "no mark": ("DELETE FROM stockade_meta WHERE key = 'file'", "schema", "no usable mark"),
    # Of guards.
    "trigger gone": ("DROP TRIGGER stockade_guard_delete_stock", "guard",
                     "table stock: its trigger stockade_guard_delete_stock is gone"),
    "trigger altered": (tamper("stockade_guard_update_stock", "THEN 1", "THEN 2"), "guard",
                        "table stock: its trigger stockade_guard_update_stock was altered"),
    "guarded table gone": ("DROP TABLE orders; DROP TABLE stock", "guard",
                           "table stock: its .* is gone"),
    "guard without registry": ("DELETE FROM stockade_guard", "schema",
                               "trigger stockade_guard_insert_stock is not Stockade's"),
    "registry row alone": ("INSERT INTO stockade_guard VALUES('nowhere', 'a', 'b')", "guard",
                           "table nowhere: its .* is gone"),
    # Of fences.
    "token too high": (update(f"token = {HUGE}"), "fence", f"live: its token is {HUGE}, not "),
    "token negative": (update("token = -1"), "fence", "live: its token is -1"),
    "token is text": (update("token = 'x'"), "fence", "live: its token is 'x'"),
    "state unknown": (update("state = 4"), "fence", "live: its state is 4, and its token 1"),
    "token without state": (update("state = 0, holds = 0"), "fence", "live: its state is 0"),
    "state without token": (update("token = 0"), "fence", "live: its state is 1, and its token 0"),
    "live without holds": (update("holds = 0"), "fence", "live: it is held 0 times in state 1"),
    "retired with holds": (update("holds = 1", "state = 2"), "fence",
                           "released: it is held 1 times in state 2"),
    "ttl": (update("ttl_ms = -5"), "fence", "live: its lease has a TTL of -5 ms"),
    "owner is text": (update("owner = 'me'"), "fence", "live: .*text of 2 bytes for an owner"),
    "session to come": (update("session = 99"), "fence", "live: it was granted in session 99"),
    "date": (update("changed_ms = -1"), "fence", "live: its fence changed at -1"),
    "receipts gone": (update("receipts_gone = 7"), "fence", "live: receipts up to token 7 are g"),
    "name is text": (update("name = 'live'"), "fence", "resource 1: its name is text of 4 bytes"),
    "name is empty": (update("name = x''"), "fence", "resource 1: its name is blob of 0 bytes"),
    "name twice": (tamper("stockade_resource", "NOT NULL UNIQUE", "NOT NULL") +
                   "; DELETE FROM sqlite_schema WHERE tbl_name = 'stockade_resource'"
                   " AND sql IS NULL",
                   "fence", "live: 2 resources have this name"),
    # Of values.
    "string alone": ("INSERT INTO stockade_string VALUES(77, x'00')", "value",
                     "resource 77: a string of a resource that is not there"),
    "fields alone": ("INSERT INTO stockade_hash VALUES(77, x'01', x''), (77, x'02', x'')", "value",
                     "resource 77: 2 fields of a resource that is not there"),
    "resource gone": ("DELETE FROM stockade_resource WHERE name = x'6c697665'", "value",
                      "resource 1: a string of a resource that is not there"),
    "string gone": ("DELETE FROM stockade_string WHERE id = 1", "value",
                    "live: its type is 1, and it has 0 strings and 0 fields"),
    "fields gone": ("DELETE FROM stockade_hash", "value",
                    "released: its type is 2, and it has 0 strings and 0 fields"),
    "both": ("INSERT INTO stockade_hash VALUES(1, x'01', x'')", "value",
             "live: its type is 1, and it has 1 strings and 1 fields"),
    "type": (update("type = 0"), "value", "live: its type is 0, and it has 1 strings"),
    "type unknown": (update("type = 3"), "value", "live: its type is 3"),
    "string is text": ("UPDATE stockade_string SET value = 'x' WHERE id = 1", "value",
                       "resource 1: its string is text"),
    "field is text": ("UPDATE stockade_hash SET field = 'f' WHERE field = x'66'", "value",
                      "a field is text of 1 bytes"),
    # Of receipts.
    "receipt alone": ("UPDATE stockade_receipt SET resource = 77 WHERE resource = 1", "receipt",
                      "resource 77: 1 receipts of a resource that is not there"),
    "receipt of no grant": ("UPDATE stockade_receipt SET token = 9 WHERE resource = 1", "receipt",
                            "live: a receipt of token 9, and its token is 1"),
    "receipt's id": ("UPDATE stockade_receipt SET id = 'one' WHERE resource = 1", "receipt",
                     "resource 1: a receipt with an ID that is text of 3 bytes"),
    "receipt's date": ("UPDATE stockade_receipt SET written_ms = -1 WHERE resource = 1", "receipt",
                       "resource 1: .*written at -1"),
    "receipts for ever": ("DELETE FROM stockade_retired", "receipt",
                          "released: receipts of token 1, which has ended, would never be removed"),
    "end of no token": ("UPDATE stockade_retired SET token = 0", "receipt",
                        "resource 2: token 0 of it ended"),
    "end of no resource": ("INSERT INTO stockade_retired VALUES(NULL, 77, 1, 1)", "receipt",
                           "resource 77: token 1 of it ended"),
}
AFTER = {"name twice": "INSERT INTO stockade_resource(name) VALUES(x'6c697665')"}


def findings(text):
    return [line.split(": ", 1) for line in text.splitlines()[:-1]]


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_and_named(maintenance, store, case):
    sql, kind, said = DAMAGE[case]
    execute(store, sql)
    if case in AFTER:  # in a connection that has read the altered schema
        execute(store, AFTER[case])
    done = maintenance.ask("check")
    assert done.returncode == 1 and done.stderr == "", done.stderr
    found = findings(done.stdout)
    assert any(k == kind and re.search(said, text) for k, text in found), done.stdout
    count = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    assert done.stdout.splitlines()[-1].startswith(f"{count}: "), done.stdout


def test_damaged_rows_end_no_daemon(rig, store):
    """Each row of a resource that is damaged is a copy of `live`; then the others, as they come."""
    columns = ", ".join(name for _, name, *_ in query(store, "PRAGMA table_info(stockade_resource)")
                        if name not in ("id", "name"))
    live, names, kinds = "x'6c697665'", [], ("fence", "value", "receipt")
    damage = [sql for case, (sql, kind, _) in DAMAGE.items() if kind in kinds and case not in AFTER]
    for sql in damage:
        if live in sql and "DELETE" not in sql:
            names.append(f"r{len(names)}")
            copy = f"x'{names[-1].encode().hex()}'"
            execute(store, f"INSERT INTO stockade_resource(name, {columns}) SELECT {copy}, "
                           f"{columns} FROM stockade_resource WHERE name = {live}")
            execute(store, sql.replace(live, copy))
    for sql in damage:
        if live not in sql or "DELETE" in sql:
            execute(store, sql)
    for length in (512, 513, 1025, 5000):
        execute(store, f"INSERT INTO stockade_resource(name, {columns}) SELECT zeroblob({length}), "
                       f"{columns} FROM stockade_resource WHERE name = x'{b'r2'.hex()}'")
        execute(store, f"INSERT INTO stockade_hash SELECT id, zeroblob({length}), x'31' FROM "
                       f"stockade_resource WHERE name = x'{b'released'.hex()}'")
    for changes in (False, True):
        client = rig.daemon().client()
        each_command(client, [*names, "live", "released", "revoked"], changes)
        assert client("PING") == "PONG"
        rig.processes[-1].close_clients()
        rig.processes[-1].stop()


def test_a_store_without_damage_is_ok_and_stays_as_it_is(maintenance, store):
    before = store.read_bytes()
    assert maintenance.do("check") == WHOLE
    assert store.read_bytes() == before


def test_it_works_while_a_daemon_writes(rig, maintenance):
    daemon = build_store(rig)
    client = daemon.client()
    assert maintenance.do("check") == WHOLE
    token = client.token("busy", 60000)
    commands = [("FENCED", token, "ID", f"r{i}", "HINCRBY", "busy", f"f{i % 7}", 1)
                for i in range(2000)]
    client.send_bytes(b"".join(encode(*command) for command in commands))
    for _ in range(3):
        assert maintenance.do("check").startswith("ok: 7 resources, ")
    for _ in commands:
        assert isinstance(client.read(), int)
    assert "2,003 receipts" in maintenance.do("check")


def live_a_little(client, chance, steps):
    """Grants, writes with and without IDs, repeats under tokens that have ended, removals."""
    tokens = {}
    for step in range(steps):
        name = f"r{chance.randrange(30)}"
        choice = chance.randrange(10)
        if choice < 3 or name not in tokens:
            client("REVOKE", name)
            tokens[name] = client.token(name, chance.choice((20, 50)), "WAIT", 10000)
        elif choice == 3:
            client.ask("RELEASE", name, tokens[name])
        elif choice == 4:
            client.ask("FENCED", tokens[name], "DEL", name)
        elif choice == 5:
            client.ask("FENCED", tokens[name], "HSET", name, f"f{step % 3}", "x")
        else:
            client.ask("FENCED", tokens[name], "ID", f"id{chance.randrange(40)}", "SET", name,
                       chance.randrange(5))
        if chance.randrange(400) == 0:
            client("FLUSHALL")


@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_has_lived_through_kills_and_clean_up_is_ok(rig, maintenance, seed):
    chance = random.Random(seed)
    options = ("--receipts-keep", "1", "--forget-after", "1", "--unfenced-writes", "allow")
    for _ in range(3):
        daemon = rig.daemon(*options)
        live_a_little(daemon.client(), chance, 300)
        assert maintenance.do("check").startswith("ok: ")
        daemon.close_clients()
        daemon.kill()
        assert maintenance.do("check").startswith("ok: ")

    def counted(what):
        said = maintenance.do("check")
        assert said.startswith("ok: ")
        return int(re.search(rf"(\d+) {what}", said)[1])
    daemon = rig.daemon(*options)
    daemon.client()("FLUSHALL")
    wait_until(lambda: counted("receipts") == 0, "receipts that nobody needs go")
    daemon.close_clients()
    daemon.stop()
    rig.daemon(*options)  # which goes through the resources when it has started
    wait_until(lambda: counted("resources") <= 1, "resources that nobody uses go")


@pytest.mark.parametrize("name", ["stockade_resource", "stockade_hash", "stockade_receipt",
                                  "stockade_keys", "sqlite_autoindex_stockade_resource_1",
                                  "stock"])
def test_a_page_that_was_overwritten_is_found(maintenance, store, name):
    overwrite(store, name, bytes(range(200)), -200)
    done = maintenance.ask("check")
    assert done.returncode == 1
    assert findings(done.stdout), done.stdout + done.stderr
    assert "sqlite" in [kind for kind, _ in findings(done.stdout)], done.stdout


def test_a_table_that_cannot_be_read_does_not_hide_what_else_is_wrong(maintenance, store):
    execute(store, update("token = -1"))
    overwrite(store, "stockade_hash", b"\xff" * 1024)
    done = maintenance.ask("check")
    kinds = [kind for kind, _ in findings(done.stdout)]
    assert done.returncode == 1 and "sqlite" in kinds and "fence" in kinds, done.stdout


def test_many_findings_of_a_kind_are_counted_not_listed(maintenance, store):
    execute(store, "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n"
                   " WHERE i < 1500) INSERT INTO stockade_string SELECT i, x'' FROM n")
    done = maintenance.ask("check")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 102
    assert done.stdout.splitlines()[-2] == "value: 401 more like the last one"
    assert done.stdout.splitlines()[-1].startswith("501 findings: 6 resources")


def test_names_are_shown_as_plain_text_whatever_their_bytes(maintenance, store):
    execute(store, update("holds = 0", "name = x'6f646420' || x'00ff5c'"))
    execute(store, update("holds = 0", "substr(name, 1, 3) = x'6f6464'"))
    done = maintenance.ask("check")
    assert r"fence: odd \x00\xff\x5c: it is held 0 times in state 1" in done.stdout
    done = maintenance.ask("check", "--json")
    assert json.loads(done.stdout)["findings"][0]["text"].startswith(r"odd \x00\xff\x5c: ")


def test_as_json(maintenance, store):
    assert json.loads(maintenance.do("check", "--json")) == {
        "findings": [], "ok": True, "findings_count": 0, "resources": 6, "values": 4,
        "receipts": 3, "guards": 1}
    execute(store, update("token = 'a \"quoted\" one', holds = 0"))
    done = maintenance.ask("check", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False and told["findings_count"] == len(told["findings"]) >= 2
    assert {"kind": "fence", "text": "live: its token is 'a \"quoted\" one', not one of 1 to "
                                     f"{HUGE - 1}"} in told["findings"]


def test_as_json_it_is_an_object_also_where_it_is_broken_off(maintenance, store):
    """A pipe that is full holds the output up, half-way."""
    execute(store, "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n"
                   " WHERE i < 99000) INSERT INTO stockade_string SELECT i, x'' FROM n")
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 4096)
    running = maintenance.start(*maintenance.words("check", "--json"), stdout=theirs,
                                stderr=subprocess.PIPE)
    os.close(theirs)
    wait_until(lambda: fill_of(ours) >= 4096, "output fills the pipe")
    running.send_signal(signal.SIGTERM)
    with open(ours, encoding="utf-8") as output:
        told = json.load(output)
    _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == -signal.SIGTERM and "interrupted" in stderr
    assert told["ok"] is False and told["error"] == "interrupted" and len(told["findings"]) > 0


def test_a_store_of_the_first_version_is_checked_as_such(rig, maintenance):
    make_version_1(rig.store)
    assert maintenance.do("check") == "ok: 4 resources, 3 values, 0 receipts, 0 guards\n"
    execute(rig.store, update("holds = 0"))
    assert maintenance.ask("check").returncode == 1


@pytest.mark.parametrize("make, said", [
    *NO_STORES, pytest.param(make_newer, "schema version 99, newer than", id="newer")])
def test_what_is_no_store_is_refused_by_name(rig, maintenance, make, said):
    if make is not None:
        make(rig.store)
    maintenance.refuse("check", said=said)
