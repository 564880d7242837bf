# SPDX-License-Identifier: Apache-2.0
"""Deadlines, and where the binaries are.

Every wait in these tests has a deadline. It tells a hang, and no more: a wait ends by its event,
and a machine with fifteen programs on two cores takes ten times as long for that. What must be
quick is measured, and compared with a bound. Sanitized builds are slower, so all of these are
stretched by one factor, found from the binary itself.
"""

import contextlib
import functools
import os
import pathlib
import time

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = (REPO / os.environ.get("STOCKADE_BUILD", "build")).resolve()
DAEMON = BUILD / os.environ.get("STOCKADE_DAEMON", "stockaded")

HANG_SECONDS = 60.0
LONG_TTL_MS = 600_000  # of a lease, or a wait, that is to outlast its test


def environment():
    """What a program of ours is started with: not the tests' own STOCKADE_ variables, of which it
    would complain."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STOCKADE_")}


@functools.cache
def sanitized(*sanitizers):
    """Whether the daemon was built with one of these, or with any: slower then, and larger."""
    binary = (BUILD / "stockaded").read_bytes()
    return any(f"__{name}_init".encode() in binary for name in sanitizers or ("asan", "tsan"))


class Stretched(float):
    """Seconds that have been stretched, and are not stretched again."""


def patience(seconds):
    if isinstance(seconds, Stretched):
        return seconds
    return Stretched(seconds * (6 if sanitized() else 1))


class Late(AssertionError):
    """An interval of the monotonic clock that took longer than allowed: a wait whose deadline
    passed, or a measurement above its bound. The only failure that a machine which stood still may
    excuse (harness/late.py), so nothing else is told by it."""

    def __init__(self, what, begun, allowed, ended=None):
        self.begun, self.ended, self.allowed = begun, ended or time.monotonic(), allowed
        super().__init__(what)


class Wait:
    """The time that a wait may take, from now: a loop that ends by `check`, or waits on something
    for `left`."""

    def __init__(self, timeout=HANG_SECONDS):
        self.begun, self.allowed = time.monotonic(), patience(timeout)

    @property
    def left(self):
        return max(0, self.begun + self.allowed - time.monotonic())

    def late(self, what):
        return Late(f"not within {self.allowed:g} s: {what}", self.begun, self.allowed)

    def check(self, what):
        if self.left == 0:
            raise self.late(what)


def wait_until(predicate, what, timeout=HANG_SECONDS):
    """Polls until predicate() is true and returns its value; fails with `what` at the deadline."""
    wait = Wait(timeout)
    while True:
        value = predicate()
        if value:
            return value
        wait.check(what)
        time.sleep(0.003)


class Seconds(float):
    """A duration that was measured, of the monotonic clock: `seconds < bound` is true or raises
    Late. (Two of them compare as numbers do, so that they can be sorted.)"""

    def __new__(cls, begun, ended=None):
        ended = time.monotonic() if ended is None else ended
        seconds = super().__new__(cls, ended - begun)
        seconds.begun, seconds.ended = begun, ended
        return seconds

    def __lt__(self, bound):
        if isinstance(bound, Seconds) or float(self) < bound:
            return float(self) < float(bound)
        raise Late(f"{float(self):.2f} s, not below {float(bound):.2f} s", self.begun, bound,
                   self.ended)


@contextlib.contextmanager
def within(seconds):
    """The block must take less than this."""
    begun = time.monotonic()
    yield
    assert Seconds(begun) < seconds


class Stopwatch:
    """How long a block took: assert low < watch.seconds < high."""

    def __enter__(self):
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = Seconds(self.begun)
