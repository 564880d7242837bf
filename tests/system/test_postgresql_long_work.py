# SPDX-License-Identifier: Apache-2.0
"""Work that is longer than the limit of a trip, and whatever stands in the way of a store in
PostgreSQL: it goes on in bounded steps, or is told by name, with what to do."""

import signal
import time

import pytest

from harness.limits import HANG_SECONDS, REPO, Seconds, Wait, patience, wait_until
from harness.postgres import SUPERUSER, ask
from harness.replicated import Replicated
from harness.resp import ReplyError
from test_postgresql_ops import Ops

pytestmark = pytest.mark.xdist_group("postgresql")


def answers(client, *command):
    return not isinstance(client.ask(*command), ReplyError)


# A prepared transaction.

def prepare(server, database, resource, token):
    """It has presented a token, and its session has ended."""
    with server.connect(database) as user:
        ask(user, "BEGIN")
        ask(user, "SELECT stockade.present(%s, %s::int8)", resource, token)
        ask(user, "PREPARE TRANSACTION 'nightly'")


def test_a_prepared_transaction_that_has_presented_a_token_concerns_its_resource_alone(rig):
    """After a promotion, too."""
    group = Replicated(rig, standbys=1, synchronous=False)
    database = group.database()
    daemon = rig.daemon(store=group.door().uri(database, connect_timeout=2))
    client = daemon.client()
    tokens = {name: client.token(name, 60000) for name in ("held", "other")}
    prepare(group.primary, database, "held", tokens["held"])
    group.await_replayed()
    group.primary.kill()
    group.promote(among=list(group.standbys), lossy=True)
    wait_until(lambda: answers(client, "ACQUIRE", "new", 60000), "it is served")
    client.refused("STALE", "FENCED", tokens["other"], "SET", "other", "1")
    assert client.token("other", 60000) > tokens["other"]
    assert client("GET", "held") is None
    client.send("ACQUIRE", "held", 60000)  # waits for that one
    with group.primary.connect(database) as user:
        ask(user, "COMMIT PREPARED 'nightly'")
    assert client.read()[0] > tokens["held"]


# What is told.

def test_the_true_reason_is_told_and_logged(rig, database):
    """Where what the daemon knew of the store has changed, it is why it looks again; why that fails
    is another thing."""
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    token = client.token("r", 60000)
    with database.connect(user=SUPERUSER) as user:
        ask(user, "UPDATE stockade.meta SET clock_ms = clock_ms + 10000")
        ask(user, "BEGIN")
        ask(user, "LOCK TABLE stockade.meta IN EXCLUSIVE MODE")
        said = f"lock timeout: the store is locked by backend PID {user.info.backend_pid}, user "
        client.refused("STORE", "GET", "r", text=said, timeout=patience(3 * WAITS_SECONDS))
        assert said in daemon.log() and "clock" not in daemon.log()
    wait_until(lambda: answers(client, "FENCED", token, "SET", "r", "1"), "it goes on")
    assert client("GET", "r") == b"1"


# Maintenance that stands still.

STILL_SECONDS = 30  # then its backend is ended
WAITS_SECONDS = 3  # for a lock
TOOK = ".*: the store is locked by backend PID [0-9]+, user shop, application stockade-maintenance"


COPIES = ("SELECT 1 FROM pg_stat_progress_copy JOIN pg_stat_activity USING (pid)"
          " WHERE wait_event_type = 'Client'")


def stop_in_copy(running, database):
    """It runs for a moment at a time until it stands in the middle of COPY."""
    def stands():
        assert running.poll() is None, "it has ended before"
        running.send_signal(signal.SIGCONT)
        time.sleep(0.001)  # it is stopped at any moment
        running.send_signal(signal.SIGSTOP)
        return database.sql(COPIES, user=SUPERUSER)
    running.send_signal(signal.SIGSTOP)
    wait_until(stands, "it stands in COPY")


@pytest.fixture
def ops(rig):
    return Ops(rig)


def test_who_keeps_writes_out_is_named(rig, ops, database):
    client = rig.daemon(store=database.uri).client()
    token = client.token("kept", 60000)
    client.fenced(token, "SET", "kept", "1")
    ops.do("backup", ops.copy, store=database.uri)
    relay = rig.relay(("127.0.0.1", database.server.port))
    relay.hold("up", b"PGCOPY")
    running = ops.start("restore", ops.copy, "--store", database.uri_at(relay.address))
    wait_until(lambda: database.sql(COPIES, user=SUPERUSER), "it stands")
    client.refused("STORE", "FENCED", token, "SET", "kept", "2", text="lock timeout" + TOOK,
                   timeout=patience(3 * WAITS_SECONDS))
    assert client("GET", "kept") == b"1"
    running.kill()
    running.communicate()
    relay.cut()
    wait_until(lambda: answers(client, "FENCED", token, "SET", "kept", "3"), "it goes on")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["restore", "move"])
def test_maintenance_that_stands_still_keeps_nobody_out_for_ever(rig, ops, database, how):
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    tokens = {f"r{i}": client.token(f"r{i}", 600_000) for i in range(4)}
    for name, token in tokens.items():
        client.fenced(token, "SET", name, bytes(4_000_000))
    store = database.server.socket_uri(database.name)  # over TCP, its own limits may end it
    ops.do("backup", ops.copy, store=store)
    running = ops.start(*(("restore", ops.copy, "--store", store) if how == "restore" else
                          ("move", "--from", store, "--to", f"sqlite:{rig.folder / 'new.db'}")))
    stop_in_copy(running, database)
    begun = time.monotonic()
    wait_until(lambda: answers(client, "FENCED", tokens["r1"], "SET", "r1", "2"), "writes go on",
               3 * STILL_SECONDS)
    assert time.monotonic() - begun > STILL_SECONDS
    running.send_signal(signal.SIGCONT)
    output, said = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == 1 and output == "", (output, said)
    assert "stood still for 30 s with the store locked" in daemon.log()
    wait_until(lambda: daemon.metric("store_backends_ended_total") == 1, "it is counted")
    assert client("GET", "r1") == b"2" and client("STRLEN", "r2") == 4_000_000


@pytest.mark.slow
def test_whom_a_restore_waits_for_in_vain_is_told(rig, ops, database):
    client = rig.daemon(store=database.uri).client()
    token = client.token("held", 60000)
    ops.do("backup", ops.copy, store=database.uri)
    prepare(database.server, database.name, "held", token)
    ops.refuse("restore", ops.copy, store=database.uri,
               said="lock on the store for 10 s: prepared transaction nightly, user "
                    "postgres .COMMIT")
    database.sql("ROLLBACK PREPARED 'nightly'", user=SUPERUSER)
    ops.do("restore", ops.copy, store=database.uri)


# A new version of the schema.

PRESENT = "SELECT stockade.present('r', 1::int8)"


def make_version_3(database):
    """A store as the version before made it, with a lease."""
    folder = REPO / "store/postgresql/schema"
    with database.connect() as link:
        for step in sorted(folder.glob("[123]_*.sql")):
            ask(link, step.read_text())
        ask(link, "UPDATE stockade.meta SET version = 3, session = 1,"
                  " identity = stockade.identity(), timeline = stockade.timeline()")
        ask(link, ROWS.format(first=1, count=1))
        ask(link, "UPDATE stockade.resource SET name = 'r', value = NULL, type = 0")


def test_a_new_schema_waits_for_an_open_transaction_and_holds_up_nobody_for_long(rig, database):
    """Whoever has presented a token keeps its place in the schema until it ends."""
    make_version_3(database)
    with database.connect() as user, database.connect() as others:
        ask(user, "BEGIN")
        ask(user, PRESENT)
        daemon = rig.daemon(store=database.uri)
        client = daemon.client()
        wait_until(lambda: "once no older transaction is open on it: backend PID "
                   f"{user.info.backend_pid}, user shop" in daemon.log(), "it is told")
        slowest = 0
        wait = Wait(3)  # as long as it is looked at
        while wait.left:
            at = time.monotonic()
            ask(others, "SELECT version FROM stockade.meta")
            slowest = max(slowest, time.monotonic() - at)
            ask(user, "SELECT 1")  # one that is idle for long would be ended
        assert Seconds(0, slowest) < patience(1)
        client.refused("STORE", "GET", "r", text="the schema comes to version|making the store's")
        assert ask(user, PRESENT)
        ask(user, "COMMIT")
    wait_until(lambda: answers(client, "GET", "r"), "it goes on")
    assert database.sql("SELECT version > 3 FROM stockade.meta") == [(True,)]
    assert client.fenced(1, "SET", "r", "1") == "OK"


# A guard on a large table.

@pytest.mark.slow
def test_a_guard_may_take_longer_than_other_commands(rig, database):
    """It looks at all rows of its table."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    client = rig.daemon(store=database.uri_at(relay.address)).client()
    client("SQL", "CREATE TABLE large(k text, v text)")
    relay.hold("down", b"guard_try\0")
    client.send("GUARD", "CREATE", "large", "k", "large:")
    begun = time.monotonic()
    wait_until(lambda: relay.kept("down") and time.monotonic() - begun > 6, "a command's limit")
    relay.let("down")
    assert client.read(timeout=patience(HANG_SECONDS)) == "OK"


# Lists.

def test_pages_of_a_list_are_read_in_order_and_not_sorted(rig, database):
    """A plan is made once, on tables that are empty then: one that sorts all that is left for each
    page needs half a minute for 200,000 leases, and four times that for twice as many."""
    name = database.name
    for setting in ("session_preload_libraries = auto_explain", "auto_explain.log_min_duration = 0",
                    "auto_explain.log_level = log"):
        database.server.sql(f"ALTER DATABASE {name} SET {setting}")
    daemon = rig.daemon("--unfenced-writes", "allow", store=database.uri)
    client = daemon.client()
    client("HSET", "hash", "f", 1)
    token = client.token("r", 60000)
    client.fenced(token, "ID", "once", "SET", "r", "1")
    for command in ("LEASES",), ("SCAN", 0), ("HSCAN", "hash", 0), ("RECEIPT", "r", token, "once"):
        client(*command)
    plans = [text.split("LOG:  ")[0] for text in
             database.server.log().split("\tQuery Text: ")[1:]]
    pages = [plan for plan in plans if "ORDER BY" in plan and "LIMIT 1000" in plan]
    assert len(pages) >= 3, plans
    assert [plan for plan in pages if "Sort Key" in plan] == []


@pytest.mark.slow
def test_very_many_leases_are_listed_soon(rig, database):
    client = rig.daemon("--unfenced-writes", "allow", store=database.uri).client()
    client("SET", "free", "1")
    fill(database, 200_000)
    for command in ("LEASES", "MATCH", "none*"), ("SCAN", 0, "MATCH", "none*", "COUNT", 1_000_000):
        begun = time.monotonic()
        client(*command, timeout=patience(60))
        assert Seconds(begun) < patience(10)


# FLUSHALL.

ROWS = """
INSERT INTO stockade.resource(id, name, token, state, type, anonymous, holds, ttl_ms, session,
  connection, changed_ms, receipts_gone, receipts_token, fields, owner, value)
SELECT {first} + n, convert_to('key:' || n, 'UTF8'), n, 1, 1, false, 1, 3600000, 1, 1,
  stockade.now_ms(), 0, 0, 0, 'o', 'v' FROM generate_series(1, {count}) n;
SELECT setval('stockade.resource_id', {first} + {count})"""
STEP_ROWS = 2048  # of FLUSHALL


def fill(database, count):
    """As many keys, each with a live lease."""
    database.sql(ROWS.format(first=1_000_000, count=count), timeout=300)


@pytest.fixture
def unfenced_daemon(rig, database):
    return rig.daemon("--unfenced-writes", "allow", store=database.uri)


def lock_key(user, key):
    ask(user, "BEGIN")
    assert ask(user, "SELECT 1 FROM stockade.resource WHERE name = %s FOR UPDATE",
               key.encode()) == [(1,)]


def test_flushall_waits_for_a_locked_row_and_holds_up_nobody(database, unfenced_daemon):
    """What came before it on its connection is gone, what came after it is there."""
    client, other = unfenced_daemon.client(), unfenced_daemon.client()
    token = other.token("written", 60000)
    client("SET", "free", "1")
    fill(database, 3 * STEP_ROWS)
    with database.connect() as user:
        lock_key(user, f"key:{2 * STEP_ROWS}")
        client.send_all([("SET", "before", "1"), ("FLUSHALL",), ("SET", "after", "1")])
        assert client.read() == "OK"
        wait_until(lambda: other("EXISTS", "key:1") == 0, "the first step is done")
        assert other("EXISTS", f"key:{2 * STEP_ROWS}") == 1
        other.refused("STALE", "FENCED", token, "SET", "written", "1", timeout=patience(2))
        assert other("SET", "meanwhile", "1", timeout=patience(2)) == "OK"
        ask(user, "ROLLBACK")
    assert (client.read(timeout=patience(HANG_SECONDS)), client.read()) == ("OK", "OK")
    assert sorted(client("SCAN", 0, "COUNT", 100)[1]) == [b"after", b"meanwhile"]
    assert client("LEASES") == []


def test_what_is_written_beside_a_flush_is_whole(database, unfenced_daemon):
    """A key that had nothing when its step began gets a field, and a lease a receipt, before the
    step is done."""
    client, other = unfenced_daemon.client(), unfenced_daemon.client()
    client("HSET", "full", "f", 1)
    client("HSET", "empty", "f", 1)
    client("DEL", "empty")
    client("RELEASE", "let go", client.token("let go", 60000))
    with database.connect() as user:
        ask(user, "BEGIN")
        ask(user, "SELECT 1 FROM stockade.field FOR UPDATE")
        client.send("FLUSHALL")
        wait_until(lambda: database.sql(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE 'DELETE FROM stockade.field%'"), "it removes fields")
        assert other("HSET", "empty", "g", 2) == 1
        token = other.token("let go", 60000)
        assert other.fenced(token, "ID", "once", "SET", "let go", "1") == "OK"
        ask(user, "ROLLBACK")
    assert client.read(timeout=patience(HANG_SECONDS)) == "OK"
    assert other("HSET", "empty", "h", 3) == 1
    assert sorted(other("HGETALL", "empty")) == [b"2", b"3", b"g", b"h"]
    assert database.sql("SELECT count(*) FROM stockade.resource r WHERE fields <>"
                        " (SELECT count(*) FROM stockade.field WHERE resource = r.id)") == [(0,)]
    assert other.fenced(token, "SET", "let go", "2") == "OK"
    assert other("EXISTS", "full") == 0


def test_flushall_that_fails_in_the_middle_says_that_a_part_is_done(rig, database):
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon("--unfenced-writes", "allow", store=database.uri_at(relay.address))
    client = daemon.client()
    client("SET", "free", "1")
    fill(database, STEP_ROWS + 8)
    with database.connect() as user:
        lock_key(user, f"key:{STEP_ROWS + 5}")
        client.send("FLUSHALL")
        left = "SELECT count(*) FROM stockade.resource WHERE type <> 0"
        wait_until(lambda: database.sql(left) == [(4,)], "all before it is gone")
        relay.refuse()
        relay.cut()
        reply = client.read(timeout=patience(HANG_SECONDS))
    assert reply.code == "STORE"
    assert reply.text.endswith("; a part of this command was applied, and the same again does the "
                               "rest"), reply.text
    client.refused("STORE", "FLUSHALL", text="nothing of this command was applied")
    relay.accept()
    wait_until(lambda: answers(client, "FLUSHALL"), "the rest is done")
    assert client("DBSIZE") == 0


@pytest.mark.slow
def test_flushall_that_is_cut_has_done_a_part_and_is_done_by_the_next(database, unfenced_daemon):
    client = unfenced_daemon.client()
    assert client("PING") == "PONG" and client("SET", "free", "1") == "OK"
    fill(database, 3 * STEP_ROWS)
    with database.connect() as user:
        lock_key(user, f"key:{2 * STEP_ROWS}")
        client.refused("STORE", "FLUSHALL", timeout=patience(HANG_SECONDS),
                       text=f"row locked for 10 s: backend PID {user.info.backend_pid}, user "
                            "shop.*; a part of this command was applied")
        left = client("DBSIZE")
        assert 0 < left < 3 * STEP_ROWS and len(client("LEASES")) == left
    assert client("FLUSHALL") == "OK"
    assert client("DBSIZE") == 0 and client("LEASES") == []


@pytest.mark.slow
def test_flushall_of_very_many_is_done_while_others_write(database, unfenced_daemon):
    client, other = unfenced_daemon.client(), unfenced_daemon.client()
    client("SET", "free", "1")
    fill(database, 600_000)
    begun, slowest, writes = time.monotonic(), 0, 0
    client.send("FLUSHALL")
    while other("DBSIZE", timeout=patience(HANG_SECONDS)) > 2:
        at = time.monotonic()
        assert other("SET", "busy", writes, timeout=patience(3)) == "OK"
        slowest, writes = max(slowest, time.monotonic() - at), writes + 1
    assert client.read(timeout=patience(120)) == "OK"
    print(f"{time.monotonic() - begun:.1f} s, {writes} writes, the slowest {slowest:.2f} s")
