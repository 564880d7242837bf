# SPDX-License-Identifier: Apache-2.0
"""A lease service and a daemon on it, which tests share and leave as they found them: up."""

import contextlib

from harness import services
from harness.limits import wait_until
from harness.resp import ReplyError
from harness.rig import Rig, restart

RECOVERED_SECONDS = 3.0  # after the service's own recovery


class Deployment:
    """`service` with a daemon before it. Where the service is the daemon's own, the daemon is what
    goes down."""

    def __init__(self, folder, name, *args):
        self.rig, self.args = Rig(folder), args
        try:
            self.service = services.start(name, self.rig)
            self.daemon = self.second_daemon()
            client = self.client()
            client("RELEASE", "first", granted_again(client, "first"))
        except BaseException:
            self.close()
            raise

    def client(self, **options):
        return self.daemon.client(**options)

    def second_daemon(self, **options):
        """On the same store."""
        return self.rig.daemon(*self.args, **{"lease": self.service.uri, **options})

    def stranger(self, path):
        """On the same service, and a store of its own at this path: what it is granted, the store
        of the others never sees."""
        return self.rig.daemon(store=f"sqlite:{path}", lease=self.service.uri)

    def restart(self, how):
        """The daemon goes and comes back."""
        gone = self.daemon
        self.daemon = restart(self.rig, gone, how, lease=self.service.uri)
        self.rig.processes.remove(gone)
        return self.daemon

    @contextlib.contextmanager
    def lent(self):
        """The daemon, for one test. One that died is replaced, and the test that ended it fails."""
        yield self.daemon
        if self.daemon.alive():
            self.daemon.await_nothing_left()
            return
        gone = self.daemon
        self.rig.processes.remove(gone)
        self.daemon = self.second_daemon()
        raise AssertionError(f"the shared daemon died:\n{gone.describe()}")

    def close(self):
        try:
            if hasattr(self, "service"):
                self.service.close()
        finally:
            self.rig.close()


def token_when_up(client, resource, ttl_ms=60000, *options, timeout=15):
    """The token of a grant that comes as soon as the service is reached, and has heard of what was
    released meanwhile; until then there is nothing but LEASEDOWN."""
    def attempt():
        reply = client.ask("ACQUIRE", resource, ttl_ms, *options)
        if isinstance(reply, ReplyError):
            assert reply.code == "LEASEDOWN", reply.text
            return None
        return reply
    return wait_until(attempt, f"{resource!r} is granted", timeout)[0]


def granted_again(client, resource, ttl_ms=60000, *options):
    """As token_when_up(), in the time that a service has that has recovered by itself."""
    return token_when_up(client, resource, ttl_ms, *options, timeout=RECOVERED_SECONDS)
