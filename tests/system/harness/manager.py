# SPDX-License-Identifier: Apache-2.0
"""Plays the service manager, systemd: it hears what a daemon says of itself (sd_notify), and hands
sockets over (sd_listen_fds)."""

import select
import socket
import sys

from harness.limits import HANG_SECONDS, Wait

# A program is told by LISTEN_PID that sockets are meant for it, and they begin at descriptor 3.
HAND_OVER = """
import fcntl, os, sys
count = int(sys.argv[1])
given = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[2:2 + count]]
for place, fd in enumerate(given, 3):
    os.dup2(fd, place, inheritable=True)
    os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count))
os.execv(sys.argv[2 + count], sys.argv[2 + count:])
"""


def hand_over(**sockets):
    """What starts a daemon with these sockets, as options of rig.start(); a name may end in digits,
    which are not part of it."""
    files = [str(file.fileno()) for file in sockets.values()]
    names = ":".join(name.rstrip("0123456789") for name in sockets)
    return {"wrapper": (sys.executable, "-c", HAND_OVER, str(len(files)), *files),
            "env": {"LISTEN_FDNAMES": names},
            "pass_fds": [file.fileno() for file in sockets.values()]}


class Manager:
    """Hears one daemon."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.env = {"NOTIFY_SOCKET": str(self.path)}
        self.status = ""  # what it has said last that is wrong

    def close(self):
        self.socket.close()

    def hears(self, seconds=0):
        """Whether there is something to be heard within so many seconds."""
        return bool(select.select([self.socket], [], [], seconds)[0])

    def next(self, timeout=HANG_SECONDS):
        """The next message, as a dictionary; `status` has what came before it."""
        wait = Wait(timeout)
        while (message := self._take(wait)).keys() == {"STATUS"}:
            self.status = message["STATUS"]
        return message

    def _take(self, wait):
        if not self.hears(wait.left):
            raise wait.late("a message to the service manager")
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))

    def await_status(self, text):
        """Until it says just that; "": that nothing is wrong."""
        wait = Wait()
        while self.status != text:
            self.status = self._take(wait).get("STATUS", self.status)

    def await_silence(self, seconds):
        """Hear it out, until nothing has come for so long."""
        wait = Wait()
        while self.hears(seconds):
            self.socket.recv(4096)
            wait.check("the daemon is silent")
