# SPDX-License-Identifier: Apache-2.0
"""Two daemons on a replicated group of PostgreSQL servers, whose primary dies, freezes and is cut
off, again and again: what was acknowledged stays, nothing is applied twice, no token comes twice,
and no read is older than what its client was told before."""

import os
import random
import threading
import time

import pytest

from harness.limits import patience, wait_until
from harness.replicated import Replicated
from harness.resp import Closed, ReplyError

FAILOVERS = int(os.environ.get("FAILOVERS", "6"))
SEED = int(os.environ.get("SEED", "1"))
CLIENTS = 6
PASSING = {"STORE", "LEASEDOWN", "BUSY"}


class Counter(threading.Thread):
    """A client that adds one again and again to a resource of its own, each time once, and reads it
    through either daemon in between."""

    def __init__(self, daemons, number):
        super().__init__()
        self.daemons, self.resource = daemons, f"counter:{number}"
        self.chance = random.Random(SEED * 100 + number)
        self.ended = threading.Event()
        self.told, self.failure, self.refused, self.tokens = 0, None, 0, []

    def ask(self, *words):
        """Asks until there is an answer that is final."""
        deadline = time.monotonic() + patience(60)
        while time.monotonic() < deadline:
            client = None
            try:
                client = self.chance.choice(self.daemons).client(timeout=patience(30))
                reply = client.ask(*words)
                if not isinstance(reply, ReplyError) or reply.code not in PASSING:
                    return reply
            except (OSError, Closed):
                pass
            finally:
                if client:
                    client.close()
            self.refused += 1
            time.sleep(0.02)  # as a client would: the database is away
        raise AssertionError(f"{words}: no answer")

    def acquire(self):
        reply = self.ask("ACQUIRE", self.resource, 600000, "OWNER", self.resource)
        assert isinstance(reply, list), reply
        if not self.tokens or reply[0] != self.tokens[-1]:
            assert not self.tokens or reply[0] > self.tokens[-1], (self.tokens, reply)
            self.tokens.append(reply[0])
        return reply[0]

    def run(self):
        try:
            token, number = self.acquire(), 0
            while not self.ended.is_set():
                number += 1
                reply = self.ask("FENCED", token, "ID", f"n{number}", "INCRBY", self.resource, 1)
                if isinstance(reply, ReplyError) and reply.code == "STALE":
                    raise AssertionError("a lease was lost though replication is synchronous")
                assert reply == self.told + 1, (reply, self.told)
                self.told = reply
                seen = self.ask("GET", self.resource)
                assert seen == str(self.told).encode(), (seen, self.told)
        except Exception as failure:  # the test tells it
            self.failure = failure


def strike(group, chance):
    """The primary goes in one of the ways in which machines go. True: another one follows it."""
    how = chance.choice(["kill", "kill", "freeze", "cut off", "restart"])
    old = group.primary
    if how == "restart":
        old.restart("kill")
        return how
    if how == "freeze":
        old.freeze()
    if how == "cut off":
        group.partition(old)
    group.fail_over()
    if how == "freeze":
        old.thaw()
    group.heal()
    group.rejoin()
    return how


@pytest.mark.slow
def test_failovers_lose_nothing_and_apply_nothing_twice(rig):
    group = Replicated(rig)
    database = group.database()
    daemons = [rig.daemon(store=group.door(f"door {i}").uri(database)) for i in range(2)]
    counters = [Counter(daemons, i) for i in range(CLIENTS)]
    chance, hows = random.Random(SEED), []
    for counter in counters:
        counter.start()
    try:
        for _ in range(FAILOVERS):
            before = [counter.told for counter in counters]
            hows.append(strike(group, chance))
            wait_until(lambda: any(c.failure for c in counters) or all(
                c.told > b + 2 for c, b in zip(counters, before)), "all go on", 60)
            assert not any(c.failure for c in counters), [c.failure for c in counters]
    finally:
        for counter in counters:
            counter.ended.set()
        for counter in counters:
            counter.join()
        print(f"{FAILOVERS} failovers ({', '.join(hows)}): {sum(c.told for c in counters)} writes,"
              f" {sum(c.refused for c in counters)} attempts without an answer")
    for counter in counters:
        assert counter.failure is None, counter.failure
        assert counter.ask("GET", counter.resource) == str(counter.told).encode()
