# SPDX-License-Identifier: Apache-2.0
"""Looking after a store in PostgreSQL: check, backup, restore, and the move to another store."""

import json
import re
import signal
import threading

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until
from harness.maintenance import (NO_STORES, Maintenance, cycle, each_command, execute, floor_said,
                                 query, value)
from harness.postgres import Postgres, ask, program, run
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql_ops")

LEAP = 1 << 32
LONG_MS = 60000


class Ops(Maintenance):
    """The commands on stores by their URIs."""

    def words(self, command, *args, store=None):
        return [command, *args, *(["--store", store] if store else [])]

    def move(self, source, target, **options):
        return self.run("move", "--from", source, "--to", target, **options)

    def moved(self, source, target):
        done = self.move(source, target)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    def no_move(self, source, target, said):
        done = self.move(source, target)
        assert done.returncode == 1 and done.stdout == "", done.stdout
        assert re.search(said, done.stderr) and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr


@pytest.fixture
def ops(rig):
    return Ops(rig)


@pytest.fixture
def uri(database):
    return database.uri


def furnish(client):
    """Something of everything; the tokens."""
    tokens = {name: client.token(name, LONG_MS) for name in ("live", "done", "hash", "gone")}
    client.fenced(tokens["live"], "ID", "one", "SET", "live", "text")
    client.fenced(tokens["done"], "ID", "one", "SET", "done", b"\x00\xff\\")
    client("RELEASE", "done", tokens["done"])
    client.fenced(tokens["hash"], "ID", "two", "HSET", "hash", "f", 1, "g", 2)
    client("REVOKE", "gone")
    odd = b"odd \x00\xff\\'"
    client.fenced(client.token(odd, LONG_MS), "SET", odd, b"\x00")
    return tokens


def expect_furnished(client, tokens):
    assert client("GET", "live") == b"text" and client("GET", "done") == b"\x00\xff\\"
    assert client("HGETALL", "hash") in ([b"f", b"1", b"g", b"2"], {b"f": b"1", b"g": b"2"})
    assert client("GET", b"odd \x00\xff\\'") == b"\x00"
    assert client("RECEIPT", "done", tokens["done"], "one") == [1, "OK"]
    assert client("RECEIPT", "hash", tokens["hash"], "two") == [1, 2]
    assert sorted(client("LEASES")) == [b"hash", b"live", b"odd \x00\xff\\'"]


# The move.

GONE = "takes nothing any more: what was in it has moved to "
COMING = "takes nothing yet: what is in "


def sqlite(rig, name="stockade.db"):
    return f"sqlite:{rig.folder / name}"


@pytest.fixture
def furnished(rig):
    """A file with something of everything, which no daemon has open: its URI, and the tokens."""
    daemon = rig.daemon(store=sqlite(rig))
    tokens = furnish(daemon.client())
    daemon.stop()
    return sqlite(rig), tokens


def refuses(daemon, said, *command):
    """From some moment on."""
    client = daemon.client()
    def refused():
        reply = client.ask(*command, timeout=patience(HANG_SECONDS))
        return isinstance(reply, ReplyError) and reply.code == "STORE" and said in str(reply)
    wait_until(refused, f"{command} is refused: {said}")


def does_not_start(rig, store, said):
    daemon = rig.start(store=store)
    daemon.expected_status = 1
    assert daemon.wait() == 1 and said in daemon.stderr(), daemon.stderr()


def test_a_move_to_a_database_and_on_to_a_file_carries_everything(rig, ops, uri, furnished):
    source, tokens = furnished
    largest = max(tokens.values())
    for target, number in ((uri, 1), (sqlite(rig, "third.db"), 2)):
        assert "5 resources, 3 leases go on; the old store" in ops.moved(source, target)
        daemon = rig.daemon(store=target)
        client = daemon.client()
        expect_furnished(client, tokens)
        assert client.acquire("live") is None  # held, by the token that was given out
        assert client.fenced(tokens["live"], "SET", "live", f"again {number}") == "OK"
        client.fenced(tokens["live"], "SET", "live", "text")
        client.refused("STALE", "FENCED", tokens["done"], "SET", "done", "stale")
        client.refused("STALE", "FENCED", tokens["gone"], "SET", "gone", "stale")
        newer = cycle(client, "gone")
        assert newer > tokens["gone"]
        tokens["gone"] = newer
        client("RECEIPT", "done", tokens["done"], "one")
        daemon.stop()
        assert ops.do("check", store=target).splitlines()[-1].startswith("ok: 5 resources, 4 val")
        source = target
    assert cycle(rig.daemon(store=source).client(), "done") > tokens["done"]
    assert largest < LEAP  # no floor was raised


def test_p2_a_floor_moves_along(rig, ops, uri):
    """Of a resource that the old store has forgotten, too."""
    daemon = rig.daemon(store=sqlite(rig))
    cycle(daemon.client(), "r")
    ops.do("backup", ops.copy, store=sqlite(rig))
    floor = floor_said(ops.do("restore", ops.copy, store=sqlite(rig)))
    daemon.stop()
    ops.moved(sqlite(rig), uri)
    assert cycle(rig.daemon(store=uri).client(), "never") > floor


def test_who_works_on_the_old_file_is_told_where_to_go(rig, ops, database, uri):
    daemon = rig.daemon(store=sqlite(rig))
    tokens = furnish(daemon.client())
    ops.moved(sqlite(rig), uri)
    refuses(daemon, GONE, "FENCED", tokens["live"], "SET", "live", "late")
    refuses(daemon, f"@127.0.0.1:{database.server.port}/{database.name}", "GET", "live")
    daemon.stop()
    does_not_start(rig, sqlite(rig), GONE)
    done = ops.run("-u", sqlite(rig), "get", "live")
    assert done.returncode != 0 and GONE in done.stderr
    ops.no_move(sqlite(rig), sqlite(rig, "third.db"), GONE)
    assert ops.do("check", store=sqlite(rig)).startswith("ok: 5 resources")
    assert query(rig.store, "SELECT count(*) FROM stockade_resource WHERE state = 1") == [(0,)]
    expect_furnished(rig.daemon(store=uri).client(), tokens)


def test_who_works_on_the_old_database_is_told_where_to_go(rig, ops, database, uri):
    daemon = rig.daemon(store=uri)
    tokens = furnish(daemon.client())
    target = sqlite(rig, "new.db")
    ops.moved(uri, target)
    refuses(daemon, f"{GONE}sqlite:{rig.folder}/new.db", "FENCED", tokens["live"], "SET", "live", 1)
    refuses(daemon, GONE, "GET", "live")
    does_not_start(rig, uri, GONE)
    assert database.sql("SELECT count(*) FROM stockade.resource WHERE state = 1") == [(0,)]
    assert ops.do("check", store=uri).splitlines()[-1].startswith("ok: 5 resources")
    expect_furnished(rig.daemon(store=target).client(), tokens)


def test_a_daemon_that_is_there_already_takes_over(rig, ops, uri, furnished):
    """One that has the new database open goes on by itself, and holds the leases for their TTL."""
    source, tokens = furnished
    daemon = rig.daemon(store=uri)
    assert daemon.client()("GET", "live") is None
    ops.moved(source, uri)
    client = daemon.client()
    expect_furnished(client, tokens)
    assert client.acquire("live") is None
    assert client.fenced(tokens["live"], "SET", "live", "new") == "OK"
    assert cycle(client, "new") >= 1


def test_a_store_moves_only_to_one_that_was_never_used(rig, ops, uri, furnished):
    source, tokens = furnished
    other = rig.daemon(store=uri)
    other.client().token("mine", LONG_MS)
    ops.no_move(source, uri, "/shop_[0-9]+ is in use: a store moves only to one that was never")
    ops.no_move(uri, source, "stockade.db is in use")
    ops.no_move(source, source, "is the store that it is to move to")
    ops.no_move(uri, uri, "is the store that it is to move to")
    assert other.client().token("other", LONG_MS) > 0
    expect_furnished(rig.daemon(store=source).client(), tokens)


KILLS = ("rows are put", "the old store is closed", "the new store has it")


@pytest.mark.parametrize("when", KILLS)
def test_a_move_that_is_killed_is_done_by_the_same_command(rig, ops, database, uri, furnished,
                                                           when):
    """Meanwhile the old store goes on, or neither takes writes."""
    source, tokens = furnished
    relay = rig.relay(("127.0.0.1", database.server.port))
    hidden = database.uri_at(relay.address)
    relay.hold("up", b"PGCOPY" if when == KILLS[0] else b"move_part = 2")
    running = ops.start("move", "--from", source, "--to", hidden)
    wait_until(lambda: relay.kept("up"), "the move stands")
    if when == KILLS[1]:
        relay.hold("up", b"COMMIT")
        wait_until(lambda: query(rig.store, "SELECT count(*) FROM stockade_meta WHERE key ="
                                            " 'move_part'") == [(1,)], "the old store is closed")
    elif when == KILLS[2]:
        relay.hold("down", b"COMMIT")
        relay.let("up")
        wait_until(lambda: relay.kept("down"), "the new store has it")
    running.kill()
    running.communicate(timeout=patience(HANG_SECONDS))
    relay.cut()
    relay.let("up")
    relay.let("down")
    if when == KILLS[0]:  # as if nothing had been, but that the new one waits
        daemon = rig.daemon(store=source)
        expect_furnished(daemon.client(), tokens)
        tokens["more"] = daemon.client().token("more", LONG_MS)
        refuses(rig.daemon(store=uri), COMING, "GET", "live")
        daemon.stop()
    elif when == KILLS[1]:
        refuses(rig.daemon(store=uri), COMING, "ACQUIRE", "live", 1000)
    if when != KILLS[0]:
        does_not_start(rig, source, GONE)
        ops.no_move(source, sqlite(rig, "third.db"), GONE)
    said = ops.moved(source, hidden)
    client = rig.daemon(store=uri).client()
    assert client("GET", "live") == b"text" and client("HLEN", "hash") == 2
    if when == KILLS[0]:
        assert "6 resources, 4 leases go on" in said
        assert client.fenced(tokens["more"], "SET", "more", "1") == "OK"
    elif when == KILLS[1]:  # the leases have ended with the old store
        assert "5 resources, 0 leases go on" in said
        client.refused("STALE", "FENCED", tokens["live"], "SET", "live", "late")
        assert cycle(client, "live") > tokens["live"]
    else:
        assert "before" in said
        expect_furnished(client, tokens)
    assert client("RECEIPT", "live", tokens["live"], "one") == [1, "OK"]
    assert ops.do("check", store=uri).splitlines()[-1].startswith("ok: ")


@pytest.mark.parametrize("when", ["rows are read", "the old store is about to be closed",
                                  "the old store is closed"])
def test_a_move_out_of_a_database_that_is_killed(rig, ops, database, uri, when):
    daemon = rig.daemon(store=uri)
    tokens = furnish(daemon.client())
    relay = rig.relay(("127.0.0.1", database.server.port))
    hidden, target = database.uri_at(relay.address), sqlite(rig, "new.db")
    where, what = {"rows are read": ("down", b"PGCOPY"), "the old store is closed":
                   ("down", b"COMMIT")}.get(when, ("up", b"COMMIT"))
    relay.hold(where, what)
    running = ops.start("move", "--from", hidden, "--to", target)
    wait_until(lambda: relay.kept(where), "the move stands")
    running.kill()
    running.communicate(timeout=patience(HANG_SECONDS))
    relay.cut()
    relay.let(where)
    does_not_start(rig, target, COMING)
    if when == "the old store is closed":
        refuses(daemon, GONE, "GET", "live")
    else:
        client = daemon.client()
        wait_until(lambda: client.ask("FENCED", tokens["live"], "SET", "live", "text") == "OK",
                   "the old store goes on")
    assert "5 resources" in ops.moved(hidden, target)
    refuses(daemon, GONE, "GET", "live")
    client = rig.daemon(store=target).client()
    assert client("GET", "live") == b"text"
    if when != "the old store is closed":
        expect_furnished(client, tokens)
    assert cycle(client, "done") > tokens["done"]


def test_a_move_that_fails_leaves_both_as_they_were(rig, ops, database, uri, furnished):
    source, tokens = furnished
    execute(rig.store, "UPDATE stockade_resource SET name = x'' WHERE name = x'676f6e65'")
    daemon = rig.daemon(store=uri)  # makes the schema
    database.sql("ALTER TABLE stockade.resource ADD CHECK(name <> '')")
    ops.no_move(source, uri, "violates check constraint")
    assert daemon.client()("GET", "live") is None
    assert daemon.client().token("live", LONG_MS) == 1
    client = rig.daemon(store=source).client()
    assert client("GET", "live") == b"text"
    assert client.fenced(tokens["live"], "SET", "live", "on") == "OK"


def test_a_move_whose_rows_are_not_taken_at_all_gives_the_new_store_back(rig, ops, database, uri,
                                                                         furnished):
    source, _ = furnished
    rig.daemon(store=uri).stop()  # makes the schema
    database.sql("REVOKE INSERT ON stockade.field FROM CURRENT_USER")
    ops.no_move(source, uri, "permission denied for table field")
    assert database.sql("SELECT move_part FROM stockade.meta") == [(0,)]
    database.sql("GRANT INSERT ON stockade.field TO CURRENT_USER")
    assert rig.daemon(store=uri).client().token("live", LONG_MS) == 1


def test_users_own_tables_stay_and_are_named(rig, ops, uri, furnished):
    source, _ = furnished
    execute(rig.store, "CREATE TABLE stock(sku); CREATE TABLE orders(id)")
    assert "(your own tables stay where they are: orders, stock)\n" in ops.moved(source, uri)


def test_receipts_keep_their_age_whatever_the_clocks_say(rig, ops, database, uri):
    """The old store's time may be behind the wall clock by the days that it was not in use."""
    daemon = rig.daemon(store=sqlite(rig))
    client = daemon.client()
    token = client.token("r", LONG_MS)
    client.fenced(token, "ID", "one", "SET", "r", 1)
    client("RELEASE", "r", token)
    daemon.stop()
    days_ms = 5 * 24 * 3600 * 1000
    execute(rig.store, f"""
        UPDATE stockade_clock SET offset_ms = offset_ms - {days_ms},
            reached_ms = reached_ms - {days_ms}, start_ms = start_ms - 2 * {days_ms};
        UPDATE stockade_retired SET retired_ms = retired_ms - {days_ms} - 3600000;
        UPDATE stockade_resource SET changed_ms = changed_ms - {days_ms} - 3600000""")
    ops.moved(sqlite(rig), uri)
    for column, table in (("retired_ms", "retired"), ("changed_ms", "resource")):
        age, = database.sql(f"SELECT extract(epoch FROM now()) - {column} / 1000"
                            f" FROM stockade.{table}")[0]
        assert 3500 < age < 3600 + 900, column
    assert rig.daemon(store=uri).client()("RECEIPT", "r", token, "one") == [1, "OK"]


def test_a_copy_that_no_daemon_has_opened_does_not_move(rig, ops, database, uri):
    daemon = rig.daemon(store=uri)
    furnish(daemon.client())
    daemon.stop()
    copy = database.server.database(template=database.name)
    rig.ends.append(copy.drop)
    ops.no_move(copy.uri, sqlite(rig), "is a copy, .* no daemon has opened it yet")
    assert "a copy, or another timeline" in ops.do("check", store=copy.uri)


# Backup and restore.


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("lost", [False, True], ids=["there", "lost"])
def test_p2_no_token_from_before_a_restore_fits(rig, ops, database, uri, running, lost):
    """And new ones are larger."""
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    tokens = furnish(client)
    said = ops.do("backup", ops.copy, store=uri)
    assert "backup of postgresql://***@127.0.0.1" in said
    assert ops.do("check", store=f"sqlite:{ops.copy}").startswith("ok: 5 resources, 4 values")
    client.fenced(tokens["live"], "SET", "live", "new")
    tokens["later"] = cycle(client, "later", 3)
    tokens["gone"] = cycle(client, "gone", 3)
    if not running:
        daemon.stop()
    for _ in range(2):
        if lost:
            database.sql("DROP SCHEMA stockade CASCADE")
        if lost and running:
            assert isinstance(client.ask("GET", "live"), ReplyError)
        said = ops.do("restore", ops.copy, store=uri)
        assert "leases ended: 3;" in said
        floor = floor_said(said)
        client = (daemon if running else rig.daemon(store=uri)).client()
        wait_until(lambda: client.ask("GET", "live") == b"text", "the daemon has found it again")
        assert client("LEASES") == []
        for name, token in tokens.items():
            reply = client.ask("FENCED", token, "SET", name, "stale")
            assert isinstance(reply, ReplyError) and reply.code in ("STALE", "UNKNOWN"), reply
        for name, token in tokens.items():
            newer = cycle(client, name)
            assert newer > floor > token
            tokens[name] = newer
        assert client("RECEIPT", "hash", tokens["hash"], "two") == [1, 2]
        assert ops.do("check", store=uri).splitlines()[-1].startswith("ok: ")


def test_readers_see_the_old_state_or_the_restored_one(rig, ops, uri):
    """And nothing else while it goes on; new resources get ids that nobody has had."""
    daemon = rig.daemon("--unfenced-writes", "allow", store=uri)
    client, reader = daemon.client(), daemon.client()
    keys = [f"k{i}" for i in range(300)]
    client("MSET", *(word for key in keys for word in (key, "old")))
    ops.do("backup", ops.copy, store=uri)
    client("MSET", *(word for key in keys for word in (key, "new")))
    running = ops.start("restore", ops.copy, "--store", uri)
    seen = {b"new"}
    while running.poll() is None:
        seen.add(bytes(b"/".join(sorted(set(map(bytes, reader("MGET", *keys)))))))
    assert running.wait() == 0, running.communicate()
    assert seen <= {b"new", b"old"}, seen
    wait_until(lambda: reader("GET", "k1") == b"old", "it is restored")
    client("MSET", *(word for key in keys for word in (f"{key}/more", "more")))
    assert ops.do("check", store=uri).splitlines()[-1].startswith("ok: 600 resources")


def test_a_backup_is_of_one_moment_while_writes_go_on(rig, ops, uri):
    daemon = rig.daemon("--unfenced-writes", "allow", store=uri)
    client = daemon.client()
    client("MSET", "a", 1000, "b", 1000)
    ending = threading.Event()

    def trade():
        own = daemon.client()
        while not ending.is_set():
            own("MULTI")
            own("DECRBY", "a", 1)
            own("INCRBY", "b", 1)
            own("EXEC")
    trader = threading.Thread(target=trade)
    trader.start()
    try:
        for number in range(3):
            copy = rig.folder / f"copy{number}.db"
            ops.do("backup", copy, store=uri)
            assert int(value(copy, "a")) + int(value(copy, "b")) == 2000
    finally:
        ending.set()
        trader.join()
    ops.refuse("backup", copy, store=uri, said="copy2.db is there already")
    ops.do("backup", copy, "--force", store=uri)
    assert not list(rig.folder.glob("*.tmp*"))


def test_a_backup_goes_into_either_kind_of_store(rig, ops, uri):
    client = rig.daemon(store=uri).client()
    tokens = furnish(client)
    ops.do("backup", ops.copy, store=uri)
    ops.do("restore", ops.copy, store=sqlite(rig))
    other = rig.daemon(store=sqlite(rig)).client()
    assert other("GET", "live") == b"text" and other("HLEN", "hash") == 2
    assert cycle(other, "live") > tokens["live"]
    second = rig.folder / "second.db"
    ops.do("backup", second, store=sqlite(rig))
    other.fenced(other.token("live"), "SET", "live", "newest")
    ops.do("restore", second, store=uri)
    assert client("GET", "live") == b"text"
    assert cycle(client, "live") > tokens["live"]


def test_a_restore_opens_a_store_again_that_has_moved(rig, ops, uri):
    daemon = rig.daemon(store=uri)
    tokens = furnish(daemon.client())
    ops.moved(uri, sqlite(rig))
    ops.do("backup", ops.copy, store=uri)
    ops.do("restore", ops.copy, store=uri)
    client = daemon.client()
    wait_until(lambda: client.ask("GET", "live") == b"text", "the old store goes on")
    assert cycle(client, "live") > tokens["live"]
    moved = rig.folder / "moved.db"
    ops.moved(sqlite(rig), f"sqlite:{moved}")
    ops.do("backup", ops.copy, "--force", store=sqlite(rig))
    ops.do("restore", ops.copy, store=sqlite(rig))
    assert cycle(rig.daemon(store=sqlite(rig)).client(), "live") > tokens["live"]


@pytest.mark.parametrize("make, said", NO_STORES)
def test_what_is_no_backup_is_refused_and_the_store_is_unchanged(rig, ops, uri, make, said):
    client = rig.daemon(store=uri).client()
    tokens = furnish(client)
    file = rig.folder / "stockade.db"
    if make is not None:
        make(file)
    ops.refuse("restore", file, store=uri, said=said)
    expect_furnished(client, tokens)


def test_a_restore_that_is_killed_leaves_the_store_as_it_was(rig, ops, database, uri):
    client = rig.daemon(store=uri).client()
    tokens = furnish(client)
    ops.do("backup", ops.copy, store=uri)
    client.fenced(tokens["live"], "SET", "live", "new")
    relay = rig.relay(("127.0.0.1", database.server.port))
    relay.hold("up", b"COMMIT")
    running = ops.start("restore", ops.copy, "--store", database.uri_at(relay.address))
    wait_until(lambda: relay.kept("up"), "it is about to commit")
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=patience(HANG_SECONDS))
    relay.cut()
    relay.let("up")
    wait_until(lambda: client.ask("FENCED", tokens["live"], "SET", "live", "text") == "OK",
               "the store goes on")
    expect_furnished(client, tokens)


def test_another_programs_restore_is_noticed_by_daemons_at_work(rig, database, uri):
    """pg_restore brings the tables of another moment, in mid-work: the floor rises."""
    daemon = rig.daemon(store=uri)
    client = daemon.client()
    cycle(client, "r")
    dump = database.server.folder / f"{database.name}.dump"
    run(program("pg_dump"), "-Fc", "-n", "stockade", "-f", dump, "-d", database.uri)
    largest = cycle(client, "r", 5)
    run(program("pg_restore"), "--clean", "--single-transaction", "-n", "stockade", "-d",
        database.uri, dump)
    newest = []

    def granted():
        reply = client.ask("ACQUIRE", "r", LONG_MS, timeout=patience(HANG_SECONDS))
        newest[:] = reply if isinstance(reply, list) else []
        return newest
    wait_until(granted, "there are leases again")
    assert newest[0] > largest


# The check.


def test_a_whole_store_is_found_whole(rig, ops, uri):
    furnish(rig.daemon(store=uri).client())
    *warnings, last = ops.do("check", store=uri).splitlines()
    assert last == "ok: 5 resources, 4 values, 3 receipts, 0 guards"
    assert [line.split(" (")[0].split(":")[0] for line in warnings] == ["warning"] * len(warnings)
    assert any("no synchronous standby" in line for line in warnings)
    report = json.loads(ops.do("check", "--json", store=uri))
    assert report["ok"] and report["findings_count"] == 0 and report["resources"] == 5
    assert {found["kind"] for found in report["findings"]} == {"warning"}


HUGE = 1 << 53

# What is done to a row like that of the resource `live`, which has the name {r} then.
ROWS = {
    f"token = {HUGE}": ("fence", f"its token is {HUGE}, not "),
    "token = -1": ("fence", "its token is -1"),
    "state = 4": ("fence", "its state is 4, and its token 1"),
    "state = 0, holds = 0": ("fence", "its state is 0, and its token 1"),
    "token = 0": ("fence", "its state is 1, and its token 0"),
    "holds = 0": ("fence", "it is held 0 times in state 1"),
    "state = 2": ("fence", "it is held 1 times in state 2"),
    "ttl_ms = -5": ("fence", "its lease has a TTL of -5 ms"),
    "owner = repeat('o', 513)::bytea": ("fence", ".* and 513 bytes for an owner"),
    "session = 99": ("fence", "it was granted in session 99, which has not been"),
    "changed_ms = -1": ("fence", "its fence changed at -1"),
    "receipts_gone = 9": ("fence", "receipts up to token 9 are gone, and its token is 1"),
    "id = 999999": ("fence", "its id is 999999, which was not given out"),
    "type = 3": ("value", "its type is 3, and it has 1 strings and 0 fields"),
    "value = NULL": ("value", "its type is 1, and it has 0 strings"),
    "fields = 7": ("value", "its type is 1, .* 0 fields, of which it counts 7"),
}
# (what is done, the kind of the finding, its text)
DAMAGE = [
    ("UPDATE stockade.resource SET name = repeat('n', 600)::bytea WHERE name = 'gone'", "fence",
     "resource [0-9]+: its name is of 600 bytes"),
    (r"UPDATE stockade.resource SET ttl_ms = -5 WHERE name LIKE 'odd%'", "fence",
     r"odd \\x00\\xff\\x5c': its lease"),
    ("UPDATE stockade.field SET resource = 77", "value",
     "resource 77: 2 fields of a resource that is not there"),
    ("INSERT INTO stockade.field VALUES(78, repeat('f', 600)::bytea, '')", "value",
     "resource 78: a field is of 600 bytes"),
    ("UPDATE stockade.receipt SET token = 9 WHERE id = 'two'", "receipt",
     "hash: a receipt of token 9, and its token is 1"),
    ("DELETE FROM stockade.retired", "receipt",
     "done: receipts of token 1, which has ended, would never be removed"),
    ("UPDATE stockade.resource SET receipts_token = 0 WHERE name = 'live'", "receipt",
     "live: receipts of token 1 would never be removed"),
    ("INSERT INTO stockade.receipt VALUES(79, 'x', 1, 0, false, -1, '')", "receipt",
     "resource 79: a receipt with an ID of 1 bytes, written at -1"),
    ("INSERT INTO stockade.receipt VALUES(79, 'y', 1, 0, false, 1, '')", "receipt",
     "resource 79: 2 receipts of a resource that is not there"),
    ("INSERT INTO stockade.retired(resource, token, retired_ms) VALUES(888888, 1, 1)", "receipt",
     "resource 888888: token 1 of it ended at 1, as if"),
    ("INSERT INTO stockade.audit VALUES('x', 0, 'y', '')", "schema",
     "the head of audit 'x' is line 0, 'y'"),
    ("INSERT INTO stockade.mark(session, number, written_ms, void)"
     " VALUES(99, 1, 1::int8 << 50, false)", "schema", "1 marks of session 99"),
]
OBJECTS = [
    (f"UPDATE stockade.meta SET floor = {HUGE}", "schema", f"no usable floor: {HUGE}"),
    ("DROP TABLE stockade.retired", "schema", "the table retired is gone"),
    ("DROP INDEX stockade.resource_keys", "schema", "the index resource_keys is gone"),
    ("DROP VIEW stockade.strings", "schema", "the view strings is gone"),
    ("DROP FUNCTION stockade.timeline()", "schema", "the function timeline is gone"),
    ("CREATE OR REPLACE FUNCTION stockade.is_replicated() RETURNS boolean LANGUAGE sql AS"
     " 'SELECT true'", "schema", "the function is_replicated was altered"),
    ("CREATE TABLE stockade.theirs(x int)", "schema", "the table theirs is not Stockade's"),
    ("CREATE TRIGGER theirs AFTER INSERT ON stockade.field EXECUTE FUNCTION"
     " suppress_redundant_updates_trigger()", "schema",
     "the trigger theirs on stockade.field is not Stockade's"),
    ("ALTER TABLE stockade.receipt DROP COLUMN token", "postgresql",
     'receipt cannot be checked: column t.token does not exist'),
]


def expect_found(ops, uri, damage):
    done = ops.ask("check", store=uri)
    assert (done.returncode, done.stderr) == (1, ""), done.stderr
    found = [line for line in done.stdout.splitlines() if not line.startswith("warning: ")]
    for sql, kind, said in damage:
        assert any(line.startswith(f"{kind}: ") and re.search(said, line) for line in found), (
            sql, said, done.stdout)
    return found


def damage_all(database):
    """All that ROWS and DAMAGE say, in a store that is furnished: what `check` has to say of it."""
    database.damaged = True
    columns = ("token, state, type, anonymous, holds, ttl_ms, session, connection, changed_ms,"
               " receipts_gone, receipts_token, fields, owner, value")
    damage = list(DAMAGE)
    for number, (what, (kind, said)) in enumerate(ROWS.items()):
        database.sql(f"INSERT INTO stockade.resource(id, name, {columns}) SELECT id + 100 +"
                     f" {number}, 'r{number}', {columns} FROM stockade.resource"
                     " WHERE name = 'live'")
        database.sql(f"UPDATE stockade.resource SET {what} WHERE name = 'r{number}'")
        damage.append((what, kind, f"r{number}: {said}"))
    for sql, *_ in DAMAGE:
        database.sql(sql)
    return damage


def test_each_damage_of_rows_is_found_and_named(rig, ops, database, uri):
    furnish(rig.daemon(store=uri).client())
    rig.processes.pop().stop()  # it would clear some of it away
    expect_found(ops, uri, damage_all(database))


# Of the hash: field names beyond any that a client may give, one that is gone, one too many; and
# names of resources that are longer than any.
ODD_LENGTHS = [
    "UPDATE stockade.resource SET fields = 1 WHERE name = 'hash'",
    "UPDATE stockade.resource SET fields = 9 WHERE name = 'hash'",
    "UPDATE stockade.resource SET fields = 0 WHERE name = 'hash'",
    *(f"INSERT INTO stockade.field SELECT id, repeat('f', {length})::bytea, 'v' FROM"
      " stockade.resource WHERE name = 'hash'" for length in (512, 513, 1024, 1025, 5000)),
    "DELETE FROM stockade.field WHERE field = 'g'",
    *(f"UPDATE stockade.resource SET name = repeat('n', {length})::bytea"
      f" WHERE name = 'live' OR length(name) = {before}"
      for before, length in ((0, 1024), (1024, 1025), (1025, 5000))),
    "UPDATE stockade.resource SET name = 'live' WHERE length(name) = 5000",
]


def test_damaged_rows_end_no_daemon(rig, database, uri):
    furnish(rig.daemon(store=uri).client())
    rig.processes.pop().stop()
    client = rig.daemon(store=uri).client()
    for sql in ODD_LENGTHS:
        database.sql(sql)
        each_command(client, ["hash"])
    damage_all(database)
    client = rig.daemon(store=uri).client()
    each_command(client, ["hash", "live", *(f"r{number}" for number in range(len(ROWS)))], True)
    assert client("PING") == "PONG"


def test_receipts_that_no_sweep_would_find_are_found_where_all_leases_ended_at_once(
        rig, ops, database, uri):
    database.damaged = True
    client = rig.daemon(store=uri).client()
    client("FENCED", client.token("live"), "ID", "once", "SET", "live", "1")
    rig.processes.pop().stop()
    database.sql("UPDATE stockade.meta SET floor = 1, ended = 1")
    expect_found(ops, uri, [("", "receipt", "live: receipts of token 1, which has ended, would")])


def test_what_has_become_of_the_schema_is_found(rig, ops, database, uri):
    """And the rest is still asked."""
    database.damaged = True
    furnish(rig.daemon(store=uri).client())
    for sql, *_ in OBJECTS:
        database.sql(sql)
    database.sql("UPDATE stockade.resource SET ttl_ms = -5 WHERE name = 'live'")
    found = expect_found(ops, uri, OBJECTS + [("ttl", "fence", "live: its lease has a TTL of -5")])
    assert re.match("[0-9]+ findings: 5 resources", found[-1])


def test_a_guard_that_is_damaged_is_found(rig, ops, database, uri):
    client = rig.daemon(store=uri).client()
    database.sql("CREATE TABLE stock(sku text PRIMARY KEY, left_over int)")
    assert client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    assert ops.do("check", store=uri).splitlines()[-1].endswith(" 1 guards")
    database.sql("ALTER TABLE stock DISABLE TRIGGER ALL")
    expect_found(ops, uri, [("", "guard", "trigger .* of public.stock is disabled")])


def test_what_endangers_a_store_is_warned_of(rig, ops):
    server = Postgres(rig, fsync=False, full_page_writes=False, synchronous_commit="local")
    database = server.database()
    rig.daemon(store=database.uri).client()("GET", "k")
    with database.connect() as user:
        ask(user, "BEGIN")
        ask(user, "CREATE TABLE theirs(x int)")
        ask(user, "PREPARE TRANSACTION 'forgotten'")
    said = ops.do("check", store=database.uri)
    for warning in ("fsync = off: a loss of power", "full_page_writes = off", "no synchronous stan",
                    "synchronous_commit = local for programs of your own: their commits may be los",
                    "max_prepared_transactions = 10", "the prepared transaction 'forgotten' of"):
        assert f"warning: {warning}" in said, warning
    server.set(synchronous_commit="remote_write")
    assert "may be lost with the standby's power" in ops.do("check", store=database.uri)


# Bad input.


def test_what_is_no_store_is_told_in_one_line(rig, ops, postgres, database, uri):
    empty = postgres.database()
    foreign = postgres.database()
    newer = postgres.database()
    for each in (empty, foreign, newer):
        rig.ends.append(each.drop)
    foreign.sql("CREATE SCHEMA stockade")
    rig.daemon(store=newer.uri).client()("GET", "k")
    newer.sql("UPDATE stockade.meta SET version = 99")
    backup = rig.folder / "backup.db"
    daemon = rig.daemon(store=uri)
    daemon.client()("GET", "k")
    daemon.stop()
    ops.do("backup", backup, store=uri)
    rig.daemon(store=sqlite(rig, "served.db")).stop()  # a backup is a copy, which does not move
    for store, said in ((foreign.uri, "a schema `stockade` that is not Stockade's"),
                        (newer.uri, "schema version 99, newer than this program's"),
                        ("postgresql://shop:secret@127.0.0.1:1/x", "Connection refused"),
                        (empty.uri_with("nobody"), 'role "nobody" does not exist')):
        for command in (("check",), ("backup", rig.folder / "new.db"), ("restore", backup)):
            ops.refuse(*command, store=store, said=re.escape(said))
        ops.no_move(store, sqlite(rig), re.escape(said))
        ops.no_move(sqlite(rig, "served.db"), store, re.escape(said))
    database.sql("DELETE FROM stockade.meta")
    ops.refuse("check", store=database.uri, said="the store is damaged: stockade.meta is empty")
    for command in (("check",), ("backup", rig.folder / "new.db")):
        ops.refuse(*command, store=empty.uri, said="there is no store in this database")
    ops.no_move(empty.uri, sqlite(rig), "there is no store in this database")
    assert not list(rig.folder.glob("new.db*"))


def test_a_password_is_repeated_nowhere(rig, ops, postgres):
    postgres.sql("CREATE ROLE clerk LOGIN IN ROLE password PASSWORD 'secret'")
    database = postgres.database(owner="clerk")
    rig.ends.append(lambda: (database.drop(), postgres.sql("DROP ROLE clerk")))
    uri = database.uri_with("clerk:secret")
    daemon = rig.daemon(store=uri)
    furnish(daemon.client())
    said = ops.do("backup", ops.copy, store=uri) + ops.do("restore", ops.copy, store=uri)
    said += ops.moved(uri, sqlite(rig))
    refuses(daemon, GONE, "GET", "live")
    assert "***@127.0.0.1" in said
    assert "secret" not in said + daemon.log()
    assert b"secret" not in rig.store.read_bytes()


def test_ctrl_c_undoes_a_move(rig, ops, database, uri, furnished):
    """Also what it had told the new store, which is in the middle of something."""
    source, tokens = furnished
    daemon = rig.daemon(store=uri)
    daemon.client()("GET", "k")
    database.sql("CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS"
                 " $$ BEGIN PERFORM pg_sleep(60); RETURN true; END $$")
    database.sql("ALTER TABLE stockade.resource ADD CHECK(slow())")
    running = ops.start("move", "--from", source, "--to", uri)
    wait_until(lambda: database.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"),
               "the move stands")
    refuses(daemon, COMING, "GET", "k")
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=patience(HANG_SECONDS)) == -signal.SIGINT
    assert "interrupted; nothing was changed" in running.stderr.read()
    wait_until(lambda: daemon.client().ask("GET", "k") is None, "the new store goes on")
    expect_furnished(rig.daemon(store=source).client(), tokens)
