# SPDX-License-Identifier: Apache-2.0
"""Leases by `local:` in PostgreSQL, and what daemons on one database do to each other: whatever the
server's clock does no lease ends early, who waits at another daemon is woken, and one that stands
still holds nobody up for long."""

import contextlib
import re
import threading
import time

import pytest

from harness.limits import HANG_SECONDS, LONG_TTL_MS, Stopwatch, Wait, patience, wait_until, within
from harness.postgres import PROBES, Postgres, ask
from harness.resp import ReplyError, to_bytes
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql_leases")

NAME_MAX = 512
WRITING_CONNECTIONS = 3
MARKS_KEPT = 256
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
GRACE_SECONDS = 1.0  # that a lease is held beyond its TTL, as a small jump is not seen
MOMENT_SECONDS = 1.6  # so long a row may be locked before its holder is ended, and a little less
HAND_OVER_SECONDS = 0.4  # of one that was told, well under the second of a poll


@pytest.fixture
def uri(database):
    return database.uri


def set_clock(database, by_ms):
    """As if somebody had set the clock of the server's machine, from now on."""
    database.sql("CREATE OR REPLACE FUNCTION stockade.now_ms() RETURNS int8 LANGUAGE sql VOLATILE"
                 " AS 'SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::int8"
                 f" + {by_ms}'")


def sweeps(client, count=2):
    """Until the daemon has looked so often for what is old."""
    before = client.counter("sweeps")
    wait_until(lambda: client.counter("sweeps") >= before + count, "it sweeps")


def await_grant(client, resource, seconds):
    """The token that is granted within the time."""
    wait = Wait(seconds)
    while (grant := client.ask("ACQUIRE", resource, 60000)) is None:
        wait.check(f"{resource} is free")
    return grant[0]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_is_set_ends_no_lease_early_or_late(rig, database, uri,
                                                                               by_ms):
    first, second = rig.daemon(store=uri), rig.daemon(store=uri)
    holder, other = first.client(), second.client()
    token, short = holder.token("long", 60000), holder.token("short", 3000)
    with Stopwatch() as watch:
        set_clock(database, by_ms)
        assert other.ask("ACQUIRE", "long", 1000) is None
        assert other.lease("long")["state"] == "held"
        third = rig.daemon(store=uri).client()
        assert third.ask("ACQUIRE", "long", 1000) is None
        assert holder.fenced(token, "SET", "long", "x") == "OK"
        first.kill()
        assert await_grant(other, "short", 6 + GRACE_SECONDS) > short
    assert watch.seconds > 2.9
    assert other.ask("ACQUIRE", "long", 1000) is None
    newer = other.token("new", 1000)
    assert third.ask("ACQUIRE", "new", 1000) is None
    assert await_grant(third, "new", 1 + GRACE_SECONDS) > newer


def test_a_dead_daemons_lease_is_free_at_its_end(rig, uri):
    first, second = rig.daemon(store=uri), rig.daemon(store=uri)
    other = second.client()
    other.token("other")
    token = first.client().token("r", 2000)
    with Stopwatch() as watch:
        first.kill()
        wait_until(lambda: time.monotonic() - watch.begun > 1.8, "most of it is over")
        assert await_grant(other, "r", 1 + GRACE_SECONDS) > token
    assert 1.9 < watch.seconds
    assert watch.seconds < 2 + patience(GRACE_SECONDS)


def test_a_renewal_at_one_daemon_is_seen_at_the_other(rig, uri):
    holder, other = rig.daemon(store=uri).client(), rig.daemon(store=uri).client()
    other.token("other")
    token = holder.token("r", 2000)
    other.send("ACQUIRE", "r", 2000, "WAIT", 30000)
    for _ in range(20):
        assert holder("RENEW", "r", token, 2000) > 0
        with pytest.raises(TimeoutError):
            other.read(timeout=0.2)
    assert other.read()[0] > token


def test_receipts_outlive_a_clock_that_is_set_forward(rig, database, uri):
    client = rig.daemon("--receipts-keep", "60", store=uri).client()
    token = client.token("stock")
    assert client("FENCED", token, "ID", "i", "SET", "stock", "1") == "OK"
    assert client("RELEASE", "stock", token) == 0
    set_clock(database, DAY_MS)
    sweeps(client)
    assert client("RECEIPT", "stock", token, "i")[0] == 1


def test_receipts_outlive_a_clock_set_while_no_daemon_is_there(rig, database, uri):
    daemon = rig.daemon("--receipts-keep", "60", store=uri)
    client = daemon.client()
    token = client.token("stock")
    assert client("FENCED", token, "ID", "i", "SET", "stock", "1") == "OK"
    assert client("RELEASE", "stock", token) == 0
    wait_until(lambda: database.sql("SELECT noted_ms FROM stockade.meta") > [(0,)],
               "the time is noted")
    daemon.close_clients()
    daemon.stop()
    set_clock(database, DAY_MS)
    client = rig.daemon("--receipts-keep", "60", store=uri).client()
    sweeps(client)
    assert client("RECEIPT", "stock", token, "i")[0] == 1


def test_a_new_server_holds_leases_for_their_full_time(rig):
    """A new postmaster may be another machine's, with another clock."""
    own = Postgres(rig)
    database = own.database()
    first, second = rig.daemon(store=database.uri), rig.daemon(store=database.uri)
    other = second.client()
    other.token("other")
    token = first.client().token("r", 4000)
    with Stopwatch() as watch:
        wait_until(lambda: time.monotonic() - watch.begun > 1.5, "its date is old")
    first.kill()
    own.restart()
    wait_until(lambda: not isinstance(other.ask("GET", "r"), ReplyError), "it is back")
    with Stopwatch() as watch:
        assert await_grant(other, "r", 5 + GRACE_SECONDS) > token
    assert watch.seconds > 3.5


# Waking.

def await_flag(database, resource):
    wait_until(lambda: database.sql("SELECT waited FROM stockade.resource WHERE name = %s",
                                    to_bytes(resource)) == [(True,)], "somebody waits for it")


def test_a_release_at_another_daemon_wakes_a_waiter_at_once(rig, database, uri):
    holder, waiter = rig.daemon(store=uri), rig.daemon(store=uri)
    here, there = holder.client(), waiter.client()

    def hand_over(resource, to):
        token = here.token(resource)
        to.send("ACQUIRE", resource, LONG_TTL_MS, "WAIT", LONG_TTL_MS)
        if to is there:
            await_flag(database, resource)
        else:
            looker.await_waiters(resource, 1)
        with Stopwatch() as watch:
            here.send("RELEASE", resource, token)
            assert to.read()[0] > token
        assert here.read() == 0
        return float(watch.seconds)

    looker, beside = holder.client(), holder.client()
    took = sorted((hand_over(f"r{number}", there), hand_over(f"b{number}", beside))
                  for number in range(20))
    # The quicker ones, and beside those at one daemon: the machine may be busy with something else.
    elsewhere, at_one = (sorted(each)[len(took) // 4] for each in zip(*took))
    assert elsewhere < patience(0.05) + 2 * at_one, took
    assert waiter.client().lease("r0")["state"] == "held"


def test_hand_overs_are_prompt_again_after_each_connection_of_both_daemons_has_ended(
        rig, database, uri):
    """Of each kind of connection in turn. Who waits looks once a second, so one that is prompt was
    told; the first ones may come while the connection is being made anew."""
    holder, waiter = rig.daemon(store=uri), rig.daemon(store=uri)
    here, there = holder.client(), waiter.client()

    def hand_over(name="r"):
        token = here.token(name)
        there.send("ACQUIRE", name, 60000, "WAIT", 30000)
        await_flag(database, name)
        with Stopwatch() as watch:
            here.send("RELEASE", name, token)
            newer, _ = there.read()
        assert newer > token and here.read() == 0
        assert there("RELEASE", name, newer) == 0
        return float(watch.seconds)

    def expect_prompt(what, name="r"):
        took = []
        while not took or min(took) > HAND_OVER_SECONDS:
            assert len(took) < 5, (what, took)
            took.append(hand_over(name))

    for name in b"\0", b"n" * (NAME_MAX - 1), b"\xff" * NAME_MAX:
        expect_prompt("a name of any bytes, and of the greatest length", name)
    there("GET", "r"), here("GET", "r")
    kinds = [name for name, in database.sql(
        "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'stockade %%'")]
    assert {"stockade watch", "stockade writer", "stockade reader"} <= set(kinds)
    for kind in kinds:
        database.sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                     " WHERE datname = current_database() AND application_name = %s", kind)
        expect_prompt(kind)


@pytest.mark.parametrize("how", ["REVOKE", "close"])
def test_a_waiter_is_woken_by_every_end_at_another_daemon(rig, database, uri, how):
    here, there = rig.daemon(store=uri), rig.daemon(store=uri)
    ephemeral, other, waiter = here.client(), here.client(), there.client()
    token = ephemeral.token("r", 60000, "EPHEMERAL")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 30000)
    await_flag(database, "r")
    with within(patience(0.8)):
        if how == "close":
            ephemeral.close()
        else:
            other("REVOKE", "r")
        assert waiter.read()[0] > token
    assert database.sql("SELECT waited FROM stockade.resource") == [(False,)]


def test_who_waits_for_a_lease_elsewhere_looks_once_a_second(rig, database, uri):
    holder, daemon = rig.daemon(store=uri).client(), rig.daemon(store=uri)
    waiter, looker = daemon.client(), daemon.client()
    token = holder.token("r")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 30000)
    looker.await_waiters("r")

    def looks_seldom():
        before = looker.counter("store_read_batches")
        with pytest.raises(TimeoutError):
            waiter.read(timeout=1)
        return looker.counter("store_read_batches") - before < 10 * patience(1)

    wait_until(looks_seldom, "the daemon listens, and looks no more often")
    # Nobody tells it: whoever ends the lease is no daemon.
    database.sql("UPDATE stockade.resource SET state = 3, holds = 0")
    with within(1 + patience(0.8)):
        assert waiter.read()[0] > token


# Who holds up others.

@contextlib.contextmanager
def stopped(rig, database, how):
    """A daemon that has taken the lock of `r` and stands still before it lets go; its client."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    client = daemon.client()
    token = client.token("r")
    if how == "a reply is unread":
        client.fenced(token, "SET", "r", "x" * (16 << 20))
        relay.hold("down", b"x" * 1000)
        client.send("FENCED", token, "GETSET", "r", "1")
    elif how == "in mid-batch":
        relay.hold("up", b"\0MARK\0")
        client.send("FENCED", token, "SET", "r", "1")
        wait_until(lambda: relay.kept("up"), "the rows are locked")
    else:
        relay.hold("up", b"middle")
        client.send("FENCED", token, "SET", "r", "x" * 300000 + "middle" + "x" * 300000)
        wait_until(lambda: relay.kept("up"), "half of the statement is there")
    wait_until(lambda: database.sql("SELECT 1 WHERE NOT EXISTS (SELECT FROM stockade.resource"
                                    " WHERE name = 'r' FOR UPDATE SKIP LOCKED)"),
               "the row is locked")
    with daemon.frozen():
        yield token
        relay.let("up")
        relay.let("down")
    client.read(timeout=patience(HANG_SECONDS))


@pytest.mark.parametrize("how", ["in mid-batch", "in mid-message", "a reply is unread"])
def test_a_daemon_that_stands_still_holds_others_up_for_3_s(rig, database, uri,
                                                                              how):
    daemon = rig.daemon(store=uri)
    other = daemon.client()
    other.token("other")
    with stopped(rig, database, how) as token:
        with Stopwatch() as watch:
            assert other("FENCED", token, "SET", "r", "2", timeout=patience(15)) == "OK"
        assert watch.seconds < patience(3.5)
        assert daemon.metric("store_lock_waits_total") == 1
    ended = f"@{database.name} FATAL:  terminating connection due to idle-in-transaction timeout"
    if how != "a reply is unread" and ended in database.server.log():
        return  # PostgreSQL was quicker
    assert daemon.metric("store_backends_ended_total") == 1
    assert "a daemon stands still in mid-batch, and holds up others; ended" in daemon.log()


def test_a_daemon_that_was_slow_for_a_moment_is_not_ended(rig, database, uri):
    """It is looked at several times meanwhile, and each time it stands where it stood."""
    daemon = rig.daemon(store=uri)
    other, wait = daemon.client(), Wait()
    other.token("other")
    while True:
        ended = daemon.metric("store_backends_ended_total")
        with Stopwatch() as watch:
            with stopped(rig, database, "in mid-batch") as token:
                watch.begun = time.monotonic()
                other.send("FENCED", token, "SET", "r", "2")
                wait_until(lambda: database.sql(PROBES), "it is looked at")
                time.sleep(1)  # the time itself is what is tested
            assert other.read(timeout=patience(HANG_SECONDS)) == "OK"
        if watch.seconds < MOMENT_SECONDS:
            break
        wait.check("the machine lets it be slow for no longer than that")
        other("RELEASE", "r", token)
    assert daemon.metric("store_backends_ended_total") == ended


def test_who_has_had_a_row_locked_for_long_is_named(rig, database, uri):
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    lock = "SELECT 1 FROM stockade.resource WHERE name = %s FOR "
    with contextlib.ExitStack() as stack:
        def holder(resource, how="UPDATE", **options):
            user = stack.enter_context(database.connect(**options))
            ask(user, "BEGIN")
            ask(user, "SAVEPOINT s")
            assert ask(user, lock + how, resource.encode()) == [(1,)]
            return user

        tokens = {name: client.token(name) for name in ("idle", "shared", "prepared", "root")}
        user = holder("idle", application_name="nightly")
        sharers = [holder("shared", "SHARE") for _ in range(2)]
        ask(holder("prepared"), "PREPARE TRANSACTION 'left over'")
        root = holder("root", user="postgres", application_name="backup")
        stack.callback(lambda: database.sql("ROLLBACK PREPARED 'left over'"))
        errors = {}
        for name, token in tokens.items():
            waits = daemon.client()
            waits.send("FENCED", token, "SET", name, "1")
            errors[name] = waits
        errors = {name: waits.read() for name, waits in errors.items()}
        for name, text in {
                "idle": f"backend PID {user.info.backend_pid}, user shop, application nightly, idle"
                        r" in transaction since \d+ s;",
                "shared": f"backend PID ({'|'.join(str(one.info.backend_pid) for one in sharers)})"
                          r", user shop, idle in transaction since \d+ s;",
                "prepared": "prepared transaction left over, user shop .COMMIT PREPARED or ROLLBACK"
                            " PREPARED ends it",
                "root": f"backend PID {root.info.backend_pid}, user postgres, application backup",
        }.items():
            assert errors[name].code == "STORE"
            assert re.search("row locked for 10 s: " + text, errors[name].text), errors[name]
        assert all(ask(one, "SELECT 1") == [(1,)] for one in [user, root, *sharers]), "they live"
    assert daemon.metric("store_backends_ended_total") == 0


@pytest.mark.slow
def test_a_daemon_that_is_stopped_at_any_moment_holds_up_nobody_for_long(rig, uri):
    stops, first, second = 30, rig.daemon(store=uri), rig.daemon(store=uri)
    client = second.client()
    tokens = {f"r{i}": client.token(f"r{i}") for i in range(20)}
    ended = threading.Event()

    def write():
        busy = first.client(timeout=patience(60))
        while not ended.is_set():
            busy.send_all([("FENCED", token, "SET", name, "1") for name, token in tokens.items()])
            for _ in tokens:
                busy.read(timeout=patience(60))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    slowest = 0
    for number in range(stops):
        time.sleep(0.001 * (number * 7 % 13))  # it stops at any moment
        with first.frozen():
            for name, token in tokens.items():
                with Stopwatch() as watch:
                    assert client("FENCED", token, "SET", name, "2", timeout=patience(15)) == "OK"
                assert watch.seconds < patience(3.5)
                slowest = max(slowest, float(watch.seconds))
    ended.set()
    for writer in writers:
        writer.join()
    print(f"at most {slowest:.2f} s; {second.metric('store_backends_ended_total')} ended")


@pytest.mark.slow
def test_the_age_of_the_oldest_snapshot_is_told(rig, database, uri):
    daemon = rig.daemon(store=uri)
    daemon.client().token("r")
    with database.connect() as user:
        ask(user, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        ask(user, "SELECT 1")
        wait_until(lambda: daemon.metric("store_oldest_snapshot_seconds") >= 8, "it is told")
    wait_until(lambda: daemon.metric("store_oldest_snapshot_seconds") < 8, "it has gone")
    assert daemon.metric("store_barrier_seconds_count") > 0


def test_the_watch_waits_for_no_standby(rig):
    """What it writes nobody is told of; and who waits for a standby with a NOTIFY in hand keeps all
    others of the database waiting."""
    own = Postgres(rig)
    database = own.database()
    rig.daemon(store=database.uri)
    noted = "SELECT noted_ms FROM stockade.meta"
    own.set(synchronous_standby_names="nobody")
    before = database.sql(noted)
    wait_until(lambda: database.sql(noted) != before, "the time is noted while a commit would wait")
    own.set(synchronous_standby_names="")


# Marks.

def newest_marks(database):
    """{connection: its newest mark}; each number tells whose it is."""
    return dict(database.sql("SELECT mod(number, 4), max(number) FROM stockade.mark"
                             " WHERE NOT void GROUP BY 1"))


def commit_on_each(daemon, database, apart):
    """Each connection that writes has committed anew; the newest mark of each."""
    first, second, before = daemon.client(), daemon.client(), newest_marks(database)

    def is_so(name, what):
        return database.sql("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                            f" AND application_name = %s AND {what}", name)

    def second_has_committed():
        """It has work while the first one commits, which a user holds up by its next mark."""
        first.ask("SET", "r", 0)
        with database.connect() as marker, database.connect() as locker:
            ask(marker, "BEGIN")
            ask(marker, "INSERT INTO stockade.mark SELECT session, number + 4, 0, false FROM"
                        " stockade.mark WHERE mod(number, 4) = 0"
                        " ORDER BY written_ms DESC, number DESC LIMIT 1")
            ask(locker, "BEGIN")
            ask(locker, "LOCK TABLE stockade.meta IN EXCLUSIVE MODE")
            first.send("SET", "r", 1)
            wait_until(lambda: is_so("stockade writer", "wait_event_type = 'Lock'"), "it waits")
            second.send("SET", "s", 2)
            assert daemon.client()("PING") == "PONG", "there is something to do next"
            ask(locker, "ROLLBACK")
            wait_until(lambda: is_so("stockade writer 2", "state = 'idle in transaction'") or
                       not is_so("stockade writer", "state <> 'idle'"), "the second one ran")
        first.read(), second.read()
        return newest_marks(database).get(1, 0) > before.get(1, 0)

    wait_until(second_has_committed, "both have committed")
    first(*apart)
    newest = newest_marks(database)
    assert set(newest) == set(range(WRITING_CONNECTIONS)), "each has a number of its own"
    return newest


@pytest.fixture
def writing(rig, database):
    """A daemon whose connections have all committed, and a write that has a transaction of its
    own."""
    daemon = rig.daemon("--unfenced-writes", "allow", store=database.uri)
    client = daemon.client()
    client("SQL", "CREATE TABLE t(a int)")
    apart = under(client.token("t"), "t", "INSERT INTO t VALUES(1)")
    commit_on_each(daemon, database, apart)
    return daemon, client, apart


def test_each_connection_prunes_its_own_marks_and_no_others(database, writing):
    """What became of a commit whose reply was lost says its mark: the newest one of each connection
    stays, however much the others commit, and of older ones there are a few."""
    daemon, client, apart = writing
    for words in ("SET", "r", 1), apart:
        before = commit_on_each(daemon, database, apart)
        for _ in range(2 * MARKS_KEPT // 4):
            client(*words)
        after = newest_marks(database)
        assert max(after[lane] - before[lane] for lane in after) >= MARKS_KEPT
        assert all(after[lane] >= before[lane] for lane in before), (before, after)
        assert database.sql("SELECT mod(number, 4) FROM stockade.mark GROUP BY 1 HAVING"
                            " max(number) - min(number) > %s", 2 * MARKS_KEPT) == []


def test_a_store_that_lacks_a_commit_of_any_connection_is_not_believed(database, writing):
    daemon, client, apart = writing
    for lane in range(WRITING_CONNECTIONS):
        held = client.token("held", 60000)
        commit_on_each(daemon, database, apart)
        database.sql("DELETE FROM stockade.mark WHERE mod(number, 4) = %s", lane)
        database.sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                     " WHERE datname = current_database() AND application_name LIKE 'stockade %%'")
        client.refused("STALE", "FENCED", held, "SET", "held", "1", timeout=10)
        said = "this server lacks what was committed and told: tokens go on above"
        assert daemon.stderr().count(said) == lane + 1
        apart = under(client.token("t"), "t", "INSERT INTO t VALUES(1)")


def test_marks_are_forgotten_when_nobody_can_be_in_doubt_any_more(rig, database, uri):
    rig.daemon(store=uri).client().token("r")
    rig.processes[-1].stop()
    database.sql("UPDATE stockade.mark SET written_ms = written_ms - %s", 6 * DAY_MS)
    database.sql("INSERT INTO stockade.mark SELECT 0, 2, written_ms - %s, false"
                 " FROM stockade.mark LIMIT 1", 2 * DAY_MS)
    rig.daemon(store=uri)
    wait_until(lambda: not database.sql("SELECT 1 FROM stockade.mark WHERE session = 0"),
               "the old one is gone")
    assert database.sql("SELECT 1 FROM stockade.mark WHERE session = 1")


def test_a_daemon_that_can_never_know_an_outcome_ends(rig, database):
    """It was cut off for so long that its mark may have been forgotten."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    client = daemon.client()
    token = client.token("stock")
    relay.hold("up", b"\0MARK\0")
    client.send("FENCED", token, "SET", "stock", "1")
    wait_until(lambda: relay.kept("up"), "the commit is held")
    relay.refuse()
    relay.cut()
    relay.let("up")
    database.sql("UPDATE stockade.meta SET clock_ms = clock_ms + %s,"
                 " clock_number = clock_number + 1", 4 * DAY_MS)
    relay.accept()
    daemon.expected_status = 70
    assert daemon.wait(20) == 70
    with pytest.raises((OSError, EOFError)):
        client.read(timeout=1)
    assert "will never be known" in daemon.log()
