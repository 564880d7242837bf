# SPDX-License-Identifier: Apache-2.0
"""A folder that ends with whoever made it, and with it all that runs inside.

    leash = Leash("postgres", user)      leash.folder is new; user owns it
    leash.close()                        kill -9 to every process whose working directory is there

A server that forks, changes its user or daemonizes is found all the same. A process of its own
keeps the leash: it reads from a pipe whose other end only the test program has, so that nothing is
left where that was killed, too.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

END_SECONDS_MAX = 20
IPC_RMID = 0


def inside(folder):
    """The processes whose working directory is this folder or below it; none that has ended."""
    folder, found = os.path.realpath(folder), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            where = os.readlink(f"/proc/{entry}/cwd").removesuffix(" (deleted)")
            if where == folder or where.startswith(folder + "/"):
                found.append(int(entry))
    return found


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def release(data):
    """PostgreSQL that was killed leaves a piece of System V memory, which its data folder names."""
    with contextlib.suppress(OSError, IndexError):
        line = (pathlib.Path(data) / "postmaster.pid").read_text(encoding="ascii").split("\n")[6]
        ctypes.CDLL(None).shmctl(int(line.split()[1]), IPC_RMID, None)


def end(folder):
    until = time.monotonic() + END_SECONDS_MAX
    while (pids := inside(folder)) and time.monotonic() < until:
        signal_all(pids, signal.SIGKILL)
        time.sleep(0.003)
    for file in pathlib.Path(folder).rglob("postmaster.pid"):
        release(file.parent)
    shutil.rmtree(folder, ignore_errors=True)


class Leash:
    def __init__(self, name, user=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"stockade-{name}-"))
        self.folder.chmod(0o755)
        if user:
            shutil.chown(self.folder, user, user)
        self.keeper = subprocess.Popen([sys.executable, "-I", __file__, self.folder], cwd="/",
                                       stdin=subprocess.PIPE, start_new_session=True)

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait()


if __name__ == "__main__":
    sys.stdin.read()
    end(sys.argv[1])
