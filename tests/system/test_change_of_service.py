# SPDX-License-Identifier: Apache-2.0
"""A deployment changes its lease service: from each to each other, on one store.

The services stay up in between, and keep what they knew: whoever comes back to one finds counters
there that others have left behind.
"""

import contextlib
import itertools

import pytest

from harness import services
from harness.deployment import granted_again
from harness.leases import assert_rising, cycles
from harness.rig import Rig

SHORT_MS = 150  # the lease that goes over, which `local:` holds for its full TTL again
NAMES = list(services.SERVICES)
ROUND = list(zip(NAMES, NAMES[1:] + NAMES[:1]))


def marks(pair):
    """Once around all of them is for every day; each to each other takes its time."""
    yield pytest.mark.xdist_group("pairs")
    if pair not in ROUND:
        yield pytest.mark.slow


PAIRS = [pytest.param(*pair, marks=list(marks(pair)))
         for pair in itertools.permutations(NAMES, 2)]


class Store:
    """One store, and the services that its daemons have used."""

    def __init__(self, folder):
        self.rig = Rig(folder)
        self.services = {}
        self.tokens = [0]

    def service(self, name):
        if name not in self.services:
            self.services[name] = services.start(name, self.rig)
        return self.services[name]

    @contextlib.contextmanager
    def daemon(self, name):
        """A client of a daemon on that service, which ends with the block."""
        daemon = self.rig.daemon(lease=self.service(name).uri)
        try:
            yield daemon.client()
        finally:
            daemon.close_clients()
            daemon.stop()
            self.rig.processes.remove(daemon)

    def close(self):
        try:
            for service in self.services.values():
                service.close()
        finally:
            self.rig.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("pairs"))
    yield store
    store.close()


@pytest.mark.parametrize("before, after", PAIRS)
def test_tokens_rise_and_the_old_holder_is_fenced_when_the_service_changes(store, key, before,
                                                                           after):
    with store.daemon(before) as client:
        first = granted_again(client, "r")
        client("RELEASE", "r", first)
        tokens = [first, *cycles(client, "r", 5)]
        held = client.token(key, SHORT_MS, "OWNER", "me")
        assert client.fenced(held, "SET", key, 10) == "OK"
    with store.daemon(after) as client:
        tokens.append(granted_again(client, "r"))
        client("RELEASE", "r", tokens[-1])
        tokens += cycles(client, "r", 2)
        assert_rising([store.tokens[-1], *tokens])
        store.tokens += tokens
        fresh = client.token(key, 60000, "WAIT", 10000)
        assert fresh > held
        client.refused("STALE", "FENCED", held, "SET", key, 9)
        assert client.fenced(fresh, "DECR", key) == 9
