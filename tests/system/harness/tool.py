# SPDX-License-Identifier: Apache-2.0
"""The `stockade` command line: it is run with a temporary folder of its own, so that whatever it
leaves behind, a process or a file, can be found."""

import os
import pathlib
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, environment, patience, wait_until


class Tool:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "tool-tmp"
        self.folder.mkdir()
        self.env = {**environment(), "TMPDIR": str(self.folder)}

    def run(self, *args, timeout=HANG_SECONDS, **options):
        """Until its end: .returncode, .stdout and .stderr as text."""
        options = {"env": self.env, **options}
        return subprocess.run(self._words(args), timeout=patience(timeout),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)

    def output(self, *args, **options):
        """What it printed; it must succeed, and have nothing to say on stderr."""
        done = self.run(*args, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def start(self, *args, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.env, **options}
        return subprocess.Popen(self._words(args), stdin=subprocess.DEVNULL, text=True, **options)

    def _words(self, args):
        return [str(word) for word in (BUILD / "stockade", *args)]

    def processes(self):
        """What runs with our temporary folder: {pid: (parent, state)}. Servers that rewrite their
        command line and environment are found by the folder that they work in."""
        mark = f"TMPDIR={self.folder}".encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                ours = (mark in (entry / "environ").read_bytes().split(b"\0")
                        or os.readlink(entry / "cwd").startswith(str(self.folder)))
                if ours:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    found[int(entry.name)] = int(fields[1]), fields[0]
            except OSError:
                continue
        return found

    def await_stopped_child(self, running, seconds=HANG_SECONDS):
        """Until a child of the process is stopped, between its read and its write."""
        def stopped():
            if running.poll() is not None:
                said = running.communicate()
                pytest.fail(f"it ended ({running.returncode}) before a child was stopped: {said}")
            return any(state == "T" for parent, state in self.processes().values()
                       if parent == running.pid)
        wait_until(stopped, "a child is stopped", seconds)

    def end_with_a_stopped_child(self, running, number):
        """By a signal: it ends, and so do all who worked for it."""
        self.await_stopped_child(running)
        running.send_signal(number)
        _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
        assert running.returncode == -number
        assert "interrupted" in stderr
        assert self.left_behind() == []
        self.await_no_process()

    def await_no_process(self):
        wait_until(lambda: not self.processes(), f"all are gone: {self.processes()}")

    def left_behind(self):
        return sorted(path.name for path in self.folder.iterdir())

    def expect_nothing_left(self):
        assert self.left_behind() == [] and self.processes() == {}
