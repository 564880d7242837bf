# SPDX-License-Identifier: Apache-2.0
"""The store in PostgreSQL: what only a database that others use, too, can do to it. That it answers
as the store in a file does is the suite `postgresql` (tools/check)."""

import contextlib
import signal
import subprocess
import threading
import time

import pytest

from harness import postgres
from harness.limits import patience, wait_until
from harness.resp import ReplyError
from harness.rig import free_port

pytestmark = pytest.mark.xdist_group("postgresql")

numbers = iter(range(1000))


@pytest.fixture(scope="module")
def cluster():
    cluster = postgres.Cluster("fsync=on", port=free_port())
    yield cluster
    cluster.close()


@pytest.fixture
def database(cluster):
    return cluster.database(f"shop{next(numbers)}")


@pytest.fixture
def uri(cluster, database):
    return cluster.uri(database)


@contextlib.contextmanager
def transaction(cluster, database, *statements):
    """A transaction of the user's own, which stays open."""
    process = subprocess.Popen([postgres.program("psql"), "-X", "-q", "-At", "-h", cluster.folder,
                                "-p", str(cluster.port), "-U", "shop", "-d", database],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write("BEGIN;\n" + "".join(f"{s};\n" for s in statements) + "SELECT 'open';\n")
    process.stdin.flush()
    while process.stdout.readline().strip() != "open":
        assert process.poll() is None
    yield process
    process.stdin.close()
    process.wait(10)


def test_rows_are_seen_by_people(rig, cluster, database, uri):
    client = rig.daemon(store=uri).client()
    token = client.token("sku:1")
    client.fenced(token, "SET", "sku:1", "5")
    client.fenced(client.token("cart"), "HSET", "cart", "apples", "3")
    assert cluster.sql("SELECT resource, token, state FROM stockade.fences ORDER BY 1",
                       database=database, user="shop") == f"cart|1|live\nsku:1|{token}|live"
    assert cluster.sql("SELECT * FROM stockade.strings", database=database) == "sku:1|5"
    assert cluster.sql("SELECT * FROM stockade.fields", database=database) == "cart|apples|3"


def test_two_daemons_share_fences_and_leases(rig, uri):
    first, second = rig.daemon(store=uri).client(), rig.daemon(store=uri).client()
    token = first.token("sku:1", 60000)
    assert second.ask("ACQUIRE", "sku:1", 1000) is None
    assert second.fenced(token, "SET", "sku:1", "5") == "OK"
    assert first("RELEASE", "sku:1", token) == 0
    newer = second.token("sku:1", 60000)
    assert newer > token
    first.refused("STALE", "FENCED", token, "SET", "sku:1", "6")
    assert first("GET", "sku:1") == b"5"


def test_a_row_that_somebody_has_locked_holds_up_nothing_else(rig, cluster, database, uri):
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = {f"sku:{i}": client.token(f"sku:{i}") for i in range(50)}
    with transaction(cluster, database, "SELECT FROM stockade.resource WHERE name = 'sku:7'"
                                        " FOR UPDATE") as user:
        held = daemon.client()
        held.send("FENCED", tokens["sku:7"], "SET", "sku:7", "late")
        held.send("FENCED", tokens["sku:7"], "SET", "sku:7", "later")
        for name in tokens:
            if name != "sku:7":
                assert client("FENCED", tokens[name], "SET", name, "1", timeout=2) == "OK"
        assert client("GET", "sku:7") is None  # reads wait for nobody
        user.stdin.write("COMMIT;\n")
        user.stdin.flush()
        assert held.read() == "OK" and held.read() == "OK"
    assert client("GET", "sku:7") == b"later"


def test_an_operation_behind_one_that_waits_waits_too(rig, cluster, database, uri):
    """One that is about a locked row and a free one holds up what comes later for the free one."""
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = [client.token("a"), client.token("b")]
    with transaction(cluster, database,
                     "SELECT FROM stockade.resource WHERE name = 'b' FOR UPDATE") as user:
        pipeline = daemon.client()
        pipeline.send_all([("FENCEDALL", 2, "a", tokens[0], "b", tokens[1],
                            "MSET", "a", "1", "b", "1"),
                           ("FENCED", tokens[0], "SET", "a", "2")])
        wait_until(lambda: client.ask("PING") == "PONG", "the daemon runs", 5)
        assert client("GET", "a") is None
        user.stdin.write("COMMIT;\n")
        user.stdin.flush()
        assert pipeline.read() == "OK" and pipeline.read() == "OK"
    assert client("GET", "a") == b"2" and client("GET", "b") == b"1"


def test_a_user_who_locks_in_another_order_deadlocks_with_nobody(rig, cluster, database, uri):
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = [client.token("a"), client.token("b")]
    with transaction(cluster, database,
                     "SELECT FROM stockade.resource WHERE name = 'b' FOR UPDATE") as user:
        both = daemon.client()
        both.send("FENCEDALL", 2, "a", tokens[0], "b", tokens[1], "MSET", "a", "1", "b", "1")
        user.stdin.write("SELECT FROM stockade.resource WHERE name = 'a' FOR UPDATE;"
                         "SELECT 'both';\n")
        user.stdin.flush()
        assert user.stdout.readline().strip() == "both"
        user.stdin.write("COMMIT;\n")
        user.stdin.flush()
        assert both.read() == "OK"


@pytest.mark.parametrize("how", ["the reply is lost", "the commit is lost"])
def test_the_outcome_of_a_commit_is_found_out(rig, cluster, database, how):
    """The connection breaks at the COMMIT, before or after the server has it: the write is done
    once and answered, without an ID, and without the daemon's end."""
    relay = rig.relay(("127.0.0.1", cluster.port))
    daemon = rig.daemon(store=cluster.uri(database, relay.address))
    client = daemon.client()
    token = client.token("stock")
    client.fenced(token, "SET", "stock", "10")
    for left in range(9, 4, -1):
        if how == "the reply is lost":
            relay.hold("down", b"COMMIT")
        else:
            relay.hold("up", b"MARK")
        client.send("FENCED", token, "DECRBY", "stock", "1", "MIN", "0")
        wait_until(lambda: relay.kept("down" if "reply" in how else "up"), "the commit is held", 10)
        relay.cut()
        relay.let("down")
        relay.let("up")
        assert client.read(timeout=patience(10)) == left
    assert client("GET", "stock") == b"5"
    assert "the outcome of a commit is unknown" in daemon.log()


def test_while_an_outcome_is_unknown_nobody_is_answered_for_it(rig, cluster, database):
    relay = rig.relay(("127.0.0.1", cluster.port))
    daemon = rig.daemon(store=cluster.uri(database, relay.address))
    client, other = daemon.client(), daemon.client()
    token = client.token("stock")
    relay.hold("down", b"COMMIT")
    client.send("FENCED", token, "SET", "stock", "10")
    wait_until(lambda: relay.kept("down"), "the commit is held", 10)
    relay.refuse()
    relay.cut()
    relay.let("down")
    other.refused("STORE", "FENCED", token, "SET", "stock", "11", timeout=patience(10))
    with pytest.raises(TimeoutError):
        client.read(timeout=0.5)
    relay.accept()
    assert client.read(timeout=patience(10)) == "OK"
    assert client("GET", "stock") == b"10"


def test_a_database_that_is_away_is_told_and_found_again(rig, cluster):
    own = postgres.Cluster(port=free_port())
    try:
        name = own.database("shop")
        own.kill()
        daemon = rig.daemon(store=own.uri(name))
        client = daemon.client()
        assert client("PING") == "PONG"
        client.refused("STORE", "ACQUIRE", "sku:1", 1000, text="Is the server running")
        own.start()
        wait_until(lambda: not isinstance(client.ask("ACQUIRE", "sku:1", 60000), ReplyError),
                   "the daemon has found its database", 15)
        token = client.lease("sku:1")["token"]
        client.fenced(token, "SET", "sku:1", "1")
        own.kill()
        client.refused("STORE", "FENCED", token, "SET", "sku:1", "2", timeout=patience(10))
        own.start()
        wait_until(lambda: not isinstance(client.ask("GET", "sku:1"), ReplyError), "it is back", 15)
        assert client("GET", "sku:1") == b"1"
        assert client.fenced(token, "SET", "sku:1", "3") == "OK"
    finally:
        own.close()


def test_a_server_that_hangs_costs_a_bounded_time(rig, cluster):
    own = postgres.Cluster(port=free_port())
    try:
        client = rig.daemon(store=own.uri(own.database("shop"))).client()
        client.token("sku:1")
        own.signal_all(signal.SIGSTOP)
        start = time.monotonic()
        reply = client.ask("GET", "sku:1", timeout=patience(40))
        assert isinstance(reply, ReplyError) and reply.code == "STORE"
        assert time.monotonic() - start < patience(30)
        own.signal_all(signal.SIGCONT)
        wait_until(lambda: not isinstance(client.ask("GET", "sku:1"), ReplyError), "it is back", 20)
    finally:
        own.signal_all(signal.SIGCONT)
        own.close()


def test_what_is_no_store_of_ours_is_refused_by_name(rig, cluster):
    foreign = cluster.database("other")
    cluster.sql("CREATE SCHEMA stockade", database=foreign)
    newer = cluster.database("later")
    rig.daemon(store=cluster.uri(newer)).client().token("sku:1")
    cluster.sql("UPDATE stockade.meta SET version = 99", database=newer)
    for name, text in [(foreign, "not Stockade's"), (newer, "run the newer stockaded"),
                       ("nowhere", "does not exist")]:
        client = rig.daemon(store=cluster.uri(name)).client()
        client.refused("STORE", "ACQUIRE", "sku:1", 1000, text=text)


def test_a_copy_of_the_store_grants_nothing_that_was_granted_before(rig, cluster, database, uri):
    """P2: another database with the same rows is another store: its floor rises first."""
    client = rig.daemon(store=uri).client()
    old = client.token("sku:1")
    rig.processes.pop().stop()
    copy = f"copy_of_{database}"
    cluster.sql(f"CREATE DATABASE {copy} OWNER shop TEMPLATE {database}")
    client = rig.daemon(store=cluster.uri(copy)).client()
    client.refused("STALE", "FENCED", old, "SET", "sku:1", "1")
    assert client.token("sku:1") > old + (1 << 32) - 1


@pytest.fixture
def pair():
    """A primary and its synchronous standby."""
    primary = postgres.Cluster(port=free_port())
    standby = postgres.Cluster(port=free_port(), primary=primary)
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.sql("SELECT pg_reload_conf()")
    wait_until(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync",
               "the standby is synchronous", 20)
    yield primary, standby
    for cluster in (standby, primary):
        if cluster.server.poll() is None:
            cluster.signal_all(signal.SIGCONT)
        cluster.close()


def both(pair, database):
    ports = ",".join(str(cluster.port) for cluster in pair)
    return f"postgresql://shop@127.0.0.1,127.0.0.1/{database}?port={ports}&connect_timeout=2"


def test_nothing_is_told_that_the_standby_does_not_have(rig, pair):
    primary, standby = pair
    database = primary.database("shop")
    daemon = rig.daemon(store=both(pair, database))
    client, reader = daemon.client(), daemon.client()
    token = client.token("stock")
    client.fenced(token, "SET", "stock", "10")
    standby.signal_all(signal.SIGSTOP)
    client.send("FENCED", token, "SET", "stock", "9")
    wait_until(lambda: "SyncRep" in primary.sql("SELECT wait_event FROM pg_stat_activity"),
               "the commit waits for the standby", 10)
    # An operator ends the wait: the commit is there, and not replicated.
    primary.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    reply = reader.ask("GET", "stock", timeout=patience(30))
    assert isinstance(reply, ReplyError) and reply.code == "STORE", reply
    with pytest.raises(TimeoutError):
        client.read(timeout=0.2)
    standby.signal_all(signal.SIGCONT)
    assert client.read(timeout=patience(20)) == "OK"
    wait_until(lambda: reader.ask("GET", "stock") == b"9", "it is told", 10)


def test_a_promoted_standby_has_all_and_no_token_comes_twice(rig, pair):
    primary, standby = pair
    database = primary.database("shop")
    daemon = rig.daemon(store=both(pair, database))
    client = daemon.client()
    token = client.token("stock", 60000)
    for left in range(50):
        client.fenced(token, "SET", "stock", left)
    primary.kill()
    standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
    standby.sql("SELECT pg_promote()")
    wait_until(lambda: client.ask("GET", "stock") == b"49", "the daemon has found the new primary",
               20)
    assert client.fenced(token, "SET", "stock", "50") == "OK"  # replication was synchronous
    assert client("RELEASE", "stock", token) == 0
    assert client.token("stock") > token + (1 << 32) - 1
    # The old primary comes back, alone, and is not believed.
    primary.start()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
    primary.sql("SELECT pg_reload_conf()")
    standby.kill()
    wait_until(lambda: "older" in getattr(client.ask("GET", "stock"), "text", ""),
               "the daemon has seen the old primary", 20)


def test_all_who_write_at_once_through_two_daemons_sell_what_there_is(rig, uri):
    daemons = [rig.daemon(store=uri), rig.daemon(store=uri)]
    stock = 200
    token = daemons[0].client().token("stock")
    daemons[0].client().fenced(token, "SET", "stock", stock)
    sold = [0] * 8

    def sell(index):
        client = daemons[index % 2].client()
        while not isinstance(client.ask("FENCED", token, "DECRBY", "stock", 1, "MIN", 0),
                             ReplyError):
            sold[index] += 1

    threads = [threading.Thread(target=sell, args=(i,)) for i in range(len(sold))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sold) == stock
    assert daemons[0].client()("GET", "stock") == b"0"
