# SPDX-License-Identifier: Apache-2.0
"""P4 Durable: what was acknowledged (write, grant, release) survives kill -9 and a failing disk."""

import contextlib
import random
import signal
import time

import pytest

from harness.limits import patience, wait_until
from harness.maintenance import query
from harness.resp import Client, Closed, ReplyError
from harness.rig import restart
from harness.threads import Beside

ROUNDS = 20
WORKERS = 4
BATCH = 8


class Worker:
    """Acquires, writes in a pipeline and releases one resource; notes what was acknowledged."""

    def __init__(self, number):
        self.key = f"load:{number}"
        self.sent = self.acked = self.acked_before = 0
        self.granted = self.released = 0

    def run(self, address):
        """Go on until the daemon is gone."""
        with contextlib.suppress(OSError):
            client = Client(address)
            client("REVOKE", self.key)
            while True:
                self.cycle(client)

    def cycle(self, client):
        token = client.token(self.key, 60000, "OWNER", self.key)
        if token <= self.granted:
            raise AssertionError(f"token {token} after {self.granted}")
        self.granted = token
        for _ in range(random.randint(1, 3)):
            base = self.sent
            self.sent += BATCH
            numbers = range(base + 1, base + BATCH + 1)
            client.send_all([("FENCED", token, "HSET", self.key, f"f{i}", i, "last", i)
                             for i in numbers])
            for i in numbers:
                reply = client.read()
                if isinstance(reply, ReplyError):
                    raise reply
                self.acked = i
        if client("RELEASE", self.key, token) == 0:
            self.released = token

    def check(self, client):
        """Check after the restart that all that was acknowledged is there."""
        lease = client.lease(self.key)
        if self.granted:
            assert lease["token"] >= self.granted, (lease, self.granted)
        values = client("HGETALL", self.key)
        fields = dict(zip(values[::2], values[1::2]))
        for i in range(1, self.acked + 1):
            assert fields.get(b"f%d" % i) == b"%d" % i, f"acknowledged write {i} is lost"
        last = int(fields.get(b"last", 0))
        assert self.acked <= last <= self.sent
        assert len(fields) == last + (last > 0), "writes apply whole and in order"
        if self.released:
            client.refused("STALE", "FENCED", self.released, "SET", self.key, "poison")
        retired = client("REVOKE", self.key)
        fresh = client.token(self.key, 60000, "OWNER", self.key)
        if self.granted:
            assert retired >= self.granted and fresh > retired
            client.refused("STALE", "FENCED", self.granted, "SET", self.key, "poison")
        self.granted = fresh
        self.sent = self.acked = self.acked_before = last
        client("RELEASE", self.key, fresh)


def test_kill_9_under_load_loses_nothing_acknowledged_20_times_over(rig, lease):
    daemon = rig.daemon(lease=lease)
    workers = [Worker(number) for number in range(WORKERS)]
    acknowledged = 0
    for _ in range(ROUNDS):
        running = [Beside(worker.run, daemon.address) for worker in workers]
        wait_until(lambda: all(worker.acked > worker.acked_before for worker in workers),
                   "writes flow")
        time.sleep(random.uniform(0.0, 0.06))  # the kill comes at any moment
        daemon.kill()
        for thread in running:
            thread.end()
        acknowledged += sum(worker.acked - worker.acked_before for worker in workers)
        daemon = rig.daemon(lease=lease)
        client = daemon.client()
        for worker in workers:
            worker.check(client)
        client.close()
    assert acknowledged >= ROUNDS * WORKERS * BATCH
    daemon.stop()
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]


def test_an_acknowledged_release_and_a_held_lease_survive_kill_9(rig, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token, held = client.token("r"), client.token("held")
    client.fenced(held, "SET", "held", 1)
    assert client("RELEASE", "r", token) == 0
    client = restart(rig, daemon, signal.SIGKILL, lease=lease).client()
    client.refused("STALE", "FENCED", token, "SET", "r", "x")
    assert client.token("r") > token
    assert client.fenced(held, "INCR", "held") == 2
    assert client.acquire("held") is None, "the lease is still held"


def test_an_fsync_that_fails_drops_connections_without_a_reply_and_ends_the_daemon(rig, lease):
    daemon = rig.faulty_daemon(lease=lease)
    client, reader = daemon.client(), daemon.client()
    token = client.token("r")
    client.fenced(token, "SET", "r", "acknowledged")
    rig.faults.order("sync EIO")
    client.send("FENCED", token, "SET", "r", "unknown outcome")
    with pytest.raises(Closed):
        reply = client.read()
        pytest.fail(f"replied {reply!r} though its fsync failed")
    assert reader.is_closed()
    status = daemon.wait()
    daemon.killed = True
    assert status > 0, "exits by itself, with a failure"
    assert daemon.stderr().strip(), "says why"
    rig.faults.clear()
    client = rig.daemon(lease=lease).client()
    assert client("GET", "r") in (b"acknowledged", b"unknown outcome")
    assert client.fenced(token, "SET", "r", "after") == "OK"
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]


def test_a_grant_whose_fsync_failed_is_never_acknowledged_and_tokens_rise_after(rig, lease):
    daemon = rig.faulty_daemon(lease=lease)
    client = daemon.client()
    first = client.token("r")
    client("RELEASE", "r", first)
    rig.faults.order("sync EIO")
    client.send("ACQUIRE", "r", 60000, "OWNER", "me")
    assert client.is_closed()
    assert daemon.wait() > 0
    daemon.killed = True
    rig.faults.clear()
    client = rig.daemon(lease=lease).client()
    assert client.token("r", 60000, "OWNER", "me", "WAIT", 3000) > first


def test_no_room_on_the_disk_is_store_and_afterwards_all_goes_on(rig, lease):
    daemon = rig.faulty_daemon(lease=lease)
    client = daemon.client()
    token, other = client.token("r"), client.token("other")
    client.fenced(token, "SET", "r", 41)
    rig.faults.order("write ENOSPC")
    for _ in range(3):
        client.refused("STORE", "FENCED", token, "INCR", "r")
        client.refused("STORE", "FENCED", other, "HSET", "other", "f", "v")
        client.refused("STORE", "ACQUIRE", "fresh", 60000)
        client.refused("STORE", "REVOKE", "other")
        assert client("GET", "r") == b"41"
        assert client("EXISTS", "other") == 0
    rig.faults.clear()
    assert client.fenced(token, "INCR", "r") == 42
    assert client.fenced(other, "HSET", "other", "f", "v") == 1
    fresh = client.token("fresh", 60000, "WAIT", 3000)
    assert client.fenced(fresh, "SET", "fresh", "x") == "OK"
    rig.faults.clear()
    client = restart(rig, daemon, signal.SIGKILL, lease=lease).client()
    assert client("GET", "r") == b"42" and client("HGET", "other", "f") == b"v"
    assert client.lease("fresh")["token"] == fresh


def test_of_a_burst_that_meets_a_full_disk_exactly_the_acknowledged_writes_are_there(rig):
    daemon = rig.faulty_daemon()
    client = daemon.client()
    token = client.token("r")
    writes = [("FENCED", token, "HSET", "r", f"f{i}", i) for i in range(3000)]
    client.send_all(writes[:1500])
    rig.faults.order("write ENOSPC")
    sender = Beside(client.send_all, writes[1500:])
    replies = [client.read() for _ in range(2000)]
    rig.faults.clear()
    replies += [client.read() for _ in range(1000)]
    sender.end()
    assert {reply.code for reply in replies if isinstance(reply, ReplyError)} == {"STORE"}
    acked = [i for i, reply in enumerate(replies) if reply == 1]
    client = restart(rig, daemon, signal.SIGKILL).client()
    fields = client("HKEYS", "r")
    assert sorted(int(field[1:]) for field in fields) == acked


def write_that_stalls(rig, value):
    """Return a client whose write over "old" waits for the disk, and one that reads."""
    daemon = rig.faulty_daemon()
    writer, reader = daemon.client(), daemon.client()
    token = writer.token("r")
    writer.fenced(token, "SET", "r", "old")
    rig.faults.order("sync stall")
    writer.send("FENCED", token, "SET", "r", value)
    rig.faults.await_hit()
    return writer, reader


def test_a_write_that_was_not_yet_synced_is_not_acknowledged_nor_read(rig):
    new = b"new" * 2000  # so long that it is committed while the event loop goes on
    writer, reader = write_that_stalls(rig, new)
    assert reader("GET", "r") == b"old"
    with pytest.raises(TimeoutError):
        writer.reader.read(0.15 / patience(1))
    rig.faults.clear()
    assert writer.read() == "OK"
    assert reader("GET", "r") == new


def test_a_brief_write_that_was_not_yet_synced_is_not_acknowledged_nor_read(rig):
    writer, reader = write_that_stalls(rig, "new")
    reader.send("GET", "r")
    with pytest.raises(TimeoutError):
        writer.reader.read(0.15 / patience(1))
    try:
        seen = reader.reader.read(0.05)
    except TimeoutError:  # the event loop itself waits for the disk
        seen = None
    assert seen in (None, b"old")
    rig.faults.clear()
    assert writer.read() == "OK"
    assert seen is not None or reader.read() in (b"old", b"new")
    assert reader("GET", "r") == b"new"
