# SPDX-License-Identifier: Apache-2.0
"""A holder in its own transaction is alive: while a program's transaction, which has presented the
token, keeps the fence's row (or SQLite's write lock) for longer than the TTL, its lease is renewed,
nobody ends the program, and nobody else is granted. With its end all is as always."""

import contextlib
import re
import subprocess
import time

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until
from harness.node import node
from harness.package import connect
from harness.shop import program
from harness.threads import Beside

TTL_MS = 1600  # a machine with other work on it may stand still for half of that
WORK_SECONDS = 4.8  # in the transaction

SQL = f"""BEGIN; SELECT stockade.present(:'name', :token);
INSERT INTO done SELECT :'name' FROM (SELECT pg_sleep({WORK_SECONDS})) AS slept; COMMIT"""


def work(database, name, token):
    """The program's own transaction, by psql; its exit status."""
    return subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", f"name={name}", "-v", f"token={token}",
         database.uri], input=SQL, text=True, stdout=subprocess.DEVNULL,
        timeout=patience(HANG_SECONDS)).returncode


def none_granted_until(done, clients, name):
    """Ask at all daemons until the holder is done. Nobody may get the lease before."""
    while not done():
        for client in clients:
            assert client.ask("ACQUIRE", name, 1000) is None or done()
        time.sleep(0.02)  # asked again and again


@pytest.fixture
def shop(rig, database):
    """Two daemons on one database, and a client of each."""
    daemons = [rig.daemon(store=database.uri) for _ in range(2)]
    database.sql("CREATE TABLE done(name text)")
    return daemons


def by_lock(tool, daemon, database, name):
    """`stockade lock` around psql."""
    script = tool.folder / "work.sql"
    script.write_text(SQL)
    return tool.start("-u", daemon.uri, "lock", name, "--ttl", f"{TTL_MS}ms", "--", "sh", "-c",
                      'psql -X -q -v ON_ERROR_STOP=1 -v name="$STOCKADE_RESOURCE"'
                      ' -v token="$STOCKADE_TOKEN" "$0" -f "$1" >/dev/null && exit 7',
                      database.uri, script)


@pytest.mark.xdist_group("own_transaction")
def test_a_program_under_lock_outlives_its_ttl_in_its_own_transaction(shop, tool, database):
    others = [daemon.client() for daemon in shop]
    waiting = shop[1].client()
    running = by_lock(tool, shop[0], database, "r")
    wait_until(lambda: (others[0].lease("r") or {}).get("state") == "held", "it is held")
    waiting.send("ACQUIRE", "r", 60000, "WAIT", 30000)
    none_granted_until(lambda: database.sql("SELECT name FROM done"), others, "r")
    _, errors = running.communicate(timeout=patience(HANG_SECONDS))
    assert (running.returncode, errors) == (7, "")
    assert database.sql("SELECT name FROM done") == [("r",)]
    assert waiting.read()[0] > 1


@pytest.mark.xdist_group("own_transaction")
def test_a_package_keeps_its_lease_in_its_own_transaction(shop, database):
    others = [daemon.client() for daemon in shop]
    with connect(shop[0]) as python, python.lease("p", ttl=TTL_MS / 1000, wait=10) as lease:
        beside = Beside(work, database, "p", lease.token)
        none_granted_until(lambda: not beside.is_alive(), others, "p")
        assert beside.end() == 0
        assert not lease.lost.is_set() and lease.valid
        time.sleep(TTL_MS / 1000)  # the time itself
        assert lease.valid, "it is renewed as before"


@pytest.mark.xdist_group("own_transaction")
def test_who_revokes_behind_the_holders_transaction_is_not_outrun_by_its_renewal(shop, database):
    renewer, revoker = shop[0].client(proto=3), shop[1].client()
    token = renewer.token("v", TTL_MS)
    with database.connect() as connection:
        work = connection.cursor()
        work.execute("BEGIN")
        work.execute("SELECT stockade.present('v', %s)", (token,))
        revoker.send("REVOKE", "v")
        for _ in range(4):
            assert renewer("RENEW", "v", token, TTL_MS, "NOTIFY") > TTL_MS / 2
            time.sleep(TTL_MS / 3000)  # it renews three times as often as it has to
        with pytest.raises(TimeoutError):
            revoker.read(timeout=0.1)
        work.execute("COMMIT")
    assert revoker.read() == token
    renewer = shop[0].client()
    wait_until(lambda: renewer.lease("v")["state"] == "free", "it is revoked")
    renewer.refused("STALE", "FENCED", token, "SET", "v", 1)
    assert shop[0].client().token("v") == token + 1


@pytest.mark.xdist_group("own_transaction")
def test_who_waited_behind_the_holders_transaction_lets_it_renew_first(shop, database):
    holder, other = shop[0].client(), shop[1].client()
    token = holder.token("y", TTL_MS)
    with database.connect() as connection:
        work = connection.cursor()
        work.execute("BEGIN")
        work.execute("SELECT stockade.present('y', %s)", (token,))
        wait_until(lambda: other.lease("y")["ttl_ms"] == 0, "its time is over")
        other.send("ACQUIRE", "y", 1000)
        with pytest.raises(TimeoutError):
            other.read(timeout=0.3)
        work.execute("COMMIT")
    assert other.read() is None
    # It has not renewed, and is free once its time is over as seen there.
    wait_until(lambda: other.ask("ACQUIRE", "y", 60000), "it is free")


@pytest.mark.xdist_group("own_transaction")
def test_a_renewal_that_was_answered_is_written_behind_the_transaction(shop, database):
    holder, other = shop[0].client(), shop[1].client()
    token = holder.token("w", TTL_MS)
    changes = "SELECT changes FROM stockade.resource WHERE name = 'w'"
    with database.connect() as connection:
        work = connection.cursor()
        work.execute("BEGIN")
        work.execute("SELECT stockade.present('w', %s)", (token,))
        before = database.sql(changes)
        for _ in range(2):
            assert holder("RENEW", "w", token, 60000) > 50000
        wait_until(lambda: other.lease("w")["ttl_ms"] == 0, "its time is over, as it was")
        work.execute("COMMIT")
    wait_until(lambda: database.sql(changes) == [(before[0][0] + 1,)], "it is written, once")
    assert other.lease("w")["ttl_ms"] > 50000
    assert other.ask("ACQUIRE", "w", 1000) is None


@contextlib.contextmanager
def inside(file, name, token):
    """A transaction of a program's own SQLite, which holds the write lock as long as it is open."""
    with program(file) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("SELECT stockade_present(?, ?)", (name, token)).fetchall()
        yield connection
        connection.execute("COMMIT")


@pytest.mark.parametrize("service", ["local", "redis"])
def test_a_lease_outlives_its_ttl_while_its_holder_has_sqlites_write_lock(rig, service):
    daemon = rig.daemon() if service == "local" else rig.daemon(lease=rig.redis().uri)
    other = daemon.client()
    with connect(daemon) as python, python.lease("s", ttl=TTL_MS / 1000) as lease:
        with inside(rig.store, "s", lease.token) as connection:
            connection.execute("CREATE TABLE done AS SELECT 1")
            until = time.monotonic() + WORK_SECONDS
            while time.monotonic() < until:
                assert other.ask("ACQUIRE", "s", 1000) is None
                time.sleep(0.02)  # asked again and again
            assert not lease.lost.is_set() and lease.valid
        assert not lease.lost.is_set() and lease.valid
    assert other.token("s") == lease.token + 1


def test_a_lease_of_a_short_time_is_renewed_before_one_that_can_wait(rig):
    daemon = rig.daemon()
    first, second = daemon.client(), daemon.client()
    client_id = first("CLIENT", "ID")
    token = first.token("long"), second.token("short")
    with inside(rig.store, "short", token[1]):
        first.send("RENEW", "long", token[0], 60000)
        waits = re.compile(rb"^id=%d .* pending=1 " % client_id, re.M)
        wait_until(lambda: waits.search(second("CLIENT", "LIST")), "the first one waits")
        assert second("RENEW", "short", token[1], TTL_MS) > 0
    assert first.read() > 50000


# Long work of the daemon's own, under the token: the writer has the row, or the file.
LONG = {"postgresql": f"SELECT set_config('a.b', '1', true), pg_sleep({WORK_SECONDS})",
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                  " WHERE i < 2000000)"
                  " INSERT INTO done SELECT max(i) FROM n"}


@pytest.mark.xdist_group("own_transaction")
@pytest.mark.parametrize("store", LONG)
def test_a_lease_outlives_its_ttl_while_its_holders_sql_runs(rig, request, store):
    database = request.getfixturevalue("database") if store == "postgresql" else None
    options = {"store": database.uri} if database else {}
    daemon = rig.daemon("--sql-time-limit", "60000", **options)
    other = daemon.client()
    other("SQL", "CREATE TABLE done(n int)")
    with connect(daemon, timeout=2 * HANG_SECONDS) as python, \
            python.lease("s", ttl=TTL_MS / 1000) as lease:
        work = Beside(lambda: python.sql(LONG[store], leases=[lease]))
        while work.is_alive():
            assert other.ask("ACQUIRE", "s", 1000) is None
            time.sleep(0.02)  # asked again and again
        work.end()
        assert not lease.lost.is_set() and lease.valid


@pytest.mark.slow  # so long a TTL that a busy machine does not end the lease
@pytest.mark.interpreted
@pytest.mark.xdist_group("own_transaction")
def test_the_package_for_node_renews_beside_its_own_long_calls(rig, database):
    daemon = rig.daemon("--sql-time-limit", "20000", store=database.uri)
    program = node(rig, """
        const patient = await connect(uri, { timeout: 20000 });
        const lease = await patient.acquire('n', { ttl: 5000 });
        await lease.sql(args[0]);
        say([lease.signal.aborted, lease.valid]);
        await lease.release();
        await patient.close();
    """, daemon.uri, LONG["postgresql"].replace(str(WORK_SECONDS), "6"))
    assert program.hear() == [False, True]
    program.end()
