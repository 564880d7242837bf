# SPDX-License-Identifier: Apache-2.0
"""P4 Durable, P2 Rising: the store's files are deleted, replaced or cut under a running daemon, or
are not all there at a start."""

import json
import os
import re
import shutil
import signal

import pytest

from harness.limits import wait_until
from harness.maintenance import query
from harness.resp import Closed
from harness.rig import refusal


def beside(rig, suffix):
    return rig.store.with_name(rig.store.name + suffix)


def acknowledged(rig):
    """Return (daemon, client, token) after a grant and a write that were acknowledged."""
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r", 60000, "OWNER", "me")
    assert client.fenced(token, "SET", "r", "acknowledged") == "OK"
    return daemon, client, token


def expect_stopped(daemon, client, token, named):
    """Writes and grants get STORE with the reason; INFO, /health and the log tell it, too."""
    for command in (("FENCED", token, "SET", "r", "refused"), ("ACQUIRE", "s", 60000),
                    ("REVOKE", "r")):
        client.refused("STORE", *command, text=f"{re.escape(named)}.*stop what uses")
    reason = client.info("store")["store_detail"]
    assert named in reason
    assert client.info("store")["store_up"] == "0"
    status, _, body = daemon.get("/health")
    health = json.loads(body)
    assert status == 503 and health["status"] == "store stopped"
    assert health["store"] == {"up": False, "detail": reason}
    assert named in daemon.stderr()


def expect_all_there(rig, token):
    client = rig.daemon().client()
    assert client("GET", "r") == b"acknowledged"
    lease = client.lease("r")
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"me")
    assert client("REVOKE", "r") == token
    client.refused("STALE", "FENCED", token, "SET", "r", "poison")


@pytest.mark.parametrize("suffixes", [["-wal"], ["-wal", "-shm"], ["-shm"]], ids="".join)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_files_deleted_under_a_daemon_stop_it_and_what_was_acknowledged_is_there_afterwards(
        rig, suffixes, how):
    daemon, client, token = acknowledged(rig)
    for suffix in suffixes:
        beside(rig, suffix).unlink()
    expect_stopped(daemon, client, token, rig.store.name + suffixes[0])
    client.refused("STORE", "GET", "r")
    daemon.kill() if how == signal.SIGKILL else daemon.stop()
    expect_all_there(rig, token)


def test_an_idle_daemon_notices_that_its_log_was_deleted_and_saves_what_was_acknowledged(rig):
    daemon, client, token = acknowledged(rig)
    beside(rig, "-wal").unlink()
    wait_until(lambda: "is saved" in daemon.stderr(), "it saves what was acknowledged")
    daemon.kill()
    expect_all_there(rig, token)


def test_two_daemons_whose_shared_memory_was_deleted_never_grant_the_same_token(rig):
    first, client, token = acknowledged(rig)
    beside(rig, "-shm").unlink()
    second = rig.daemon().client()
    assert second("REVOKE", "r") == token
    other = second.token("r")
    second.fenced(other, "SET", "r", "second")
    client.refused("STORE", "ACQUIRE", "r", 60000, "OWNER", "me")
    expect_stopped(first, client, token, f"{rig.store.name}-shm")
    first.stop()
    assert second.fenced(other, "APPEND", "r", " goes on") == len("second goes on")
    assert second("GET", "r") == b"second goes on"
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]


def test_what_others_made_in_the_place_of_deleted_files_is_left_alone(rig):
    first, client, token = acknowledged(rig)
    first.stop()  # what there was is in the main file
    first = rig.daemon()
    client = first.client()
    client.fenced(token, "SET", "r", "in the log")
    first.freeze()  # so that it does not notice before the other one has begun
    for suffix in ("-wal", "-shm"):
        beside(rig, suffix).unlink()
    second = rig.daemon().client()
    assert second.fenced(token, "SET", "r", "second") == "OK"
    first.thaw()
    client.refused("STORE", "FENCED", token, "SET", "r", "first")
    assert "cannot be saved" in first.stderr()
    first.stop()
    assert second("GET", "r") == b"second"
    assert query(rig.store, "PRAGMA integrity_check") == [("ok",)]


def test_a_file_cut_to_nothing_stops_the_daemon_and_no_new_store_is_made_of_it(rig, maintenance):
    daemon, client, token = acknowledged(rig)
    backup = beside(rig, ".backup")
    maintenance.do("backup", backup)
    os.truncate(rig.store, 0)
    expect_stopped(daemon, client, token, f"{rig.store.name} was cut")
    daemon.stop()
    line = refusal(rig)
    assert str(rig.store) in line and f"{rig.store.name}-wal" in line and "restore" in line
    assert beside(rig, "-wal").stat().st_size > 0
    maintenance.do("restore", backup)  # what the line says
    client = rig.daemon().client()
    assert client("GET", "r") == b"acknowledged"
    assert client.token("r") > token


def test_a_file_moved_away_stops_writes_until_it_is_back(rig):
    daemon, client, token = acknowledged(rig)
    away = beside(rig, ".away")
    rig.store.rename(away)
    reply = client.ask("FENCED", token, "SET", "r", "refused")
    assert reply.code == "STORE" and "moved or deleted" in str(reply) and "restore" in str(reply)
    assert "restart" not in str(reply)
    assert client("GET", "r") == b"acknowledged"
    away.rename(rig.store)
    assert client.fenced(token, "SET", "r", "again") == "OK"
    assert daemon.get("/health")[0] == 200


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_file_moved_away_is_whole_and_its_place_is_not_taken_by_a_new_store(rig, how):
    daemon, client, token = acknowledged(rig)
    away = beside(rig, ".away")
    rig.store.rename(away)
    expect_stopped(daemon, client, token, "moved or deleted")
    daemon.kill() if how == signal.SIGKILL else daemon.stop()
    line = refusal(rig)
    assert str(rig.store) in line and f"{rig.store.name}-wal" in line
    assert "put the file back" in line
    assert not rig.store.exists()
    shutil.copy(away, beside(rig, ".copy"))
    assert query(beside(rig, ".copy"), "SELECT token FROM stockade_fences") == [(token,)]
    away.rename(rig.store)
    expect_all_there(rig, token)


def test_the_same_holds_for_a_daemon_whose_folder_was_deleted(rig):
    folder = rig.folder / "deep"
    folder.mkdir()
    daemon = rig.daemon(store=f"sqlite:{folder}/stockade.db")
    client = daemon.client()
    token = client.token("r")
    shutil.rmtree(folder)
    client.refused("STORE", "FENCED", token, "SET", "r", "refused")
    assert daemon.get("/health")[0] == 503


def test_a_new_store_is_never_made_in_silence(rig):
    daemon = rig.daemon()
    assert f"{rig.store} is new" in daemon.stderr() and "restore" in daemon.stderr()
    daemon.stop()
    daemon = rig.daemon()
    daemon.stop()
    assert daemon.stderr().count("is new") == 0


def test_a_new_store_beside_a_lease_service_that_knows_an_old_one_says_so(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    for _ in range(3):
        client("RELEASE", "r", client.token("r"))
    client.token("held")
    daemon.stop()
    for path in rig.folder.glob("stockade.db*"):
        path.unlink()
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    assert client.token("fresh") == 1
    assert "has counted" not in daemon.stderr()
    assert client.token("r") == 4
    assert 'has counted "r" up to 3' in daemon.stderr() and "restore" in daemon.stderr()
    client("RELEASE", "r", 4)
    assert client.token("r") == 5
    assert client.info("stats")["grants_behind"] == "1"
    assert daemon.stderr().count("has counted") == 1, "one line for all of them"


FULL = "the disk is full; make room there, and try again: {}"


def test_a_full_disk_is_named_in_the_reply_in_info_and_in_health(rig):
    daemon = rig.faulty_daemon()
    client = daemon.client()
    token = client.token("r")
    rig.faults.order("write ENOSPC")
    for command in (("FENCED", token, "SET", "r", 1), ("ACQUIRE", "s", 60000), ("REVOKE", "r"),
                    ("RELEASE", "r", token), ("ACQUIREALL", 60000, 2, "t", "u")):
        reply = client.ask(*command)
        assert reply.code == "STORE" and FULL.format(rig.store) in str(reply), reply
        assert "nothing of this command was applied" in str(reply)
        assert len(str(reply)) < 400 and str(reply).isprintable()
    assert FULL.format(rig.store) in client.info("store")["store_detail"]
    status, _, body = daemon.get("/health")
    assert status == 200 and FULL.format(rig.store) in json.loads(body)["store"]["detail"]
    assert FULL.format(rig.store) in daemon.log()
    rig.faults.clear()
    assert client.fenced(token, "SET", "r", 1) == "OK"
    assert client.info("store")["store_detail"] == "ok"


def test_a_file_that_another_program_locks_is_named_in_the_reply(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r")
    with rig.store_locked():
        client.refused("STORE", "FENCED", token, "SET", "r", 1, text="another program")
    assert client.fenced(token, "SET", "r", 1) == "OK"


def test_a_commit_whose_log_goes_while_it_is_synced_is_not_acknowledged_and_nothing_is_lost(rig):
    daemon = rig.faulty_daemon()
    client = daemon.client()
    token = client.token("r", 60000, "OWNER", "me")
    client.fenced(token, "SET", "r", "acknowledged")
    rig.faults.order("sync stall")
    client.send("FENCED", token, "SET", "r", "unknown outcome")
    rig.faults.await_hit()
    beside(rig, "-wal").unlink()
    rig.faults.clear()
    with pytest.raises(Closed):
        pytest.fail(f"replied {client.read()!r}")
    assert daemon.wait() == 70
    daemon.killed = True
    assert "is saved" in daemon.stderr()
    client = rig.daemon().client()
    assert client("GET", "r") in (b"acknowledged", b"unknown outcome")
    assert client.lease("r")["token"] == token
