# SPDX-License-Identifier: Apache-2.0
"""Daemons on a replicated group of PostgreSQL servers, whose primary dies, freezes and is cut off,
again and again, whose statements are cancelled, and of which copies are served. FAILOVERS= and
PROMOTIONS= say how often at least, SEED= in which way."""

import collections
import os
import pathlib
import random
import sys
import threading
import time

import pytest

from harness.limits import BUILD, HANG_SECONDS, patience, wait_until
from harness.postgres import OWNER, SUPERUSER, ask, program
from harness.postgres import run as run_program
from harness.replicated import Replicated
from harness.resp import Closed, ReplyError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from torture import run  # noqa: E402

FAILOVERS = int(os.environ.get("FAILOVERS", "6"))
SEED = int(os.environ.get("SEED", "1"))
PROMOTIONS = int(os.environ.get("PROMOTIONS", "6"))
ROUND_SECONDS = 45  # so much history can be judged
TAKERS, RESOURCES = 6, 4

pytestmark = pytest.mark.slow


def test_failovers_lose_nothing_and_apply_nothing_twice_or_half():
    """Clients take leases, write with and without an ID, sell, and are stopped and killed, as are
    the daemons; their history must have an order in which every reply is right."""
    out = BUILD / "torture"
    out.mkdir(parents=True, exist_ok=True)
    tally, faults, count = run.Tally(out), collections.Counter(), collections.Counter()
    while faults["failover"] < FAILOVERS and not tally.failed:
        number = count["rounds"]
        ops = run.run_round(tally, f"failovers{SEED}-{number}", f"{SEED}/{number}",
                            ("local", "replicated"), ROUND_SECONDS, faults)
        count.update(rounds=1, operations=len(ops), unknown=sum(not op.known for op in ops),
                     writes=sum(op.known and op.error is None and op.op in ("set", "swap", "sell")
                                for op in ops))
        print(f"{faults['failover']} failovers: {dict(count)}", flush=True)
    print(dict(sorted(faults.items())))
    assert tally.failed == 0 and tally.passed > 0, f"histories and drawings: {out}"


class Taker(threading.Thread):
    """Takes leases through any of these daemons, and gives back some of them. `grants`: resource,
    token, and when it was asked for and told."""

    def __init__(self, daemons, number):
        super().__init__()
        self.daemons = daemons
        self.chance = random.Random(f"{SEED} taker {number}")
        self.ended = threading.Event()
        self.grants, self.failure = [], None

    def take(self, client):
        resource, begun = f"sku:{self.chance.randrange(RESOURCES)}", time.monotonic()
        reply = client.ask("ACQUIRE", resource, self.chance.choice((20, 100, 1000)))
        if isinstance(reply, list):
            self.grants.append((resource, reply[0], begun, time.monotonic()))
            if self.chance.random() < 0.9:
                client.ask("RELEASE", resource, reply[0])
        return not isinstance(reply, ReplyError)

    def run(self):
        try:
            while not self.ended.is_set():
                try:
                    client = self.chance.choice(self.daemons).client(timeout=patience(HANG_SECONDS))
                    while self.take(client) and self.chance.random() < 0.98:
                        pass
                    client.close()
                except (OSError, Closed):
                    pass
                time.sleep(0.005)  # before it tries another daemon
        except Exception as failure:  # the test tells it
            self.failure = failure


# Ways to lose commits: each returns tokens that were granted in what is lost.


def switch_off(server):
    """Synchronous replication: as an operator does whose standbys are away."""
    server.set(synchronous_standby_names="")


def switch_on(group):
    """At every server, for the time when it is the primary."""
    for server in group.servers:
        others = ", ".join(other.name for other in group.servers if other is not server)
        server.set(synchronous_standby_names=f"ANY 1 ({others})")


def grant_and_lose(group, chance, client, resource, silent=False):
    """A token that no standby hears of, before the primary dies."""
    for standby in group.standbys:
        group.cut(standby, group.primary, silent=silent)
    switch_off(group.primary)
    token = found(client).token(resource, 60000)
    time.sleep(chance.uniform(0, 0.5))  # at any moment
    group.primary.kill()
    group.heal()
    return token


def lose_the_tail(group, chance, database, client, resource):
    """For a moment the primary's commits go to nobody; then it dies."""
    token = grant_and_lose(group, chance, client, resource, silent=chance.random() < 0.5)
    group.promote(lossy=True)
    assert group.sql("SELECT FROM stockade.resource WHERE name = %s", resource.encode(),
                     database=database) == [], "nothing was lost"
    return [token]


def promote_twice(group, chance, database, client, resource):
    """The standbys of one primary, one after the other, both to the same timeline."""
    lost = [grant_and_lose(group, chance, client, resource)]
    first, second = chance.sample(group.standbys, 2)
    group.promote(among=[first], lossy=True)
    switch_off(first)
    lost.append(found(client).token(resource, 60000))
    first.kill()
    group.promote(among=[second], lossy=True)
    switch_off(second)
    return lost


def restore_twice(group, chance, database, client, resource):
    """One dump, beneath the daemons."""
    lost = []
    path = group.primary.folder / "dump"
    path.write_text(run_program(program("pg_dump"), "-h", "127.0.0.1", "-p", group.primary.port,
                                "-U", SUPERUSER, database))
    for _ in range(2):
        lost.append(client.token(resource, 60000))
        time.sleep(chance.uniform(0, 0.5))  # at any moment
        with group.primary.connect() as link:
            ask(link, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
            ask(link, f"DROP DATABASE {database} WITH (FORCE)")
            ask(link, f"CREATE DATABASE {database}_new TEMPLATE template0 OWNER {OWNER}")
        run_program(program("psql"), "-q", "-h", "127.0.0.1", "-p", group.primary.port, "-U",
                    SUPERUSER, "-v", "ON_ERROR_STOP=1", "-d", f"{database}_new", "-f", path)
        group.sql(f"ALTER DATABASE {database}_new RENAME TO {database}")
        found(client)
    return lost


WAYS = (lose_the_tail, promote_twice, restore_twice)


def found(client):
    """The daemon has found its database again."""
    wait_until(lambda: not isinstance(client.ask("GET", "x",
                                                 timeout=patience(HANG_SECONDS)), ReplyError),
               "the daemon has found its database")
    return client


def test_promotions_and_restores_that_lose_commits_give_no_token_out_twice(rig):
    group = Replicated(rig)
    database = group.database()
    doors = [group.door(f"d{i}") for i in range(2)]
    daemons = [rig.daemon(store=door.uri(database, connect_timeout=2)) for door in doors]
    takers, chance = [Taker(daemons, i) for i in range(TAKERS)], random.Random(SEED)
    for taker in takers:
        taker.start()
    try:
        for number in range(PROMOTIONS):
            clients = [found(daemon.client(timeout=patience(HANG_SECONDS))) for daemon in daemons]
            old = clients[number % 2].token(f"held:{number}", 60000)
            group.await_replayed()
            way = WAYS[number % len(WAYS)] if number < len(WAYS) else chance.choice(WAYS)
            lost = way(group, chance, database, clients[1 - number % 2], f"lost:{number}")
            assert lost == sorted(set(lost))
            for client in map(found, clients):
                client.refused("STALE", "FENCED", old, "SET", f"held:{number}", "1")
                for token in lost:
                    assert client.ask("FENCED", token, "SET", f"lost:{number}",
                                      "1").code in ("STALE", "UNKNOWN")
            assert clients[0].token(f"held:{number}", 1000) > old
            assert clients[1].token(f"lost:{number}", 1000) > lost[-1]
            print(f"{way.__name__}: {sum(len(taker.grants) for taker in takers)} grants",
                  flush=True)
            switch_on(group)
            group.rejoin()
            assert not any(taker.failure for taker in takers), [t.failure for t in takers]
    finally:
        for taker in takers:
            taker.ended.set()
        for taker in takers:
            taker.join()
    grants = sorted((grant for taker in takers for grant in taker.grants), key=lambda g: g[2])
    print(f"{PROMOTIONS} promotions, {len(grants)} grants")
    assert len(grants) > 10 * PROMOTIONS
    for resource in {grant[0] for grant in grants}:
        mine = [grant for grant in grants if grant[0] == resource]
        assert len({token for _, token, _, _ in mine}) == len(mine), "a token was given out twice"
        done = sorted(mine, key=lambda grant: grant[3])
        highest, at = 0, 0
        for _, token, begun, _ in mine:
            while at < len(done) and done[at][3] < begun:
                highest, at = max(highest, done[at][1]), at + 1
            assert token > highest, "a token came after a larger one"
