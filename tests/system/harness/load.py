# SPDX-License-Identifier: Apache-2.0
"""Clients that lease, write and give back without a pause while a lease service fails, and what
must hold of all they saw: no write with a token was accepted once a larger one had been granted,
and tokens rise.

    with Load(daemon, clients=4) as load:
        ...
    load.audit()
"""

import bisect
import collections
import itertools
import random
import threading
import time

from harness.resp import ReplyError

TTL_MS = 1000
STALE_KEPT = 4
# What an ACQUIRE may say while the service fails; or it would wait for its own client.
PARDONED = ("LEASEDOWN", "DEADLOCK")

Grant = collections.namedtuple("Grant", "sent answered token")
Write = collections.namedtuple("Write", "sent token accepted")


class Load:
    def __init__(self, daemon, clients=4, resources=6, seed=1):
        self.resources = [f"load:{i}" for i in range(resources)]
        self.grants = collections.defaultdict(list)
        self.writes = collections.defaultdict(list)
        self.refusals = collections.Counter()
        self.failures = []
        self.ended = threading.Event()
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self._run, daemon=True,
                                         args=(daemon.client(), random.Random(seed * 100 + i)))
                        for i in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def _run(self, client, dice):
        stale = collections.deque(maxlen=STALE_KEPT)
        try:
            while not self.ended.is_set():
                resource = dice.choice(self.resources)
                token = self._acquire(client, resource)
                if token is None:
                    self.ended.wait(0.005)
                    continue
                self._write(client, resource, token)
                for old in list(stale):  # those who woke up too late
                    self._write(client, *old)
                if dice.random() < 0.7:
                    client("RELEASE", resource, token)
                stale.append((resource, token))
        except Exception as failure:  # the main thread is to see it
            self.failures.append(failure)

    def _acquire(self, client, resource):
        sent = time.monotonic()
        reply = client.ask("ACQUIRE", resource, TTL_MS, "WAIT", 50)
        answered = time.monotonic()
        if isinstance(reply, ReplyError):
            if reply.code not in PARDONED:
                raise reply
            self.refusals[reply.code] += 1
            return None
        if reply is None:
            return None
        self.grants[resource].append(Grant(sent, answered, reply[0]))
        return reply[0]

    def _write(self, client, resource, token):
        sent = time.monotonic()
        reply = client.ask("FENCED", token, "SET", resource, next(self.numbers))
        if isinstance(reply, ReplyError) and reply.code != "STALE":
            raise reply
        self.writes[resource].append(Write(sent, token, reply == "OK"))

    def audit(self):
        """Nobody got in the way of anybody; and there was something to see."""
        assert not self.failures, self.failures
        for resource in self.resources:
            grants = sorted(self.grants[resource], key=lambda grant: grant.answered)
            assert len({grant.token for grant in grants}) == len(grants), "each token is new"
            known = list(itertools.accumulate((grant.token for grant in grants), max))
            times = [grant.answered for grant in grants]
            for event in [*grants, *(w for w in self.writes[resource] if w.accepted)]:
                older = bisect.bisect_left(times, event.sent)
                before = known[older - 1] if older else 0
                late = event.token <= before if isinstance(event, Grant) else event.token < before
                assert not late, f"{resource}: {event} came when {before} had been granted"
        writes = [write for written in self.writes.values() for write in written]
        assert any(write.accepted for write in writes), "no write was accepted"
        assert not all(write.accepted for write in writes), "no stale write was tried"
