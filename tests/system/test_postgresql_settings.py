# SPDX-License-Identifier: Apache-2.0
"""Settings that an operator gives to a database or a role: whatever they are, a store is made,
works and answers as it does without them, and so do guards in other programs' connections.

All settings of pg_settings that a role may have are gone over. A round gives each of them one of
its values, all at once; where an answer differs, halving finds which of them it is."""

import contextlib
import itertools
import re
import sqlite3

import psycopg2
import pytest

from harness.limits import wait_until
from harness.postgres import SUPERUSER, WAITS_FOR, ask
from harness.resp import ReplyError, mapped
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql_settings")

# Values of texts; other settings have a least and a greatest one, or a list.
TEXTS = {
    "search_path": ["bob, public", "pg_temp, bob", ""],
    "DateStyle": ["German", "SQL, DMY", "Postgres, YMD"],
    "TimeZone": ["UTC"],  # SQL tells times as the database's zone has them
    "role": ["stockade_sql"],
    "client_encoding": ["LATIN1", "SQL_ASCII"],
    "default_table_access_method": ["nowhere"], "extension_destdir": ["/nowhere"],
    "default_text_search_config": ["pg_catalog.german"],
    "lc_messages": ["POSIX"], "lc_monetary": ["POSIX"], "lc_numeric": ["POSIX"],
    "lc_time": ["POSIX"],
    "timezone_abbreviations": ["India"],
    "temp_tablespaces": ["nowhere"], "default_tablespace": ["nowhere"],
    "plpgsql.extra_errors": ["all"], "plpgsql.extra_warnings": ["all"],
    "restrict_nonsystem_relation_kind": ["view"],
    "application_name": ["stockade writer"],
    "backtrace_functions": ["errstart"], "wal_consistency_checking": ["all"],
    "createrole_self_grant": ["set"],
    "dynamic_library_path": ["/nowhere:$libdir"],
}
# Why some are left out, or have no other value.
LEFT_OUT = {
    "session_authorization": "is no setting of a role's",
    "local_preload_libraries": "without its library nobody can connect",
    "session_preload_libraries": "without its library nobody can connect",
    "jit_provider": "a start's",
}
# The program's own affair: it would not get as far as the guard.
PROGRAM = ("-c statement_timeout=0 -c default_transaction_read_only=off -c role=none"
           " -c idle_session_timeout=0 -c exit_on_error=off"
           " -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c search_path=public"
           " -c default_transaction_isolation=read\\ committed"
           " -c restrict_nonsystem_relation_kind=")

# What makes a server slow, and is gone over one by one: what it logs, waits and new processes.
# And check_function_bodies = off, which would hide what plpgsql.extra_errors does to a new store.
SLOW = re.compile(r"check_function_bodies|log_|debug_|trace_|client_min_messages|commit_|"
                  r"force_parallel|.*_cost|.*_stats")
# What libpq shows of a server that is told to talk, while it connects.
NOTICES = re.compile(r"^(DEBUG|LOG|NOTICE|WARNING|INFO|DETAIL|HINT|CONTEXT|LOCATION):.*\n|"
                     r"^[\t!].*\n", re.M)


def values_of(name, kind, enums, least, greatest, default):
    if name in LEFT_OUT:
        return []
    if name in TEXTS:
        return TEXTS[name]
    if kind == "bool":
        return ["off" if default == "on" else "on"]
    if kind == "enum":
        return [value for value in enums if value != default]
    assert kind in ("integer", "real"), f"{name} has no values here"
    return [value for value in (least, greatest) if value != default]


@pytest.fixture(scope="module")
def settings(postgres):
    """{name: values that are not its own}, of all that a role or a database may have."""
    with postgres.connect() as link:
        ask(link, "LOAD 'plpgsql'")
        return {name: values for name, *rest in ask(
            link, "SELECT name, vartype, enumvals, min_val, max_val, boot_val FROM pg_settings"
                  " WHERE context IN ('user', 'superuser') ORDER BY name")
                if (values := values_of(name, *rest))}


def statement(reply):
    return reply.text if isinstance(reply, ReplyError) else reply


VALUES = r"""SELECT 0.1::float8 + 0.2::float8, 1e20::float4, '\xdead27'::bytea, 'a\b''c',
  1.50::numeric, '{NULL,a}'::text[], date '2026-11-09', timestamp '2026-11-09 10:11:12.5',
  interval '1 day 2:03',
  (SELECT count(*) FROM (VALUES(NULL::int), (1)) v(a) WHERE a = NULL), true, '{"a": [1]}'::jsonb,
  ROW(1, 'x y'), U&'\0041', xmlelement(name a, '\xff'::bytea)"""


def answers(rig, tool, database):
    """What an application, a program and an operator are told."""
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    told = []

    def tell(reply):
        told.append(statement(reply))
        return reply

    binary = b"a'\\b\"\0\xff\n"
    token = client.token("sku:1", 600000)
    tell(client.ask("FENCED", token, "ID", "once", "SET", "sku:1", binary))
    tell(client.ask("FENCED", token, "ID", "once", "SET", "sku:1", binary))
    tell(client.ask("FENCED", token, "HSET", "sku:1", "f", binary))
    tell(client.ask("GET", "sku:1"))
    basket = client.token("b\\'asket", 600000)
    tell(client.ask("FENCED", basket, "HSET", "b\\'asket", binary, binary))
    tell(client.ask("HGETALL", "b\\'asket"))
    tell(client.ask("FENCED", token + 1, "SET", "sku:1", "x"))
    tell(client.ask("ACQUIRE", "sku:1", 100))
    tell(client.ask("GUARD", "CREATE", "inventory", "sku", "sku:"))
    tell(client.ask("GUARD", "CREATE", "parts", "sku", "sku:"))
    tell(client.ask("GUARD", "LIST"))
    for command in (
            ("SQL", VALUES), under(token, "sku:1", VALUES),
            under(token, "sku:1", "UPDATE public.inventory SET stock = 9 WHERE sku = 1"),
            under(token, "sku:1", "UPDATE public.inventory SET stock = 9 WHERE sku = 2"),
            under(token, "sku:1", "UPDATE public.parts SET n = 9 WHERE sku = '1' RETURNING *"),
            under(token, "sku:1", "DELETE FROM public.parts WHERE sku = '2'"),
            ("SQL", "TYPES", "ftbn", "SELECT $1::float8, $2, $3::bytea, $4::text", "0.1",
             "{NULL}", b"'\\\0", ""),
            ("SQL", "SELECT * FROM stockade.strings"), ("SQL", "SELECT 1 / 0"),
            ("SQL", "SELECT resource, state FROM stockade.fences ORDER BY 1"),
            ("SQL", "CREATE TABLE stockade_sql.made(a int DEFAULT 1)"),
            under(token, "sku:1", "INSERT INTO stockade_sql.made VALUES(DEFAULT) RETURNING a"),
            ("SQL", "SELECT * FROM stockade_sql.made")):
        tell(client.ask(*command))
    with database.connect(user="settee", options=PROGRAM) as link:
        def run(text, *args):
            try:
                tell(ask(link, text, *args))
            except psycopg2.Error as error:
                tell((error.pgcode, error.diag.message_primary))
        for presented in ["sku:1"], ["sku:1", "none"], []:
            run("BEGIN")
            if len(presented) == 1:
                run("SELECT stockade.present(%s, %s::int8)", "sku:1", token)
            elif presented:
                run("SELECT stockade.present(%s, %s)", presented, [token, 1])
            run("SAVEPOINT s")
            for text in ("UPDATE public.inventory SET stock = stock + 1 WHERE sku = 1",
                         "UPDATE public.inventory SET stock = 5 WHERE sku = 2",
                         "INSERT INTO public.parts VALUES('1', 1), ('1', 2)",
                         "INSERT INTO public.parts VALUES('3', 1)",
                         "SELECT key, value FROM stockade.strings",
                         "SELECT key, field, value FROM stockade.fields"):
                run(text)
                run("ROLLBACK TO s")
            run("ROLLBACK")
    copy, moved = rig.folder / "copy.db", rig.folder / "moved.db"
    for command in (("check",), ("backup", copy), ("restore", copy), ("check",)):
        done = tool.run(*command, "--store", database.uri)
        said = done.stdout if command[0] == "check" else ""
        said = re.sub("warning: synchronous_commit = .*\n", "", said)  # a setting that it tells
        told.append((command[0], done.returncode, said, NOTICES.sub("", done.stderr)))
    with contextlib.closing(sqlite3.connect(copy)) as link:
        link.text_factory = bytes
        told.append(link.execute("SELECT * FROM stockade_values").fetchall())
        told.append(link.execute("SELECT * FROM stockade_fields").fetchall())
    tell(client.ask("FENCED", token, "SET", "sku:1", "late"))
    daemon.stop()
    done = tool.run("move", "--from", database.uri, "--to", f"sqlite:{moved}")
    told.append((done.returncode, NOTICES.sub("", done.stderr)))
    with contextlib.closing(sqlite3.connect(moved)) as link:
        link.text_factory = bytes
        told.append(link.execute("SELECT * FROM stockade_values").fetchall())
    copy.unlink(missing_ok=True)
    for path in rig.folder.glob("moved.db*"):
        path.unlink()
    return told


class Trial:
    """Stores in databases that have settings."""

    def __init__(self, rig, tool, postgres):
        self.rig, self.tool, self.postgres = rig, tool, postgres
        with postgres.connect() as link:
            if not ask(link, "SELECT 1 FROM pg_roles WHERE rolname = 'settee'"):
                ask(link, "CREATE ROLE settee LOGIN")
                if not ask(link, "SELECT 1 FROM pg_roles WHERE rolname = 'stockade_app'"):
                    ask(link, "CREATE ROLE stockade_app")
                ask(link, "GRANT stockade_app TO settee")
        self.plain = self.answers({})

    def answers(self, given):
        database = self.postgres.database()
        database.sql("CREATE TABLE inventory(sku int8 PRIMARY KEY, stock int);"
                     "INSERT INTO inventory VALUES(1, 10), (2, 10);"
                     "CREATE TABLE parts(sku text NOT NULL, n int) PARTITION BY LIST(sku);"
                     "CREATE TABLE parts_1 PARTITION OF parts DEFAULT;"
                     "INSERT INTO parts VALUES('1', 1), ('2', 1);"
                     "GRANT ALL ON inventory, parts TO settee, stockade_sql")
        database.sql("CREATE SCHEMA bob; GRANT ALL ON SCHEMA bob TO shop, stockade_sql",
                     user=SUPERUSER)
        with self.postgres.connect() as link:
            for name, value in given.items():
                with contextlib.suppress(psycopg2.Error):  # it may not be possible here
                    ask(link, f"ALTER DATABASE {database.name} SET {name} = %s", value)
        try:
            return answers(self.rig, self.tool, database)
        except Exception as failure:  # whatever it is, it is an answer, and another one
            assert given, "without settings all goes well"
            return [f"{type(failure).__name__}: {failure}"]
        finally:
            database.drop()

    def differs(self, given):
        told = self.answers(given)
        return next((f"{one} is {other}" for one, other in itertools.zip_longest(self.plain, told)
                     if one != other), None)

    def find(self, given):
        """One of those that make a difference, as far as a single one does; and what differs."""
        while len(given) > 1:
            names = list(given)
            half = {name: given[name] for name in names[:len(names) // 2]}
            rest = {name: given[name] for name in names[len(names) // 2:]}
            given = half if self.differs(half) else rest
        return given, self.differs(given)


@pytest.fixture
def trial(rig, tool, postgres):
    return Trial(rig, tool, postgres)


def give(settings, number):
    """Each setting its value of that number, but for those that make a server slow."""
    return {name: values[number % len(values)] for name, values in settings.items()
            if not SLOW.match(name)}


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow)
                                         for n in (1, 2, 3))])
def test_no_setting_of_a_database_changes_an_answer(trial, settings, number):
    assert len(settings) > 150
    if found := trial.differs(give(settings, number)):
        print("With all of them:", found)
        pytest.fail(f"{trial.find(give(settings, number))}")


def test_no_commit_of_a_daemon_waits_for_less_than_a_standbys_disk(rig, database):
    """The set is the server's own list."""
    assert {value for value, in database.sql(
        "SELECT unnest(enumvals) FROM pg_settings WHERE name = 'synchronous_commit'")} == set(
            WAITS_FOR)
    client = rig.daemon(store=database.uri).client()
    token = client.token("r", 600000)
    show = under(token, "r", "SELECT current_setting('synchronous_commit')")
    client(*show)
    for value, waits_for in WAITS_FOR.items():
        database.sql(f"ALTER DATABASE {database.name} SET synchronous_commit = {value}")
        database.sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname ="
                     " current_database() AND application_name = 'stockade apart'")
        wait_until(lambda: not isinstance(client.ask(*show), ReplyError), "it is back")
        assert mapped(client(*show))[b"rows"] == [[waits_for.encode()]], value


PARTS = 40


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_of_a_single_setting_changes_an_answer(trial, settings, part):
    faults = []
    for name in list(settings)[part::PARTS]:
        for value in settings[name]:
            if found := trial.differs({name: value}):
                faults.append(f"{name} = {value}: {found}")
    assert not faults, "\n".join(faults)
