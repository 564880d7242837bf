# SPDX-License-Identifier: Apache-2.0
"""A store in PostgreSQL of which there are copies: dumps, standbys, base backups. Whichever of them
is served, and in whatever order: no token is given out twice (P2), and no holder of a token that
was lost writes (P1)."""

import shutil
import time

import pytest

from harness.limits import wait_until
from harness.postgres import USER, Postgres, ask, program, run
from harness.replicated import Replicated
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql")


def served(client):
    """The daemon has found the server that is there now."""
    wait_until(lambda: not isinstance(client.ask("GET", "x"), ReplyError), "it is served")
    return client


def stale(client, token, resource="stock"):
    reply = client.ask("FENCED", token, "SET", resource, "stale")
    assert isinstance(reply, ReplyError) and reply.code in ("STALE", "UNKNOWN"), reply


@pytest.mark.parametrize("restarted", [False, pytest.param(True, marks=pytest.mark.slow)],
                         ids=["beneath a daemon", "before its start"])
def test_one_dump_that_is_restored_twice_gives_no_token_out_twice(rig, database, restarted):
    server, name = database.server, database.name
    path = server.folder / "dump"
    daemon = rig.daemon(store=database.uri)
    first = daemon.client().token("stock", 60000)
    path.write_text(run(program("pg_dump"), "-h", "127.0.0.1", "-p", server.port, "-U", "postgres",
                        name))
    tokens = [first]
    for _ in range(2):
        if restarted:
            rig.processes.pop().stop()
        with server.connect() as link:
            ask(link, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            ask(link, f"DROP DATABASE {name} WITH (FORCE)")
            ask(link, f"CREATE DATABASE {name}_new TEMPLATE template0 OWNER shop")
        run(program("psql"), "-q", "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", "-v",
            "ON_ERROR_STOP=1", "-d", f"{name}_new", "-f", path)
        server.sql(f"ALTER DATABASE {name}_new RENAME TO {name}")
        if restarted:
            daemon = rig.daemon(store=database.uri)
        client = served(daemon.client())
        for token in tokens:
            stale(client, token)
        tokens.append(client.token("stock", 60000))
        assert tokens[-1] > tokens[-2]
        client.fenced(tokens[-1], "SET", "stock", "1")


def test_two_standbys_promoted_one_after_the_other_give_no_token_out_twice(rig):
    """Both begin timeline 2, for the first one died before the second had heard of it."""
    group = Replicated(rig, standbys=2, synchronous=False)
    client = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2)).client()
    tokens = [client.token("stock", 60000)]
    group.await_replayed()
    for standby in list(group.standbys):
        group.primary.kill()
        group.promote(among=[standby], lossy=True)
        assert group.sql("SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)") == [
            ("00000002",)]
        served(client)
        for token in tokens:
            stale(client, token)
        tokens.append(client.token("stock", 60000))
        assert tokens[-1] > tokens[-2]


def back_up(server, folder):
    shutil.rmtree(folder, ignore_errors=True)
    run(program("pg_basebackup"), "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", "-D",
        folder, "-c", "fast", "-X", "stream", "--no-sync", timeout=300)


def give_away(folder):
    """To the user who runs the server."""
    if USER:
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, USER, USER)


def put_back(server, folder):
    """As an operator does who forgets recovery.signal: the timeline stays as it was."""
    server.kill()
    shutil.rmtree(server.data)
    shutil.copytree(folder, server.data)
    give_away(server.data)
    server.start()


@pytest.fixture
def lone(rig):
    group = Replicated(rig, standbys=0, synchronous=False, max_wal_senders=4)
    return group.primary, group.database()


@pytest.mark.parametrize("witness", [True, pytest.param(False, marks=pytest.mark.slow)],
                         ids=["beneath a daemon", "before its start"])
def test_a_base_backup_that_is_started_in_place_gives_no_token_out_twice(rig, lone, witness):
    server, name = lone
    daemon = rig.daemon(store=server.uri(name, connect_timeout=2))
    client = daemon.client()
    old = client.token("stock", 60000)
    copy = server.folder / "copy"
    back_up(server, copy)
    assert client("RELEASE", "stock", old) == 0
    tokens = [client.token("stock", 60000)]
    for _ in range(2):
        if not witness:
            rig.processes.remove(daemon)
            daemon.stop()
        put_back(server, copy)
        if not witness:
            daemon = rig.daemon(store=server.uri(name, connect_timeout=2))
        client = served(daemon.client())
        for token in tokens:
            stale(client, token)
        if witness:  # else nobody can know that the data is older
            stale(client, old)
            assert "lacks what was committed" in daemon.stderr()
        else:
            client.ask("RELEASE", "stock", old)
        tokens.append(client.token("stock", 60000))
        assert tokens[-1] > tokens[-2]


def test_a_standby_that_knows_nothing_of_an_asynchronous_time_keeps_no_lease(rig):
    """That replication was synchronous, it says of itself; what came after that it never heard."""
    group = Replicated(rig, standbys=1)
    standby, = group.standbys
    client = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2)).client()
    old = client.token("stock", 60000)
    group.await_replayed()
    group.cut(standby, group.primary)
    group.primary.set(synchronous_standby_names="")
    served(client)
    assert client("RELEASE", "stock", old) == 0
    newer = client.token("stock", 60000)
    group.primary.kill()
    group.heal()
    group.promote(lossy=True)
    standby.set(synchronous_standby_names="")
    served(client)
    stale(client, old)
    stale(client, newer)
    assert client.token("stock", 60000) > newer


def two_daemons(rig, group):
    uri = group.door().uri(group.database(), connect_timeout=2)
    return rig.daemon(store=uri), rig.daemon(store=uri)


def test_that_replication_is_synchronous_again_a_daemon_learns_of_another(rig):
    """It had noted itself that it was not. No lease ends at the failover that comes later."""
    group = Replicated(rig, standbys=1)
    standby, = group.standbys
    one, other = two_daemons(rig, group)
    token = one.client().token("stock", 60000)
    confirms = group.primary.settings["synchronous_standby_names"]
    group.primary.set(synchronous_standby_names="")
    served(one.client()).fenced(token, "SET", "stock", "1")
    with one.frozen():
        group.primary.set(synchronous_standby_names=confirms)
        served(other.client())
    client = served(one.client())
    other.kill()
    group.await_streaming()
    group.primary.kill()
    group.promote()
    standby.set(synchronous_standby_names="")
    assert served(client).fenced(token, "SET", "stock", "2") == "OK"


def test_that_replication_is_not_synchronous_a_daemon_learns_of_another(rig):
    """It has changed nothing since, and the standby never heard of it."""
    group = Replicated(rig, standbys=1)
    standby, = group.standbys
    one, other = two_daemons(rig, group)
    old = one.client().token("stock", 60000)
    group.await_replayed()
    group.cut(standby, group.primary)
    with one.frozen():
        group.primary.set(synchronous_standby_names="")
        assert served(other.client())("RELEASE", "stock", old) == 0
    client = served(one.client())
    other.kill()
    group.primary.kill()
    group.heal()
    group.promote(lossy=True)
    standby.set(synchronous_standby_names="")
    stale(served(client), old)


@pytest.mark.slow
def test_a_daemon_that_remembers_nothing_believes_no_promoted_server(rig):
    group = Replicated(rig, standbys=1)
    standby, = group.standbys
    uri = group.door().uri(group.database(), connect_timeout=2)
    daemon = rig.daemon(store=uri)
    old = daemon.client().token("stock", 60000)
    daemon.kill()
    group.primary.kill()
    group.promote()
    standby.set(synchronous_standby_names="")
    client = served(rig.daemon(store=uri).client())
    stale(client, old)
    assert client.token("stock", 60000) > time.time() * 1e6 - 3600e6


@pytest.mark.slow
def test_leases_go_on_where_replication_was_synchronous_and_somebody_knows(rig):
    group = Replicated(rig, standbys=1)
    standby, = group.standbys
    client = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2)).client()
    token = client.token("stock", 60000)
    group.primary.kill()
    group.promote()
    standby.set(synchronous_standby_names="")
    served(client)
    assert client.fenced(token, "SET", "stock", "1") == "OK"


@pytest.mark.slow
def test_a_server_that_is_started_anew_keeps_its_leases(rig, lone):
    server, name = lone
    client = rig.daemon(store=server.uri(name, connect_timeout=2)).client()
    token = client.token("stock", 60000)
    server.restart()
    served(client)
    assert client.fenced(token, "SET", "stock", "1") == "OK"
    assert client("RELEASE", "stock", token) == 0
    assert client.token("stock", 60000) > token


def test_a_replica_of_rows_that_has_not_the_sequences_takes_new_names(rig, database):
    """A logical replica that takes over has the rows, and sequences that stand at their start."""
    daemon = rig.daemon(store=database.uri)
    client = daemon.client()
    for number in range(5):
        client.token(f"sku:{number}")
    daemon.stop()
    copy = database.server.database(template=database.name)
    rig.ends.append(copy.drop)
    copy.sql("SELECT setval('stockade.resource_id', 1, false)")
    client = rig.daemon(store=copy.uri).client()
    for number in range(10):
        client.token(f"sku:{number}")


@pytest.mark.slow
def test_a_lower_timeline_of_another_system_is_another_store(rig, lone):
    """Beneath a running daemon: the name leads to another cluster, whose timelines begin anew."""
    server, name = lone
    relay = rig.relay(("127.0.0.1", server.port))
    daemon = rig.daemon(store=server.uri(name, connect_timeout=2)
                        .replace(f":{server.port}/", f":{relay.address[1]}/"))
    client = daemon.client()
    token = client.token("stock", 60000)
    server.shut_down()
    (server.data / "recovery.signal").touch()
    give_away(server.data)
    server.set(restore_command="false", recovery_target_timeline="latest")
    server.start()
    wait_until(lambda: server.sql("SELECT NOT pg_is_in_recovery()") == [(True,)], "it is promoted")
    served(client)
    dump = run(program("pg_dump"), "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", name)
    (server.folder / "dump").write_text(dump)
    other = Postgres(rig)
    other.sql(f"CREATE DATABASE {name} TEMPLATE template0 OWNER shop")
    run(program("psql"), "-q", "-h", "127.0.0.1", "-p", other.port, "-U", "postgres", "-d", name,
        "-f", server.folder / "dump")
    relay.target = ("127.0.0.1", other.port)
    server.kill()
    served(client)
    stale(client, token)
    assert client.token("stock", 60000) > token
