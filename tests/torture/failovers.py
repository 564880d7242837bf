# SPDX-License-Identifier: Apache-2.0
"""What happens to a replicated group of PostgreSQL servers, by seed, one thing after the other: its
primary dies, freezes or is cut off, alone or with a daemon on its side, and another one follows it;
or it comes back by itself, or somebody cancels its waits for a standby."""

import random
import threading
import time

from harness.postgres import ask

HOWS = (  # weight, function's name
    (5, "killed"), (4, "frozen_and_succeeded"), (4, "cut_off"), (4, "cut_off_with_a_daemon"),
    (2, "cut_off_in_silence"), (2, "restarted"), (1, "shut_down"), (2, "frozen"),
    (3, "waits_cancelled"), (3, "statements_cancelled"), (3, "promoted_twice"),
    (3, "asynchronous_for_a_while"))
CANCELS_MAX = 400  # of one strike

CANCEL = """SELECT pg_cancel_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'stockade %' AND state <> 'idle'"""


class Failovers(threading.Thread):
    """`count`: how many there have been. `problem`: why it has ended before it was told to."""

    def __init__(self, cluster, seed, note):
        super().__init__()
        self.group, self.doors = cluster.group, cluster.doors
        self.chance = random.Random(f"{seed} failovers")
        self.note = note
        self.over = threading.Event()
        self.count, self.problem = 0, None

    def between(self, low, high):
        time.sleep(self.chance.uniform(low, high))

    def succeed(self):
        """Another one follows the primary, which is not touched."""
        self.note(f"primary {self.group.primary.name} is to be followed")
        self.group.promote()
        self.group.await_streaming()
        self.count += 1
        self.note(f"primary is {self.group.primary.name}")

    def killed(self):
        self.group.primary.kill()
        self.succeed()

    def frozen_and_succeeded(self):
        """It wakes up, and does not know."""
        old = self.group.primary
        old.freeze()
        self.succeed()
        self.between(0, 2)
        old.thaw()
        self.between(0, 2)

    def cut_off(self, *with_it, silent=False):
        """It lives on behind the partition, and for a while beside its successor."""
        old = self.group.primary
        self.group.partition(old, *with_it, silent=silent)
        self.between(0, 1)
        self.succeed()
        self.between(0, 2)
        self.group.heal()
        self.between(0, 2)

    def cut_off_with_a_daemon(self):
        self.cut_off(self.chance.choice(self.doors))

    def cut_off_in_silence(self):
        self.cut_off(*self.doors[:self.chance.randint(0, 1)], silent=True)

    def restarted(self):
        self.group.primary.restart("kill")

    def shut_down(self):
        self.group.primary.restart("shut_down")

    def frozen(self):
        with self.group.primary.frozen():
            self.between(0.2, 7)

    def waits_cancelled(self):
        """Commits stand at the primary that no standby has."""
        for standby in self.group.standbys:
            standby.freeze()
        for _ in range(self.chance.randint(1, 20)):
            self.group.cancel_waits()
            self.between(0, 0.1)
        if self.chance.random() < 0.5:  # none of them ever gets there
            self.group.primary.kill()
        for standby in self.group.standbys:
            standby.thaw()
        if not self.group.primary.alive():
            self.succeed()

    def statements_cancelled(self):
        """Of the daemons' backends, at any statement of a trip, as often as it can be done."""
        with self.group.primary.connect() as link:
            for _ in range(self.chance.randint(50, CANCELS_MAX)):
                ask(link, CANCEL)
                time.sleep(self.chance.choice((0, 0.0003, 0.001, 0.004)))

    def promoted_twice(self):
        """The standbys of one primary, one after the other, both to the same timeline: the first
        one dies before the second has heard of it. Nothing is lost where both have the same."""
        self.group.primary.kill()
        received = {self.group.received(server) for server in self.group.standbys}
        if len(received) > 1:
            self.succeed()
            return
        first, second = self.chance.sample(self.group.standbys, 2)
        self.group.promote(among=[first], lossy=True)
        self.count += 1
        self.note(f"primary is {first.name}, alone")
        self.between(0, 3)
        first.kill()
        self.group.promote(among=[second], lossy=True)
        self.count += 1
        self.note(f"primary is {second.name}, on the same timeline")
        self.between(0, 2)

    def asynchronous_for_a_while(self):
        """Synchronous replication is switched off, and on again; then the primary dies. Nothing is
        lost, for the standbys have all of it by then."""
        primary = self.group.primary
        confirms = primary.settings["synchronous_standby_names"]
        primary.set(synchronous_standby_names="")
        self.between(0, 1.5)
        primary.set(synchronous_standby_names=confirms)
        self.group.await_streaming()
        self.group.await_replayed()
        self.killed()

    def strike(self):
        weights, hows = zip(*HOWS)
        how = self.chance.choices(hows, weights)[0]
        self.note(f"primary {self.group.primary.name}: {how.replace('_', ' ')}")
        getattr(self, how)()
        self.group.rejoin()
        self.note("all servers are there")

    def run(self):
        try:
            while not self.over.wait(self.chance.uniform(0.2, 2)):
                self.strike()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = f"{type(problem).__name__}: {problem}"

    def end(self):
        """Once what is under way is over."""
        self.over.set()
        self.join()
