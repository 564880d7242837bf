# SPDX-License-Identifier: Apache-2.0
"""Deadlines, and where the binaries are.

Every wait in these tests has a deadline. Sanitized builds are slower, so each deadline is
stretched by one factor, found from the binary itself.
"""

import functools
import os
import pathlib
import time

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = (REPO / os.environ.get("STOCKADE_BUILD", "build")).resolve()


@functools.lru_cache(maxsize=None)
def sanitized():
    """True where the daemon was built with ASan or TSan: slower, and larger."""
    binary = (BUILD / "stockaded").read_bytes()
    return b"__asan_init" in binary or b"__tsan_init" in binary


def patience(seconds):
    return seconds * (6 if sanitized() else 1)


def wait_until(predicate, what, timeout=5.0):
    """Polls until predicate() is true and returns its value; fails with `what` at the deadline."""
    deadline = time.monotonic() + patience(timeout)
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience(timeout):g} s: {what}")
        time.sleep(0.003)


class Seconds(float):
    """A duration that writes down which upper bounds it was found to miss: harness/late.py."""

    missed = []

    def __lt__(self, bound):
        if float(self) < bound:
            return True
        self.missed.append(f"{float(self):.2f} s, not below {float(bound):.2f} s")
        return False


class Stopwatch:
    """How long a block took, for bounds on waiting: assert watch.seconds < bound."""

    def __enter__(self):
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = Seconds(time.monotonic() - self.begun)
