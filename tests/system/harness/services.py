# SPDX-License-Identifier: Apache-2.0
"""The lease services by name, each with the real servers it takes, for tests that hold for all.

    service = start("redis", rig)        its servers are up and answer
    rig.daemon(lease=service.uri)
    service.down()                       kill -9 to its servers: nobody answers
    service.up()                         the same servers at the same addresses, ready
    service.lose_all()                   it is up, and has forgotten every lease and every counter

A service whose server programs are missing fails each of its tests, unless the user names it in
STOCKADE_SKIP_SERVICES (names with commas between); then they are skipped, and the summary says so.
"""

import importlib
import os
import shutil

import pytest

from harness.certs import Certs

# Each is a class derived from Service, as "module:Class".
SERVICES = {
    "local": "harness.services:Local",
    "redis": "harness.services:Redis",
    "redlock": "harness.redlock:Redlock",
    "sentinel": "harness.sentinel:Sentinel",
    "cluster": "harness.cluster:Cluster",
    "zookeeper": "harness.zookeeper:ZooKeeper",
}
# The same by TLS.
BY_TLS = {
    "rediss": "harness.services:Rediss",
    "redlock+tls": "harness.redlock:RedlockTls",
    "rediss+sentinel": "harness.sentinel:SentinelTls",
    "rediss+cluster": "harness.cluster:ClusterTls",
}
SKIP = "STOCKADE_SKIP_SERVICES"


class Service:
    """A lease service. Servers are started with `rig`, which ends them; what a service makes
    beside them it ends in close()."""

    name = ""
    programs = ()  # that must be on PATH; a service that needs more overrides missing()
    separate = True  # a server of its own, which may be down while the daemon is up
    sessions = False  # a daemon's leases end with its session,
    session_ms = 0  # which lasts this long after the daemon died

    tls = False  # its servers speak nothing else

    def __init__(self, rig):
        self.rig = rig
        self.certs = Certs(rig.folder / f"certs-{next(rig.number)}") if self.tls else None

    @property
    def uri(self):
        raise NotImplementedError

    @property
    def tls_options(self):
        """For the URI: the words of its options."""
        return [f"tls_ca={self.certs.ca}"] if self.tls else []

    @classmethod
    def missing(cls):
        """What has to be installed first, or ""."""
        return ", ".join(program for program in cls.programs if shutil.which(program) is None)

    def down(self):
        """Returns when nobody answers any more."""
        raise NotImplementedError

    def up(self):
        """Returns when the service itself has recovered and serves its own clients. It may have
        kept what it knew, or not."""
        raise NotImplementedError

    def lose_all(self):
        """Returns when it is up and knows nothing."""
        raise NotImplementedError

    def close(self):
        """Ends what the rig does not know of."""


class Local(Service):
    """In the daemon's own store: there is nothing to go down but the daemon."""

    name = "local"
    separate = False

    @property
    def uri(self):
        return "local:"


class Redis(Service):
    name = "redis"
    programs = ("redis-server",)

    def __init__(self, rig):
        super().__init__(rig)
        self.server = rig.redis(certs=self.certs)

    @property
    def uri(self):
        return "?".join([self.server.uri, *self.tls_options])

    def down(self):
        self.server.kill()

    def up(self):
        self.server = self.rig.redis(port=self.server.address[1], folder=self.server.folder,
                                     certs=self.certs)

    def lose_all(self):
        self.server("FLUSHALL")


class Rediss(Redis):
    tls = True


def skipped():
    """The names that the user asked to leave out."""
    names = set(filter(None, os.environ.get(SKIP, "").replace(" ", "").split(",")))
    unknown = names - set(SERVICES) - set(BY_TLS)
    assert not unknown, f"{SKIP} names no lease service: {', '.join(sorted(unknown))}"
    return names


def needed(name):
    """The class of a service whose programs are there; skips the test where the user asked for
    it."""
    if name in skipped():
        pytest.skip(f"lease service {name}: left out by {SKIP}")
    module, _, cls = (SERVICES | BY_TLS)[name].partition(":")
    service = getattr(importlib.import_module(module), cls)
    missing = service.missing()
    assert not missing, (f"lease service {name} cannot be tested, these are missing: {missing}. "
                         f"Install them (make setup), or leave it out by name: {SKIP}={name}")
    return service


def start(name, rig):
    """The service, up."""
    return needed(name)(rig)
