# SPDX-License-Identifier: Apache-2.0
"""`stockade restore`: P1 and P2 hold over it, whatever was given out since the backup."""

import random
import shutil
import signal
import threading

import pytest

from harness.leases import line_up
from harness.limits import wait_until
from harness.maintenance import cycle, execute, floor_said, make_version_1, query, value
from harness.resp import ReplyError
from harness.rig import restart
from harness.threads import Beside

TOKEN_MAX = (1 << 53) - 1
LEAP = 1 << 32
SECONDS_LONG = 60000  # as a TTL in ms
WAIT = ("WAIT", 10000)


class History:
    """Tokens given out before and after a backup, held, given back and lost."""

    def __init__(self, maintenance, daemon, held_ms=400):
        client = daemon.client()
        self.tokens = {"kept": cycle(client, "kept", 3), "live": client.token("live", held_ms)}
        client.fenced(self.tokens["live"], "SET", "live", "old")
        maintenance.do("backup", maintenance.copy)
        client.fenced(self.tokens["live"], "SET", "live", "new")
        self.tokens["later"] = cycle(client, "kept", 5)
        self.tokens["unknown"] = client.token("unknown", held_ms)
        client.fenced(self.tokens["unknown"], "SET", "unknown", "new")
        self.resources = {"later": "kept"}
        self.largest = max(self.tokens.values())

    def each(self):
        for name, token in self.tokens.items():
            yield self.resources.get(name, name), token

    def expect_none_fits(self, client):
        for resource, token in self.each():
            before = client("GET", resource)
            for command in (("FENCED", token, "SET", resource, "stale"),
                            ("RENEW", resource, token, 1000)):
                reply = client.ask(*command)
                assert isinstance(reply, ReplyError), (resource, token, command, reply)
                assert reply.code in ("STALE", "UNKNOWN"), reply
            assert client("GET", resource) == before

    def expect_larger(self, client, floor):
        """New tokens are larger than all before, which are stale then."""
        assert floor > self.largest
        for resource, token in self.each():
            fresh = client.token(resource, SECONDS_LONG, *WAIT)
            assert floor < fresh <= TOKEN_MAX
            client.refused("STALE", "FENCED", token, "SET", resource, "stale")
            assert client.fenced(fresh, "SET", resource, "fresh") == "OK"
            client("RELEASE", resource, fresh)


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_p2_tokens_from_before_a_restore_never_fit_and_new_ones_are_larger(rig, maintenance, lease,
                                                                           running):
    daemon = rig.daemon(lease=lease)
    history = History(maintenance, daemon)
    if not running:
        daemon.stop()
    said = maintenance.do("restore", maintenance.copy)
    assert "leases ended: 1;" in said
    client = (daemon if running else rig.daemon(lease=lease)).client()
    assert client("GET", "live") == b"old" and client("GET", "unknown") is None
    assert client("LEASES") == []
    history.expect_none_fits(client)
    history.expect_larger(client, floor_said(said))
    assert maintenance.do("check").startswith("ok: ")


def test_p2_holds_where_the_store_is_lost_twice_and_the_same_backup_restored(rig, maintenance,
                                                                             lease):
    daemon = rig.daemon(lease=lease)
    history = History(maintenance, daemon)
    for _ in range(2):
        daemon.close_clients()
        daemon.kill()
        for path in rig.folder.glob("stockade.db*"):
            path.unlink()
        said = maintenance.do("restore", maintenance.copy)
        daemon = rig.daemon(lease=lease)
        client = daemon.client()
        history.expect_none_fits(client)
        history.expect_larger(client, floor_said(said))
        history.tokens["later"] = cycle(client, "kept", 20)
        history.largest = history.tokens["later"]


def test_p2_holds_where_redis_is_ahead_of_the_backup_or_forgets_all(rig, redis, maintenance):
    daemon = rig.daemon(lease=redis.uri)
    history = History(maintenance, daemon)
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    counter = "stockade:{kept}:token"
    assert int(redis.client()("GET", counter)) == history.tokens["later"] < floor
    history.expect_larger(daemon.client(), floor)
    newest = cycle(daemon.client(), "kept")
    assert int(redis.client()("GET", counter)) == newest
    redis("FLUSHALL")
    assert cycle(daemon.client(), "kept") > newest


def test_the_owner_of_a_lease_from_before_gets_a_new_token_not_the_old_one(rig, maintenance, lease):
    client = rig.daemon(lease=lease).client()
    old = client.token("r", SECONDS_LONG, "OWNER", "me")
    maintenance.do("backup", maintenance.copy)
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    fresh = client.token("r", SECONDS_LONG, "OWNER", "me", *WAIT)
    assert fresh > floor > old
    client.refused("STALE", "FENCED", old, "SET", "r", "stale")
    assert client.fenced(fresh, "SET", "r", "fresh") == "OK"


def test_who_waits_during_a_restore_gets_a_new_token(rig, maintenance, lease):
    daemon = rig.daemon(lease=lease)
    holder = daemon.client()
    old = holder.token("r", SECONDS_LONG)
    maintenance.do("backup", maintenance.copy)
    waiter, = line_up(daemon, "r", 1)
    holder("RENEW", "r", old, 3000)
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    token = waiter.read()[0]
    assert token > floor
    holder.refused("STALE", "FENCED", old, "SET", "r", "stale")
    assert waiter.fenced(token, "SET", "r", "fresh") == "OK"


def test_sessions_go_on_counting_so_that_leases_keep_their_daemon(rig, maintenance):
    """A lease granted after the restore is, to a later daemon, one of an earlier run: held."""
    daemon = rig.daemon()
    maintenance.do("backup", maintenance.copy)
    for _ in range(3):
        daemon = restart(rig, daemon)
    maintenance.do("restore", maintenance.copy)
    token = daemon.client().token("r", SECONDS_LONG)
    for _ in range(4):
        daemon = restart(rig, daemon, signal.SIGKILL)
        assert daemon.client().acquire("r") is None
    assert daemon.client().fenced(token, "SET", "r", "still mine") == "OK"


def test_receipts_of_the_backup_still_answer_repeats(rig, maintenance, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token = client.token("r", 300)
    client.fenced(token, "ID", "one", "INCRBY", "r", 5)
    maintenance.do("backup", maintenance.copy)
    client.fenced(token, "ID", "two", "INCRBY", "r", 5)
    maintenance.do("restore", maintenance.copy)
    assert client.fenced(token, "ID", "one", "INCRBY", "r", 5) == 5
    assert client("RECEIPT", "r", token, "one") == [1, 5]
    assert client("RECEIPT", "r", token, "two") == [0, None], "not applied, as things are now"
    fresh = client.token("r", SECONDS_LONG, *WAIT)
    assert client.fenced(fresh, "ID", "two", "INCRBY", "r", 5) == 10
    assert maintenance.do("check") == "ok: 1 resources, 1 values, 2 receipts, 0 guards\n"


def test_the_users_own_tables_and_guards_come_back(rig, maintenance):
    daemon = rig.daemon()
    client = daemon.client()
    execute(rig.store, "CREATE TABLE stock(sku TEXT PRIMARY KEY, left INTEGER);"
                       "INSERT INTO stock VALUES('a', 5)")
    assert client("GUARD", "CREATE", "stock", "sku", "sku:") == "OK"
    maintenance.do("backup", maintenance.copy)
    mark = query(rig.store, "SELECT value FROM stockade_meta WHERE key = 'file'")
    assert client("GUARD", "DROP", "stock") == "OK"
    execute(rig.store, "DROP TABLE stock")
    maintenance.do("restore", maintenance.copy)
    assert query(rig.store, "SELECT * FROM stock") == [("a", 5)]
    assert maintenance.do("check").endswith(", 1 guards\n")
    assert len(client("GUARD", "LIST")) == 1
    assert query(rig.store, "SELECT value FROM stockade_meta WHERE key = 'file'") != mark


class Seller:
    """Moves pieces between two keys under leases of its own, and notes each token. A restore may
    make its token stale; then it starts over."""

    def __init__(self, client, number):
        self.client = client
        self.keys = [f"pair:{number}:{side}" for side in "ab"]
        self.granted = {key: [] for key in self.keys}
        self.ending, self.moved = threading.Event(), 0

    def take(self):
        tokens = []
        for key in self.keys:
            tokens.append(self.client.token(key, 200, "OWNER", key, *WAIT))
            self.granted[key].append(tokens[-1])
        return tokens

    def open(self):
        for token, key in zip(self.take(), self.keys):
            self.client.fenced(token, "SET", key, 1000)

    def move(self):
        amount = random.choice((1, -1))
        tokens = self.take()
        self.client("MULTI")
        for token, key, change in zip(tokens, self.keys, (amount, -amount)):
            self.client("FENCED", token, "INCRBY", key, change, "MIN", 0)
        return self.client.ask("EXEC")

    def run(self):
        while not self.ending.is_set():
            reply = self.move()
            if isinstance(reply, ReplyError):
                assert reply.code in ("STALE", "UNKNOWN"), reply
            else:
                self.moved += 1


def test_restores_under_load_keep_books_and_tokens_right(rig, maintenance, lease):
    daemon = rig.daemon(lease=lease)
    sellers = [Seller(daemon.client(), number) for number in range(3)]
    for seller in sellers:
        seller.open()
    running = [Beside(seller.run) for seller in sellers]
    maintenance.do("backup", maintenance.copy)
    for _ in range(5):
        before = sum(seller.moved for seller in sellers)
        wait_until(lambda: sum(s.moved for s in sellers) > before + 20 or
                   any(thread.failure for thread in running), "sales go on")
        maintenance.do("restore", maintenance.copy)
    for seller, thread in zip(sellers, running):
        seller.ending.set()
        thread.end(20)
        for key, tokens in seller.granted.items():
            # The owner enters again under the same token as long as that is good.
            assert tokens == sorted(tokens), key
        stock = [int(value(rig.store, key)) for key in seller.keys]
        assert sum(stock) == 2000
    assert maintenance.do("check").startswith("ok: ")


def test_a_backup_of_the_first_version_is_brought_forward(rig, maintenance):
    make_version_1(maintenance.copy)
    execute(maintenance.copy, "DELETE FROM stockade_resource WHERE id = 3")
    daemon = rig.daemon()
    client = daemon.client()
    client.token("r")
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    assert client("HGET", "live", "stock") == b"12" and client("GET", "released") == b"text"
    assert client("LEASES") == []
    assert cycle(client, "live") > floor
    assert maintenance.do("check") == "ok: 3 resources, 3 values, 0 receipts, 0 guards\n"
    assert query(maintenance.copy, "PRAGMA user_version") == [(1,)], "it stays as it was"


def test_where_no_larger_token_is_left_it_says_so_and_does_nothing(rig, maintenance):
    make_version_1(maintenance.copy)  # a token of 2^53 - 1 is in it
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "v")
    maintenance.refuse("restore", maintenance.copy,
                       said="no token is left above those of .*bac")
    assert client("GET", "k") == b"v"
    execute(maintenance.copy, "DELETE FROM stockade_resource WHERE id = 3")
    execute(rig.store, f"UPDATE stockade_meta SET value = {TOKEN_MAX - LEAP + 1}"
                       " WHERE key = 'floor'")
    maintenance.refuse("restore", maintenance.copy,
                       said="no token is left above those of .*sto")
    assert client("GET", "k") == b"v"


@pytest.mark.parametrize("where", ["backup", "store"])
def test_a_token_ahead_of_the_clock_is_left_far_behind(rig, maintenance, where):
    daemon = rig.daemon()
    client = daemon.client()
    cycle(client, "r")
    maintenance.do("backup", maintenance.copy)
    high = TOKEN_MAX - 2 * LEAP
    path = maintenance.copy if where == "backup" else rig.store
    execute(path, f"UPDATE stockade_resource SET token = {high}")
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    assert high < floor <= high + LEAP  # a random step: two copies do not meet
    assert cycle(client, "r") > floor


def test_a_store_whose_tokens_cannot_be_read_is_restored_over(rig, maintenance):
    daemon = rig.daemon("--unfenced-writes", "allow")
    client = daemon.client()
    token = cycle(client, "r", 5)
    client("SET", "k", "v")
    maintenance.do("backup", maintenance.copy)
    daemon.stop()
    root, = query(rig.store, "SELECT rootpage FROM sqlite_schema"
                             " WHERE name = 'stockade_resource'")[0]
    with open(rig.store, "r+b") as file:
        file.seek((root - 1) * 1024)
        file.write(b"\xff" * 1024)
    said = maintenance.do("restore", maintenance.copy)
    assert "the tokens of the damaged store that was there are unknown" in said
    assert maintenance.do("check").startswith("ok: ")
    client = rig.daemon().client()
    assert client("GET", "k") == b"v"
    assert cycle(client, "r") > floor_said(said) > token


def test_a_backup_with_other_pages_fits_a_running_daemons_store(rig, maintenance):
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    execute(maintenance.copy, "PRAGMA page_size = 4096; VACUUM")
    assert query(maintenance.copy, "PRAGMA page_size") == [(4096,)]
    client("SET", "k", "new")
    maintenance.do("restore", maintenance.copy)
    assert client("GET", "k") == b"old"
    assert query(rig.store, "PRAGMA page_size") == [(1024,)]


def test_a_copy_of_the_store_taken_while_it_was_stopped_is_a_backup_too(rig, maintenance):
    daemon = rig.daemon("--unfenced-writes", "allow")
    daemon.client()("SET", "k", "old")
    daemon.stop()
    shutil.copy(rig.store, rig.folder / "copied.db")
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "new")
    maintenance.do("restore", rig.folder / "copied.db")
    assert client("GET", "k") == b"old"


def test_a_store_that_is_made_is_as_private_as_its_backup(rig, maintenance):
    rig.daemon().stop()
    rig.store.chmod(0o600)
    maintenance.do("backup", maintenance.copy)
    maintenance.do("restore", maintenance.copy, store=rig.folder / "other.db")
    assert (rig.folder / "other.db").stat().st_mode & 0o777 == 0o600
