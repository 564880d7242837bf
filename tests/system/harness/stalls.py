# SPDX-License-Identifier: Apache-2.0
"""Notices where the machine stands still: a thread that naps, and looks how long that took.

It naps on one core after the other, since a virtual machine can lose one of them alone.
"""

import collections
import os
import threading
import time

NAP_S = 0.01
STALL_S = 0.1
STALLS_KEPT_MAX = 10000


class Stalls:
    def __init__(self):
        self._seen = collections.deque(maxlen=STALLS_KEPT_MAX)  # (when it ended, seconds)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        cores = sorted(os.sched_getaffinity(0))
        while True:
            for core in cores:
                begun = time.monotonic()
                os.sched_setaffinity(0, {core})  # this thread's alone
                time.sleep(NAP_S)
                now = time.monotonic()
                if now - begun - NAP_S >= STALL_S:
                    self._seen.append((now, now - begun - NAP_S))

    def longest_since(self, when):
        """In seconds; 0 where there was none of STALL_S and more."""
        time.sleep(2 * NAP_S * len(os.sched_getaffinity(0)))  # one that ends now is seen by then
        return max((seconds for ended, seconds in list(self._seen) if ended >= when), default=0)
