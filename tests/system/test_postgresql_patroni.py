# SPDX-License-Identifier: Apache-2.0
"""Two daemons on three PostgreSQL servers under Patroni, which chooses the leader by itself.
FAILOVERS= says how often there is to be another one."""

import contextlib
import itertools
import os
import random
import threading
import time

import pytest

from harness.limits import HANG_SECONDS, patience, wait_until
from harness.patroni import Patroni
from harness.process import Process
from harness.resp import Closed, ReplyError

WRITERS = 4
PASSING = {"STORE", "LEASEDOWN", "BUSY"}
FAILOVERS = int(os.environ.get("FAILOVERS", "4"))
HOWS = ["killed", "switched", "frozen", "server_killed"]

pytestmark = pytest.mark.slow


class Writer(threading.Thread):
    """Adds one again and again, with an ID and without, under a lease that it takes anew now and
    then. What it reads lies between what was acknowledged and that with all that nobody has
    answered."""

    def __init__(self, daemons, number):
        super().__init__()
        self.daemons, self.resource = daemons, f"counter:{number}"
        self.chance = random.Random(number)
        self.ended = threading.Event()
        self.done = self.unknown = 0
        self.low = 0  # what was seen last
        self.token, self.tokens, self.failure = None, [], None
        self.numbers = itertools.count()

    def ask(self, *words, again=True):
        """A final answer; or, where it is not asked again, None for none."""
        deadline = time.monotonic() + patience(120)
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, Closed):
                client = self.chance.choice(self.daemons).client(timeout=patience(HANG_SECONDS))
                with contextlib.closing(client):
                    try:
                        reply = client.ask(*words)
                    except (OSError, Closed):
                        if not again:
                            return None
                        raise
                if not isinstance(reply, ReplyError) or reply.code not in PASSING:
                    return reply
            time.sleep(0.02)  # before it asks another daemon
        raise AssertionError(f"{words}: no answer")

    def acquire(self):
        reply = self.ask("ACQUIRE", self.resource, 600000, "ID", f"a{next(self.numbers)}")
        assert isinstance(reply, list), reply
        assert not self.tokens or reply[0] > self.tokens[-1], (self.tokens, reply)
        self.tokens.append(reply[0])
        self.token = reply[0]

    def add(self):
        named = self.chance.random() < 0.5
        words = ("ID", f"n{next(self.numbers)}") if named else ()
        reply = self.ask("FENCED", self.token, *words, "INCRBY", self.resource, 1, again=named)
        if reply is None:
            self.unknown += 1
            return
        assert isinstance(reply, int), reply
        self.done += 1
        assert reply > self.low, (reply, self.low)
        self.see(reply)

    def see(self, value):
        """Nothing that was seen goes, nothing is lost, nothing is applied twice."""
        bounds = max(self.low, self.done), self.done + self.unknown
        assert bounds[0] <= value <= bounds[1], (value, bounds)
        self.low = value

    def run(self):
        try:
            while not self.ended.is_set():
                if self.token is None:
                    self.acquire()
                for _ in range(20):
                    self.add()
                    self.see(int(self.ask("GET", self.resource) or 0))
                if self.chance.random() < 0.3:
                    self.ask("RELEASE", self.resource, self.token, "ID",
                             f"r{next(self.numbers)}")
                    self.token = None
        except Exception as failure:  # the test tells it
            self.failure = failure


def switch(rig, group):
    """As an operator does it: in order."""
    old = group.await_leader()
    done = Process("patronictl", ["patronictl", "-c", old.config, "switchover", "--force",
                                  "--master", old.name], rig.stderr_path("patronictl"))
    done.wait(60)
    return group.await_leader(other_than=old)


def strike(rig, group, how):
    if how == "killed":
        group.fail_over()
    elif how == "switched":
        switch(rig, group)
    elif how == "frozen":
        old = group.await_leader()
        old.freeze()
        group.await_leader(other_than=old)
        time.sleep(1)  # beside its successor, a while
        old.thaw()
    else:
        group.await_leader().kill_server()
    group.rejoin()


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "synchronous"])
def test_patroni_fails_over_and_nothing_is_lost(rig, strict):
    group = Patroni(rig, strict=strict)
    uri = group.uri(group.database(), connect_timeout=2)
    daemons = [rig.daemon(store=uri) for _ in range(2)]
    writers = [Writer(daemons, number) for number in range(WRITERS)]
    blows = changes = 0
    for writer in writers:
        writer.start()
    try:
        while changes < FAILOVERS:
            how, blows = HOWS[blows % len(HOWS)], blows + 1
            leader = group.await_leader()
            strike(rig, group, how)
            changes += group.await_leader() is not leader
            # Both daemons have to see that a standby is synchronous again: after one more failover
            # they would end all leases.
            before = [writer.low for writer in writers]
            wait_until(lambda: any(w.failure for w in writers) or all(
                w.low > b + 2 for w, b in zip(writers, before)), "all go on", 120)
            assert not any(w.failure for w in writers), [w.failure for w in writers]
    finally:
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join()
        print(f"strict={strict}: {blows} blows, {changes} other leaders, "
              f"{sum(w.done for w in writers)} writes, {sum(w.unknown for w in writers)} unknown, "
              f"{sum(len(w.tokens) for w in writers)} grants")
    for writer in writers:
        assert writer.failure is None, writer.failure
        writer.see(int(writer.ask("GET", writer.resource)))
        assert writer.tokens == sorted(set(writer.tokens))
