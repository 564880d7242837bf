# SPDX-License-Identifier: Apache-2.0
"""Redlock's masters: redis-servers that know nothing of each other."""

from harness.limits import patience
from harness.services import Service


class Redlock(Service):
    name = "redlock"
    programs = ("redis-server",)
    timeout_ms = int(patience(500))  # the machine may be busy; 100 is the default

    def __init__(self, rig, count=5, args=()):
        super().__init__(rig)
        self.args = args
        self.masters = [rig.redis(args=args, certs=self.certs) for _ in range(count)]

    @property
    def uri(self):
        hosts = ",".join("{}:{}".format(*master.address) for master in self.masters)
        scheme = "redlock+tls" if self.tls else "redlock"
        options = "&".join([f"timeout_ms={self.timeout_ms}", *self.tls_options])
        return f"{scheme}://{hosts}?{options}"

    def kill(self, *numbers):
        for number in numbers:
            self.masters[number].kill()

    def start(self, *numbers):
        """Empty, at the same addresses."""
        for number in numbers:
            old = self.masters[number]
            self.masters[number] = self.rig.redis(port=old.address[1], folder=old.folder,
                                                  args=self.args, certs=self.certs)

    def down(self):
        self.kill(*range(len(self.masters)))

    def up(self):
        self.start(*range(len(self.masters)))

    def lose_all(self):
        for master in self.masters:
            master("FLUSHALL")


class RedlockTls(Redlock):
    tls = True
