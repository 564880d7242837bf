# SPDX-License-Identifier: Apache-2.0
"""Programs that use our packages, each in its own language, and do what a test says. They read a
call from a line, and say in a word what came of it: a value, or the name of an error.

    caller = Caller(rig, "node")
    caller("open", "shop", relay.uri)
    caller.begin("acquire", "shop", "lease", "sku:1", 60000, 0)     ttl_ms, wait_ms
    caller.cancel()         as a program of this language does: a signal, an abort, an interrupt
    caller.end()            "Cancelled"

clients/caller.* say which calls there are.
"""

import select
import subprocess

from harness.limits import BUILD
from harness.process import Process
from harness.programs import CLASS_PATH, JAVA, NODE, SYSTEM, link_node_modules

PYTHON = ["/usr/bin/python3", SYSTEM / "clients/caller.py"]
PACKAGES = {
    "threads": [*PYTHON, "threads"],
    "asyncio": [*PYTHON, "asyncio"],
    "node": NODE,
    "java": [*JAVA, "-cp", CLASS_PATH, "Caller"],
    "library": [*PYTHON, "library"],
}


class Caller(Process):
    def __init__(self, rig, package):
        self.package = package
        args = PACKAGES[package]
        if package == "node":
            folder = rig.folder / f"caller-{next(rig.number)}"
            folder.mkdir()
            link_node_modules(folder)
            program = folder / "caller.mjs"
            program.symlink_to(SYSTEM / "clients/caller.mjs")
            args = [*args, program]
        super().__init__(f"caller {package}", args, rig.stderr_path("caller"),
                         env={"STOCKADE_BUILD": str(BUILD)}, stdin=subprocess.PIPE)
        rig.processes.append(self)
        self.busy = False

    def begin(self, *words):
        self.busy = True
        self.popen.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.popen.stdin.flush()

    def end(self, timeout=20.0):
        said = self.first_line(timeout)
        assert said, f"it ended without a word:\n{self.describe()}"
        self.busy = False
        return int(said) if said.isdigit() else said

    def silent_for(self, seconds):
        """Whether a call under way goes on for so long."""
        readable, _, _ = select.select([self.popen.stdout.fileno()], [], [], seconds)
        return not self.unread and not readable

    def __call__(self, *words, timeout=20.0):
        self.begin(*words)
        return self.end(timeout)

    def cancel(self):
        self.popen.stdin.write(b"cancel\n")
        self.popen.stdin.flush()

    def stop(self):
        """It ends by itself where nothing of the package's runs any more."""
        self.popen.stdin.close()
        try:
            self.wait()
        finally:
            super().stop()
