# SPDX-License-Identifier: Apache-2.0
"""Looking after a store in PostgreSQL: check, backup, restore, and the move to another store."""

import json
import re
import signal
import threading
import time

import pytest

from harness.limits import patience, wait_until
from harness.maintenance import Maintenance, cycle, execute, floor_said, query, value
from harness.postgres import ask
from harness.replicated import Replicated
from harness.resp import ReplyError

pytestmark = pytest.mark.xdist_group("postgresql")

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


def test_a_whole_store_is_found_whole(rig, ops, uri):
    furnish(rig.daemon(store=uri).client())
    said = ops.do("check", store=uri).splitlines()
    assert said[-1] == "ok: 5 resources, 4 values, 3 receipts, 0 guards"
    assert all(line.startswith("warning: ") for line in said[:-1]), said


def test_a_move_carries_everything_to_a_database_and_back(rig, ops, uri):
    daemon = rig.daemon(store=f"sqlite:{rig.store}")
    tokens = furnish(daemon.client())
    daemon.stop()
    said = ops.moved(f"sqlite:{rig.store}", uri)
    assert "5 resources" in said
    daemon = rig.daemon(store=uri)
    expect_furnished(daemon.client(), tokens)
    daemon.stop()
    third = f"sqlite:{rig.folder}/third.db"
    ops.moved(uri, third)
    daemon = rig.daemon(store=third)
    expect_furnished(daemon.client(), tokens)
    assert ops.do("check", store=third).startswith("ok: 5 resources")


def test_backup_and_restore(rig, ops, uri):
    client = rig.daemon(store=uri).client()
    tokens = furnish(client)
    ops.do("backup", ops.copy, store=uri)
    assert ops.do("check", store=f"sqlite:{ops.copy}").startswith("ok: 5 resources")
    client.fenced(tokens["live"], "SET", "live", "new")
    later = client.token("later", 400)
    said = ops.do("restore", ops.copy, store=uri)
    assert "leases ended: 3;" in said
    assert client("GET", "live") == b"text"
    client.refused("STALE", "FENCED", tokens["live"], "SET", "live", "stale")
    assert client.token("later", 1000, "WAIT", 10000) > max(floor_said(said), later)
    assert ops.do("check", store=uri).splitlines()[-1].startswith("ok: ")
