# SPDX-License-Identifier: Apache-2.0
"""A Redis that is there and refuses: LEASEDOWN at once with its own words, INFO that says so,
writes that go on, and recovery by itself; on one Redis, and on the master that a sentinel names."""

import re

import pytest

from harness.deployment import granted_again, token_when_up
from harness.leases import AT_ONCE_SECONDS, assert_holder_writes, assert_leasedown, await_up
from harness.limits import wait_until
from harness.resp import ReplyError
from harness.rig import RedisServer, Rig
from harness.sentinel import NEVER_MS, Sentinels

LOADED_KEYS = 1000
LOAD_DELAY_US = 3000  # for each of them


class Site:
    """A daemon on the one Redis that there is, or on the one that a sentinel names."""

    def __init__(self, folder, kind):
        self.rig = Rig(folder)
        if kind == "redis":
            self.redis = self.rig.redis(appendonly=True)
            lease = self.redis.uri
        else:
            cluster = Sentinels(self.rig, replicas=0, sentinels=1, down_after_ms=NEVER_MS)
            self.redis = cluster.master
            lease = cluster.uri
        self.daemon = self.rig.daemon(lease=lease)


@pytest.fixture(scope="module", params=["redis", "sentinel"])
def shared_site(request, tmp_path_factory):
    site = Site(tmp_path_factory.mktemp(request.param), request.param)
    yield site
    site.rig.close()


@pytest.fixture
def site(shared_site):
    yield shared_site
    shared_site.daemon.close_clients()


def assert_refuses(site, client, reason):
    """Until it is seen, and then at once."""
    wait_until(lambda: isinstance(client.ask("ACQUIRE", "r", 60000, "OWNER", "me"), ReplyError),
               "it is noticed")
    assert_leasedown(client, "r", AT_ONCE_SECONDS, reason, "OWNER", "me")
    assert client.info()["lease_service_up"] == "0"
    assert re.search(reason, client.info()["lease_service_detail"]), client.info()


@pytest.mark.parametrize("reason, refuse, accept", [
    ("READONLY|its role is slave",
     [("REPLICAOF", "127.0.0.1", 1)], [("REPLICAOF", "NO", "ONE")]),
    ("MASTERDOWN|its role is slave",
     [("CONFIG", "SET", "replica-serve-stale-data", "no"), ("REPLICAOF", "127.0.0.1", 1)],
     [("REPLICAOF", "NO", "ONE"), ("CONFIG", "SET", "replica-serve-stale-data", "yes")]),
    ("OOM", [("CONFIG", "SET", "maxmemory", 1)], [("CONFIG", "SET", "maxmemory", 0)]),
    ("NOREPLICAS", [("CONFIG", "SET", "min-replicas-to-write", 1)],
     [("CONFIG", "SET", "min-replicas-to-write", 0)]),
    # Its scripts are lost, and it lets nobody bring them again.
    ("NOPERM.*'eval'", [("SCRIPT", "FLUSH"), ("ACL", "SETUSER", "default", "-eval")],
     [("ACL", "SETUSER", "default", "+eval")]),
], ids=["READONLY", "MASTERDOWN", "OOM", "NOREPLICAS", "NOSCRIPT and no right to EVAL"])
def test_a_script_that_is_refused_is_leasedown_with_the_reason(site, key, reason, refuse, accept):
    client = site.daemon.client()
    token = token_when_up(client, key)
    for command in refuse:
        site.redis(*command)
    try:
        assert_refuses(site, client, reason)
        assert_holder_writes(client, token, key)
        assert client("RELEASE", key, token) == 0
    finally:
        for command in accept:
            site.redis(*command)
    assert granted_again(client, key) > token
    await_up(client)


def test_scripts_that_were_lost_are_sent_again(site, key):
    client = site.daemon.client()
    await_up(client)
    site.redis("SCRIPT", "FLUSH")
    assert client.token(key) > 0
    assert client.info()["lease_service_up"] == "1"


@pytest.mark.slow
def test_a_redis_that_loads_its_data_is_leasedown_with_the_reason(rig):
    redis = rig.redis(args=["--rdbcompression", "no"])
    fill = redis.client()
    replies = fill.pipeline([("SET", f"k{i}", "x" * 1000) for i in range(LOADED_KEYS)])
    assert set(replies) == {"OK"}
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    token = client.token("held")
    fill("SAVE")
    redis.kill()
    # It looks at its clients once per so many bytes.
    redis = RedisServer(redis.address[1], redis.folder, [
        "--key-load-delay", LOAD_DELAY_US, "--loading-process-events-interval-bytes", 1024],
        rig.folder / "loading.err")
    rig.processes.append(redis)
    wait_until(lambda: "LOADING" in client.info()["lease_service_detail"], "INFO shows it")
    assert_leasedown(client, "r", AT_ONCE_SECONDS, "LOADING")
    assert_holder_writes(client, token)
    wait_until(redis.answers, "it has loaded")
    assert granted_again(client, "r") > 0
    assert client.acquire("held") is None, "what was on its disk is there again"


def test_a_sentinel_that_names_a_closed_port_is_leasedown_with_the_reason(rig):
    cluster = Sentinels(rig, replicas=0, sentinels=1, down_after_ms=NEVER_MS)
    cluster.master.kill()
    client = rig.daemon(lease=cluster.uri).client()
    assert_leasedown(client, "r", AT_ONCE_SECONDS, "refused")
    assert f"at 127.0.0.1:{cluster.master.address[1]}: " in client.info()["lease_service_detail"]
    rig.redis(port=cluster.master.address[1])
    assert granted_again(client, "r") > 0
