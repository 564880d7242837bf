# SPDX-License-Identifier: Apache-2.0
"""Which tests reach which lines of the product's C code, and how long each takes.

Everything is built with gcc's counters, the library and the extension, too; each unit program and
each file of system tests then runs with a folder of its own for them (GCOV_PREFIX). A daemon that a
test kills writes none, so what only such a one reaches counts as reached by nobody. What is found
is kept, with the text of the files: where they have changed since, lines that are still there keep
their tests.
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
    def __init__(self, kept):
        self.seconds, self.text = kept["seconds"], kept["text"]
        self.lines = {file: {int(line): tests for line, tests in lines.items()}
                      for file, lines in kept["lines"].items()}

    @classmethod
    def of(cls, tree, folder, at_once, again=False):
        """What was kept in this folder, or else found out now."""
        kept = folder / "reach.json"
        if again or not kept.exists():
            kept.write_text(json.dumps(measure(tree, folder / "reach", at_once)))
        return cls(json.loads(kept.read_text())).brought_up_to(tree)

    def brought_up_to(self, tree):
        """The numbers that the lines have today."""
        for file, lines in self.lines.items():
            path = tree / file
            before, after = self.text[file], path.read_text().splitlines() if path.exists() else []
            if before != after:
                today = {}
                for a, b, size in difflib.SequenceMatcher(
                        None, before, after, autojunk=False).get_matching_blocks():
                    today.update({b + n + 1: lines[a + n + 1] for n in range(size)
                                  if a + n + 1 in lines})
                self.lines[file] = today
        return self


def measure(tree, build, at_once):
    started = time.monotonic()
    print("Which tests reach which lines? It takes half an hour on two cores, and is kept.")
    status, output = run(["make", "CC=gcc --coverage", "OPTIMISE=-O0", "CFLAGS=-Wno-error",
                          f"BUILD={build.relative_to(tree)}", "all", "tests"], tree,
                         BUILD_SECONDS_MAX)
    if status != 0:
        raise SystemExit(f"the build with counters failed:\n{tail(output)}")
    print(f"built: {time.monotonic() - started:.0f} s", flush=True)
    tests, kept, lock = all_tests(tree), {"seconds": {}, "lines": {}, "text": {}}, threading.Lock()

    def follow(test):
        with tempfile.TemporaryDirectory(prefix="reach-") as folder:
            os.chmod(folder, 0o777)  # some daemons run as another user
            begun = time.monotonic()
            status, output = run(command_of(test, build), tree, TEST_SECONDS_MAX,
                                 GCOV_PREFIX=folder, STOCKADE_BUILD=str(build.relative_to(tree)))
            seconds = time.monotonic() - begun
            reached = lines_reached(tree, folder)
        with lock:
            kept["seconds"][test] = round(seconds, 2)
            for file, lines in reached.items():
                for line in lines:
                    kept["lines"].setdefault(file, {}).setdefault(line, []).append(test)
            count = sum(map(len, reached.values()))
            odd = "" if status in (0, 5) else "  (fails here: " + "; ".join(
                re.findall(r"^(?:not ok \d+|FAILED|ERROR) .*", output, re.M)[:2] or [
                    str(status)])[:150] + ")"
            print(f"[{len(kept['seconds'])}/{len(tests)}] {test}: {count} lines, "
                  f"{seconds:.1f} s{odd}", flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(follow, tests))
    for file in kept["lines"]:
        kept["text"][file] = (tree / file).read_text().splitlines()
    print(f"in all: {time.monotonic() - started:.0f} s", flush=True)
    return kept
