# SPDX-License-Identifier: Apache-2.0
"""What tests believe of the PostgreSQL servers that the harness gives them."""

import os
import pathlib
import signal
import subprocess
import sys

import psycopg2
import pytest

from harness.certs import Certs
from harness.leash import inside
from harness.limits import REPO, Late, wait_until
from harness.patroni import Patroni
from harness.postgres import OWNER, SUPERUSER, Bouncer, Postgres, ask, connect
from harness.replicated import Replicated
from harness.threads import Beside

pytestmark = [pytest.mark.interpreted, pytest.mark.xdist_group("postgresql_harness")]


# One server, which other tests use, too.


def test_a_database_is_fresh_and_belongs_to_nobody_special(database):
    assert database.sql("SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole") == \
        [(0,)]
    assert database.sql("SELECT current_user, rolsuper, rolcreaterole FROM pg_roles"
                        " WHERE rolname = current_user") == [("shop", False, False)]
    assert database.sql("SELECT current_setting('fsync'), current_setting('synchronous_commit')"
                        ) == [("on", "on")]
    database.sql("CREATE TABLE stock (n int)")


@pytest.mark.parametrize("again", [1, 2])
def test_each_test_has_a_database_of_its_own(database, again):
    database.sql("CREATE TABLE only_once (n int)")
    database.sql("INSERT INTO only_once VALUES (%s)", again)
    with connect(dsn=database.socket_uri) as link:
        assert ask(link, "SELECT n FROM only_once") == [(again,)]


def test_a_database_goes_whatever_is_still_in_it(postgres):
    database = postgres.database()
    link = database.connect()
    ask(link, "BEGIN")
    ask(link, "CREATE TABLE stock (n int)")
    ask(link, "PREPARE TRANSACTION 'left'")
    database.drop()
    with pytest.raises(psycopg2.OperationalError):
        ask(link, "SELECT 1")
    assert postgres.sql("SELECT count(*) FROM pg_database WHERE datname = %s", database.name) == [
        (0,)]


def test_who_needs_a_password_has_to_know_it(database, key):
    name = key.replace("-", "_").replace(":", "_")[-40:]
    database.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'right' IN ROLE password", user=SUPERUSER)
    try:
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            database.sql("SELECT 1", user=name, password="wrong")
        assert database.sql("SELECT current_user", user=name, password="right") == [(name,)]
    finally:
        database.sql(f"DROP ROLE {name}", user=SUPERUSER)


def test_behind_the_pool_the_next_transaction_may_have_another_backend(rig, bouncer, database):
    first, second = (connect(dsn=bouncer.uri(database)) for _ in range(2))
    (backend,), = ask(first, "SELECT pg_backend_pid()")
    ask(second, "BEGIN")
    assert ask(second, "SELECT pg_backend_pid()") == [(backend,)]
    assert ask(first, "SELECT pg_backend_pid()") != [(backend,)]
    ask(second, "COMMIT")
    pool = Bouncer(rig, database.server, mode="session")
    first, second = (connect(dsn=pool.uri(database)) for _ in range(2))
    assert ask(first, "SELECT pg_backend_pid()") != ask(second, "SELECT pg_backend_pid()")


def test_a_server_of_ones_own_can_be_killed_stopped_and_changed(rig):
    server = Postgres(rig, max_connections=20)
    database = server.database()
    database.sql("CREATE TABLE stock (n int)")
    database.sql("INSERT INTO stock VALUES (10)")
    link = database.connect()
    assert len(server.process.everyone()) > 5
    with server.frozen():
        link.seconds_max = 0.2
        with pytest.raises(Late):
            ask(link, "SELECT 1")
    assert database.sql("SELECT n FROM stock") == [(10,)]

    server.kill()
    assert not server.process.everyone()
    with pytest.raises(psycopg2.OperationalError):
        database.sql("SELECT n FROM stock")
    server.start()
    assert database.sql("SELECT n, current_setting('max_connections') FROM stock") == [(10, "20")]

    server.set(synchronous_commit="local")
    assert database.sql("SHOW synchronous_commit") == [("local",)]
    certs = Certs(rig.folder / "certs")
    server.present_certificate(certs)
    server.restart("shut_down")
    ca = rig.folder / "ca.pem"
    ca.write_bytes(pathlib.Path(certs.ca).read_bytes())
    with connect(dsn=database.uri_with(sslmode="verify-full", sslrootcert=ca)) as link:
        assert ask(link, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]


PROGRAM = """
import sys
from harness.postgres import Postgres
from harness.rig import Rig
print(Postgres(Rig(sys.argv[1])).leash.folder, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_of_a_server_whose_test_program_was_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env={
                              **os.environ, "PYTHONPATH": str(REPO / "tests/system")}) as program:
        folder = program.stdout.readline().strip()
        assert inside(folder)
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not os.path.exists(folder), "the folder is gone")
    assert not inside(folder)


# A replicated group, which the tests of this page share.


@pytest.fixture(scope="module")
def shared_group(module_rig):
    return Replicated(module_rig)


@pytest.fixture
def group(shared_group):
    yield shared_group
    shared_group.heal()
    shared_group.rejoin()


@pytest.fixture
def stock(group):
    """A database with a table, in which 1 stands."""
    name = group.database()
    group.sql("CREATE TABLE stock (n int)", database=name, user=OWNER)
    insert(group, name, 1)
    return name


def rows(server, stock):
    return [n for n, in server.sql("SELECT n FROM stock ORDER BY n", database=stock)]


def insert(server, stock, number, **options):
    server.sql("INSERT INTO stock VALUES (%s)", number, database=stock, **options)


def refused(server, stock, number):
    """Nobody confirms it."""
    with pytest.raises(Late):
        insert(server, stock, number, timeout=0.5)


@pytest.mark.slow
def test_a_failover_keeps_what_was_committed_and_the_door_leads_to_the_new_primary(group, stock):
    door, old = group.door(), group.primary
    for number in range(2, 5):
        before = group.primary
        link = connect(dsn=door.uri(stock, target_session_attrs="read-write"))
        ask(link, "INSERT INTO stock VALUES (%s)", number)
        assert group.fail_over() is not before
        assert rows(group.primary, stock) == list(range(1, number + 1))
        with pytest.raises(psycopg2.OperationalError):
            ask(link, "SELECT 1")
        group.rejoin()
        assert len(group.standbys) == 2 and before in group.standbys
    timeline, = group.sql("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")[0]
    assert int(timeline[:8], 16) >= 4
    assert old in group.servers


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0, 1])
def test_the_standby_that_has_more_is_promoted(group, stock, behind):
    late, ahead = group.standbys[behind], group.standbys[1 - behind]
    group.cut(late, group.primary)
    insert(group.primary, stock, 2)
    group.primary.kill()
    assert group.promote() is ahead
    group.heal()
    group.await_streaming()
    assert group.standbys == [late]
    assert rows(ahead, stock) == [1, 2]
    group.await_replayed()
    assert rows(late, stock) == [1, 2]


@pytest.mark.slow
def test_standbys_that_were_just_restarted_are_asked_for_all_they_have(group, stock):
    for number in range(2, 200):
        insert(group.primary, stock, number)
    group.primary.kill()
    for server in group.standbys:
        server.restart()
    group.promote()
    assert rows(group.primary, stock) == list(range(1, 200))


@pytest.mark.slow
def test_nobody_is_promoted_who_may_lack_a_commit(group):
    with pytest.raises(AssertionError, match="not asked"):
        group.promote(among=group.standbys[:1])
    group.standbys[0].kill()
    with pytest.raises(AssertionError, match="not asked"):
        group.promote()


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True])
def test_an_old_primary_that_is_cut_off_lives_and_confirms_nothing(group, stock, silent):
    near, far = group.door(), group.door()
    old = group.primary
    group.partition(old, near, silent=silent)
    refused(old, stock, 2)
    new = group.promote()
    group.await_streaming()
    insert(new, stock, 3)
    assert old.alive() and rows(new, stock) == [1, 3]
    with connect(dsn=near.uri_to(old, stock)) as link:
        assert ask(link, "SELECT pg_is_in_recovery()") == [(False,)]
    with connect(dsn=far.uri_to(new, stock)) as link:
        assert ask(link, "SELECT pg_is_in_recovery()") == [(False,)]
    for door, server in ((near, new), (far, old)):
        with pytest.raises(Late if silent else psycopg2.OperationalError):
            connect(dsn=door.uri_to(server, stock), timeout=0.5 if silent else 30)
    group.heal()
    refused(old, stock, 4)
    with connect(dsn=far.uri_to(old, stock)) as link:
        assert ask(link, "SELECT pg_is_in_recovery()") == [(False,)]
    group.rejoin()
    assert old in group.standbys
    group.await_replayed()
    assert rows(old, stock) == [1, 3]


@pytest.mark.slow
def test_a_silent_way_loses_nothing(group, stock):
    door = group.door()
    link = connect(dsn=door.uri_to(group.primary, stock))
    group.cut(door, group.primary, silent=True)
    asked = Beside(ask, link, "INSERT INTO stock VALUES (2)")
    wait_until(lambda: door.relays[group.primary].kept("up"), "it is on its way")
    assert rows(group.primary, stock) == [1]
    group.heal()
    assert asked.end() == [] and rows(group.primary, stock) == [1, 2]


@pytest.mark.slow
def test_a_primary_that_restarts_or_stood_still_stays_the_primary(group, stock):
    primary = group.primary
    insert(primary, stock, 2)
    primary.restart()
    group.await_streaming()
    with primary.frozen():
        with pytest.raises(Late):
            insert(primary, stock, 3, timeout=0.5)
    for server in group.standbys:
        server.freeze()
    refused(primary, stock, 4)
    for server in group.standbys:
        server.thaw()
    group.await_streaming()
    assert group.primary is primary and {1, 2} <= set(rows(primary, stock))


@pytest.mark.slow
def test_a_wait_that_is_cancelled_leaves_a_commit_that_nobody_confirmed(group, stock):
    old = group.primary
    group.partition(old)
    with old.connect(database=stock) as link:
        asked = Beside(ask, link, "INSERT INTO stock VALUES (2)")
        wait_until(group.cancel_waits, "a commit waits for a standby")
        asked.end()
        assert "might not have been replicated" in link.notices[-1]
    assert rows(old, stock) == [1, 2]
    group.promote()
    assert rows(group.primary, stock) == [1]


@pytest.mark.slow
def test_without_confirmation_a_failover_may_lose_a_commit(rig):
    group = Replicated(rig, standbys=1, synchronous=False)
    stock = group.database()
    group.sql("CREATE TABLE stock (n int)", database=stock)
    group.await_replayed()
    group.partition(group.primary)
    insert(group.primary, stock, 1)
    group.primary.kill()
    group.promote(lossy=True)
    assert rows(group.primary, stock) == []


@pytest.mark.slow
def test_patroni_fails_over_and_keeps_what_was_committed(rig):
    group = Patroni(rig)
    stock = group.database()
    group.sql("CREATE TABLE stock (n int)", database=stock, user=OWNER)
    group.sql("INSERT INTO stock VALUES (1)", database=stock)
    old = group.leader()
    new = group.fail_over()
    assert new is not old
    with connect(dsn=group.uri(stock, target_session_attrs="read-write")) as link:
        assert ask(link, "SELECT n FROM stock") == [(1,)]
    group.rejoin()
    assert group.leader() is new and old.alive()
    new.kill_server()
    wait_until(lambda: group.leader() is not new, "Patroni has noticed")
    group.await_settled()
