# SPDX-License-Identifier: Apache-2.0
"""Two daemons on one file and one Redis: what one ends, the other's holder is told."""

from harness.limits import wait_until
from harness.resp import Push


def counter(client, name):
    text = client("INFO").decode()
    return int(text.split(f"{name}:")[1].split("\r")[0])


def test_a_revoke_at_one_daemon_is_told_to_the_holder_at_the_other(rig, redis):
    here, there = (rig.daemon(lease=redis.uri) for _ in range(2))
    holder, other = here.client(proto=3), there.client()
    wait_until(lambda: counter(holder, "lease_service_watched") == 1, "news arrive")
    token = holder.token("r")
    assert other("REVOKE", "r") == token
    told = holder.read(5)
    assert isinstance(told, Push)
    assert told == [b"stockade:lost", b"r", token, b"revoked"]
    holder.refused("STALE", "FENCED", token, "SET", "r", "x")


def test_a_release_at_one_daemon_wakes_the_waiter_at_the_other(rig, redis):
    here, there = (rig.daemon(lease=redis.uri) for _ in range(2))
    holder, waiter = here.client(), there.client()
    token = holder.token("r")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 20000)
    wait_until(lambda: there.client().lease("r")["waiters"] == 1, "it waits")
    assert holder("RELEASE", "r", token) == 0
    assert waiter.read(5)[0] > token


def test_a_lease_that_moved_to_a_connection_of_the_other_daemon_outlives_the_first(rig):
    here, there = (rig.daemon(lease="local:") for _ in range(2))
    first, second = here.client(), there.client()
    assert first("CLIENT", "ID") == second("CLIENT", "ID"), "each daemon counts from 1"
    words = ("ACQUIRE", "r", 60000, "OWNER", "me", "ID", "i", "EPHEMERAL")
    token = first(*words)[0]
    assert second(*words)[0] == token
    first.close()
    wait_until(lambda: counter(here.client(), "connected_clients") == 1, "it is noticed")
    assert second.fenced(token, "SET", "r", "x") == "OK"
