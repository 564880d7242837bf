# SPDX-License-Identifier: Apache-2.0
"""`stockade backup`: the store as it was at one moment, while writes go on."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until
from harness.maintenance import NO_STORES, execute, make_version_1, overwrite, query, value
from harness.programs import read_until
from harness.resp import encode

PAIRS = 4
OPENING = 1000
BACKUPS = 8


@pytest.fixture
def daemon(rig):
    return rig.daemon("--unfenced-writes", "allow")


@pytest.fixture
def copy(rig):
    return rig.folder / "copy.db"


@contextlib.contextmanager
def stalled(rig, maintenance, copy, **options):
    """A backup that stands still between two writes until the block ends."""
    rig.faults.order("write stall .tmp")
    running = maintenance.start_faulty("backup", copy, **options)
    rig.faults.await_hit(20)
    yield running
    rig.faults.clear()


def names(folder):
    return sorted(path.name for path in folder.iterdir() if ".db" in path.name)


class Mover:
    """Moves pieces from one key to another, in transactions, until told to stop."""

    def __init__(self, client, number):
        self.client, self.moved, self.ending = client, 0, threading.Event()
        self.keys = [f"pair:{number}:{side}" for side in "ab"]
        self.tokens = [client.token(key) for key in self.keys]
        for token, key in zip(self.tokens, self.keys):
            client.fenced(token, "SET", key, OPENING)

    def run(self):
        while not self.ending.is_set():
            step = 1 if self.moved < OPENING // 2 else -1
            replies = self.client.pipeline([
                ("MULTI",), ("FENCED", self.tokens[0], "DECRBY", self.keys[0], step, "MIN", 0),
                ("FENCED", self.tokens[1], "INCRBY", self.keys[1], step), ("EXEC",)])
            assert isinstance(replies[-1], list), replies
            self.moved += 1


def fill(daemon, count, size):
    client = daemon.client()
    client.send_bytes(b"".join(encode("SET", f"fill:{i}", "x" * size) for i in range(count)))
    for _ in range(count):
        assert client.read() == "OK"


def backup_under_load(maintenance, movers, file):
    """Taken anew where nothing was written meanwhile: the machine may be busy."""
    def written_meanwhile():
        file.unlink(missing_ok=True)
        before = sum(mover.moved for mover in movers)
        maintenance.do("backup", file)
        return sum(mover.moved for mover in movers) > before

    wait_until(written_meanwhile, "writes go on beside a backup")


def test_each_backup_taken_under_load_is_whole_and_of_one_moment(rig, maintenance, daemon):
    fill(daemon, 3000, 1000)
    movers = [Mover(daemon.client(), i) for i in range(PAIRS)]
    with ThreadPoolExecutor(PAIRS) as threads:
        moving = [threads.submit(mover.run) for mover in movers]
        try:
            for i in range(BACKUPS):
                backup_under_load(maintenance, movers, rig.folder / f"{i}.db")
        finally:
            for mover in movers:
                mover.ending.set()
        for one in moving:
            one.result(patience(HANG_SECONDS))
    for i in range(BACKUPS):
        file = rig.folder / f"{i}.db"
        assert query(file, "PRAGMA integrity_check") == [("ok",)]
        stock = dict(query(file, "SELECT key, value FROM stockade_values WHERE key LIKE 'pair:%'"))
        for mover in movers:
            assert sum(int(stock[key]) for key in mover.keys) == 2 * OPENING, (i, stock)
        assert maintenance.do("check", store=file).startswith("ok: ")


def test_writes_go_on_while_a_backup_is_half_way_and_are_not_in_it(rig, maintenance, client, copy):
    client("SET", "k", "before")
    with stalled(rig, maintenance, copy) as running:
        for i in range(100):
            client("SET", "k", f"meanwhile {i}")
        assert not copy.exists()
    assert running.wait(patience(HANG_SECONDS)) == 0, running.communicate()
    assert value(copy, "k") == "before"
    assert client("GET", "k") == b"meanwhile 99"


def test_a_backup_needs_no_other_file_and_is_as_private_as_the_store(rig, maintenance, client,
                                                                     copy):
    client("SET", "k", "v")
    os.chmod(rig.store, 0o640)
    said = maintenance.do("backup", copy)
    size = copy.stat().st_size
    assert said == f"backup of {rig.store}: {copy}, {size:,} bytes\n"
    assert names(rig.folder) == ["copy.db", "stockade.db", "stockade.db-shm", "stockade.db-wal"]
    assert copy.stat().st_mode & 0o777 == 0o640
    assert query(copy, "PRAGMA journal_mode") == [("delete",)]
    assert value(copy, "k") == "v"


def test_what_was_acknowledged_before_a_kill_is_in_a_backup_taken_after_it(rig, maintenance,
                                                                           daemon, copy):
    daemon.client()("SET", "k", "acknowledged")
    daemon.kill()
    maintenance.do("backup", copy)
    assert value(copy, "k") == "acknowledged"
    daemon = rig.daemon()
    assert daemon.client()("GET", "k") == b"acknowledged"


def test_a_backup_that_is_killed_at_any_write_leaves_no_file_and_the_next_succeeds(
        rig, maintenance, daemon):
    fill(daemon, 300, 1000)
    killed = 0
    for n in (1, 2, 3, 50, 200, 10 ** 6):
        copy = rig.folder / f"copy{n}.db"
        rig.faults.order(f"write kill:{n} .tmp")
        done = maintenance.faulty("backup", copy)
        rig.faults.clear()
        if done.returncode == 0:
            continue
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not copy.exists()
        killed += 1
        maintenance.do("backup", copy)
        assert query(copy, "PRAGMA integrity_check") == [("ok",)]
        assert query(copy, "SELECT count(*) FROM stockade_values") == [(300,)]
    assert killed >= 4
    assert not [name for name in names(rig.folder) if ".tmp" in name]


@pytest.mark.parametrize("order, said", [
    ("write ENOSPC .tmp", "the disk is full"), ("write EIO .tmp", "Input/output error"),
    ("sync EIO .tmp", "cannot finish .*Input/output error")], ids=lambda value: value)
def test_a_disk_that_fails_is_told_and_leaves_the_older_backup_alone(rig, maintenance, order, said,
                                                                     client, copy):
    client("SET", "k", "new")
    copy.write_text("the older backup")
    rig.faults.order(order)
    done = maintenance.faulty("backup", copy, "--force")
    rig.faults.clear()
    assert done.returncode == 1
    assert re.search(said, done.stderr) and len(done.stderr.splitlines()) == 1, done.stderr
    assert copy.read_text() == "the older backup"
    assert not [name for name in names(rig.folder) if ".tmp" in name]
    maintenance.do("backup", copy, "--force")
    assert value(copy, "k") == "new"


def test_a_file_that_is_there_is_replaced_only_when_told_to(maintenance, client, copy):
    client("SET", "k", "v")
    copy.write_text("precious")
    maintenance.refuse("backup", copy, said=f"{copy} is there already; --force replaces it")
    assert copy.read_text() == "precious"
    maintenance.do("backup", copy, "--force")
    assert value(copy, "k") == "v"


@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
def test_the_store_itself_is_never_the_target(rig, maintenance, part):
    rig.daemon()
    link = rig.folder / "link.db"
    os.link(f"{rig.store}{part}", link)
    for path in f"{rig.store}{part}", link:
        maintenance.refuse("backup", path, "--force", said="is the store itself, or a part of it")


@pytest.mark.parametrize("make, said", [
    *NO_STORES, pytest.param(lambda path: path.mkdir(), "Is a directory", id="folder")])
def test_what_is_no_store_is_refused_by_name_and_left_alone(rig, maintenance, make, said, copy):
    if make is not None:
        make(rig.store)
    before = rig.store.read_bytes() if rig.store.is_file() else None
    maintenance.refuse("backup", copy, said=said)
    assert before is None or rig.store.read_bytes() == before
    assert "copy.db" not in names(rig.folder) and "copy.db.tmp" not in names(rig.folder)


@pytest.mark.parametrize("target, said", [
    ("nowhere/copy.db", "cannot write .*nowhere/copy.db.tmp: No such file"),
    (".", "is no ordinary file")])
def test_a_place_where_no_file_can_be_is_refused(rig, maintenance, target, said):
    rig.daemon()
    maintenance.refuse("backup", rig.folder / target, "--force", said=said)


def test_a_damaged_store_gives_no_backup(rig, maintenance, daemon, copy):
    fill(daemon, 300, 1000)
    daemon.stop()
    overwrite(rig.store, "stockade_keys", b"\xff" * 500, 8)
    maintenance.refuse("backup", copy, said=f"{rig.store} is damaged: On tree page")
    assert names(rig.folder)[0] == "stockade.db"



def test_a_row_that_breaks_a_check_of_the_users_own_hinders_no_backup(rig, maintenance, copy):
    rig.daemon()
    execute(rig.store, "CREATE TABLE theirs(x CHECK(x > 0)); PRAGMA ignore_check_constraints = ON;"
                       "INSERT INTO theirs VALUES(-1)")
    maintenance.do("backup", copy)
    assert query(copy, "SELECT x FROM theirs") == [(-1,)]


def test_two_backups_do_not_write_the_same_file(rig, maintenance, client, copy):
    client("SET", "k", "v")
    with stalled(rig, maintenance, copy) as running:
        maintenance.refuse("backup", copy, said="another backup or restore is writing")
    assert running.wait(patience(HANG_SECONDS)) == 0, running.communicate()
    assert value(copy, "k") == "v"


def test_a_signal_ends_it_and_leaves_nothing(rig, maintenance, daemon, copy):
    fill(daemon, 6000, 1000)  # more than one step of pages
    with stalled(rig, maintenance, copy) as running:
        running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == -signal.SIGINT, stderr
    assert "interrupted" in stderr
    assert names(rig.folder) == ["stockade.db", "stockade.db-shm", "stockade.db-wal"]


def test_on_a_terminal_it_shows_how_far_it_is(rig, maintenance, daemon, copy):
    fill(daemon, 6000, 1000)  # more than one step of pages
    ours, theirs = pty.openpty()
    with stalled(rig, maintenance, copy, stdout=theirs, stderr=subprocess.STDOUT) as running:
        os.close(theirs)
    assert running.wait(patience(HANG_SECONDS)) == 0
    text = read_until(ours)
    os.close(ours)
    assert re.search(r"copying \[#+\.+\]  \d\d %", text), text
    assert text.rstrip().endswith("bytes")


def test_the_store_is_chosen_as_the_daemon_chooses_it(rig, maintenance, client):
    client("SET", "k", "v")
    maintenance.env["STOCKADE_STORE"] = f"sqlite:{rig.store}"
    assert maintenance.run("backup", rig.folder / "a.db").returncode == 0
    del maintenance.env["STOCKADE_STORE"]
    assert maintenance.run("backup", rig.folder / "b.db", cwd=rig.folder).returncode == 0
    assert value(rig.folder / "a.db", "k") == value(rig.folder / "b.db", "k") == "v"


def test_a_store_of_the_first_version_can_be_backed_up(rig, maintenance, copy):
    make_version_1(rig.store)
    maintenance.do("backup", copy)
    assert query(copy, "PRAGMA user_version") == [(1,)]
