# SPDX-License-Identifier: Apache-2.0
"""Notices when the machine stands still: a thread naps, and measures how long that took.

It naps on one core after the other, since a virtual machine can lose one of them alone.
"""

import collections
import itertools
import os
import threading
import time

NAP_S = 0.01
STALL_S = 0.1
STALLS_KEPT_MAX = 10000


class Stalls:
    def __init__(self):
        self.seen = collections.deque(maxlen=STALLS_KEPT_MAX)  # (begun, ended), one after the other
        self._naps = None  # how many there were; None: nobody watches

    def watch(self):
        """From now on, on a thread."""
        self._naps = 0
        threading.Thread(target=self._nap, daemon=True).start()
        self._await_naps(1)
        return self

    def _await_naps(self, count):
        due = (self._naps or 0) + count
        while self._naps is not None and self._naps < due:
            time.sleep(NAP_S)

    def _nap(self):
        now = time.monotonic()
        for core in itertools.cycle(sorted(os.sched_getaffinity(0))):
            due = now + NAP_S
            os.sched_setaffinity(0, {core})  # this thread's alone
            time.sleep(NAP_S)
            now = time.monotonic()
            if now - due >= STALL_S:
                self.seen.append((due, now))
            self._naps += 1

    def excuse(self, begun, ended, allowed):
        """How long the machine stood still from `begun` to `ended`, all in seconds, where that
        explains why it took longer than allowed: without it there had been time enough, and it is
        at least half of the whole. Else 0."""
        self._await_naps(1 + len(os.sched_getaffinity(0)))  # what lasts until now is seen by then
        stood = sum(max(0, min(ended, to) - max(begun, since)) for since, to in list(self.seen))
        took = ended - begun
        return stood if stood >= max(took - allowed, took / 2) else 0
