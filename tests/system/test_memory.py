# SPDX-License-Identifier: Apache-2.0
"""Memory: an idle daemon is small, and grows with what it must remember only."""

import pytest

from harness.limits import sanitized
from harness.resp import ReplyError

MB = 1 << 20


@pytest.fixture(autouse=True)
def plain_build():
    if sanitized():
        pytest.skip("sanitized builds are larger")


def test_an_idle_daemon_is_under_16_mb(rig, lease):
    daemon = rig.daemon(lease=lease)
    assert daemon.rss_bytes() < 16 * MB
    client = daemon.client()
    client("RELEASE", "r", client.token("r"))
    assert daemon.rss_bytes() < 16 * MB, "and after its first lease"


@pytest.mark.slow
def test_names_that_were_never_granted_leave_nothing(rig):
    """But for their place in the history, which is bounded."""
    local = rig.daemon("--history", "100")
    client = local.client()

    def ask(base):
        for start in range(0, 20000, 1000):
            names = [f"never:{base}:{n}" for n in range(start, start + 1000)]
            replies = client.pipeline([command for name in names for command in (
                ("GET", name), ("LEASE", name), ("FENCED", 1, "SET", name, "x"))])
            assert {reply.code for reply in replies if isinstance(reply, ReplyError)} == \
                {"UNKNOWN"}

    ask("warm-up")
    before = local.rss_bytes()
    for base in range(3):
        ask(base)
    assert local.rss_bytes() - before < 8 * MB


@pytest.mark.slow
@pytest.mark.alone
def test_the_history_grows_no_more_once_it_is_full(rig):
    count, step = 100_000, 1000
    daemon = rig.daemon("--history", count)
    client = daemon.client()
    begun, full = daemon.rss_bytes(), []
    for _ in range(3):
        for start in range(0, count, step):
            names = [f"sku:{n}" for n in range(start, start + step)]
            tokens = [grant[0] for grant in
                      client.pipeline([("ACQUIRE", name, 86400000) for name in names])]
            client.pipeline([("RELEASE", name, token) for name, token in zip(names, tokens)])
            refused = client.pipeline([("FENCED", token, "SET", name, "x")
                                       for name, token in zip(names, tokens)])
            assert {reply.code for reply in refused} == {"STALE"}
        full.append(daemon.rss_bytes())
    print("at first", begun // MB, "then", [n // MB for n in full], "MB")
    assert full[0] - begun < 100 * MB
    assert full[2] < full[0] * 1.1


@pytest.mark.slow
@pytest.mark.alone
def test_a_million_resources_are_under_256_mb(rig, lease):
    """Each granted and written; the first half released, the second half still held."""
    daemon = rig.daemon("--history", "100", lease=lease)
    client = daemon.client()
    step = 2000
    for start in range(0, 1_000_000, step):
        names = [f"sku:{n}" for n in range(start, start + step)]
        grants = client.pipeline([("ACQUIRE", name, 86400000) for name in names])
        tokens = [grant[0] for grant in grants]
        writes = client.pipeline([("FENCED", token, "SET", name, start)
                                  for name, token in zip(names, tokens)])
        assert set(writes) == {"OK"}
        if start < 500_000:
            released = client.pipeline([("RELEASE", name, token)
                                        for name, token in zip(names, tokens)])
            assert set(released) == {0}
    assert daemon.peak_rss_bytes() < 256 * MB
    assert client("DBSIZE") == 1_000_000
    assert client.lease("sku:999999")["state"] == "held"
    daemon.close_clients()
    daemon.stop()
    daemon = rig.daemon(lease=lease, timeout=60)
    assert daemon.client().lease("sku:999999")["state"] == "held"
    assert daemon.client().acquire("sku:0") is not None
    assert daemon.rss_bytes() < 256 * MB
