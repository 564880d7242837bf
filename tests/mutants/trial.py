# SPDX-License-Identifier: Apache-2.0
"""What planting a defect takes: a copy of the tree, its build, and a test that has to fail."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BUILD_SECONDS_MAX = 900
FIRST_RUN_SECONDS_MAX = 300
LINES_SHOWN_MAX = 15
# What a make above us was told is not for those below.
NOT_INHERITED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ONLY", "SAMPLE", "SEED", "N",
                 "RUNS", "SECONDS", "FUZZ", "BUILD", "STOCKADE_BUILD", "CC", "CFLAGS", "OPTIMISE",
                 "SANITIZE", "COVERAGE", "SUITES")
# Unit programs that these files run.
NEEDED = {"test_postgresql_libpq": ["tests/unit/store/postgresql_refusals_test"],
          "test_turns": ["tests/unit/engine/turns_test"]}
# What of a whole file is run: measurements want a machine that nobody else uses.
FAST = "not slow and not page and not alone"

running = set()


class Bad(Exception):
    """Why a mutant counts as failed: (verdict, detail)."""


def tail(output):
    return "\n".join(output.rstrip().splitlines()[-LINES_SHOWN_MAX:])


def run(command, folder, seconds, **settings):
    """Returns (exit status, or None where it took too long; output)."""
    env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    env.update({"CMOCKA_MESSAGE_OUTPUT": "TAP", "STOCKADE_BUILD": "build/plain", **settings})
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        running.add(process)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
            running.discard(process)
        output.seek(0)
        return status, output.read().decode(errors="replace")


def end_group(process):
    """Ends what is left of it: gently, so that it can clean up, then surely."""
    for number, patience in ((signal.SIGINT, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def interrupt(*_):
    raise KeyboardInterrupt


def run_program(main):
    """So that nothing is left running where the program is interrupted."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        main()
    except KeyboardInterrupt:
        for process in list(running):
            end_group(process)
        sys.exit(130)


class Catcher:
    """A command that fails where the code is wrong."""

    def __init__(self, words, patience):
        kind, *args = words.split() or [""]
        self.patience = patience
        self.plain = kind in ("unit", "system")
        self.targets = []
        if kind == "unit" and len(args) == 1:
            self.targets = [f"build/plain/tests/unit/{args[0]}"]
            self.command = self.targets
            self.proof = r"^ok \d+"
        elif kind == "system" and len(args) == 1:
            file, _, test = args[0].partition("::")
            file = file.removesuffix(".py")
            self.targets = ["all", "helpers"]
            self.targets += [f"build/plain/{needed}" for needed in NEEDED.get(file, ())]
            which = ["-m", "", f"tests/system/{file}.py::{test}"] if test else [
                "-m", FAST, "-n", "3", "--dist", "loadgroup", f"tests/system/{file}.py"]
            self.command = ["/usr/bin/python3", "-m", "pytest", "-q", "-x", *which]
            self.proof = r"[1-9]\d* passed"
        else:
            variables = {"sim": args, "crash": args, "torture": ["SECONDS=" + "".join(args)],
                         "fuzz": ["FUZZ=" + "".join(args[:1]), "SECONDS=" + "".join(args[1:])]}
            if kind not in variables or any("=" not in v for v in variables[kind]):
                raise Bad("BAD ENTRY", f"no such catcher: {words}")
            self.command = ["make", "CFLAGS=-Wno-error", "BUILD=build/whole", kind,
                            *variables[kind]]
            self.proof = r"^[1-9]\d* passed, 0 failed$"
        self.lock = threading.Lock()
        self.seconds_max = None
        self.trouble = None

    def build(self, copy, file):
        return copy.build(self.targets, file, "build/plain" if self.plain else "build/whole",
                          *(["OPTIMISE=-O0"] if self.plain else []))

    def prove(self, copy, file):
        """That it passes as things are, or what it catches means nothing. Once."""
        with self.lock:
            if self.seconds_max is None and self.trouble is None:
                status, output = self.build(copy, file)
                if status == 0:
                    started = time.monotonic()
                    status, output = run(self.command, copy.root, FIRST_RUN_SECONDS_MAX)
                    self.seconds_max = self.patience + 5 * (time.monotonic() - started)
                if status != 0 or not re.search(self.proof, output, re.M):
                    self.trouble = tail(output)
            if self.trouble is not None:
                raise Bad("CATCHER FAILS WITHOUT A DEFECT", self.trouble)

    def ask(self, copy):
        """(exit status, or None where it hung; output)"""
        return run(self.command, copy.root, self.seconds_max)

    def catches(self, copy):
        """How the defect showed, or None."""
        status, output = self.ask(copy)
        if status is None:
            return "hung"
        if self.command[2:3] == ["pytest"] and status not in (0, 1):
            raise Bad("CATCHER BROKE", tail(output))
        return None if status == 0 else "caught"


class Copy:
    """A copy of the tree, in which one defect at a time is tried."""

    def __init__(self, tree, root):
        self.root = root
        (root / "build").mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=tree,
                                check=True, capture_output=True, text=True).stdout.split("\0")
        files = {name for name in listed if name and (tree / name).is_file()}
        for name in sorted(files):
            self.refresh(tree / name, root / name)
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in ("build", "node_modules", "__pycache__")]
            for path in (Path(folder) / name for name in names):
                if str(path.relative_to(root)) not in files:
                    path.unlink()
        clients = Path("tests/system/node_modules")
        if (tree / clients).is_dir() and not (root / clients).exists():
            (root / clients).symlink_to(tree / clients)

    @staticmethod
    def refresh(source, target):
        """Equal files keep their time, so that make does not build them again."""
        if target.is_file() and target.read_bytes() == source.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)

    @contextlib.contextmanager
    def planted(self, file, text):
        """The file says that, for so long."""
        path = self.root / file
        whole = path.read_text()
        try:
            path.write_text(text)
            yield
        finally:
            path.write_text(whole)

    def build(self, targets, file, build="build/plain", *flags):
        """A defect may leave a variable unused: warnings are no errors here."""
        targets = [f"{build}/daemon.a", *targets]
        if file.endswith(".c"):
            targets.append(f"{build}/obj/{file.removesuffix('.c')}.o")
        return run(["make", f"BUILD={build}", "CFLAGS=-Wno-error", *flags, *targets], self.root,
                   BUILD_SECONDS_MAX)
