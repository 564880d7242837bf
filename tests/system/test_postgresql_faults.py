# SPDX-License-Identifier: Apache-2.0
"""What a server of PostgreSQL refuses, or cannot do: one clear line, to the client and in the log,
and the daemon goes on by itself once it can be done."""

import contextlib
import os
import shutil
import subprocess
import time

import pytest

from harness.limits import Seconds, patience, wait_until
from harness.postgres import SUPERUSER, USER, Postgres, ask, program, run
from harness.replicated import Replicated
from harness.resp import ReplyError
from harness.rig import refusal
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql_faults")

FILLED_BYTES = 100_000
TIMEOUT_S = 5  # of the store: POSTGRESQL.md
SLACK_S = 2


def complaints(daemon):
    """Its lines about the store."""
    return [line for line in daemon.log().splitlines() if "store " in line]


def assert_told(daemon, text, secret=None):
    """It starts all the same, each client hears why nothing goes, and the log has one line for each
    of its connections, however often it tries again."""
    client = daemon.client()
    assert client("PING") == "PONG"
    for command in [("ACQUIRE", "sku:1", 1000), ("GET", "sku:1"), ("ACQUIRE", "sku:1", 1000)]:
        client.refused("STORE", *command, text=text)
    lines = complaints(daemon)
    assert 1 <= len(lines) == len(set(lines)) <= 4, lines
    assert secret is None or secret not in daemon.log()


def await_grant(daemon):
    wait_until(lambda: not isinstance(daemon.client().ask("ACQUIRE", "sku:1", 60000), ReplyError),
               "the daemon has found its database")


# Why a store cannot be used: what waiting does not mend. Each row makes it so and gives the URI;
# then what the server, or the daemon, says of it, and what is to be done.
def no_role(database):
    return database.uri_with("nobody")


def no_login(database):
    with_role(database, "CREATE ROLE idler NOLOGIN")
    return database.uri_with("idler")


def wrong_password(database):
    with_role(database, "CREATE ROLE secretive LOGIN PASSWORD 'right' IN ROLE password")
    return database.uri_with("secretive:mistaken")


def no_password(database):
    with_role(database, "CREATE ROLE secretive LOGIN PASSWORD 'right' IN ROLE password")
    return database.uri_with("secretive")


def not_let_in(database):
    return database.uri_with("outlaw")


def no_database(database):
    return database.server.uri("nowhere")


def may_not_connect(database):
    with_role(database, "CREATE ROLE visitor LOGIN")
    database.sql(f"REVOKE CONNECT ON DATABASE {database.name} FROM PUBLIC")
    return database.uri_with("visitor")


def may_not_create(database):
    with_role(database, "CREATE ROLE visitor LOGIN")
    return database.uri_with("visitor")


def anothers(database):
    with_role(database, "CREATE ROLE visitor LOGIN")
    database.rig.daemon(store=database.uri).stop()
    return database.uri_with("visitor")


def foreign_schema(database):
    database.sql("CREATE SCHEMA stockade")
    return database.uri


def newer_schema(database):
    database.rig.daemon(store=database.uri).stop()
    database.sql("UPDATE stockade.meta SET version = 99")
    return database.uri


def emptied(database):
    database.rig.daemon(store=database.uri).stop()
    database.sql("DELETE FROM stockade.meta")
    database.damaged = True
    return database.uri


IN = "the role has to be there, with the right to log in, and pg_hba.conf to let it in"
PASSWORD = "the password is that of the URI, of PGPASSWORD or of PGPASSFILE"
GRANT = "GRANT that to the daemon's role, or name the role that owns the store"
LASTING = {
    no_role: ('role "nobody" does not exist', IN),
    no_login: ('role "idler" is not permitted to log in', IN),
    not_let_in: ("pg_hba.conf rejects connection", IN),
    wrong_password: ('password authentication failed for user "secretive"', PASSWORD),
    no_password: ("no password supplied", PASSWORD),
    no_database: ('database "nowhere" does not exist',
                  "make the database, or name another one"),
    may_not_connect: ("permission denied for database", GRANT),
    may_not_create: ("permission denied for database", GRANT),
    anothers: ("permission denied for schema stockade", GRANT),
    foreign_schema: ("not Stockade's", "name another database"),
    newer_schema: ("schema version 99", "run the newer stockaded"),
    emptied: ("the store is damaged", "stockade.meta is empty"),
}


def with_role(database, statement):
    name = statement.split()[2]
    database.server.sql(statement)
    database.rig.ends.append(lambda: (
        database.server.sql(f"DROP OWNED BY {name}", database=database.name),
        database.server.sql(f"DROP ROLE {name}")))


@pytest.fixture
def own_database(rig, database):
    database.rig = rig
    return database


@pytest.mark.parametrize("reason", LASTING, ids=lambda reason: reason.__name__)
def test_what_waiting_does_not_mend_ends_the_start_with_what_to_do(rig, own_database, reason):
    uri = reason(own_database)
    said, remedy = LASTING[reason]
    line = refusal(rig, store=uri)
    assert said in line and remedy in line, line
    assert "mistaken" not in line and "FATAL:  28" not in line


def test_a_pool_in_between_is_refused(rig, database, bouncer):
    assert "a connection pool stands between this daemon and PostgreSQL: name the server itself" \
        in refusal(rig, store=bouncer.uri(database))
    assert database.sql("SELECT FROM pg_namespace WHERE nspname = 'stockade'") == []


@pytest.mark.parametrize("host, said", [
    ("127.0.0.1:{port}", "Connection refused"),
    ("nosuch.invalid:{port}", 'could not translate host name "nosuch.invalid"')])
def test_a_database_that_may_come_is_waited_for_and_the_ready_line_says_so(rig, host, said):
    """The port may be opened, and the name made known, as machines start side by side."""
    uri = f"postgresql://shop@{host.format(port=rig.port())}/shop"
    daemon = rig.daemon(store=uri)
    assert daemon.wrong == "the store has not been reached yet"
    assert daemon.get("/ready")[:3:2] == (503, f"{daemon.wrong}\n")
    assert_told(daemon, said)


def test_a_library_is_told_at_once_what_waiting_does_not_mend(database, tool):
    done = tool.run("-u", database.uri_with("nobody"), "get", "k")
    assert done.returncode == 1 and 'role "nobody" does not exist' in done.stderr, done
    assert IN in done.stderr


def test_a_role_that_is_dropped_under_a_daemon_is_waited_for(rig, database):
    """What was well once may be so again: nobody's leases end for it."""
    database.server.sql("CREATE ROLE passing LOGIN")
    database.server.sql(f"GRANT CREATE ON DATABASE {database.name} TO passing")
    daemon = rig.daemon(store=database.uri_with("passing"))
    client = daemon.client()
    token = client.token("sku:1")
    database.server.sql("ALTER ROLE passing NOLOGIN")
    database.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE usename = 'passing'")
    wait_until(lambda: "not permitted to log in" in str(client.ask("GET", "sku:1")), "it is away")
    database.server.sql("ALTER ROLE passing LOGIN")
    wait_until(lambda: client.ask("FENCED", token, "SET", "sku:1", "1") == "OK", "it goes on")
    rig.processes.remove(daemon)
    daemon.close_clients()
    daemon.stop()
    database.server.sql(f"REASSIGN OWNED BY passing TO {database.owner}", database=database.name)
    database.server.sql("DROP OWNED BY passing", database=database.name)
    database.server.sql("DROP ROLE passing")


def test_a_limit_of_connections_is_told_until_it_is_lifted(rig, database):
    database.server.sql(f"ALTER DATABASE {database.name} CONNECTION LIMIT 0")
    daemon = rig.daemon(store=database.uri)
    assert_told(daemon, "too many connections for database")
    database.server.sql(f"ALTER DATABASE {database.name} CONNECTION LIMIT -1")
    await_grant(daemon)


def test_a_standby_is_refused_by_name(rig):
    group = Replicated(rig, standbys=1)
    database = group.database()
    group.await_replayed()
    standby, = group.standbys
    assert_told(rig.daemon(store=standby.uri(database)), "standby, which is read-only: name the "
                                                         "primary, or all hosts")


@pytest.mark.slow
def test_a_server_that_hangs_costs_each_command_no_more_than_the_timeout(rig):
    own = Postgres(rig)
    daemon = rig.daemon(store=own.database().uri_with(timeout_ms=TIMEOUT_S * 1000))
    token = daemon.client().token("sku:1")
    with own.frozen():
        for command in [("GET", "sku:1"), ("FENCED", token, "SET", "sku:1", "1"),
                        ("GET", "sku:1"), ("FENCED", token, "SET", "sku:1", "1"),
                        ("ACQUIRE", "sku:2", 1000)]:
            begun = time.monotonic()
            daemon.client().refused("STORE", *command, timeout=patience(4 * TIMEOUT_S))
            assert Seconds(begun) < patience(TIMEOUT_S + SLACK_S)
    wait_until(lambda: daemon.client().ask("FENCED", token, "SET", "sku:1", "2") == "OK",
               "it goes on")


def test_a_silent_server_costs_an_operation_apart_one_timeout(rig, database):
    relay = rig.relay(("127.0.0.1", database.server.port))
    uri = f"{database.uri_at(relay.address)}?timeout_ms={TIMEOUT_S * 1000}"
    client = rig.daemon("--unfenced-writes", "allow", store=uri).client()
    assert client("FLUSHALL") == "OK"
    relay.hold("down", b"kept\0")  # the rows that it locks
    begun = time.monotonic()
    client.refused("STORE", "FLUSHALL", timeout=patience(8 * TIMEOUT_S))
    assert Seconds(begun) < patience(TIMEOUT_S + SLACK_S)
    relay.let("down")
    wait_until(lambda: client.ask("FLUSHALL") == "OK", "it goes on")


def test_the_uri_says_how_long_an_answer_may_take(rig, database):
    """libpq, which knows no such parameter, does not see it; a database's own is 5 s."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    patient = rig.daemon(store=database.uri_with(timeout_ms=int(patience(60000))))
    token = patient.client().token("sku:1")
    hasty = rig.daemon(store=f"{database.uri_at(relay.address)}?timeout_ms=6000&sslmode=disable")
    await_grant(hasty)
    relay.hold("down")
    wait_until(lambda: "has not answered for 6000 ms" in str(hasty.client().ask("GET", "sku:1")),
               "it has given up, and says so")
    relay.let("down")
    patient.client().fenced(token, "SET", "sku:1", "1")


WATCH = "FROM pg_stat_activity WHERE application_name = 'stockade watch'"
CHORE = "SELECT floor, %%"  # the first statement of its chores that reads stockade.meta


def watch_is(database, what):
    return database.sql(f"SELECT pid {WATCH} AND {what}", user=SUPERUSER)


def test_chores_that_fail_leave_no_transaction_open(rig, database):
    """Every ten seconds. In what is left of one nobody would hear of leases that end."""
    rig.daemon(store=database.uri)
    wait_until(lambda: watch_is(database, "query LIKE '%%backend_xmin%%' AND state = 'idle'"),
               "the first are done")
    with contextlib.closing(database.connect(user=SUPERUSER)) as user:
        user.autocommit = False
        ask(user, "LOCK TABLE stockade.meta IN ACCESS EXCLUSIVE MODE")
        # Its look at the tables, which comes first, waits for the lock, too.
        others = f"{WATCH} AND wait_event_type = 'Lock' AND query NOT LIKE '{CHORE}'"
        wait_until(lambda: watch_is(database, f"wait_event_type = 'Lock' AND query LIKE '{CHORE}'")
                   or database.sql(f"SELECT pg_cancel_backend(pid) {others}", user=SUPERUSER) and 0,
                   "the next began")
        (pid,), = watch_is(database, "true")
        database.sql(f"SELECT pg_cancel_backend({pid})", user=SUPERUSER)
        wait_until(lambda: watch_is(database, f"pid = {pid} AND state LIKE 'idle%%'"),
                   "they have failed")
        wait_until(lambda: watch_is(database, f"pid = {pid} AND state = 'idle'"),
                   "the transaction is over", 2)
        user.rollback()


@contextlib.contextmanager
def small_disk(folder, size):
    """Of its own, in memory."""
    folder.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "stockade",
                                           folder], check=False).returncode != 0:
        pytest.skip("only root can mount a disk")
    try:
        subprocess.run(["chown", USER, folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_of_the_server_refuses_what_needs_room_and_nothing_is_lost(rig):
    own = Postgres(rig)
    with small_disk(own.folder / "small", "24m") as disk:
        own.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        own.sql("CREATE DATABASE shop_small TEMPLATE template0 OWNER shop TABLESPACE small")
        daemon = rig.daemon(store=own.uri("shop_small"))
        client = daemon.client()
        token, number = client.token("cart"), 0
        while not isinstance(refusal := client.ask(
                "FENCED", token, "HSET", "cart", number, os.urandom(FILLED_BYTES)), ReplyError):
            number += 1
        assert refusal.code == "STORE" and "No space left on device" in refusal.text, refusal
        assert "\n" not in refusal.text and number > 10
        assert client("HLEN", "cart") == number
        assert client.ask("GET", "cart:2") is None  # reads go on
        client.refused("STORE", "FENCED", token, "HSET", "cart", "more", os.urandom(FILLED_BYTES))
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        wait_until(lambda: client.ask("FENCED", token, "HSET", "cart", number, "1") == 1,
                   "there is room again")
        assert client("HLEN", "cart") == number + 1
        assert len([line for line in complaints(daemon) if "No space" in line]) <= 2
        rig.processes.remove(daemon)
        daemon.close_clients()
        daemon.stop()
        own.sql("DROP DATABASE shop_small")
        own.sql("DROP TABLESPACE small")


def test_what_fails_behind_a_commit_does_not_undo_it(rig, database):
    """Behind COMMIT, in the same trip, what SQL may have left to the session is cleaned up."""
    client = rig.daemon(store=database.uri).client()
    client("SQL", "CREATE TABLE counter(n int)")
    token = client.token("counter")
    client(*under(token, "counter", "INSERT INTO counter VALUES(0)"))
    database.sql("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_advisory_unlock_all() FROM PUBLIC",
                 user=SUPERUSER)
    for number in range(1, 4):
        client(*under(token, "counter", "UPDATE counter SET n = n + 1 RETURNING"
                                        " pg_catalog.pg_advisory_lock(7)"))
        assert database.sql("SELECT n FROM stockade_sql.counter") == [(number,)]
        with contextlib.closing(database.connect()) as user:
            wait_until(lambda user=user: ask(user, "SELECT pg_try_advisory_lock(7)") == [(True,)],
                       "what could not be cleaned up has gone with its connection")


def near_wrap_around(server):
    """It has 38 million transaction ids left, and each transaction that takes one warns. Its
    vacuum, which would free them, comes to one of its databases only, and then not for days."""
    server.shut_down()
    server.settings.update(autovacuum=True, autovacuum_naptime=2_147_483,
                           autovacuum_freeze_max_age=2_000_000_000)
    xids = 2**31 - 38_000_000
    run(program("pg_resetwal"), "-x", str(xids), server.data)
    commits = server.data / "pg_xact" / f"{xids >> 20:04X}"
    commits.write_bytes(bytes(32 * 8192))
    if USER:
        shutil.chown(commits, USER, USER)
    server.start()


def test_other_warnings_than_a_standbys_do_not_put_a_commit_in_doubt(rig):
    own = Postgres(rig)
    database = own.database()
    client = rig.daemon(store=database.uri).client()
    token = client.token("sku:1")
    near_wrap_around(own)
    wait_until(lambda: not isinstance(client.ask("ACQUIRE", "sku:2", 60000), ReplyError),
               "the daemon has found its database")
    assert client.fenced(token, "SET", "sku:1", "1") == "OK"
    assert client("GET", "sku:1") == b"1"
    assert client.token("sku:3") > token  # a new name takes its transaction id in COMMIT's trip
    with contextlib.closing(database.connect()) as user:
        ask(user, "CREATE TABLE mine()")
        assert "must be vacuumed within" in user.notices[0]


# What somebody has done to Stockade's own tables.

THEIRS = """
CREATE FUNCTION public.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION public.raise() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN NEW.token := NEW.token + 5; RETURN NEW; END'"""
SWALLOWS = "CREATE TRIGGER theirs BEFORE INSERT OR UPDATE ON stockade.{} FOR EACH ROW EXECUTE " \
           "FUNCTION public.swallow()"
NO_TRIGGER = "DROP TRIGGER theirs ON stockade.{}"
# What writes into each table, as the only one of these that does; but `mark` and `resource`, into
# which all do.
WRITES = {
    "resource": ("ACQUIRE", "new", 60000),
    "mark": ("FENCED", "<kept>", "SET", "kept", "1"),
    "field": ("FENCED", "<hash>", "HSET", "hash", "field", "1"),
    "receipt": ("FENCED", "<kept>", "ID", "once", "SET", "kept", "1"),
    "retired": ("RELEASE", "kept", "<kept>"),
}
CHANGES = {  # what is done, what is said, and what undoes it
    "a trigger that alters": (
        "CREATE TRIGGER theirs BEFORE INSERT OR UPDATE ON stockade.resource FOR EACH ROW EXECUTE "
        "FUNCTION public.raise()",
        "the trigger theirs on stockade.resource is not Stockade's: DROP TRIGGER theirs",
        NO_TRIGGER.format("resource")),
    "a rule": (
        "CREATE RULE theirs AS ON DELETE TO stockade.retired DO INSTEAD NOTHING",
        "the rule theirs on stockade.retired is not Stockade's: DROP RULE theirs",
        "DROP RULE theirs ON stockade.retired"),
    "row level security": (
        "ALTER TABLE stockade.field ENABLE ROW LEVEL SECURITY",
        "stockade.field has row level security: ALTER TABLE stockade.field DISABLE",
        "ALTER TABLE stockade.field DISABLE ROW LEVEL SECURITY"),
    "a child": (
        "CREATE TABLE public.child() INHERITS (stockade.receipt)",
        "the table public.child inherits from stockade.receipt: ALTER TABLE public.child NO",
        "DROP TABLE public.child"),
    "no log": (
        "ALTER TABLE stockade.mark SET UNLOGGED",
        "stockade.mark is unlogged: a crash of the server would empty it: ALTER TABLE",
        "ALTER TABLE stockade.mark SET LOGGED"),
    "a column": (
        "ALTER TABLE stockade.audit ADD theirs int GENERATED ALWAYS AS (1) STORED",
        "the table stockade.audit was altered: undo that",
        "ALTER TABLE stockade.audit DROP theirs"),
    "a key": (
        "ALTER TABLE stockade.retired DROP CONSTRAINT retired_pkey",
        "the table stockade.retired was altered: undo that",
        "ALTER TABLE stockade.retired ADD PRIMARY KEY(number)"),
}


def test_a_row_whose_owner_is_none_of_ours_ends_no_daemon(rig, database):
    """`anonymous`, and of another length than those that a daemon makes."""
    daemon = rig.daemon(store=database.uri)
    token = daemon.client().token("r", 600000)
    database.sql("UPDATE stockade.resource SET owner = 'short'")
    for client in daemon.client(), rig.daemon(store=database.uri).client():
        assert client.ask("ACQUIRE", "r", 1000) is None
        assert client.lease("r")["token"] == token
    assert client("RELEASE", "r", token) == 0
    assert client.token("r") > token


def writes(client):
    """A new name: whoever has a lease may be answered without a write."""
    return not isinstance(client.ask("ACQUIRE", time.monotonic_ns(), 60000), ReplyError)


def test_a_trigger_that_swallows_what_is_written_is_told_at_once(rig, database):
    """Nothing that was not recorded is acknowledged, also by a daemon that has been at work."""
    database.sql(THEIRS, user=SUPERUSER)
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    tokens = {f"<{name}>": client.token(name) for name in ("kept", "hash")}
    client.fenced(tokens["<kept>"], "ID", "first", "SET", "kept", "0")
    for table, command in WRITES.items():
        database.sql(SWALLOWS.format(table), user=SUPERUSER)
        client.refused("STORE", *[tokens.get(word, word) for word in command],
                       text=f"the trigger theirs on stockade.{table} is not Stockade's: DROP")
        assert client("GET", "kept") == b"0"  # reads go on
        database.sql(NO_TRIGGER.format(table), user=SUPERUSER)
        wait_until(lambda: writes(client), "it goes on")
    assert client("HLEN", "hash") == 0
    assert client.fenced(tokens["<kept>"], "SET", "kept", "1") == "OK"
    assert "the trigger theirs on stockade.mark" in daemon.log()


def test_a_trigger_that_keeps_rows_from_being_removed_stops_that(rig, database):
    database.sql(THEIRS, user=SUPERUSER)
    client = rig.daemon("--unfenced-writes", "allow", store=database.uri).client()
    assert client("FLUSHALL") == "OK"  # its connection is there before the trigger
    for command in ("FLUSHALL",), ("HDEL", "hash", "field"), ("DEL", "hash"):
        assert client("HSET", "hash", "field", "1") == 1
        database.sql("CREATE TRIGGER theirs BEFORE DELETE ON stockade.field FOR EACH ROW EXECUTE "
                     "FUNCTION public.swallow()", user=SUPERUSER)
        client.refused("STORE", *command, text="the trigger theirs on stockade.field is not")
        assert client("HLEN", "hash") == 1
        database.sql(NO_TRIGGER.format("field"), user=SUPERUSER)
        wait_until(lambda: not isinstance(client.ask(*command), ReplyError), "it goes on")
        assert client("HLEN", "hash") == 0


def test_a_trigger_that_alters_what_is_written_stops_writes_within_a_second(rig, database):
    do, said, undo = CHANGES["a trigger that alters"]
    database.sql(THEIRS, user=SUPERUSER)
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    assert writes(client)
    database.sql(do, user=SUPERUSER)
    wait_until(lambda: not writes(client), "it is seen")
    client.refused("STORE", "ACQUIRE", "new", 60000, text=said)
    assert client.ask("GET", "new") is None and said in daemon.log()
    database.sql(undo, user=SUPERUSER)
    wait_until(lambda: writes(client), "it goes on")


def test_each_change_of_stockades_tables_is_named_and_stops_writes(rig, database, maintenance):
    database.sql(THEIRS, user=SUPERUSER)
    rig.daemon(store=database.uri).client().token("sku:1")  # makes the schema
    for do, *_ in CHANGES.values():
        database.sql(do, user=SUPERUSER)
    found = maintenance.run("check", "--store", database.uri).stdout
    for _, said, _ in CHANGES.values():
        assert f"schema: {said.split(': ')[0]}" in found, (said, found)
    for command in (["backup", rig.folder / "copy", "--store", database.uri],
                    ["move", "--from", database.uri, "--to", f"sqlite:{rig.folder}/new.db"]):
        done = maintenance.run(*command)
        assert done.returncode == 1 and "is not Stockade's: DROP" in done.stderr, done.stderr
    client = rig.daemon(store=database.uri).client()
    for _, said, undo in CHANGES.values():
        told = client.ask("ACQUIRE", "new", 60000)
        assert isinstance(told, ReplyError) and told.code == "STORE", said
        database.sql(undo, user=SUPERUSER)
    wait_until(lambda: writes(client), "it goes on")


def test_connections_have_their_own_names_whatever_the_uri_says(rig, database):
    """Daemons know each other's connections by them."""
    joint = "&" if "?" in database.uri else "?"
    rig.daemon(store=f"{database.uri}{joint}application_name=ops")
    names = database.sql("SELECT DISTINCT application_name FROM pg_stat_activity WHERE pid <>"
                         " pg_backend_pid() AND datname = current_database()", user=SUPERUSER)
    assert names and all(name.startswith("stockade ") for name, in names), names
