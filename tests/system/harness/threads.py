# SPDX-License-Identifier: Apache-2.0
"""Functions that run on threads of their own, beside the test. Their failures are the test's."""

import threading
import time

from harness.limits import HANG_SECONDS, Wait


class Beside(threading.Thread):
    """Runs from now on; end() returns what the function returned, or raises what it raised."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args = function, args
        self.result = self.failure = self.failed_at = None
        self.start()

    def run(self):
        try:
            self.result = self.function(*self.args)
        except BaseException as failure:  # a thread's own would be lost
            self.failed_at = time.monotonic()
            self.failure = failure

    def end(self, seconds=HANG_SECONDS):
        wait = Wait(seconds)
        self.join(wait.left)
        if self.is_alive():
            raise wait.late("a thread ends")
        if self.failure:
            raise self.failure
        return self.result


def at_once(function, each, seconds=HANG_SECONDS):
    """Calls the function with each argument, all at once; the results. Of several failures it is
    the first that is raised: who waited for the one that failed is only its victim."""
    threads = [Beside(function, argument) for argument in each]
    wait, results, failures = Wait(seconds), [], []
    for thread in threads:
        try:
            results.append(thread.end(wait.left))
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append((thread.failed_at or time.monotonic(), failure))
    if failures:
        raise min(failures, key=lambda pair: pair[0])[1]
    return results
