# SPDX-License-Identifier: Apache-2.0
"""P1 Fenced, P4 Durable: a store has one name, for SQLite finds the log of a file by its name. Two
names would be two logs: what was acknowledged under one of them is unknown under the other."""

import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from harness.limits import wait_until
from harness.maintenance import query
from harness.rig import refusal
from harness.shop import program


@pytest.fixture
def other(rig):
    return rig.folder / "other.db"


def acknowledged(rig):
    """Return (daemon, client, token) after a grant that was acknowledged."""
    daemon = rig.daemon()
    client = daemon.client()
    return daemon, client, client.token("r", 60000, "OWNER", "me")


def crashed(rig):
    """Leave a store whose newest grant is in the log only. Return its token."""
    daemon, _, token = acknowledged(rig)
    daemon.kill()
    return token


def expect_granted(client, token):
    assert client.lease("r")["token"] == token


def hard_link(rig, other):
    os.link(rig.store, other)


def rename(rig, other):
    rig.store.rename(other)


def swap(rig, other):
    """Rename it, and put another file in its place."""
    rig.store.rename(other)
    shutil.copy(other, rig.store)


# How a file comes to a second name, and whether the log can still be told from the file alone.
WAYS = [hard_link, rename, swap]


@pytest.mark.parametrize("way", WAYS)
def test_nobody_opens_a_store_by_another_name_while_a_daemon_is_at_work(rig, other, way):
    daemon, client, token = acknowledged(rig)
    daemon.freeze()  # so that it does not notice before the other one has begun
    way(rig, other)
    line = refusal(rig, store=f"sqlite:{other}")
    assert str(other) in line and ("has 2 names" in line or f"{rig.store}-wal" in line)
    daemon.thaw()
    other.rename(rig.store) if way is not hard_link else other.unlink()
    expect_granted(client, token)
    assert client.fenced(token, "SET", "r", "goes on") == "OK"


@pytest.mark.parametrize("way", WAYS)
def test_nobody_opens_a_store_whose_log_lies_elsewhere_after_a_crash(
        rig, maintenance, other, way):
    token = crashed(rig)
    way(rig, other)
    said = re.escape(f"{rig.store}-wal") if way is not hard_link else "has 2 names"
    for _ in range(2):
        assert re.search(said, refusal(rig, store=f"sqlite:{other}"))
        maintenance.refuse("check", store=other, said=said)
        maintenance.refuse("backup", rig.folder / "backup.db", store=other, said=said)
    other.unlink() if way is hard_link else other.replace(rig.store)
    expect_granted(rig.daemon().client(), token)


def test_a_store_that_was_moved_with_its_log_opens(rig, maintenance, other):
    token = crashed(rig)
    rig.store.rename(other)
    rig.store.with_name("stockade.db-wal").rename(rig.folder / "other.db-wal")
    assert maintenance.do("check", store=other).startswith("ok")
    expect_granted(rig.daemon(store=f"sqlite:{other}").client(), token)


def test_a_store_that_was_stopped_may_be_renamed_and_another_take_its_name(
        rig, maintenance, other):
    daemon, _, token = acknowledged(rig)
    daemon.stop()
    rig.store.rename(other)
    assert rig.daemon().client().token("r") == 1
    for _ in range(2):
        moved = rig.daemon(store=f"sqlite:{other}")
        expect_granted(moved.client(), token)
        moved.stop()
        assert maintenance.do("check", store=other).startswith("ok")


def test_a_copy_opens_beside_the_store_it_was_copied_from(rig, maintenance, other):
    daemon, client, token = acknowledged(rig)
    shutil.copy(rig.store, other)
    assert maintenance.do("check", store=other).startswith("ok")
    rig.daemon(store=f"sqlite:{other}").client()
    expect_granted(client, token)


def test_a_backup_can_be_restored_under_another_name_when_only_the_log_is_left(
        rig, maintenance, other):
    daemon, client, token = acknowledged(rig)
    maintenance.do("backup", rig.folder / "backup.db")
    daemon.kill()
    rig.store.unlink()
    maintenance.do("restore", rig.folder / "backup.db", store=other)
    assert maintenance.do("check", store=other).startswith("ok")
    assert rig.daemon(store=f"sqlite:{other}").client().token("r") > token


def test_a_log_that_is_another_file_s_is_not_taken_for_the_store_s_own(rig, maintenance, other):
    """A copy that was put in place by hand, beside the log of what was there before."""
    daemon, client, token = acknowledged(rig)
    shutil.copy(rig.store, other)
    daemon.kill()
    wal = rig.store.with_name("stockade.db-wal")
    before = wal.read_bytes()
    other.replace(rig.store)
    whole = rig.store.read_bytes()
    assert re.search("of another file", refusal(rig))
    maintenance.refuse("check", said="of another file")
    assert (rig.store.read_bytes(), wal.read_bytes()) == (whole, before)


def test_a_second_daemon_on_the_same_file_works_by_whatever_way_its_folder_is_named(rig, other):
    _, client, token = acknowledged(rig)
    (rig.folder / "link").symlink_to(rig.folder)
    other.symlink_to(rig.store)
    folder = os.open(rig.folder, os.O_PATH)
    for path in (rig.store, rig.folder / "link/stockade.db", other,
                 f"/proc/{os.getpid()}/fd/{folder}/stockade.db"):
        second = rig.daemon(store=f"sqlite:{path}").client()
        assert second("REVOKE", "r") == token
        client.refused("STALE", "FENCED", token, "SET", "r", 1)
        token = client.token("r", 60000, "OWNER", "me")
    os.close(folder)
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]


def test_a_name_that_sqlite_takes_for_another_file_is_refused(rig, other):
    """It resolves links by their text: that of a deleted file is no name."""
    acknowledged(rig)[0].stop()
    file = os.open(rig.store, os.O_RDONLY)
    rig.store.unlink()
    before = set(rig.folder.glob("*.db*"))
    assert "name the file itself" in refusal(rig, store=f"sqlite:/proc/{os.getpid()}/fd/{file}")
    assert set(rig.folder.glob("*.db*")) == before
    os.close(file)


def test_a_link_made_under_a_daemon_stops_its_writes_until_it_is_gone(rig, maintenance, other):
    daemon, client, token = acknowledged(rig)
    os.link(rig.store, other)
    reply = client.ask("FENCED", token, "SET", "r", "refused")
    assert reply.code == "STORE" and "has 2 names" in str(reply), reply
    assert "find" in str(reply)
    client.refused("STORE", "ACQUIRE", "s", 60000, text="has 2 names")
    assert client.info("store")["store_up"] == "0"
    assert daemon.get("/health")[0] == 503
    maintenance.refuse("check", said="has 2 names")
    assert client("GET", "r") is None
    other.unlink()
    assert client.fenced(token, "SET", "r", "again") == "OK"
    assert "only one name again" in daemon.stderr()
    daemon.kill()
    expect_granted(rig.daemon().client(), token)


def test_an_idle_daemon_notices_a_link_by_itself(rig, other):
    daemon, client, token = acknowledged(rig)
    os.link(rig.store, other)
    wait_until(lambda: "has 2 names" in daemon.stderr(), "it is logged")
    daemon.stop()
    other.unlink()
    expect_granted(rig.daemon().client(), token)


def test_no_command_opens_a_store_with_two_names(rig, maintenance, other):
    daemon, _, token = acknowledged(rig)
    maintenance.do("backup", rig.folder / "backup.db")
    daemon.stop()
    rig.daemon(store=f"sqlite:{rig.folder}/source.db").stop()
    os.link(rig.store, other)
    for store in (rig.store, other):
        maintenance.refuse("check", store=store, said="has 2 names")
        maintenance.refuse("backup", rig.folder / "b.db", store=store, said="has 2 names")
        maintenance.refuse("restore", rig.folder / "backup.db", store=store, said="has 2 names")
        for words in (["move", "--from", f"sqlite:{store}", "--to", f"sqlite:{rig.folder}/new.db"],
                      ["move", "--from", f"sqlite:{rig.folder}/source.db", "--to",
                       f"sqlite:{store}"],
                      ["guard", "list", "--store", f"sqlite:{store}"]):
            done = maintenance.run(*words)
            assert done.returncode != 0 and "has 2 names" in done.stdout + done.stderr, words


def test_a_backup_may_have_several_names(rig, maintenance, other):
    daemon, _, token = acknowledged(rig)
    maintenance.do("backup", other)
    daemon.stop()
    os.link(other, rig.folder / "rotated.db")
    maintenance.do("restore", other)
    assert rig.daemon().client().token("r") > token


def test_a_program_with_the_extension_presents_no_token_in_a_store_with_two_names(rig, other):
    daemon, client, token = acknowledged(rig)
    os.link(rig.store, other)
    with program(other) as file:
        file.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="has 2 names"):
            file.execute("SELECT stockade_present('r', ?)", (token,))


def test_a_file_that_is_mounted_by_itself_is_refused_and_its_folder_is_not(rig, other):
    folder = rig.folder / "folder"
    folder.mkdir()
    inside = folder / "stockade.db"
    daemon = rig.daemon(store=f"sqlite:{inside}")
    token = daemon.client().token("r", 60000, "OWNER", "me")
    other.touch()
    away = rig.folder / "away"
    away.mkdir()
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']
    if subprocess.run([*mounted, inside, other, "true"]).returncode != 0:
        pytest.skip("nothing can be mounted here")
    line = refusal(rig, store=f"sqlite:{other}", wrapper=[*mounted, inside, other])
    assert "mounted by itself" in line and "folder" in line
    second = rig.daemon(store=f"sqlite:{away}/stockade.db", wrapper=[*mounted, folder, away])
    expect_granted(second.client(), token)
