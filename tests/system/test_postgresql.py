# SPDX-License-Identifier: Apache-2.0
"""The store in PostgreSQL: what only a database that others use, too, can do to it. That it answers
as the store in a file does is the suite `postgresql` (tools/check)."""

import contextlib
import struct
import threading
import time

import pytest

from harness import leftovers
from harness.limits import HANG_SECONDS, Wait, patience, wait_until, within
from harness.postgres import PROBES, Postgres, ask
from harness.relay import Relay
from harness.replicated import Replicated
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql")


@pytest.fixture
def uri(database):
    return database.uri


@contextlib.contextmanager
def transaction(database, *statements):
    """A transaction of the user's own, which stays open: its connection."""
    with database.connect() as user:
        ask(user, "BEGIN")
        for statement in statements:
            ask(user, statement)
        yield user


def test_rows_are_seen_by_people(rig, database, uri):
    client = rig.daemon(store=uri).client()
    token = client.token("sku:1")
    client.fenced(token, "SET", "sku:1", "5")
    client.fenced(client.token("cart"), "HSET", "cart", "apples", "3")
    assert database.sql("SELECT resource, token, state FROM stockade.fences ORDER BY 1") == [
        ("cart", 1, "live"), ("sku:1", token, "live")]
    assert database.sql("SELECT * FROM stockade.strings") == [("sku:1", "5")]
    assert database.sql("SELECT * FROM stockade.fields") == [("cart", "apples", "3")]


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


def test_a_name_that_two_daemons_make_at_once_is_made_once(rig, database, uri):
    """The second one waits for the first, and finds the row then: neither is told of an error."""
    client = rig.daemon(store=uri).client()
    client.token("pattern")
    columns = ", ".join(name for name, in database.sql(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'stockade.resource'::regclass"
        " AND attnum > 0 AND attname NOT IN ('id', 'name')"))
    with transaction(database, f"INSERT INTO stockade.resource(id, name, {columns}) SELECT"
                               " nextval('stockade.resource_id'), 'both',"
                               f" {columns.replace('state', '2').replace('holds', '0')}"
                               " FROM stockade.resource WHERE name = 'pattern'") as first:
        client.send("ACQUIRE", "both", 60000)
        with database.connect() as watch:
            wait_until(lambda: writers(watch, "wait_event_type = 'Lock'"), "the second one waits")
        ask(first, "COMMIT")
        token, _ = client.read()
    assert database.sql("SELECT token, state FROM stockade.resource WHERE name = 'both'") == [
        (token, 1)]


def test_a_row_that_somebody_has_locked_holds_up_nothing_else(rig, database, uri):
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = {f"sku:{i}": client.token(f"sku:{i}") for i in range(50)}
    with transaction(database, "SELECT FROM stockade.resource WHERE name = 'sku:7'"
                                        " FOR UPDATE") as user:
        held = daemon.client()
        held.send("FENCED", tokens["sku:7"], "SET", "sku:7", "late")
        held.send("FENCED", tokens["sku:7"], "SET", "sku:7", "later")
        for name in tokens:
            if name != "sku:7":
                assert client("FENCED", tokens[name], "SET", name, "1", timeout=2) == "OK"
        assert client("GET", "sku:7") is None  # reads wait for nobody
        ask(user, "COMMIT")
        assert held.read() == "OK" and held.read() == "OK"
    assert client("GET", "sku:7") == b"later"


def test_an_operation_behind_one_that_waits_waits_too(rig, database, uri):
    """One that is about a locked row and a free one holds up what comes later for the free one."""
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = [client.token("a"), client.token("b")]
    with transaction(database,
                     "SELECT FROM stockade.resource WHERE name = 'b' FOR UPDATE") as user:
        pipeline = daemon.client()
        pipeline.send_all([("FENCEDALL", 2, "a", tokens[0], "b", tokens[1],
                            "MSET", "a", "1", "b", "1"),
                           ("FENCED", tokens[0], "SET", "a", "2")])
        wait_until(lambda: client.ask("PING") == "PONG", "the daemon runs")
        assert client("GET", "a") is None
        ask(user, "COMMIT")
        assert pipeline.read() == "OK" and pipeline.read() == "OK"
    assert client("GET", "a") == b"2" and client("GET", "b") == b"1"


def test_what_misses_a_value_comes_behind_what_waits_when_it_has_it(rig, database, uri):
    """It runs once to say what it needs, and again when that is there: both times an operation
    before it waits for a locked row, and has the free one."""
    daemon = rig.daemon("--unfenced-writes", "allow", store=uri)
    waits, misses = daemon.client(), daemon.client()
    waits("MSET", "locked", 0, "free", 0, "large", "x" * 10000)
    with transaction(database, "SELECT FROM stockade.resource WHERE name = 'locked' FOR UPDATE"):
        waits.multi(("INCRBY", "free", 1), ("INCRBY", "locked", 1))
        waits.send("EXEC")
        wait_until(lambda: database.sql(PROBES), "it waits")
        misses.multi(("STRLEN", "large"), ("APPEND", "large", "y"), ("INCRBY", "free", 10))
        misses.send("EXEC")
        with pytest.raises(TimeoutError):
            misses.read(timeout=0.3)
    assert waits.read() == [1, 1]
    assert misses.read() == [10000, 10001, 11]


def test_a_user_who_locks_in_another_order_deadlocks_with_nobody(rig, database, uri):
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = [client.token("a"), client.token("b")]
    with transaction(database,
                     "SELECT FROM stockade.resource WHERE name = 'b' FOR UPDATE") as user:
        both = daemon.client()
        both.send("FENCEDALL", 2, "a", tokens[0], "b", tokens[1], "MSET", "a", "1", "b", "1")
        ask(user, "SELECT FROM stockade.resource WHERE name = 'a' FOR UPDATE")
        ask(user, "COMMIT")
        assert both.read() == "OK"


def test_large_values_are_loaded_where_they_are_asked_for(rig, uri):
    """A batch's first load brings small values only; of a large one it says nothing."""
    client = rig.daemon(store=uri).client()
    token, note = client.token("cart"), b"n" * 20000
    assert client.fenced(token, "HSET", "cart", "note", note) == 1
    assert client.fenced(token, "HSETNX", "cart", "note", "other") == 0
    assert client.fenced(token, "HSET", "cart", "note", note, "apples", 3) == 1
    assert client("HMGET", "cart", "note", "apples", "pears") == [note, b"3", None]
    assert client("HSTRLEN", "cart", "note") == len(note)
    other = client.token("sku:1")
    client.fenced(other, "SET", "sku:1", note)
    for _ in range(2):
        assert client("FENCED", other, "ID", "sale", "GETSET", "sku:1", "0") == note
    assert client("GET", "sku:1") == b"0"


def writers(user, what):
    """How many of the two connections that write are like this."""
    return ask(user, "SELECT count(*) FROM pg_stat_activity WHERE"
                     f" application_name LIKE 'stockade writer%%' AND {what}")[0][0]


@contextlib.contextmanager
def waiting_for_row(database, watch, name):
    """A user's connection that waits for a row, and the thread that ends once it has it. rollback()
    lets the row go, as does the end of the block."""
    with contextlib.closing(database.connect()) as user:
        user.autocommit = False
        locker = threading.Thread(target=ask, args=(
            user, "SELECT FROM stockade.resource WHERE name = %s FOR UPDATE", name))
        locker.start()
        wait_until(lambda: ask(watch, "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
                                      " AND wait_event_type = 'Lock'", user.info.backend_pid),
                   "a user waits for the row")
        yield user, locker
        locker.join(10)


@contextlib.contextmanager
def made_anew_without(row, relay, database, watch):
    """The commit that is held on its way is lost and made again, while a user has this row. The
    block begins when the user has let it go."""
    with waiting_for_row(database, watch, row) as (user, locker):
        relay.refuse()
        relay.cut()
        locker.join(10)
        before = relay.kept("up")
        relay.accept()
        wait_until(lambda: relay.kept("up") > before, "it is made again without the locked row")
        user.rollback()
        relay.let("up")
        yield


def test_a_commit_that_is_made_anew_is_overtaken_by_nothing(rig, database):
    """While one connection commits the other one runs what comes next. Where that commit has to
    be made again, what comes next does, too, behind what finds its row locked by now."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    first, second, watch = daemon.client(), daemon.client(), database.connect()
    tokens = {name: first.token(name) for name in ("a", "b")}
    relay.hold("up", b"\0LOCK\0")
    first.send_all([("FENCED", tokens[name], "INCRBY", name, 1) for name in ("a", "b")])
    wait_until(lambda: relay.kept("up"), "the first batch is to lock its rows")
    second.send("FENCED", tokens["a"], "INCRBY", "a", 1)
    assert daemon.client()("PING") == "PONG", "the next batch has something"
    relay.hold("up", b"\0MARK\0")
    wait_until(lambda: writers(watch, "state = 'idle in transaction'") == 2,
               "the first is to commit, the next ran")
    with made_anew_without(b"a", relay, database, watch):
        assert [first.read(timeout=patience(HANG_SECONDS)) for _ in range(2)] == [1, 1]
        assert second.read(timeout=patience(HANG_SECONDS)) == 2
    watch.close()


def test_what_waits_for_a_commit_comes_behind_what_it_gives_up(rig, database):
    """Few that come while a large batch commits wait for it. Where it has to be made again, and
    finds a row locked by then, they come behind it all the same."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    first, second, watch = daemon.client(), daemon.client(), database.connect()
    names = ("a", "b", "c", "d")
    tokens = {name: first.token(name) for name in names}
    relay.hold("up", b"\0LOCK\0")
    first.send_all([("FENCED", tokens[name], "INCRBY", name, 1) for name in names])
    wait_until(lambda: relay.kept("up"), "the first batch is to lock its rows")
    second.send("FENCED", tokens["a"], "INCRBY", "a", 1)
    assert daemon.client()("PING") == "PONG", "the next batch has something, but little"
    relay.hold("up", b"\0MARK\0")
    wait_until(lambda: writers(watch, "state = 'idle in transaction'") == 1 and relay.kept("up"),
               "the first is to commit")
    with made_anew_without(b"a", relay, database, watch):
        assert [first.read(timeout=patience(HANG_SECONDS)) for _ in names] == [1, 1, 1, 1]
        assert second.read(timeout=patience(HANG_SECONDS)) == 2
    watch.close()


def test_a_batch_of_which_all_waits_when_it_is_made_anew_is_over(rig, database):
    """Its row is locked by then, so there is nothing to commit: a connection that breaks once more
    ends neither the daemon nor the wait."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    client, watch = daemon.client(), database.connect()
    token = client.token("a")
    relay.hold("up", b"\0MARK\0")
    client.send("FENCED", token, "INCRBY", "a", 1)
    wait_until(lambda: relay.kept("up"), "the commit is held")
    with waiting_for_row(database, watch, b"a") as (user, locker):
        relay.refuse()
        relay.cut()
        locker.join(10)
        before = relay.kept("up")
        relay.hold("up", b"\0BARRIER\0")
        relay.accept()
        wait_until(lambda: relay.kept("up") > before or writers(watch, "query = 'ROLLBACK'"),
                   "it is given up, or to be committed")
        relay.cut()
        relay.let("up")
        user.rollback()
        assert client.read(timeout=patience(HANG_SECONDS)) == 1
    watch.close()


@pytest.mark.slow
def test_connections_that_are_ended_under_load_lose_and_double_nothing(rig, database, uri):
    client, user = rig.daemon(store=uri).client(), database.connect()
    names = [f"sku:{i}" for i in range(20)]
    tokens = {name: client.token(name, 600000) for name in names}
    counts = dict.fromkeys(names, 0)
    killed, wait = 0, Wait()
    while killed < 12:
        wait.check("twelve connections were ended")
        client.send_all([("FENCED", tokens[name], "INCRBY", name, 1) for name in names * 20])
        killed += len(ask(user, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                " WHERE application_name LIKE 'stockade writer%%'"
                                " AND backend_start < clock_timestamp() - interval '300 ms'"))
        for name in names * 20:
            reply = client.read(timeout=patience(HANG_SECONDS))
            if not isinstance(reply, ReplyError):
                assert reply == counts[name] + 1, name
                counts[name] = reply
    assert [int(client("GET", name)) for name in names] == list(counts.values())
    assert sum(counts.values()) > 2000
    user.close()


@pytest.mark.parametrize("how", ["the reply is lost", "the commit is lost"])
def test_the_outcome_of_a_commit_is_found_out(rig, database, how):
    """The connection breaks at the COMMIT, before or after the server has it: the write is done
    once and answered, without an ID, and without the daemon's end."""
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    client = daemon.client()
    token = client.token("stock")
    client.fenced(token, "SET", "stock", "10")
    for left in range(9, 4, -1):
        if how == "the reply is lost":
            relay.hold("down", b"COMMIT")
        else:
            relay.hold("up", b"\0MARK\0")
        client.send("FENCED", token, "DECRBY", "stock", "1", "MIN", "0")
        if how == "the reply is lost":
            wait_until(lambda left=left: database.sql("SELECT value FROM stockade.strings")
                       == [(str(left),)], "the commit is made")
        wait_until(lambda: relay.kept("down" if "reply" in how else "up"), "the commit is held")
        relay.cut()
        relay.let("down")
        relay.let("up")
        assert client.read(timeout=patience(HANG_SECONDS)) == left
    assert client("GET", "stock") == b"5"
    said = "there" if how == "the reply is lost" else "not there, and is done again"
    assert daemon.log().count("the outcome of a commit is unknown") == 5
    assert daemon.log().count(f": that commit is {said}\n") == 5


READY = b"Z\0\0\0\5I"
ENDED_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
ENDED = b"E" + struct.pack(">I", 4 + len(ENDED_FIELDS)) + ENDED_FIELDS


class EndingRelay(Relay):
    """While `ends`: in place of the end of a trip that commits, or of one that reads, comes what a
    server says that an operator shuts down, and the connection's end."""

    ends = False

    def _pump(self, source, sink, gate):
        relay = self

        class Sink:
            def sendall(self, data):
                if not relay.ends or not data.endswith(READY):
                    sink.sendall(data)
                    return
                relay.ends = False
                sink.sendall(data[:-len(READY)] + ENDED)
                raise OSError

            def __getattr__(self, name):
                return getattr(sink, name)
        super()._pump(source, Sink() if gate is self.gates["down"] else sink, gate)


def test_a_session_that_ends_with_its_trip_is_an_outage(rig, database):
    """As a fast shutdown does. It may meet a connection that is being made: then it is STORE."""
    def answered(*words):
        wait = Wait()
        while isinstance(reply := client.ask(*words, timeout=10), ReplyError):
            wait.check("the store is back")
        return reply

    relay = EndingRelay(("127.0.0.1", database.server.port))
    rig.relays.append(relay)
    client = rig.daemon(store=database.uri_at(relay.address)).client()
    token = client.token("stock")
    for number in range(3):
        relay.ends = True
        assert answered("FENCED", token, "INCRBY", "stock", 1) == number + 1
        relay.ends = True
        assert answered("GET", "stock") == str(number + 1).encode()
    assert not relay.ends


def test_while_an_outcome_is_unknown_nobody_is_answered_for_it(rig, database):
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon(store=database.uri_at(relay.address))
    client, other = daemon.client(), daemon.client()
    token = client.token("stock")
    relay.hold("down", b"COMMIT")
    client.send("FENCED", token, "SET", "stock", "10")
    wait_until(lambda: database.sql("SELECT * FROM stockade.strings"), "the commit is made")
    wait_until(lambda: relay.kept("down"), "it is held")
    relay.refuse()
    relay.cut()
    relay.let("down")
    other.refused("STORE", "FENCED", token, "SET", "stock", "11", timeout=patience(HANG_SECONDS))
    with pytest.raises(TimeoutError):
        client.read(timeout=0.5)
    relay.accept()
    assert client.read(timeout=patience(HANG_SECONDS)) == "OK"
    assert client("GET", "stock") == b"10"


def test_a_database_that_is_away_is_told_and_found_again(rig):
    own = Postgres(rig)
    uri = own.database().uri
    own.kill()
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    assert client("PING") == "PONG"
    client.refused("STORE", "ACQUIRE", "sku:1", 1000, text="Is the server running")
    own.start()
    wait_until(lambda: not isinstance(client.ask("ACQUIRE", "sku:1", 60000), ReplyError),
               "the daemon has found its database")
    token = client.lease("sku:1")["token"]
    client.fenced(token, "SET", "sku:1", "1")
    own.kill()
    client.refused("STORE", "FENCED", token, "SET", "sku:1", "2", timeout=patience(HANG_SECONDS))
    own.start()
    wait_until(lambda: not isinstance(client.ask("GET", "sku:1"), ReplyError), "it is back")
    assert client("GET", "sku:1") == b"1"
    assert client.fenced(token, "SET", "sku:1", "3") == "OK"


def test_a_database_that_has_gone_is_told_though_nobody_asks(rig):
    """A balancer asks /ready, and would send all clients to a daemon that refuses them."""
    own = Postgres(rig)
    daemon = rig.daemon(store=own.database().uri)
    daemon.client().token("sku:1")
    assert daemon.get("/ready")[::2] == (200, "ready\n")
    own.kill()
    wait_until(lambda: daemon.get("/ready")[0] == 503, "the daemon has seen it")
    assert daemon.metric("store_up") == 0
    own.start()
    wait_until(lambda: daemon.get("/ready")[0] == 200, "and has found it again")
    assert daemon.metric("store_up") == 1


def test_a_server_that_hangs_costs_a_bounded_time(rig):
    own = Postgres(rig)
    client = rig.daemon(store=own.database().uri_with(timeout_ms=5000)).client()
    client.token("sku:1")
    with own.frozen():
        with within(30):  # a hang, in the daemon's own time
            reply = client.ask("GET", "sku:1", timeout=patience(HANG_SECONDS))
        assert isinstance(reply, ReplyError) and reply.code == "STORE"
    wait_until(lambda: not isinstance(client.ask("GET", "sku:1"), ReplyError), "it is back")


def test_a_copy_of_the_store_grants_nothing_that_was_granted_before(rig, database, uri):
    """P2: another database with the same rows is another store: its floor rises first."""
    client = rig.daemon(store=uri).client()
    old = client.token("sku:1")
    client("FENCED", old, "ID", "i", "SET", "sku:1", "0")
    rig.processes.pop().stop()
    copy = database.server.database(template=database.name)
    rig.ends.append(copy.drop)
    client = rig.daemon(store=copy.uri).client()
    client.refused("STALE", "FENCED", old, "SET", "sku:1", "1")
    assert client.token("sku:1") > max(old, (time.time() - 3600) * 1e6)
    assert leftovers.findings(copy) == [], "receipts of leases that have ended are swept one day"


@pytest.fixture
def group(rig):
    """A primary and its synchronous standby."""
    return Replicated(rig, standbys=1)


def test_nothing_is_told_that_the_standby_does_not_have(rig, group):
    daemon = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2))
    client, reader = daemon.client(), daemon.client()
    token = client.token("stock")
    client.fenced(token, "SET", "stock", "10")
    with group.standbys[0].frozen():
        client.send("FENCED", token, "SET", "stock", "9")
        # An operator ends the wait: the commit is there, and not replicated.
        wait_until(group.cancel_waits, "the commit waits for the standby")
        reply = reader.ask("GET", "stock", timeout=patience(HANG_SECONDS))
        assert isinstance(reply, ReplyError) and reply.code == "STORE", reply
        with pytest.raises(TimeoutError):
            client.read(timeout=0.2)
    assert client.read(timeout=patience(HANG_SECONDS)) == "OK"
    wait_until(lambda: reader.ask("GET", "stock") == b"9", "it is told")


def test_a_promoted_standby_has_all_and_no_token_comes_twice(rig, group):
    daemon = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2))
    client = daemon.client()
    token = client.token("stock", 60000)
    for left in range(50):
        client.fenced(token, "SET", "stock", left)
    old = group.primary
    old.kill()
    new = group.promote()
    new.set(synchronous_standby_names="")
    wait_until(lambda: client.ask("GET", "stock") == b"49", "the daemon has found the new primary")
    assert client.fenced(token, "SET", "stock", "50") == "OK"  # replication was synchronous
    assert client("RELEASE", "stock", token) == 0
    assert client.token("stock") > max(token, (time.time() - 3600) * 1e6)
    # The old primary comes back, alone, and is not believed.
    old.set(synchronous_standby_names="")
    old.start()
    new.kill()
    wait_until(lambda: "older" in getattr(client.ask("GET", "stock"), "text", ""),
               "the daemon has seen the old primary")


def test_leases_end_where_replication_was_asynchronous_at_last(rig, group):
    """It was synchronous when the daemon connected."""
    daemon = rig.daemon(store=group.door().uri(group.database(), connect_timeout=2))
    client = daemon.client()
    token = client.token("stock", 60000)
    group.primary.set(synchronous_standby_names="")
    client.fenced(token, "SET", "stock", "1")
    group.await_replayed()
    group.primary.kill()
    group.promote(lossy=True).set(synchronous_standby_names="")
    wait_until(lambda: client.ask("GET", "stock") == b"1", "the daemon has found the new primary")
    client.refused("STALE", "FENCED", token, "SET", "stock", "2")


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
