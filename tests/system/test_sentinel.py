# SPDX-License-Identifier: Apache-2.0
"""Leases on the master that sentinels name: where it is found, followed to, and what a failover to
a replica without the lock costs (waiting), and what it does not (safety)."""

import re

import pytest

from harness.deployment import granted_again, token_when_up
from harness.leases import (AT_ONCE_SECONDS, SILENT_SECONDS, assert_leasedown, assert_rising,
                            await_up, lock_key)
from harness.limits import REPO, wait_until
from harness.load import Load
from harness.ports import free_port
from harness.resp import ReplyError
from harness.sentinel import NEVER_MS, Sentinels

FAILOVERS = 20


def assert_at(client, server):
    assert re.search(rf" at 127\.0\.0\.1:{server.address[1]}: ready",
                     client.info("lease")["lease_service_detail"]), client.info("lease")


# Finding the master. One cluster for all, where no failover happens.


class Quiet:
    def __init__(self, rig):
        self.rig = rig
        self.cluster = Sentinels(self.rig, down_after_ms=NEVER_MS, password="secret",
                                 sentinel_password="whisper")

    def daemon(self, **parts):
        return self.rig.daemon(lease=self.cluster.uri_with(**parts),
                               store=f"sqlite:{self.rig.folder}/{next(self.rig.number)}.db")


@pytest.fixture(scope="module")
def quiet_cluster(module_rig):
    return Quiet(module_rig)


@pytest.fixture
def quiet(quiet_cluster):
    """Its daemons end with the test, its servers live on."""
    servers = list(quiet_cluster.rig.processes)
    yield quiet_cluster
    for process in [p for p in quiet_cluster.rig.processes if p not in servers]:
        process.close_clients()
        process.stop()
    quiet_cluster.rig.processes[:] = servers


def test_info_names_the_master_that_the_sentinels_name(quiet):
    client = quiet.daemon().client()
    await_up(client)
    assert client.info("lease")["lease_service"] == "sentinel"
    assert_at(client, quiet.cluster.master)


def test_leases_are_on_the_master_under_the_prefix_in_the_database(quiet, key):
    client = quiet.daemon(options="prefix=shop2&db=3").client()
    token = token_when_up(client, key)
    peek = quiet.cluster.master.client()
    peek("AUTH", "secret")
    peek("SELECT", 3)
    assert peek("GET", f"shop2:{{{key}}}:lock").split(b" ")[0] == b"%d" % token
    assert client("RELEASE", key, token) == 0
    assert peek("EXISTS", f"shop2:{{{key}}}:lock") == 0


@pytest.mark.parametrize("parts, reason", [
    ({"name": "other"}, "127.0.0.1:[0-9]+: it knows no master of this name"),
    ({"password": "wrong"}, "WRONGPASS"),
    ({"password": ""}, "NOAUTH"),
    ({"sentinel_password": "wrong"}, "127.0.0.1:[0-9]+: WRONGPASS"),
    ({"sentinel_password": ""}, "127.0.0.1:[0-9]+: NOAUTH"),
    ({"hosts": ["no-such-host.invalid"]},
     "no-such-host.invalid:26379: the name cannot be resolved"),
], ids=["wrong master name", "wrong password", "no password", "sentinels' password wrong",
        "sentinels' password missing", "a name that does not resolve"])
def test_what_is_wrong_is_leasedown_at_once_with_the_reason(quiet, parts, reason):
    client = quiet.daemon(**parts).client()
    wait_until(lambda: re.search(reason, client.info("lease")["lease_service_detail"]),
               "INFO shows the reason")
    assert_leasedown(client, "r", AT_ONCE_SECONDS, reason)
    assert client.info("lease")["lease_service_up"] == "0"


RIGHTS = ("~stockade:* &stockade:wake +evalsha +eval +script|load +get +set +del +pttl "
          "+pexpire +publish +subscribe +role +wait")
SENTINEL_RIGHTS = "+sentinel|get-master-addr-by-name +subscribe &+switch-master"


def test_users_with_the_rights_that_the_page_names_are_enough(quiet, key):
    text = " ".join((REPO / "fence/lease/SERVICES.md").read_text().split())
    assert all(f"`{right}`" in text for right in [*RIGHTS.split(), *SENTINEL_RIGHTS.split()])
    cluster = quiet.cluster
    for server in [cluster.master, *cluster.sentinels]:
        rights = RIGHTS if server is cluster.master else SENTINEL_RIGHTS
        server("ACL", "SETUSER", "few", "reset", "on", ">few", *rights.split())
    hosts = [f"few:few@127.0.0.1:{s.address[1]}" for s in cluster.sentinels[:1]]
    hosts += [f"127.0.0.1:{s.address[1]}" for s in cluster.sentinels[1:]]
    client = quiet.daemon(password="", hosts=hosts, sentinel_password="few",
                          options="replicas=1&sentinel_user=few").client()
    token = token_when_up(client, key)
    wait_until(lambda: client.info("lease")["lease_service_watched"] == "1", "it hears the others")
    client.renew(key, token, 60000)
    assert client("RELEASE", key, token) == 0


def test_nobody_there_is_leasedown_at_once(quiet):
    client = quiet.daemon(hosts=[f"127.0.0.1:{free_port()}", f"[::1]:{free_port()}"]).client()
    assert_leasedown(client, "r", AT_ONCE_SECONDS, "no sentinel names the master; .*refused")


def test_a_redis_that_is_no_sentinel_is_told(quiet):
    port = quiet.cluster.master.address[1]
    client = quiet.daemon(hosts=[f"127.0.0.1:{port}"], sentinel_password="secret").client()
    client.refused("LEASEDOWN", "ACQUIRE", "r", 60000, text="unknown command")


def test_one_sentinel_that_answers_is_enough(quiet, key):
    answers = f"127.0.0.1:{quiet.cluster.sentinels[1].address[1]}"
    client = quiet.daemon(hosts=[f"127.0.0.1:{free_port()}", answers,
                                 "no-such-host.invalid:1"]).client()
    assert token_when_up(client, key) > 0


def test_a_silent_sentinel_costs_nothing_where_most_answer(quiet, key):
    with quiet.cluster.sentinels[0].frozen():
        client = quiet.daemon(options="timeout_ms=20000").client()
        assert token_when_up(client, key) > 0


def test_silent_sentinels_are_leasedown_within_the_timeout_and_found_again(quiet, key):
    a, b, c = quiet.cluster.sentinels
    with a.frozen(), b.frozen(), c.frozen():
        client = quiet.daemon(options="timeout_ms=200").client()
        assert_leasedown(client, "r", SILENT_SECONDS)
        assert_leasedown(client, key, SILENT_SECONDS,
                         "no answer within 200 ms|has answered in time")
    assert granted_again(client, key) > 0


def test_a_silent_master_is_leasedown_in_bounded_time(quiet, key):
    client = quiet.daemon(options="timeout_ms=200").client()
    token = token_when_up(client, key)
    with quiet.cluster.master.frozen():
        assert_leasedown(client, "r", SILENT_SECONDS)
        assert client.fenced(token, "SET", key, "x") == "OK"
    assert granted_again(client, key + "2") > 0


def test_a_stale_sentinel_is_outvoted_whichever_answers_first(rig):
    """It was cut off from the others, and names a master of the past, which is one still."""
    most = Sentinels(rig, replicas=0, sentinels=2, down_after_ms=NEVER_MS)
    stale = Sentinels(rig, replicas=0, sentinels=1, down_after_ms=NEVER_MS)
    addresses = [f"127.0.0.1:{s.address[1]}" for s in (*stale.sentinels, *most.sentinels)]
    for hosts in (addresses, addresses[::-1]):
        client = rig.daemon(lease=most.uri_with(hosts=hosts)).client()
        await_up(client)
        assert_at(client, most.master)


def test_grants_go_on_without_any_sentinel_while_the_master_is_there(rig):
    cluster = Sentinels(rig, replicas=0, down_after_ms=NEVER_MS)
    client = rig.daemon(lease=cluster.uri).client()
    tokens = [token_when_up(client, "a")]
    for sentinel in cluster.sentinels:
        sentinel.kill()
    tokens += [client.token(name) for name in ("b", "c")]
    client.renew("a", tokens[0], 60000)
    assert client.info("lease")["lease_service_up"] == "1"


# Replicas.


def test_with_replicas_a_grant_counts_once_they_have_it(quiet, key):
    client = quiet.daemon(options="replicas=1").client()
    token = token_when_up(client, key)
    lock = quiet.cluster.replicas[0]("GET", lock_key(key))
    assert lock.split(b" ")[0] == b"%d" % token


def test_a_grant_that_too_few_replicas_have_is_given_back(quiet, key):
    cluster = quiet.cluster
    client = quiet.daemon(options="replicas=1&timeout_ms=400").client()
    held = token_when_up(client, key)
    with cluster.replicas[0].frozen():
        assert_leasedown(client, key + "2", 2, "0 of 1 replicas have the grant")
        wait_until(lambda: cluster.master("EXISTS", lock_key(key + "2")) == 0,
                   "the lock was given back")
        assert "0 of 1 replicas" in client.info("lease")["lease_service_detail"]
        client.renew(key, held, 60000)
        assert client.fenced(held, "SET", key, "x") == "OK"
        assert client.info("lease")["lease_service_up"] == "0", "a renewal is no proof of replicas"
    await_up(client)  # the daemon finds out by itself
    assert client.token(key + "2") > 0


def test_grants_at_the_same_time_wait_for_replicas_together(quiet, key):
    daemon = quiet.daemon(options="replicas=1")
    client = daemon.client()
    token_when_up(client, key)
    waited = quiet.cluster.master("INFO", "commandstats")
    replies = client.pipeline([("ACQUIRE", f"{key}:{i}", 60000) for i in range(200)])
    assert all(not isinstance(reply, ReplyError) for reply in replies), replies
    calls = [int(re.search(rb"cmdstat_wait:calls=(\d+)", text)[1]) for text in (
        waited, quiet.cluster.master("INFO", "commandstats"))]
    assert 0 < calls[1] - calls[0] <= 100


# Failovers.


def test_a_lease_that_a_replica_has_outlives_its_master(rig):
    cluster = Sentinels(rig)
    daemon = rig.daemon(lease=cluster.uri_with("replicas=1"))
    a, b = daemon.client(), daemon.client()
    token = token_when_up(a, "r", 60000, "OWNER", "a")  # a new replica takes a second to count
    cluster.fail_over()
    await_up(b)
    assert b.acquire("r") is None
    assert a.fenced(token, "SET", "r", "x") == "OK"
    a.renew("r", token, 60000)
    assert_at(b, cluster.master)


def test_a_paused_master_is_left_as_soon_as_the_sentinels_say_so(rig):
    """The daemon has nothing to ask meanwhile, so no silence tells it: +switch-master does."""
    cluster = Sentinels(rig)
    client = rig.daemon(lease=cluster.uri_with("timeout_ms=20000")).client()
    first = client.token("r")
    cluster.stop_replication()
    second = client.token("s")
    old = cluster.master
    old.freeze()
    cluster.await_promotion(old)
    wait_until(lambda: client.info("lease")["lease_service_detail"].endswith(
        f":{cluster.master.address[1]}: ready"), "the daemon is at the new master", 3)
    assert client.token("s") > second
    old.thaw()
    client("RELEASE", "r", first)
    assert client.token("r") > first
    assert_at(client, cluster.master)


@pytest.mark.slow
def test_twenty_failovers_to_a_replica_without_the_lock_let_no_stale_holder_through(rig):
    cluster = Sentinels(rig)
    daemon = rig.daemon(lease=cluster.uri)
    a, b = daemon.client(), daemon.client()
    tokens = []
    with Load(daemon) as load:
        for _ in range(FAILOVERS):
            cluster.stop_replication()
            tokens.append(token_when_up(a, "r", 600000))
            assert cluster.replicas[0]("EXISTS", lock_key("r")) == 0
            cluster.fail_over()
            assert a.fenced(tokens[-1], "SET", "r", "nobody else has it yet") == "OK"
            tokens.append(granted_again(b, "r"))
            a.refused("STALE", "FENCED", tokens[-2], "SET", "r", "late")
            assert b.fenced(tokens[-1], "SET", "r", "mine") == "OK"
            b("RELEASE", "r", tokens[-1])
            cluster.rejoin()
    assert_rising(tokens)
    assert load.refusals["LEASEDOWN"] > 0, "the load saw the failovers"
    load.audit()


@pytest.mark.slow
def test_a_master_that_comes_back_at_its_old_address_as_a_replica_is_no_master(rig):
    """Two failovers there and back, with the daemon asking all the time."""
    cluster = Sentinels(rig, replicas=2)
    daemon = rig.daemon(lease=cluster.uri_with("replicas=1"))
    client = daemon.client()
    with Load(daemon) as load:
        for _ in range(4):
            cluster.fail_over()
            cluster.await_replica()  # without one it does not grant
            granted_again(client, "r")
            client("REVOKE", "r")
            cluster.rejoin()
            await_up(client)
            assert_at(client, cluster.master)
    load.audit()
