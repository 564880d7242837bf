# SPDX-License-Identifier: Apache-2.0
"""Guarded tables, and every way that SQLite has to change their rows.

A Kind is a kind of table; each has the rows of two keys, M (mine) and O (another's), and two keys
without rows, N and X. A Form is a way to change rows, written once for all kinds. What a form does
is not written down: `Oracle` runs it where there is no guard, and where a guard only listens.
"""

import collections
import functools
import sqlite3

import pytest

Kind = collections.namedtuple("Kind", "name columns options write keys traits more")
Form = collections.namedtuple("Form", "name sql needs foreign_keys")

TEXT = {"M": "'m'", "O": "'o'", "N": "'n'", "X": "'x'"}
INTEGER = {"M": "1", "O": "2", "N": "3", "X": "4"}
UPPER = {key: text.upper() for key, text in TEXT.items()}
BESIDE = "v TEXT, u INTEGER UNIQUE, p INTEGER REFERENCES {t}_par(id) ON DELETE CASCADE " \
         "ON UPDATE CASCADE, q INTEGER DEFAULT 0 REFERENCES {t}_par(id) ON DELETE SET NULL " \
         "ON UPDATE SET DEFAULT"


def kind(name, key, keys, end="", options="", write="k", traits="rowid text", more=""):
    return Kind(name, f"{key}, {BESIDE}{end}", options, write, keys, set(traits.split()), more)


# The table's own triggers, which change other rows, and the very row under the statement's hands.
MEDDLING = """
CREATE TRIGGER {t}_own_u BEFORE UPDATE OF v ON {t} WHEN OLD.k = 'm' AND NEW.v <> 'mine' BEGIN
  UPDATE {t} SET k = 'y', v = 'mine' WHERE k = 'm'; END;
CREATE TRIGGER {t}_own_d BEFORE DELETE ON {t} WHEN OLD.k = 'm' BEGIN
  UPDATE {t} SET k = 'y', u = 77 WHERE k = 'm'; END;
CREATE TRIGGER {t}_own_i BEFORE INSERT ON {t} WHEN NEW.k = 'n' BEGIN
  DELETE FROM {t} WHERE k = 'o'; INSERT INTO {t}(k, v) VALUES('y', 'more'); END;
CREATE TRIGGER {t}_own_a AFTER UPDATE OF v ON {t} WHEN NEW.k = 'o' AND NEW.v <> 'mine' BEGIN
  REPLACE INTO {t}(k, v, u) VALUES('o', 'mine', 10); END;
"""


KINDS = [
    kind("integer_key", "k INTEGER PRIMARY KEY", INTEGER, traits="rowid"),
    kind("autoincrement", "k INTEGER PRIMARY KEY AUTOINCREMENT", INTEGER, traits="rowid"),
    kind("integer_unique", "k INT UNIQUE DEFAULT 3", INTEGER, traits="rowid"),
    kind("text_key", "k TEXT PRIMARY KEY DEFAULT 'n'", TEXT),
    kind("nocase_key", "k TEXT PRIMARY KEY COLLATE NOCASE DEFAULT 'n'", TEXT),
    kind("plain", "k DEFAULT 'n'", TEXT),
    kind("composite", "k TEXT DEFAULT 'n', part DEFAULT 0", TEXT, ", PRIMARY KEY(k, part)"),
    kind("key_in_second_place", "part DEFAULT 0, k TEXT DEFAULT 'n'", TEXT,
         ", PRIMARY KEY(part, k)", "WITHOUT ROWID", traits="text"),
    kind("without_rowid", "k TEXT PRIMARY KEY DEFAULT 'n'", TEXT, "", "WITHOUT ROWID",
         traits="text"),
    kind("replacing", "k TEXT PRIMARY KEY ON CONFLICT REPLACE DEFAULT 'n'", TEXT),
    kind("strict", "k TEXT NOT NULL PRIMARY KEY DEFAULT 'n'", TEXT, "", "STRICT"),
    kind("generated", "w TEXT DEFAULT 'N', k TEXT AS (lower(w)) VIRTUAL UNIQUE", UPPER, write="w",
         traits="rowid"),
    kind("stored", "w TEXT DEFAULT 'N', k TEXT AS (lower(w)) STORED UNIQUE", UPPER, write="w",
         traits="rowid"),
    kind("foreign", "k TEXT PRIMARY KEY DEFAULT 'n' REFERENCES {t}_keys(k) ON DELETE CASCADE "
         "ON UPDATE CASCADE", TEXT, traits="rowid text keys"),
    kind("foreign_set_null", "k TEXT DEFAULT 'n' REFERENCES {t}_keys(k) ON DELETE SET NULL "
         "ON UPDATE SET NULL", TEXT, traits="rowid text keys"),
    kind("tree", "k TEXT PRIMARY KEY DEFAULT 'n', above TEXT DEFAULT 'm' REFERENCES {t}(k) "
         "ON DELETE CASCADE ON UPDATE CASCADE", TEXT),
    kind("tree_without_rowid", "k TEXT PRIMARY KEY DEFAULT 'n', above TEXT DEFAULT 'm' REFERENCES "
         "{t}(k) ON DELETE SET NULL ON UPDATE SET DEFAULT", TEXT, "", "WITHOUT ROWID",
         traits="text"),
    kind("meddling", "k TEXT PRIMARY KEY DEFAULT 'n'", TEXT, more=MEDDLING),
]
KIND = {k.name: k for k in KINDS}
# Those that differ most: their matrix runs with the fast tests, the others' with the slow ones.
OFTEN = {"integer_key", "text_key", "composite", "without_rowid", "strict", "generated",
         "replacing", "foreign"}


def every_kind():
    """For pytest.mark.parametrize."""
    return [pytest.param(k, id=k.name, marks=[] if k.name in OFTEN else [pytest.mark.slow])
            for k in KINDS]


# Besides the table: parents, a view that writes, another table whose triggers write.
SCHEMA = """
CREATE TABLE {t}_par(id INTEGER PRIMARY KEY, x);
CREATE TABLE {t}_keys(k TEXT PRIMARY KEY);
INSERT INTO {t}_par VALUES(0, ''), (1, ''), (2, '');
INSERT INTO {t}_keys VALUES('m'), ('o'), ('n'), ('x');
CREATE TABLE {t}({columns}) {options};
{more}
CREATE TABLE {t}_src(w, v, u INTEGER, p INTEGER);
INSERT INTO {t}_src VALUES({N}, 'src', 30, 1), ({X}, 'src', 40, 1);
CREATE VIEW {t}_view AS SELECT {w} AS w, v, u FROM {t};
CREATE TRIGGER {t}_view_i INSTEAD OF INSERT ON {t}_view BEGIN
  INSERT INTO {t}({w}, v, u) VALUES(NEW.w, NEW.v, NEW.u); END;
CREATE TRIGGER {t}_view_u INSTEAD OF UPDATE ON {t}_view BEGIN
  UPDATE {t} SET {w} = NEW.w, v = NEW.v WHERE {w} = OLD.w; END;
CREATE TRIGGER {t}_view_d INSTEAD OF DELETE ON {t}_view BEGIN
  DELETE FROM {t} WHERE {w} = OLD.w; END;
CREATE TABLE {t}_poke(op, w);
CREATE TRIGGER {t}_poke_i AFTER INSERT ON {t}_poke WHEN NEW.op = 'insert' BEGIN
  INSERT INTO {t}({w}, v) VALUES(NEW.w, 'poked'); END;
CREATE TRIGGER {t}_poke_r AFTER INSERT ON {t}_poke WHEN NEW.op = 'replace' BEGIN
  REPLACE INTO {t}({w}, v, u) VALUES(NEW.w, 'poked', 20); END;
CREATE TRIGGER {t}_poke_u BEFORE INSERT ON {t}_poke WHEN NEW.op = 'update' BEGIN
  UPDATE {t} SET v = 'poked' WHERE {w} = NEW.w; END;
CREATE TRIGGER {t}_poke_d BEFORE INSERT ON {t}_poke WHEN NEW.op = 'delete' BEGIN
  DELETE FROM {t} WHERE {w} = NEW.w; END;
"""
ROWS = "INSERT INTO {t}({w}, v, u, p, q) VALUES({M}, 'm', 10, 1, 1), ({O}, 'o', 20, 2, 2);"
RESTORE = ("DELETE FROM {t}; DELETE FROM {t}_par;"
           "INSERT INTO {t}_par VALUES(0, ''), (1, ''), (2, '');")

NEW = "({w}, v, u, p) VALUES({N}, 'new', 30, 1)"
FORMS_TEXT = """
insert: INSERT INTO {t}{new}
insert another's key: INSERT INTO {t}({w}, v) VALUES({O}, 'new')
insert two: INSERT INTO {t}({w}, u) VALUES({N}, 30), ({X}, 40)
insert mine and another's: INSERT INTO {t}({w}, u) VALUES({N}, 30), ({O}, 40)
insert select: INSERT INTO {t}({w}, v) SELECT {N}, 'new'
insert select from a table: INSERT INTO {t}({w}, v, u, p) SELECT * FROM {t}_src
insert select from itself: INSERT INTO {t}({w}, v) SELECT {N}, v FROM {t} WHERE u = 20
insert values as a table: INSERT INTO {t}({w}, v) SELECT * FROM (VALUES({N}, 'new'), ({X}, 'new'))
insert default values: INSERT INTO {t} DEFAULT VALUES
insert without the key: INSERT INTO {t}(v, u) VALUES('new', 30)
insert a null key: INSERT INTO {t}({w}, v) VALUES(NULL, 'new')
insert a blob key: INSERT INTO {t}({w}, v) VALUES(x'6e', 'new')
insert a float key: INSERT INTO {t}({w}, v) VALUES(3.5, 'new')
insert a number as a key: INSERT INTO {t}({w}, v) VALUES(3, 'new')
insert minus one: INSERT INTO {t}({w}, v) VALUES(-1, 'new')
insert a zero byte [text]: INSERT INTO {t}({w}, v) VALUES('m' || char(0), 'new')
insert returning: INSERT INTO {t}{new} RETURNING *
insert by rowid [rowid]: INSERT INTO {t}(rowid, v) VALUES(2, 'new')
insert or replace: INSERT OR REPLACE INTO {t}{new}
insert or replace another's: INSERT OR REPLACE INTO {t}({w}, v) VALUES({O}, 'new')
insert or replace mine: INSERT OR REPLACE INTO {t}({w}, v) VALUES({M}, 'new')
insert or replace by another index: INSERT OR REPLACE INTO {t}({w}, u) VALUES({M}, 20)
insert or replace two by one: INSERT OR REPLACE INTO {t}({w}, u) VALUES({N}, 20), ({M}, 30)
insert or replace by rowid [rowid]: INSERT OR REPLACE INTO {t}(rowid, v) VALUES(2, 'new')
replace: REPLACE INTO {t}({w}, v) VALUES({O}, 'new')
replace select: REPLACE INTO {t}({w}, u) SELECT {N}, 20 UNION ALL SELECT {M}, 30
replace returning: REPLACE INTO {t}({w}, v, u) VALUES({N}, 'new', 20) RETURNING v
insert or ignore: INSERT OR IGNORE INTO {t}{new}
insert or ignore what is there: INSERT OR IGNORE INTO {t}({w}, v, u) VALUES({O}, 'new', 20)
insert or ignore both: INSERT OR IGNORE INTO {t}({w}, u) VALUES({O}, 20), ({N}, 30)
insert or fail: INSERT OR FAIL INTO {t}{new}
insert or fail in the middle: INSERT OR FAIL INTO {t}({w}, u) VALUES({N}, 30), ({X}, 20)
insert or abort: INSERT OR ABORT INTO {t}{new}
insert or abort in the middle: INSERT OR ABORT INTO {t}({w}, u) VALUES({N}, 30), ({X}, 20)
insert or rollback: INSERT OR ROLLBACK INTO {t}{new}
insert or rollback in the middle: INSERT OR ROLLBACK INTO {t}({w}, u) VALUES({N}, 1), ({X}, 20)
upsert: INSERT INTO {t}({w}, u) VALUES({O}, 20) ON CONFLICT DO UPDATE SET v = 'new'
upsert mine: INSERT INTO {t}({w}, u) VALUES({M}, 10) ON CONFLICT DO UPDATE SET v = 'new'
upsert by an index: INSERT INTO {t}({w}, u) VALUES({M}, 20) ON CONFLICT(u) DO UPDATE SET v = 'new'
upsert a new row: INSERT INTO {t}({w}, u) VALUES({N}, 30) ON CONFLICT DO UPDATE SET v = 'new'
upsert the key: INSERT INTO {t}({w}, u) VALUES({O}, 20) ON CONFLICT DO UPDATE SET {w} = {N}
upsert with a condition: INSERT INTO {t}({w}, u) VALUES({O}, 20) ON CONFLICT DO UPDATE SET v = 'new'
    WHERE excluded.u = 20
upsert chain: INSERT INTO {t}({w}, u) VALUES({N}, 20) ON CONFLICT(u) DO UPDATE SET v = excluded.v ON
    CONFLICT DO NOTHING
upsert returning: INSERT INTO {t}({w}, u) VALUES({O}, 20) ON CONFLICT DO UPDATE SET v = 'new'
    RETURNING *
do nothing: INSERT INTO {t}{new} ON CONFLICT DO NOTHING
do nothing at all: INSERT INTO {t}({w}, u) VALUES({O}, 20) ON CONFLICT DO NOTHING
update mine: UPDATE {t} SET v = 'new' WHERE {w} = {M}
update another's: UPDATE {t} SET v = 'new' WHERE {w} = {O}
update all: UPDATE {t} SET v = 'new'
update to the same: UPDATE {t} SET v = v
update nothing: UPDATE {t} SET v = 'new' WHERE {w} = {N}
update returning: UPDATE {t} SET v = 'new' WHERE u = 20 RETURNING *
update by an index: UPDATE {t} SET u = u + 1 WHERE u > 15
update through an alias: UPDATE {t} AS a SET v = a.v || 'new' WHERE a.u = 20
update many columns: UPDATE {t} SET v = 'new', u = u + 100, p = 1, q = NULL WHERE {w} = {O}
update limited: UPDATE {t} SET v = 'new' ORDER BY u DESC LIMIT 1
update from: UPDATE {t} SET v = s.v FROM {t}_src AS s WHERE s.u = {t}.u + 10
update from itself: UPDATE {t} SET v = o.v || 'new' FROM {t} AS o WHERE o.u = {t}.u + 10
update with a subquery: UPDATE {t} SET (v, p) = (SELECT 'new', 1) WHERE u IN (SELECT max(u) FROM
    {t})
update a key: UPDATE {t} SET {w} = {N} WHERE {w} = {O}
update my key: UPDATE {t} SET {w} = {N} WHERE {w} = {M}
update my key to another's: UPDATE OR REPLACE {t} SET {w} = {O} WHERE {w} = {M}
update a key to null: UPDATE {t} SET {w} = NULL WHERE {w} = {M}
update a key to a blob: UPDATE {t} SET {w} = x'6e' WHERE {w} = {M}
update all keys: UPDATE {t} SET {w} = CASE {w} WHEN {M} THEN {N} ELSE {X} END
update a rowid [rowid]: UPDATE {t} SET rowid = 99 WHERE {w} = {O}
update or replace: UPDATE OR REPLACE {t} SET u = 20 WHERE {w} = {M}
update or replace by rowid [rowid]: UPDATE OR REPLACE {t} SET rowid = 2 WHERE {w} = {M}
update or ignore: UPDATE OR IGNORE {t} SET u = 20, v = 'new'
update or fail: UPDATE OR FAIL {t} SET u = 20, v = 'new'
update or abort: UPDATE OR ABORT {t} SET u = 20, v = 'new'
update or rollback: UPDATE OR ROLLBACK {t} SET u = 20, v = 'new'
delete mine: DELETE FROM {t} WHERE {w} = {M}
delete another's: DELETE FROM {t} WHERE {w} = {O}
delete all: DELETE FROM {t}
delete all, with a condition: DELETE FROM {t} WHERE 1
delete returning: DELETE FROM {t} RETURNING *
delete by an index: DELETE FROM {t} WHERE u = 20 OR u = 99
delete by a subquery: DELETE FROM {t} WHERE u IN (SELECT u - 10 FROM {t}_src)
delete what is joined: DELETE FROM {t} WHERE EXISTS (SELECT 1 FROM {t}_par WHERE id = p AND id > 1)
delete limited: DELETE FROM {t} ORDER BY u DESC LIMIT 1
with insert: WITH c AS (SELECT {N} AS a) INSERT INTO {t}({w}, v) SELECT a, 'new' FROM c
with replace: WITH c AS (SELECT {O} AS a) REPLACE INTO {t}({w}, v) SELECT a, 'new' FROM c
with update: WITH c AS (SELECT 20 AS a) UPDATE {t} SET v = 'new' WHERE u IN (SELECT a FROM c)
with delete: WITH c AS (SELECT 20 AS a) DELETE FROM {t} WHERE u IN (SELECT a FROM c)
with recursion: WITH RECURSIVE c(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM c WHERE a < 20) UPDATE
    {t} SET v = 'new' WHERE u IN (SELECT a FROM c)
with Stockade's names: WITH stockade_resource(name, token, state) AS (SELECT {t}.k, 1, 1 FROM {t}),
    stockade_meta(key, value) AS (SELECT 'file', '') UPDATE {t} SET v = 'new' WHERE EXISTS (SELECT 1
    FROM stockade_resource, stockade_meta)
insert into a view: INSERT INTO {t}_view(w, v, u) VALUES({N}, 'new', 30)
update a view: UPDATE {t}_view SET v = 'new' WHERE u = 20
update a key of a view: UPDATE {t}_view SET w = {N} WHERE u = 20
delete from a view: DELETE FROM {t}_view WHERE u = 20
insert by a trigger: INSERT INTO {t}_poke VALUES('insert', {N})
replace by a trigger: INSERT INTO {t}_poke VALUES('replace', {M})
update by a trigger: INSERT INTO {t}_poke VALUES('update', {O})
update by triggers: INSERT INTO {t}_poke VALUES('update', {M}), ('delete', {O})
delete by a trigger: INSERT OR IGNORE INTO {t}_poke VALUES('delete', {O})
delete a parent *: DELETE FROM {t}_par WHERE id = 2
delete parents *: DELETE FROM {t}_par
update a parent *: UPDATE {t}_par SET id = 5 WHERE id = 2
replace a parent *: REPLACE INTO {t}_par VALUES(2, 'new')
delete mine, with foreign keys *: DELETE FROM {t} WHERE {w} = {M}
delete all, with foreign keys *: DELETE FROM {t}
update my key, with foreign keys *: UPDATE {t} SET {w} = {N} WHERE {w} = {M}
replace mine, with foreign keys *: REPLACE INTO {t}({w}, v) VALUES({M}, 'new')
replace by an index, with foreign keys *: REPLACE INTO {t}({w}, u) VALUES({N}, 10)
drop the parents *: DROP TABLE {t}_par
delete a parent key [keys] *: DELETE FROM {t}_keys WHERE k = 'o'
update a parent key [keys] *: UPDATE {t}_keys SET k = 'y' WHERE k = 'm'
replace a parent key [keys] *: REPLACE INTO {t}_keys VALUES('o')
"""


def parse_form(line):
    """name [TRAIT] *: SQL. The form needs a kind with the trait; a star: foreign keys are on."""
    head, _, sql = line.partition(": ")
    name, _, needs = head.removesuffix(" *").partition(" [")
    return Form(name, sql, needs.removesuffix("]"), head.endswith(" *"))


FORMS = [parse_form(line) for line in FORMS_TEXT.strip().replace("\n   ", "").splitlines()]


def forms(kind_):
    return [form for form in FORMS if not form.needs or form.needs in kind_.traits]


def fill(text, kind_, schema=""):
    """The text for this kind of table."""
    new = NEW.format(w=kind_.write, **kind_.keys)
    return text.format(t=schema + table(kind_), w=kind_.write, options=kind_.options, new=new,
                       **kind_.keys,
                       columns=kind_.columns.format(t=table(kind_)),
                       more=kind_.more.format(t=table(kind_)))


def random_form(chance, kind_):
    """A statement that nobody thought of, mostly valid."""
    def value(column):
        return {"w": lambda: "{%s}" % chance.choice("MONX"), "v": lambda: chance.choice(
            ["'a'", "'b'", "v", "NULL"] if setting else ["'a'", "NULL"]), "u": lambda: str(
                chance.choice([10, 20, 30, 40])), "p": lambda: chance.choice("12")}[column]()

    def where():
        return chance.choice(["", " WHERE {w} = %s" % value("w"), f" WHERE u >= {value('u')}",
                              " WHERE {w} <> %s" % value("w"), " WHERE u IN (10, 20) AND v > 'm'"])

    def assignments():
        return ", ".join(f"{{w}} = {value('w')}" if c == "w" else f"{c} = {value(c)}"
                         for c in chance.sample("wvup", chance.randint(1, 3)))

    either = chance.choice(["", "", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT",
                            " OR ROLLBACK"])
    returning = chance.choice(["", "", " RETURNING *"])
    verb, setting = chance.choice(["insert", "insert", "update", "update", "delete"]), False
    if verb == "insert":
        columns = chance.sample("wvup", chance.randint(1, 4))
        values = ", ".join("(%s)" % ", ".join(value(c) for c in columns)
                           for _ in range(chance.randint(1, 3)))
        sql = "INSERT%s INTO {t}(%s) VALUES%s" % (
            either, ", ".join("{w}" if c == "w" else c for c in columns), values)
        setting = True
        sql += chance.choice(["", "", " ON CONFLICT DO NOTHING", " ON CONFLICT(u) DO NOTHING",
                              f" ON CONFLICT DO UPDATE SET {assignments()}",
                              f" ON CONFLICT(u) DO UPDATE SET {assignments()}"])
    elif verb == "update":
        setting = True
        sql = "UPDATE%s {t} SET %s%s" % (either, assignments(), where())
    else:
        sql = "DELETE FROM {t}" + where()
    return Form(sql + returning, sql + returning, "", chance.random() < 0.3)


def table(kind_):
    return f"t_{kind_.name}"


def prefix(kind_):
    return f"{kind_.name}:"


def resource(kind_, key):
    """The resource of M, O, N or X, or of the key that some triggers make, Y."""
    if key == "Y":
        return prefix(kind_) + "y"
    return prefix(kind_) + kind_.keys[key].strip("'").lower()


def select_rows(kind_, schema=""):
    rowid = "rowid AS number" if "rowid" in kind_.traits else "0 AS number"
    return f"SELECT k, {rowid}, * FROM {schema}{table(kind_)}"


def rows(connection, kind_, schema=""):
    """Every row, its key first; sorted."""
    return sorted(connection.execute(select_rows(kind_, schema)).fetchall(), key=repr)


# before, after: rows; error: text or None; changed: keys of rows that differ; asked: what a guard
# is asked for; free: (after, error) without a guard.
Outcome = collections.namedtuple("Outcome", "before after error changed asked free")


class Oracle:
    """What each form does to a kind of table, without a guard and with one that only listens."""

    def __init__(self, kind_, guard_sql):
        self.kind = kind_
        self.bare = self._database()
        self.heard = self._database()
        self.asked = set()
        self.heard.create_function("stockade_guard", 4, self._listen)
        self.heard.executescript("CREATE TABLE stockade_resource(name, token, state);"
                                 "CREATE TABLE stockade_meta(key, value);")
        for sql in guard_sql:
            self.heard.execute(sql)

    def _database(self):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.executescript(fill(SCHEMA + ROWS, self.kind))
        return connection

    def _listen(self, prefix_, key, _newest, _file):
        known = isinstance(key, (int, str))
        self.asked.add(f"{prefix_}{key}" if known else key)
        return 1

    def _run(self, connection, form):
        """(rows afterwards, the error or None); nothing of it lasts."""
        error = None
        connection.execute(f"PRAGMA foreign_keys = {int(form.foreign_keys)}")
        connection.execute("BEGIN")
        try:
            connection.execute(fill(form.sql, self.kind)).fetchall()
        except sqlite3.Error as failure:
            error = str(failure)
        after = rows(connection, self.kind)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return after, error

    @functools.lru_cache(maxsize=None)
    def outcome(self, form):
        before = rows(self.bare, self.kind)
        free = self._run(self.bare, form)
        self.asked = set()
        after, error = self._run(self.heard, form)
        changed = collections.Counter(before)
        changed.subtract(free[0])
        keys = {f"{prefix(self.kind)}{row[0]}" if isinstance(row[0], (int, str)) else row[0]
                for row, times in changed.items() if times}
        return Outcome(before, after, error, keys, self.asked, free)
