# SPDX-License-Identifier: Apache-2.0
"""A store in a file of which there are copies: copied by hand, put back, on a disk that is an older
one after a reboot. Whichever of them is served, and in whatever order: no token is given out twice
(P2), and no holder of a token that a copy cannot vouch for writes (P1)."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time

import pytest

from harness.maintenance import execute, floor_said, query
from harness.resp import ReplyError
from harness.rig import restart
from harness.shop import program

TTL_MS = 500  # what ended in a copy is free at a lease service when that is over
LONG_MS = 60000


def stale(client, token, resource="stock"):
    reply = client.ask("FENCED", token, "SET", resource, "stale")
    assert isinstance(reply, ReplyError) and reply.code in ("STALE", "UNKNOWN"), reply


def microseconds():
    return int(time.time() * 1000000)


class Served:
    """One file after another, and the tokens of one resource that were granted in any of them."""

    def __init__(self, rig, lease="local:"):
        self.rig, self.lease = rig, lease
        self.tokens = []
        self.daemon = None

    def start(self, path, **options):
        if self.daemon:
            self.stop()
        self.daemon = self.rig.daemon(store=f"sqlite:{path}", lease=self.lease, **options)
        return self.daemon.client()

    def stop(self):
        self.rig.processes.remove(self.daemon)
        self.daemon.close_clients()
        self.daemon.stop()
        self.daemon = None

    def expect_no_news(self):
        assert "tokens go on" not in self.daemon.stderr()

    def refuse_all(self, client):
        for token in self.tokens:
            stale(client, token)

    def grant(self, client, ttl_ms=TTL_MS):
        """A larger token than all before it, by whichever daemon."""
        token = client.token("stock", ttl_ms, "WAIT", 10000, "OWNER", f"o{len(self.tokens)}")
        assert not self.tokens or token > max(self.tokens), (token, self.tokens)
        self.tokens.append(token)
        assert client.fenced(token, "SET", "stock", "1") == "OK"
        return token


@pytest.fixture
def served(rig, lease):
    return Served(rig, lease)


def release(client, token):
    assert client("RELEASE", "stock", token) == 0


def test_one_copy_that_is_served_twice_gives_no_token_out_twice(rig, served):
    """Stopped and put back by hand, twice, as `rm` and `cp` do it: the new file may well have the
    old one's number."""
    copy = rig.folder / "copy"
    client = served.start(rig.store)
    release(client, served.grant(client))
    served.grant(client)  # it is live in the copy
    served.stop()
    shutil.copy(rig.store, copy)
    client = served.start(rig.store)
    release(client, served.tokens[-1])
    release(client, served.grant(client))
    for _ in range(2):
        served.stop()
        for path in rig.folder.glob("stockade.db*"):
            path.unlink()
        shutil.copy(copy, rig.store)
        client = served.start(rig.store)
        assert "this file is a copy" in served.daemon.stderr()
        assert client("LEASES") == []
        served.refuse_all(client)
        release(client, served.grant(client))


def test_copies_that_are_served_at_once_give_no_token_out_twice(rig):
    served = Served(rig)
    client = served.start(rig.store)
    served.grant(client)
    for copy in (rig.folder / f"copy-{number}.db" for number in range(2)):
        shutil.copy(rig.store, copy)
        other = rig.daemon(store=f"sqlite:{copy}", lease="local:").client()
        served.refuse_all(other)
        served.grant(other)
    assert client.fenced(served.tokens[0], "SET", "stock", "1") == "OK", "its own lease goes on"


def test_a_file_whose_number_is_given_to_the_copy_is_told_from_it(rig):
    """On a disk a number is free for the next file at once."""
    folder = tempfile.mkdtemp(dir=os.environ.get("STOCKADE_TEST_DISK", "/var/tmp"))
    store = os.path.join(folder, "stockade.db")
    try:
        served = Served(rig)
        client = served.start(store)
        served.grant(client)
        served.stop()
        number = os.stat(store).st_ino
        with open(store, "rb") as file:
            contents = file.read()
        for _ in range(2):
            os.unlink(store)
            with open(store, "wb") as file:
                file.write(contents)
            same = os.stat(store).st_ino == number
            client = served.start(store)
            if same:
                served.refuse_all(client)
                served.grant(client)
            served.stop()
    finally:
        shutil.rmtree(folder)


def test_a_snapshot_of_a_file_system_is_a_copy(rig):
    """Its files have the numbers and the births of those that it was made of, and another file
    system's id. After a reboot that may be the same disk under another name."""
    served = Served(rig)
    client = served.start(rig.store, env=rig.booted("first"))
    served.grant(client)
    served.stop()
    note, = query(rig.store, "SELECT value FROM stockade_meta WHERE key = 'log'")[0]
    file, system, rest = note.split(" ", 2)
    assert int(system) != 0
    elsewhere = f"UPDATE stockade_meta SET value = '{file} {int(system) ^ 1} {rest}'" \
                " WHERE key = 'log'"
    execute(rig.store, elsewhere)
    client = served.start(rig.store, env=rig.booted("first"))
    assert "this file is a copy" in served.daemon.stderr()
    served.refuse_all(client)
    token = served.grant(client)
    served.stop()
    execute(rig.store, elsewhere)
    client = served.start(rig.store, env=rig.booted("second"))
    assert client.fenced(token, "SET", "stock", "1") == "OK"


def test_a_backup_that_is_served_without_a_restore_is_a_copy(rig, maintenance):
    served = Served(rig)
    client = served.start(rig.store)
    served.grant(client)
    maintenance.do("backup", maintenance.copy)
    release(client, served.tokens[0])
    served.grant(client)
    for _ in range(2):
        served.stop()
        for path in rig.folder.glob("stockade.db*"):
            path.unlink()
        shutil.copy(maintenance.copy, rig.store)
        client = served.start(rig.store)
        served.refuse_all(client)
        served.grant(client)


def test_a_disk_that_is_put_back_and_booted_gives_no_token_out_twice(rig, served):
    """Everything of the file is as it was, its number, too; but the machine was started anew."""
    client = served.start(rig.store, env=rig.booted("first"))
    released = served.grant(client)
    release(client, released)
    served.stop()
    before = rig.store.read_bytes()
    client = served.start(rig.store, env=rig.booted("first"))
    assert served.grant(client) == released + 1
    release(client, served.tokens[-1])
    for boot in ("second", "third"):
        served.stop()
        rig.store.write_bytes(before)
        client = served.start(rig.store, env=rig.booted(boot))
        assert "machine was started anew" in served.daemon.stderr()
        served.refuse_all(client)
        assert served.grant(client) > microseconds() - 3600 * 1000000
        release(client, served.tokens[-1])


def test_a_reboot_keeps_live_leases_and_a_second_daemon_sees_none(rig):
    served = Served(rig)
    client = served.start(rig.store, env=rig.booted("first"))
    token = served.grant(client, LONG_MS)
    client = served.start(rig.store, env=rig.booted("second"))
    assert client.fenced(token, "SET", "stock", "1") == "OK"
    assert client.acquire("stock") is None
    client.renew("stock", token, LONG_MS)
    second = rig.daemon(store=f"sqlite:{rig.store}", env=rig.booted("second"))
    assert "tokens go on" not in second.stderr()
    assert second.client().fenced(token, "SET", "stock", "1") == "OK"
    release(client, token)
    stale(client, token)
    served.grant(client)


def test_an_ordinary_restart_changes_nothing(rig):
    served = Served(rig)
    client = served.start(rig.store, env=rig.booted("first"))
    token = served.grant(client)
    client = served.start(rig.store, env=rig.booted("first"))
    served.expect_no_news()
    assert client.fenced(token, "SET", "stock", "1") == "OK"
    release(client, token)
    assert served.grant(client) == token + 1


def test_a_file_that_was_renamed_is_the_same_one(rig):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client)
    served.stop()
    other = rig.folder / "other.db"
    rig.store.rename(other)
    client = served.start(other)
    served.expect_no_news()
    assert client.fenced(token, "SET", "stock", "1") == "OK"
    release(client, token)
    assert served.grant(client) == token + 1


def test_a_restore_is_no_copy_beneath_a_daemon_or_at_its_next_start(rig, maintenance):
    served = Served(rig)
    client = served.start(rig.store)
    served.grant(client)
    maintenance.do("backup", maintenance.copy)
    floor = floor_said(maintenance.do("restore", maintenance.copy))
    token = served.grant(client)
    assert floor < token
    client = served.start(rig.store)
    served.expect_no_news()
    assert client.fenced(token, "SET", "stock", "1") == "OK"


def test_what_an_operator_does_after_a_disk_was_put_back_ends_all_leases(rig, maintenance):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client)
    maintenance.do("backup", maintenance.copy)
    maintenance.do("restore", maintenance.copy)
    stale(client, token)


def test_a_store_of_an_earlier_version_goes_on_with_its_leases(rig):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client)
    served.stop()
    execute(rig.store, "DELETE FROM stockade_meta WHERE key = 'log'")
    client = served.start(rig.store)
    assert "an earlier version" in served.daemon.stderr()
    assert client.fenced(token, "SET", "stock", "1") == "OK"
    release(client, token)
    assert served.grant(client) > microseconds() - 3600 * 1000000


def test_two_daemons_that_open_a_copy_at_once_begin_anew_once(rig):
    served = Served(rig)
    client = served.start(rig.store)
    served.grant(client)
    served.stop()
    copy = rig.folder / "copy.db"
    shutil.copy(rig.store, copy)
    daemons = [rig.start(store=f"sqlite:{copy}") for _ in range(3)]
    for daemon in daemons:
        daemon.await_ready()
    assert sum("this file is a copy" in daemon.stderr() for daemon in daemons) == 1
    for daemon in daemons:
        served.refuse_all(daemon.client())
    served.grant(daemons[1].client())


def put(source, target):
    """As `.restore` of a sqlite3 shell does it."""
    with contextlib.closing(sqlite3.connect(source)) as older, contextlib.closing(
            sqlite3.connect(target, timeout=10)) as file:
        older.backup(file)


def test_older_contents_put_beneath_a_daemon_give_no_token_out_twice(rig):
    served = Served(rig)
    client = served.start(rig.store)
    served.grant(client)  # it is live in the copy
    copy = rig.folder / "copy.db"
    put(rig.store, copy)
    release(client, served.tokens[0])
    for _ in range(2):
        put(copy, rig.store)
        served.refuse_all(client)
        assert client("LEASES") == []
        released = served.grant(client)
        release(client, released)
    assert served.daemon.stderr().count("put older contents into this file") == 2
    client.fenced(served.grant(client), "SET", "stock", "1")


@pytest.mark.parametrize("after", ["RENEW", "enter again"])
def test_what_changes_no_token_does_not_hide_that_older_contents_lack_one(rig, after):
    served = Served(rig)
    client = served.start(rig.store)
    kept = client.token("kept", LONG_MS, "OWNER", "me")
    first = served.grant(client)
    copy = rig.folder / "copy.db"
    put(rig.store, copy)
    release(client, first)
    served.grant(client)
    if after == "RENEW":
        assert client("RENEW", "kept", kept, LONG_MS) > 0
    else:
        assert client.token("kept", LONG_MS, "OWNER", "me") == kept
    put(copy, rig.store)
    served.refuse_all(client)
    assert "put older contents into this file" in served.daemon.stderr()


def test_what_another_daemon_writes_is_not_taken_for_older_contents(rig):
    daemons = [rig.daemon() for _ in range(2)]
    clients = [daemon.client() for daemon in daemons]
    for number in range(20):
        one, other = clients[number % 2], clients[1 - number % 2]
        token = one.token("r", LONG_MS, "OWNER", "me")
        assert other.fenced(token, "SET", "r", "1") == "OK"
        ends = ("REVOKE", "r") if number % 3 else ("RELEASE", "r", token)
        assert other(*ends) in (0, token)
        one.token(f"s:{number}", LONG_MS)
    for daemon in daemons:
        assert "older contents" not in daemon.stderr()


def test_what_was_presented_for_a_file_counts_for_nothing_in_its_copy(rig):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client)
    served.stop()
    copy = rig.folder / "copy.db"
    shutil.copy(rig.store, copy)
    with program(copy) as file:
        file.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="is a copy"):
            file.execute("SELECT stockade_present('stock', ?)", (token,))
        file.execute("ROLLBACK")
        mark = "SELECT value FROM stockade_meta WHERE key = 'file'"
        client = served.start(copy)
        assert query(copy, mark) != query(rig.store, mark)
        token = served.grant(client)
        file.execute("BEGIN IMMEDIATE")
        file.execute("SELECT stockade_present('stock', ?)", (token,))


@pytest.mark.slow
def test_a_copy_with_200000_live_leases_is_served_within_seconds(rig):
    served = Served(rig)
    served.start(rig.store)
    served.stop()
    execute(rig.store, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                       " WHERE i < 200000) INSERT INTO stockade_resource(name, token, state,"
                       " holds, ttl_ms, session, owner) SELECT CAST('r' || i AS BLOB), i, 1, 1,"
                       " 3600000, 1, x'6f' FROM n")
    copy = rig.folder / "copy.db"
    shutil.copy(rig.store, copy)
    begun = time.monotonic()
    client = served.start(copy)
    print(f"{time.monotonic() - begun:.2f} s")
    assert "have ended (200000)" in served.daemon.stderr()
    assert client("LEASES") == []
    restart(rig, served.daemon, store=f"sqlite:{copy}")


def test_a_copy_that_nobody_has_served_does_not_move_to_another_store(rig, maintenance):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client)
    served.stop()
    copy, new = rig.folder / "copy.db", rig.folder / "new.db"
    shutil.copy(rig.store, copy)
    words = ["move", "--from", f"sqlite:{copy}", "--to", f"sqlite:{new}"]
    done = maintenance.run(*words)
    assert done.returncode != 0 and "is a copy" in done.stderr, done
    served.start(copy)
    served.stop()
    done = maintenance.run(*words)
    assert done.returncode == 0, done
    client = served.start(new)
    served.expect_no_news()
    stale(client, token)
    served.grant(client)


def test_a_store_that_was_made_and_not_used_is_new_to_the_next_daemon(rig):
    """Also where another one has counted itself first, or has died before it noted anything."""
    served = Served(rig)
    served.start(rig.store)
    served.stop()
    execute(rig.store, "DELETE FROM stockade_meta WHERE key = 'log'")
    client = served.start(rig.store)
    assert served.grant(client) == 1
    served.expect_no_news()


def test_a_note_that_says_no_file_ends_no_leases(rig):
    served = Served(rig)
    client = served.start(rig.store)
    token = served.grant(client, LONG_MS)
    served.stop()
    execute(rig.store, "UPDATE stockade_meta SET value = '12 13 /nowhere-wal' WHERE key = 'log'")
    client = served.start(rig.store)
    assert "an earlier version" in served.daemon.stderr()
    assert client.fenced(token, "SET", "stock", "1") == "OK"
