# SPDX-License-Identifier: Apache-2.0
"""Which tests reach which lines of the product's C code, and how long each takes.

Everything is built with gcc's counters, the library and the extension, too; each unit program and
each file of system tests then runs with a folder of its own for them (GCOV_PREFIX). A daemon that a
test kills writes none, so what only such a one reaches counts as reached by nobody. What is found
is kept, with the text of the files: where they have changed since, lines that are still there keep
their tests. What nobody knows of a test is found out: all at first, new tests later.
"""
import difflib
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trial import FAST, run, tail

PRODUCT = ("fence/", "store/", "proxy/", "tools/")
BUILD_SECONDS_MAX = 3600
TEST_SECONDS_MAX = 900
FILES_AT_ONCE = 50
NO_TESTS = 5  # pytest's exit status: all are marked slow


def command_of(test, build):
    kind, _, name = test.partition(" ")
    if kind == "unit":
        return [str(build / "tests/unit" / name)]
    return ["/usr/bin/python3", "-m", "pytest", "-q", "-m", FAST, "-n", "3", "--dist", "loadgroup",
            f"tests/system/{name}.py"]


def all_tests(tree):
    units = sorted((tree / "tests/unit").rglob("*_test.c"))
    files = sorted((tree / "tests/system").glob("test_*.py"))
    return [f"unit {path.relative_to(tree / 'tests/unit').with_suffix('')}" for path in units] + [
        f"system {path.stem}" for path in files]


def lines_reached(tree, folder):
    """{file: lines} by the counters that were left in this folder."""
    reached = {}
    counters = sorted(Path(folder).rglob("*.gcda"))
    for path in counters:
        notes = Path("/") / path.relative_to(folder).with_suffix(".gcno")
        path.with_suffix(".gcno").symlink_to(notes)
    for first in range(0, len(counters), FILES_AT_ONCE):
        done = subprocess.run(["gcov", "--json-format", "--stdout",
                               *map(str, counters[first:first + FILES_AT_ONCE])],
                              cwd=tree, capture_output=True, text=True)
        for document in filter(None, done.stdout.splitlines()):
            for file in json.loads(document)["files"]:
                if file["file"].startswith(PRODUCT):
                    reached.setdefault(file["file"], set()).update(
                        line["line_number"] for line in file["lines"] if line["count"])
    return reached


class Reach:
    """`seconds`: {test: how long it takes}; `lines`: {file: {line: the tests that reach it}}."""

    def __init__(self, tree, folder):
        """What was kept in this folder."""
        self.tree, self.build, self.kept = tree, folder / "reach", folder / "reach.json"
        self.seconds, self.lines, self.text = {}, {}, {}
        if self.kept.exists():
            kept = json.loads(self.kept.read_text())
            self.seconds, self.text = kept["seconds"], kept["text"]
            self.lines = {file: {int(line): tests for line, tests in lines.items()}
                          for file, lines in kept["lines"].items()}
        self.lock = threading.Lock()

    def keep(self):
        fresh = self.kept.with_suffix(".new")
        fresh.write_text(json.dumps({"seconds": self.seconds, "text": self.text,
                                     "lines": self.lines}))
        fresh.rename(self.kept)

    def about(self, file):
        """{test: how much of the file it reaches}; a line that many reach counts less."""
        share = {}
        for tests in self.lines[file].values():
            for test in tests:
                share[test] = share.get(test, 0) + 1 / len(tests)
        return share

    def bring_up_to_date(self):
        """The numbers that the lines have today, and the tests that there are."""
        tests = all_tests(self.tree)
        self.seconds = {test: s for test, s in self.seconds.items() if test in tests}
        for file, lines in self.lines.items():
            path = self.tree / file
            before, after = self.text[file], path.read_text().splitlines() if path.exists() else []
            today = {}
            for a, b, size in [(0, 0, len(before))] if before == after else difflib.SequenceMatcher(
                    None, before, after, autojunk=False).get_matching_blocks():
                today.update({b + n: lines[a + n] for n in range(1, size + 1) if a + n in lines})
            self.text[file] = after
            self.lines[file] = {line: [test for test in there if test in self.seconds]
                                for line, there in today.items()}
        return [test for test in tests if test not in self.seconds]

    def measure(self, at_once):
        """Those tests of which nothing is known yet. Each is kept at once: it takes long."""
        missing = self.bring_up_to_date()
        if not missing:
            return self
        print(f"Which lines do {len(missing)} tests reach? For all it takes half an hour on two "
              "idle cores, and is kept.", flush=True)
        started = time.monotonic()
        self.make()
        print(f"built: {time.monotonic() - started:.0f} s", flush=True)
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda test: self.follow(test, len(missing)), missing))
        print(f"in all: {time.monotonic() - started:.0f} s", flush=True)
        return self

    def make(self):
        status, output = run(["make", "CC=gcc --coverage", "OPTIMISE=-O0", "CFLAGS=-Wno-error",
                              f"BUILD={self.build.relative_to(self.tree)}", "all", "tests"],
                             self.tree, BUILD_SECONDS_MAX)
        if status != 0:
            raise SystemExit(f"the build with counters failed:\n{tail(output)}")

    def follow(self, test, count):
        with tempfile.TemporaryDirectory(prefix="reach-") as folder:
            os.chmod(folder, 0o777)  # some daemons run as another user
            begun = time.monotonic()
            status, output = run(command_of(test, self.build), self.tree, TEST_SECONDS_MAX,
                                 GCOV_PREFIX=folder,
                                 STOCKADE_BUILD=str(self.build.relative_to(self.tree)))
            seconds = time.monotonic() - begun
            reached = lines_reached(self.tree, folder)
        with self.lock:
            self.seconds[test] = round(seconds, 2)
            for file, lines in reached.items():
                self.text.setdefault(file, (self.tree / file).read_text().splitlines())
                for line in lines:
                    self.lines.setdefault(file, {}).setdefault(line, []).append(test)
            self.keep()
            print(f"{test}: {sum(map(len, reached.values()))} lines, {seconds:.1f} s"
                  f"{self.trouble(status, output)}", flush=True)

    @staticmethod
    def trouble(status, output):
        if status in (0, NO_TESTS):
            return ""
        said = re.findall(r"^(?:not ok \d+|FAILED|ERROR) .*", output, re.M)[:2] or [str(status)]
        return f"  (fails here: {'; '.join(said)[:150]})"
