# SPDX-License-Identifier: Apache-2.0
"""Deals out the faults, by seed: which, to whom, when, for how long.

A fault has a begin and an end. Each victim suffers one at a time, and few suffer at once; only one
daemon does, for none can start while a frozen one holds the lock of the file.
"""

import collections
import contextlib
import heapq
import itertools
import random
import time

from harness.resp import ReplyError

from torture.failovers import Failovers

AT_ONCE_MAX = 3
SUFFERING_MAX = {"daemon": 1, "redis": 1, "master": 1, "slot": 1}


class Nemesis:
    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.chance = random.Random(f"{seed} nemesis")
        self.active = []           # heap of (until, number, victim, end)
        self.numbers = itertools.count()
        self.log = []              # (moment, words)
        self.counts = collections.Counter()
        self.failovers = None
        if cluster.group is not None:
            self.failovers = Failovers(cluster, seed, self.note)

    def kinds(self):
        """(weight, kind of victim, name, function of a victim's number)"""
        kinds = [
            (3, "client", "SIGSTOP client", self.stop_client),
            (2, "client", "SIGKILL client", self.kill_client),
            (4, "daemon", "SIGSTOP daemon", self.stop_daemon),
            (4, "daemon", "SIGKILL daemon", self.kill_daemon),
            (1, "daemon", "SIGTERM daemon", self.end_daemon),
            (3, "link", "delay", self.delay), (2, "link", "stall", self.stall),
            (4, "link", "cut", self.cut), (2, "link", "half-close", self.half_close),
            (1, "link", "refuse", self.refuse),
        ]
        if self.cluster.masters is not None:
            return kinds + [
                (16, "slot", "slot moved", self.move_slot),
                (2, "master", "SIGSTOP master", self.stop_master),
                (2, "master", "SIGKILL master", self.kill_master),
                (1, "master", "FLUSHALL of a master", self.flush_master),
            ]
        if self.cluster.group is not None:
            return kinds + [(2, "door", "delay a daemon's way to PostgreSQL", self.delay),
                            (2, "door", "cut a daemon's way to PostgreSQL", self.cut)]
        if self.cluster.redis is None:
            return kinds
        return kinds + [
            (2, "redis", "SIGSTOP Redis", self.stop_redis),
            (2, "redis", "SIGKILL Redis", self.kill_redis),
            (2, "redis", "AOF truncated", self.truncate_redis),
            (1, "redis", "Redis emptied", self.empty_redis),
            (3, "redis", "FLUSHALL", self.flush_redis),
            (2, "redis link", "delay Redis", self.delay), (2, "redis link", "stall Redis",
                                                           self.stall),
            (2, "redis link", "cut Redis", self.cut),
            (3, "redis link", "delay over FLUSHALL", self.delay_over_flush),
        ]

    def victims(self, kind):
        cluster = self.cluster
        return {"client": range(len(cluster.clients)), "daemon": range(len(cluster.daemons)),
                "redis": range(1), "redis link": cluster.redis_relays, "slot": cluster.keys(),
                "master": range(len(cluster.masters.nodes) if cluster.masters else 0),
                "door": [relay for door in cluster.doors for relay in door.relays.values()],
                "link": [relay for row in cluster.relays for relay in row]}[kind]

    def strike(self):
        weights, kinds = zip(*((kind[0], kind) for kind in self.kinds()))
        _, kind, name, act = self.chance.choices(kinds, weights)[0]
        suffering = [victim for _, _, victim, _ in self.active]
        if sum(victim[0] == kind for victim in suffering) >= SUFFERING_MAX.get(kind, 2):
            return
        victim = self.chance.choice(list(self.victims(kind)))
        if (kind, victim) in suffering:
            return
        done = act(victim)
        if done is None:
            return
        seconds, end, words = done
        self.counts[name] += 1
        self.note(words)
        heapq.heappush(self.active, (time.monotonic() + seconds, next(self.numbers),
                                     (kind, victim), end))

    def note(self, words):
        self.log.append((time.monotonic(), words))

    def between(self, low, high):
        """Mostly short."""
        return low + (high - low) * self.chance.random() ** 2

    def stop_process(self, process, name, high):
        if process is None or not process.alive():
            return None
        process.freeze()

        def end():
            if process.alive():
                process.thaw()
                self.note(f"SIGCONT {name}")
        return self.between(0.02, high), end, f"SIGSTOP {name}"

    def stop_client(self, number):
        process = self.cluster.clients[number]
        return self.stop_process(process, process.name, 2.0)

    def kill_client(self, number):
        process = self.cluster.clients[number]
        if not process.alive():
            return None
        process.kill()

        def end():
            self.cluster.start_client(number)
        return self.between(0.0, 0.5), end, f"SIGKILL {process.name}"

    def stop_daemon(self, number):
        # With PostgreSQL it holds others up for a while: long enough for them to go on without it.
        high = 1.5 if self.cluster.group is None else 6.0
        return self.stop_process(self.cluster.daemons[number], f"d{number}", high)

    def kill_daemon(self, number):
        self.cluster.daemons[number].kill()
        return self.between(0.0, 0.5), self.starter(number), f"SIGKILL d{number}"

    def starter(self, number):
        def end():
            self.cluster.start_daemon(number)
            self.note(f"start d{number}")
        return end

    def end_daemon(self, number):
        self.note(f"SIGTERM d{number}")
        self.cluster.end_daemon(number)
        return self.between(0.0, 0.2), self.starter(number), f"ended d{number}"

    def stop_redis(self, _):
        return self.stop_process(self.cluster.redis, "Redis", 1.5)

    def kill_redis(self, _, words="SIGKILL Redis", **how):
        self.cluster.redis.kill()

        def end():
            self.cluster.start_redis(**how)
            self.note("start Redis")
        return self.between(0.0, 0.6), end, words

    def truncate_redis(self, number):
        return self.kill_redis(number, "SIGKILL Redis, AOF truncated", truncate=True)

    def empty_redis(self, number):
        return self.kill_redis(number, "SIGKILL Redis, emptied", empty=True)

    def flush_redis(self, _):
        with contextlib.suppress(OSError):  # it may be stopped
            self.cluster.redis.client(timeout=1)("FLUSHALL")
        return 0.0, lambda: None, "FLUSHALL"

    def move_slot(self, key):
        """Half of the time it takes a while: until then both masters have a part in it."""
        name = self.cluster.prefixes[0] + key
        end = self.cluster.masters.try_move(name, self.chance.random)
        if end is None:
            return None
        return self.between(0.0, 0.3), end, f"slot of {name} moves"

    def stop_master(self, number):
        node = self.cluster.masters.nodes[number]
        return self.stop_process(node, f"master {node.address[1]}", 2.5)

    def kill_master(self, number):
        """Its replica takes over, or it is back before that; empty, as it has no disk."""
        node = self.cluster.masters.nodes[number]
        node.kill()

        def end():
            self.cluster.masters.restart(node)
            self.note(f"start master {node.address[1]}")
        return self.between(0.2, 4.0), end, f"SIGKILL master {node.address[1]}"

    def flush_master(self, number):
        node = self.cluster.masters.nodes[number]
        with contextlib.suppress(OSError, ReplyError):  # it may be stopped, or a replica
            node.client(timeout=1)("FLUSHALL")
        return 0.0, lambda: None, f"FLUSHALL of {node.address[1]}"

    def name_of(self, relay):
        cluster = self.cluster
        for number, other in enumerate(cluster.redis_relays):
            if other is relay:
                return f"d{number}-Redis"
        for door in cluster.doors:
            for server, other in door.relays.items():
                if other is relay:
                    return f"{door.name}-{server.name}"
        return next(f"c{client}-d{daemon}" for client, row in enumerate(cluster.relays)
                    for daemon, other in enumerate(row) if other is relay)

    def gate(self, relay, act, what, seconds):
        direction = self.chance.choice(("up", "down"))
        act(direction)
        cut = self.chance.random() < 0.4

        def end():
            if cut:
                relay.cut()
            relay.let(direction)
        return seconds, end, f"{what} {self.name_of(relay)} {direction}"

    def delay(self, relay):
        return self.gate(relay, relay.hold, "delay", self.between(0.02, 0.8))

    def delay_over_flush(self, relay):
        """What a daemon asks on its old knowledge arrives when Redis knows nothing any more."""
        relay.hold("up")

        def end():
            if self.cluster.redis.alive():
                self.flush_redis(0)
                self.note("FLUSHALL")
            relay.let("up")
        return self.between(0.05, 0.3), end, f"delay {self.name_of(relay)} up"

    def stall(self, relay):
        return self.gate(relay, relay.stall, "stall", self.between(0.1, 2.5))

    def cut(self, relay):
        relay.cut()
        return 0.0, lambda: None, f"cut {self.name_of(relay)}"

    def half_close(self, relay):
        direction = self.chance.choice(("up", "down"))
        relay.half_close(direction)
        return 0.0, lambda: None, f"half-close {self.name_of(relay)} {direction}"

    def refuse(self, relay):
        relay.refuse()
        relay.cut()
        return self.between(0.05, 1.0), relay.accept, f"refuse {self.name_of(relay)}"

    def end_due(self, now):
        while self.active and self.active[0][0] <= now:
            heapq.heappop(self.active)[3]()

    def run(self, until, progress):
        """Faults until then; returns early where a daemon or Redis ended by itself."""
        strike_at = time.monotonic() + 0.3
        if self.failovers is not None:
            self.failovers.start()
        while time.monotonic() < until and not self.cluster.dead():
            now = time.monotonic()
            self.end_due(now)
            if now >= strike_at:
                if len(self.active) < AT_ONCE_MAX:
                    self.strike()
                strike_at = time.monotonic() + self.between(0.02, 0.7)
            progress()
            time.sleep(0.01)
        while self.active and not self.cluster.dead():
            self.end_due(float("inf"))
        if self.failovers is not None:
            self.failovers.end()
            self.counts["failover"] += self.failovers.count
            assert self.failovers.problem is None, self.failovers.problem
