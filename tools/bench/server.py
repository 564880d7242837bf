# SPDX-License-Identifier: Apache-2.0
"""A private server process: started in a folder of its own, metered, ended.

Meters cover the process and its children, those that have ended too. They are read from /proc:
CPU in seconds, bytes that went to the storage layer, memory as its share of what is resident.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/system"))
from harness.ports import free_port  # noqa: E402  # pylint: disable=wrong-import-position

BUILD = ROOT / os.environ.get("STOCKADE_BUILD", "build")
START_S = 60
TICKS = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """A server, a client or a check failed: the figures would be worth nothing."""


def children(pid):
    try:
        direct = [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                  for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return direct + [below for child in direct for below in children(child)]


def field(path, name):
    """Read a number from a file of lines NAME: NUMBER; 0 where the process has ended."""
    try:
        found = re.search(rf"^{name}:\s*(\d+)", pathlib.Path(path).read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


class Server:
    """A running server. Contenders call it by its `tag`; subclasses start and fill it."""

    tag = ""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.process = None
        self.port = free_port()
        self.log = self.folder / "log"

    def fill(self, keys):
        """Put there what the cases of this number of keys expect."""

    def spawn(self, command, **options):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([str(word) for word in command], stderr=log,
                                            stdin=subprocess.DEVNULL,
                                            **{"stdout": log, "cwd": self.folder, **options})

    def wait_for(self, ready):
        """Wait until ready() says so."""
        end = time.monotonic() + START_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > end:
                said = self.log.read_text(errors="replace")[-2000:]
                raise BenchError(f"{self.tag} did not start:\n{said}")
            time.sleep(0.02)

    def answer(self, request):
        """Return what the server says to a few bytes before it hangs up."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(request)
                return b"".join(iter(lambda: client.recv(4096), b""))
        except OSError:
            return b""

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def pids(self):
        return [self.process.pid, *children(self.process.pid)]

    def cpu_s(self):
        total = 0
        for pid in self.pids():
            try:
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue
            total += sum(int(ticks) for ticks in stat.rsplit(")", 1)[1].split()[11:15])
        return total / TICKS

    def disk_bytes(self):
        """Bytes written to the folder's disk, by anybody: the count for a single process takes in
        whole pages of its cache, which may be megabytes."""
        device = self.folder.stat().st_dev
        stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        return int(stat.read_text().split()[6]) * 512 if stat.exists() else 0

    def memory_bytes(self):
        return 1024 * sum(field(f"/proc/{pid}/smaps_rollup", "Pss") for pid in self.pids())

    def kill(self):
        """End it as a crash would; start() brings it back."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
