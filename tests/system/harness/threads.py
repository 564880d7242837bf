# SPDX-License-Identifier: Apache-2.0
"""Functions that run on threads of their own, beside the test. Their failures are the test's."""

import threading

from harness.limits import HANG_SECONDS, Wait


class Beside(threading.Thread):
    """Runs from now on; end() returns what the function returned, or raises what it raised."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args = function, args
        self.result = self.failure = None
        self.start()

    def run(self):
        try:
            self.result = self.function(*self.args)
        except BaseException as failure:  # a thread's own would be lost
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
    """Calls the function with each argument, all at once; the results."""
    threads = [Beside(function, argument) for argument in each]
    return [thread.end(seconds) for thread in threads]
