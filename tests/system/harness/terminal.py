# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own: keys go in, and what the screen shows can be read.

The terminal is Linux's console, all of which pyte knows. Of xterm's it lacks scrolling by lines,
which ncurses uses now and then.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pyte

from harness.limits import HANG_SECONDS, Wait


class Terminal:
    def __init__(self, words, env, rows=24, columns=80):
        self._fd, inner = pty.openpty()
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._set_size(rows, columns)
        self.process = subprocess.Popen(
            [str(word) for word in words], stdin=inner, stdout=inner, stderr=inner,
            env={**env, "TERM": "linux"}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(inner)

    def _set_size(self, rows, columns):
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """The kernel tells the program by SIGWINCH."""
        self.screen.resize(rows, columns)
        self._set_size(rows, columns)

    def press(self, keys):
        os.write(self._fd, keys.encode())

    def hang_up(self):
        os.close(self._fd)
        self._fd = None

    def _read(self, seconds):
        if select.select([self._fd], [], [], seconds)[0]:
            try:
                self._stream.feed(os.read(self._fd, 1 << 16))
            except OSError:  # the program has ended
                return False
        return True

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines())

    def await_lines(self, predicate, what, timeout=HANG_SECONDS):
        """Until predicate(lines) of what the screen shows is true; returns the lines."""
        wait = Wait(timeout)
        while not predicate(self.lines()):
            wait.check(f"{what}; there is:\n{self.text()}")
            if not self._read(min(wait.left, 0.1)):
                raise AssertionError(f"it ended, and never {what}:\n{self.text()}")
        return self.lines()

    def await_text(self, *texts, gone=()):
        """Until the screen shows all of `texts` and nothing of `gone`; returns its lines."""
        def shown(lines):
            text = "\n".join(lines)
            return all(part in text for part in texts) and not any(part in text for part in gone)
        return self.await_lines(shown, f"{texts} shown, {gone} gone")

    def await_end(self, timeout=HANG_SECONDS):
        """Its exit status."""
        wait = Wait(timeout)
        while self.process.poll() is None:
            wait.check(f"it ends; the screen shows:\n{self.text()}")
            if self._fd is not None:
                self._read(0.02)
        while self._fd is not None and select.select([self._fd], [], [], 0)[0] and self._read(0):
            pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self._fd is not None:
            os.close(self._fd)
