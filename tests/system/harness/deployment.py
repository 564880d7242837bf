# SPDX-License-Identifier: Apache-2.0
"""A lease service and a daemon on it, which tests share and leave as they found them: up."""

import time

from harness import services
from harness.limits import wait_until
from harness.resp import ReplyError
from harness.rig import Rig, restart

RECOVERED_SECONDS = 3.0  # after the service's own recovery


class Deployment:
    """`service` with a daemon before it. Where the service is the daemon's own, the daemon is what
    goes down."""

    def __init__(self, folder, name):
        self.rig = Rig(folder)
        self.daemon = None
        try:
            self.service = services.start(name, self.rig)
            self.daemon = self.rig.daemon(lease=self.service.uri)
            granted_again(self.client(), "first")
        except BaseException:
            self.close()
            raise

    def client(self, **options):
        return self.daemon.client(**options)

    def second_daemon(self, **options):
        """On the same store."""
        return self.rig.daemon(**{"lease": self.service.uri, **options})

    def restart(self, how):
        """The daemon goes and comes back."""
        gone = self.daemon
        self.daemon = restart(self.rig, gone, how, lease=self.service.uri)
        self.rig.processes.remove(gone)
        return self.daemon

    def lend(self):
        """For `yield from` in a fixture: the next test finds a daemon that lives."""
        yield self
        if self.daemon.alive():
            self.daemon.close_clients()
            return
        gone = self.daemon
        self.rig.processes.remove(gone)
        self.daemon = self.rig.daemon(lease=self.service.uri)
        raise AssertionError(f"the shared daemon died:\n{gone.describe()}")

    def close(self):
        try:
            if hasattr(self, "service"):
                self.service.close()
        finally:
            self.rig.close()


def granted_again(client, resource, ttl_ms=60000, *options, timeout=RECOVERED_SECONDS):
    """The token of a grant that comes as soon as the service is reached, in time; until then there
    is nothing but LEASEDOWN."""
    def attempt():
        sent = time.monotonic()
        reply = client.ask("ACQUIRE", resource, ttl_ms, *options)
        if isinstance(reply, ReplyError):
            assert reply.code == "LEASEDOWN", reply.text
            return None
        ran_out = (time.monotonic() - sent) * 1000 >= int(ttl_ms)
        assert reply is not None or ran_out, f"{resource!r} is held by another"
        return reply
    return wait_until(attempt, f"{resource!r} is granted again", timeout)[0]
