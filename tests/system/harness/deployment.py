# SPDX-License-Identifier: Apache-2.0
"""A lease service and a daemon on it, which tests share and leave as they found them: up."""

import contextlib
import os

from harness import services
from harness.limits import HANG_SECONDS, LONG_TTL_MS, Late, wait_until
from harness.resp import Client, Closed, ReplyError
from harness.rig import Rig, restart

LEAVES_SECONDS = 2.0
SILENT_SECONDS = HANG_SECONDS
RECOVERED_SECONDS = 3.0  # after the service's own recovery


class Deployment:
    """`service` with a daemon before it. Where the service is the daemon's own, the daemon is what
    goes down."""

    def __init__(self, folder, name, *args):
        self.rig, self.args = Rig(folder), args
        self.borrower = ""  # the test that has the daemon, or had it last
        self.deaths = []  # of daemons that nobody had just then
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
        """The daemon, for one test. One that has ended or is silent is replaced, and the test that
        had it fails; where that was over already, the session fails at its end, and names it."""
        if not self._is_well():
            self.deaths.append(self._replace())
        self.borrower = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        yield self.daemon
        if not self._is_well():
            raise AssertionError(self._replace())
        self.daemon.await_nothing_left()

    def _is_well(self):
        """It answers after all that was asked of it."""
        try:
            with contextlib.closing(Client(self.daemon.address, timeout=SILENT_SECONDS)) as client:
                return client.ask("PING") is not None
        except (OSError, Closed, Late):
            return False

    def _replace(self):
        """Another daemon instead. What became of the old one, in words."""
        gone = self.daemon
        with contextlib.suppress(Late):
            gone.wait(LEAVES_SECONDS)  # a sanitizer writes its report first
        ended = gone.how_it_ended()
        if gone.alive():
            ended = "it runs, and is silent"
            gone.kill()
        self.rig.processes.remove(gone)
        self.daemon = self.second_daemon()
        return (f"the shared daemon: {ended}. The last test that had it: "
                f"{self.borrower or 'none'}\n{gone.describe()}")

    def close(self):
        try:
            if hasattr(self, "service"):
                self.service.close()
        finally:
            self.rig.close()
        assert not self.deaths, "\n".join(self.deaths)


def token_when_up(client, resource, ttl_ms=LONG_TTL_MS, *options, timeout=HANG_SECONDS):
    """The token of a grant that comes as soon as the service is reached, and has heard of what was
    released meanwhile; until then there is nothing but LEASEDOWN."""
    def attempt():
        reply = client.ask("ACQUIRE", resource, ttl_ms, *options)
        if isinstance(reply, ReplyError):
            assert reply.code == "LEASEDOWN", reply.text
            return None
        return reply
    return wait_until(attempt, f"{resource!r} is granted", timeout)[0]


def granted_again(client, resource, ttl_ms=LONG_TTL_MS, *options):
    """As token_when_up(), in the time that a service has that has recovered by itself."""
    return token_when_up(client, resource, ttl_ms, *options, timeout=RECOVERED_SECONDS)
