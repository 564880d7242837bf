# SPDX-License-Identifier: Apache-2.0
"""What the store confirms of a lease, the daemon's memory knows: after a restart, after an expiry
that was none, and where the store takes nothing as a connection closes."""

import json
import signal

import pytest

from harness.limits import wait_until
from harness.resp import Push
from harness.rig import restart
from harness.users import ROOT, login, with_users


def shown(daemon):
    """On the page."""
    listed = json.loads(daemon.get("/api/leases?count=200")[2])
    return {lease["resource"]: lease["owner"] for lease in listed["leases"]}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_leases_from_before_a_restart_are_watched_from_the_start(rig, lease, how):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    for i in range(150):
        client.token(f"r{i}", 60000, "OWNER", f"o{i}")
    ended = client.token("ended")
    client("RELEASE", "ended", ended)
    daemon = restart(rig, daemon, how, lease=lease)
    wait_until(lambda: daemon.metric("leases_held") == 150, "all are there")
    assert shown(daemon) == {f"r{i}": f"o{i}" for i in range(150)}
    holder, other = daemon.client(proto=3), daemon.client()
    assert holder("RENEW", "r7", 1, 60000, "NOTIFY") > 0
    assert other("REVOKE", "r7") == 1
    assert holder.read() == Push([b"stockade:lost", b"r7", 1, b"revoked"])
    assert daemon.metric("leases_held") == 149


def test_leases_from_before_a_restart_count_for_their_user(rig, lease):
    options = {"args": ("--max-leases-per-user", "2"), "lease": lease}
    users = (ROOT, "user a on >pw ~* +@all", "user b on >pw ~* +@all")
    daemon = with_users(rig, *users, **options)
    a = login(daemon, "a")
    a.token("r1")
    a.token("r2", 60000, "OWNER", "me")
    daemon.close_clients()
    daemon.kill()
    daemon = with_users(rig, *users, **options)
    a, b = login(daemon, "a"), login(daemon, "b")
    wait_until(lambda: daemon.metric("leases_held") == 2, "both are there")
    a.refused("BUSY", "ACQUIRE", "r3", 60000, text="user 'a' has 2")
    assert b.token("r3")


def test_who_may_have_two_leases_takes_back_two(rig, lease):
    daemon = rig.daemon("--max-leases-per-user", "2", lease=lease)
    client = daemon.client()
    tokens = {}
    for name in ("r1", "r2", "r3", "r4"):
        tokens[name] = client.token(name, 10)
        wait_until(lambda name=name: client.lease(name)["state"] == "free", "it has expired")
        wait_until(lambda: daemon.metric("leases_held") == 0, "and that was seen")
    assert client("RENEW", "r1", tokens["r1"], 60000) and client("RENEW", "r2", tokens["r2"], 60000)
    for name in ("r3", "r4"):
        client.refused("BUSY", "RENEW", name, tokens[name], 60000, text="too many leases")
        assert client.lease(name)["state"] == "free"
    assert daemon.metric("leases_held") == 2


@pytest.mark.slow # SQLite waits for five seconds before it fails
def test_an_ephemeral_lease_ends_though_the_store_was_locked_as_its_connection_closed(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    holder, other = daemon.client(name="holder"), daemon.client()
    token = holder.token("r", 60000, "EPHEMERAL")
    with rig.store_locked():
        holder.reset()
        wait_until(lambda: b"name=holder" not in other("CLIENT", "LIST"), "the daemon noticed")
        wait_until(lambda: "cannot release leases" in daemon.stderr(), "it is told")
        assert other.lease("r")["state"] == "held"
    wait_until(lambda: other.lease("r")["state"] == "free", "it is tried again")
    other.refused("STALE", "FENCED", token, "SET", "r", "x")
    assert daemon.stderr().count("cannot release leases") == 1
