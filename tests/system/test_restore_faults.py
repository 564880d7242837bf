# SPDX-License-Identifier: Apache-2.0
"""`stockade restore` where something is in its way: the store is as it was, or restored."""

import contextlib
import signal
import subprocess

import pytest

from harness.limits import HANG_SECONDS, patience
from harness.maintenance import (cycle, execute, floor_said, make_newer, make_version_1, query,
                                 value)


def test_a_restore_that_is_killed_at_any_write_leaves_the_old_state_or_the_new(rig, maintenance):
    daemon = rig.daemon("--unfenced-writes", "allow")
    client = daemon.client()
    token = cycle(client, "r")
    client("MSET", *(word for i in range(40) for word in (f"k{i}", "old" + "x" * 900)))
    maintenance.do("backup", maintenance.copy)
    client("MSET", *(word for i in range(40) for word in (f"k{i}", "new" + "x" * 900)))
    killed = restored = 0
    for part in "restore", "stockade.db-wal":
        for n in (1, 2, 5, 20, 60, 100, 140, 200, 300):
            rig.faults.order(f"write kill:{n} {part}")
            done = maintenance.faulty("restore", maintenance.copy)
            rig.faults.clear()
            killed += done.returncode == -signal.SIGKILL
            restored += done.returncode == 0
            values = {reply[:3] for reply in client("MGET", *(f"k{i}" for i in range(40)))}
            assert values == ({b"old"} if done.returncode == 0 else {b"new"}), (part, n, values)
            client("MSET", *(word for i in range(40) for word in (f"k{i}", "new" + "x" * 900)))
            token, previous = cycle(client, "r"), token
            assert token > previous
    assert killed > 5 and restored > 1
    assert maintenance.do("check").startswith("ok: ")
    maintenance.do("restore", maintenance.copy)
    assert sorted(path.name for path in rig.folder.glob("*.db*")) == [
        "backup.db", "stockade.db", "stockade.db-shm", "stockade.db-wal"]


@pytest.mark.parametrize("order", [
    "write ENOSPC restore", "write ENOSPC stockade.db-wal", "write EIO stockade.db-wal",
    "sync EIO stockade.db-wal"])
def test_a_disk_that_fails_is_told_and_leaves_the_store_alone(rig, maintenance, order):
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    client("SET", "k", "new")
    rig.faults.order(order)
    done = maintenance.faulty("restore", maintenance.copy)
    rig.faults.clear()
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert ("the disk is full" if "ENOSPC" in order else "Input/output error") in done.stderr
    assert client("GET", "k") == b"new"
    client("SET", "k", "newer")
    assert not (rig.folder / "stockade.db.restore").exists()
    assert maintenance.do("check").startswith("ok: ")


def test_a_failed_restore_where_there_was_no_store_leaves_none(rig, maintenance):
    rig.daemon("--unfenced-writes", "allow").client()("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    rig.faults.order("write ENOSPC other.db")
    done = maintenance.faulty("restore", maintenance.copy, store=rig.folder / "other.db")
    assert done.returncode == 1 and "the disk is full" in done.stderr
    assert list(rig.folder.glob("other.db*")) == []
    rig.faults.clear()
    said = maintenance.do("restore", maintenance.copy, store=rig.folder / "other.db")
    assert value(rig.folder / "other.db", "k") == "old"
    assert f"restored {rig.folder}/other.db from" in said
    client = rig.daemon(store=f"sqlite:{rig.folder}/other.db").client()
    assert cycle(client, "r") > floor_said(said)


def test_a_log_that_a_lost_store_left_behind_does_not_come_back(rig, maintenance):
    daemon = rig.daemon("--unfenced-writes", "allow")
    daemon.client()("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    daemon.client()("SET", "k", "new")
    daemon.kill()
    rig.store.unlink()
    assert (rig.folder / "stockade.db-wal").stat().st_size > 0
    maintenance.do("restore", maintenance.copy)
    assert value(rig.store, "k") == "old"
    assert maintenance.do("check").startswith("ok: ")


def make_text(path):
    path.write_text("hello " * 1000)


def make_foreign(path):
    execute(path, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)")


def make_broken(path):
    """Not even its schema can be read."""
    make_version_1(path)
    execute(path, "PRAGMA journal_mode = DELETE")
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 200)


def make_damaged(path):
    make_version_1(path)
    execute(path, "PRAGMA journal_mode = DELETE")
    root, = query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'stockade_resource'")[0]
    with open(path, "r+b") as file:
        file.seek((root - 1) * 1024 + 8)
        file.write(b"\xff" * 500)


@pytest.mark.parametrize("make, said", [
    (None, "cannot read .*backup.db: No such file"), (make_text, "is not a database"),
    (make_foreign, "is another program's database"), (make_newer, "schema version 99, newer than"),
    (make_damaged, "backup.db is damaged: "), (lambda path: path.write_bytes(b""), "is empty"),
], ids=["none", "text", "foreign", "newer", "damaged", "empty"])
def test_what_is_no_backup_is_refused_by_name_and_the_store_left_alone(rig, maintenance, make,
                                                                       said):
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "v")
    if make is not None:
        make(maintenance.copy)
    maintenance.refuse("restore", maintenance.copy, said=said)
    assert client("GET", "k") == b"v"
    assert not (rig.folder / "stockade.db.restore").exists()


@pytest.mark.parametrize("make, said", [
    (make_text, "is not a database; it was left alone"),
    (make_foreign, "is another program's database; it was left alone"),
    (make_newer, "run the newer stockaded"),
    (make_broken, "stockade.db is damaged: ")],
    ids=["text", "foreign", "newer", "broken"])
def test_what_is_no_store_is_not_restored_over(rig, maintenance, make, said):
    make_version_1(maintenance.copy)
    execute(maintenance.copy, "DELETE FROM stockade_resource WHERE id = 3")
    make(rig.store)
    before = rig.store.read_bytes()
    maintenance.refuse("restore", maintenance.copy, said=said)
    assert rig.store.read_bytes() == before


@pytest.mark.parametrize("part", ["", "-wal"])
def test_the_store_is_no_backup_of_itself(rig, maintenance, part):
    rig.daemon()
    maintenance.refuse("restore", f"{rig.store}{part}", said="is the store itself, or a part of it")


def test_a_signal_before_it_is_in_place_leaves_the_store_alone(rig, maintenance):
    client = rig.daemon("--unfenced-writes", "allow").client()
    for i in range(60):
        client("SET", f"fill:{i}", "x" * 100000)  # more than one step of pages
    client("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    client("SET", "k", "new")
    rig.faults.order("write stall restore")
    running = maintenance.start_faulty("restore", maintenance.copy, stderr=subprocess.PIPE)
    rig.faults.await_hit(20)
    running.send_signal(signal.SIGTERM)
    rig.faults.clear()
    _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == -signal.SIGTERM and "nothing was changed" in stderr
    assert client("GET", "k") == b"new"
    assert not (rig.folder / "stockade.db.restore").exists()


@contextlib.contextmanager
def restore_behind_a_writer(rig, maintenance):
    """A restore that waits for another program's transaction, which ends with the block."""
    rig.faults.order("write stall restore")
    running = maintenance.start_faulty("restore", maintenance.copy, stderr=subprocess.PIPE)
    rig.faults.await_hit(20)
    with rig.store_locked():
        rig.faults.clear()
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.5)
        yield running


def test_a_writer_in_the_way_is_waited_for(rig, maintenance):
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    with restore_behind_a_writer(rig, maintenance) as running:
        pass
    assert running.wait(patience(HANG_SECONDS)) == 0, running.communicate()
    assert client("GET", "k") == b"old"


def test_a_signal_ends_the_wait_for_a_writer(rig, maintenance):
    client = rig.daemon("--unfenced-writes", "allow").client()
    client("SET", "k", "old")
    maintenance.do("backup", maintenance.copy)
    client("SET", "k", "new")
    with restore_behind_a_writer(rig, maintenance) as running:
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
        assert running.returncode == -signal.SIGINT and "nothing was changed" in stderr
    assert client("GET", "k") == b"new"
