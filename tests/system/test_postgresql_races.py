# SPDX-License-Identifier: Apache-2.0
"""Programs with SQL of their own sell from a guarded table, beside each other, stopped at the worst
moments, while leases pass on and are revoked. RACE_SECONDS= says for how long."""

import collections
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import closing

import pytest

from harness.limits import REPO, environment, wait_until
from harness.replicated import Replicated
from harness.resp import Closed

SECONDS = int(os.environ.get("RACE_SECONDS", "20"))
SELLERS, ITEMS, STOCK = 20, 4, 1000000
IDLE_S = 10  # for so long a program may stand still with a token presented
TABLES = f"""
CREATE TABLE inventory(sku int PRIMARY KEY, stock int NOT NULL, version int NOT NULL);
INSERT INTO inventory SELECT i, {STOCK}, 0 FROM generate_series(0, {ITEMS - 1}) i;
CREATE TABLE sale(id text PRIMARY KEY, sku int, version int, token int8);
"""

pytestmark = pytest.mark.slow


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b") ")[2].startswith(b"T")


class Crowd:
    """20 sellers. Those that stop themselves are woken, most of them soon, some after their
    transaction was ended for them; somebody revokes leases all the while."""

    def __init__(self, folder, uris, daemons):
        self.chance = random.Random(1)
        self.daemons = daemons
        self.failure = None
        self.ended = threading.Event()
        self.files = [folder / f"seller{i}" for i in range(SELLERS)]
        ports = [str(daemon.address[1]) for daemon in daemons]
        self.sellers = []
        for number, file in enumerate(self.files):
            with open(file, "wb") as out:
                self.sellers.append(subprocess.Popen(
                    ["/usr/bin/python3", REPO / "tests/system/clients/seller.py", f"s{number}",
                     uris[number % len(uris)], *ports],
                    stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment()))
        self.threads = [threading.Thread(target=self._watch, args=(step,))
                        for step in (self._wake, self._revoke)]
        for thread in self.threads:
            thread.start()

    def _watch(self, step):
        try:
            due = {}
            while not self.ended.wait(0.02):
                step(due)
        except Exception as failure:  # the test tells it
            self.failure = failure

    def _wake(self, due):
        now = time.monotonic()
        for seller in self.sellers:
            if seller.poll() is not None or not is_stopped(seller.pid):
                continue
            long = self.chance.random() < 0.05
            seconds = IDLE_S + 1 if long else self.chance.uniform(0.01, 1.5)
            if due.setdefault(seller, now + seconds) <= now:
                del due[seller]
                seller.send_signal(signal.SIGCONT)

    def _revoke(self, _):
        try:
            client = self.chance.choice(self.daemons).client()
            while not self.ended.wait(0.05):
                client.ask("REVOKE", f"sku:{self.chance.randrange(ITEMS)}")
            client.close()
        except (OSError, Closed):
            pass

    def _lines(self):
        return [line.split() for file in self.files for line in file.read_text().splitlines()]

    def has_met_all(self):
        """Whether what the judgement is about has happened."""
        counts = count(self._lines())
        return counts["sold"] > 100 and counts["refused ST001"] > 0 and all(
            counts[f"stop {where}"] for where in ("before", "presented", "written"))

    def run(self, step, steps_min=1):
        """Takes steps for SECONDS, and, on a machine with other work, until all was met."""
        begun, steps = time.monotonic(), 0
        while time.monotonic() < begun + SECONDS or steps < steps_min or not self.has_met_all():
            assert time.monotonic() < begun + SECONDS + 120, count(self._lines())
            step()
            steps += 1

    def said(self):
        """Ends it. What they printed: the words of each line."""
        for seller in self.sellers:
            seller.stdin.close()
        wait_until(lambda: all(seller.poll() is not None for seller in self.sellers),
                   "all sellers end")
        assert self.failure is None, self.failure
        for seller, file in zip(self.sellers, self.files):
            assert seller.returncode == 0, file.read_text()[-3000:]
        return self._lines()

    def close(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        for seller in self.sellers:
            seller.kill()
            seller.wait()


def prepare(daemon, sql):
    sql(TABLES)
    assert daemon.client()("GUARD", "CREATE", "inventory", "sku", "sku:") == "OK"


def count(said):
    return collections.Counter("sold" if words[0] == "sold" else " ".join(words[:2])
                               for words in said)


def judge(said, sql, longest_s):
    """The books balance, nobody wrote over a successor, and nobody waited for longer."""
    waits = [float(words[2]) for words in said if words[0] == "wait"]
    sold = {words[1] for words in said if words[0] == "sold"}
    print(f"{len(sold)} sold, longest wait {max(waits, default=0)} s, {dict(count(said))}")
    sales = sql("SELECT id, sku, version, token FROM sale ORDER BY sku, version")
    assert sold <= {sale[0] for sale in sales}, "what was committed is there"
    for item, stock, version in sql("SELECT sku, stock, version FROM inventory"):
        mine = [sale for sale in sales if sale[1] == item]
        assert [sale[2] for sale in mine] == list(range(1, version + 1)), "each built on the last"
        assert stock == STOCK - len(mine)
        tokens = [sale[3] for sale in mine]
        assert tokens == sorted(tokens), "a stale holder wrote"
    assert max(waits, default=0) < longest_s


def test_programs_that_are_stopped_sell_no_more_than_there_is(rig, database, tmp_path):
    daemons = [rig.daemon(store=database.uri) for _ in range(2)]
    prepare(daemons[0], database.sql)
    with closing(Crowd(tmp_path, [database.uri], daemons)) as crowd:
        crowd.run(lambda: time.sleep(0.1))  # faults are its own
        said = crowd.said()
    judge(said, database.sql, IDLE_S + 5)


def test_the_same_while_primaries_fail_over(rig, tmp_path):
    group = Replicated(rig)
    name = group.database()
    doors = [group.door(f"d{i}") for i in range(4)]
    daemons = [rig.daemon(store=door.uri(name)) for door in doors[:2]]

    def sql(text, *values):
        return group.sql(text, *values, database=name, user="shop")

    def fail_over():
        time.sleep(2)  # programs sell before
        group.fail_over()
        time.sleep(3)  # and meanwhile
        group.rejoin()

    prepare(daemons[0], sql)
    uris = [door.uri(name, target_session_attrs="read-write") for door in doors[2:]]
    with closing(Crowd(tmp_path, uris, daemons)) as crowd:
        crowd.run(fail_over, steps_min=2)
        said = crowd.said()
    judge(said, sql, 2 * IDLE_S + 15)
