# SPDX-License-Identifier: Apache-2.0
"""A started process: its output is kept, it is ended by its pid, its exit status is checked."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
import weakref

from harness.limits import HANG_SECONDS, Wait, environment, sanitized

SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: ")
HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
EPOLL_WAITS = {b"232", b"281"}  # epoll_wait and epoll_pwait on x86-64
started = weakref.WeakSet()


def in_epoll_wait(pid):
    """Whether its first thread sleeps there."""
    with open(f"/proc/{pid}/syscall", "rb") as syscall:
        return syscall.read().split(b" ")[0] in EPOLL_WAITS


class Process:
    """One running program. stderr goes to a file, stdout to a pipe that first_line() reads."""

    def __init__(self, name, args, stderr_path, env=None, cwd=None, stdin=subprocess.DEVNULL,
                 pass_fds=()):
        self.name = name
        self.args = [str(arg) for arg in args]
        self.stderr_path = stderr_path
        self.killed = False
        self.awaited = False  # somebody knows that it has ended
        self.expected_status = 0
        self.unread = b""
        with open(stderr_path, "ab") as stderr:
            self.popen = subprocess.Popen(
                self.args, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
                env={**environment(), **(env or {})}, cwd=cwd, pass_fds=pass_fds)
        self.pid = self.popen.pid
        started.add(self)

    def alive(self):
        return self.popen.poll() is None

    def stderr(self):
        return self.stderr_path.read_text(errors="replace")

    def how_it_ended(self):
        status = self.popen.poll()
        if status is None:
            return "it runs"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}"

    def died(self):
        """It has ended, and nobody made it."""
        return not self.alive() and not self.awaited

    def describe(self):
        return f"{' '.join(self.args)}\n{self.how_it_ended()}\n{self.stderr()[-6000:]}"

    def first_line(self, timeout=HANG_SECONDS):
        """The first line on stdout; b"" where the process closed it without one."""
        wait = Wait(timeout)
        descriptor = self.popen.stdout.fileno()
        while b"\n" not in self.unread:
            if not select.select([descriptor], [], [], wait.left)[0]:
                raise wait.late(f"a line on stdout:\n{self.describe()}")
            data = os.read(descriptor, 4096)
            if not data:
                break
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def wait(self, timeout=HANG_SECONDS):
        """Until it ends; the exit status."""
        wait = Wait(timeout)
        try:
            status = self.popen.wait(wait.left)
            self.awaited = True
        except subprocess.TimeoutExpired:
            raise wait.late(f"the process ends:\n{self.describe()}") from None
        self.popen.stdout.close()
        return status

    def signal(self, number):
        if self.name == "stockaded" and number in HANDLED and sanitized("tsan"):
            self._await_sleep()
        self.popen.send_signal(number)

    def _await_sleep(self):
        """ThreadSanitizer puts a signal off that comes while the program runs, and then forgets it
        now and then (2 in 100 right after the start; 0 in 1,700 without it). One that comes while
        the loop sleeps is handled at once. A program that does not sleep gets it all the same."""
        limit = Wait(1)  # then it has the signal all the same
        with contextlib.suppress(OSError):
            while limit.left > 0 and not in_epoll_wait(self.pid):
                time.sleep(0.001)  # a look at /proc, until then

    def kill(self):
        """kill -9: what was not on disk is gone."""
        self.killed = True
        self.popen.kill()
        self.wait()

    def freeze(self):
        """SIGSTOP, and returns only when the process has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self):
        self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def stop(self):
        """SIGTERM, unless it has ended; then the status must be the expected one."""
        try:
            if self.alive():
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGTERM)
            status = self.wait()
        finally:
            if self.alive():
                self.popen.kill()
                self.popen.wait()
            self.popen.stdout.close()
        found = SANITIZER.search(self.stderr())
        assert not found, f"a sanitizer found something:\n{self.describe()}"
        assert self.killed or status == self.expected_status, f"bad exit:\n{self.describe()}"

    def rss_bytes(self):
        return self._status_kb("VmRSS") * 1024

    def peak_rss_bytes(self):
        return self._status_kb("VmHWM") * 1024

    def open_files(self):
        """How many."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _status_kb(self, field):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(re.search(rf"^{field}:\s+(\d+) kB", status.read(), re.M)[1])
