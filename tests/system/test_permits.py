# SPDX-License-Identifier: Apache-2.0
"""ACQUIRE ... PERMITS n: never more than n holders, whatever ends; rights; what is refused.

Each lease service has its conformance tests in test_lease_services.py."""

import contextlib
import signal
import threading
import time

from harness.leases import PROMPT_SECONDS
from harness.limits import HANG_SECONDS, patience, wait_until, within
from harness.resp import Client, Closed, ReplyError
from harness.rig import restart
from harness.users import ROOT, login, with_users

CLIENTS, PERMITS = 60, 5
TTL_MS = 1500
CYCLES = 150  # at each daemon


class Crowd:
    """So many clients, each of which takes a permit, holds it for a moment, and gives it back or
    forgets it. Whoever holds one says so from the reply on until it begins to give it back, or
    until the lease has surely run out."""

    def __init__(self, key):
        self.key, self.daemon = key, None
        self.lock, self.over = threading.Lock(), threading.Event()
        self.claims, self.cycles, self.errors = [], 0, []

    def run(self, number):
        while not self.over.is_set():
            with contextlib.suppress(OSError, Closed, ReplyError):
                client = Client(self.daemon.address, timeout=patience(HANG_SECONDS))
                with contextlib.closing(client):
                    self.serve(client, number)
            time.sleep(0.01)  # its daemon is being started again

    def serve(self, client, number):
        while not self.over.is_set():
            asked = time.monotonic()
            reply = client("ACQUIRE", self.key, TTL_MS, "PERMITS", PERMITS, "WAIT", 5000)
            if reply is None:
                continue
            begun = time.monotonic()
            token, left_ms, permit = reply
            until = asked + left_ms / 1000
            ends = begun + 0.002
            try:
                while (ends := time.monotonic()) < begun + 0.002:
                    pass
                if number % 30:
                    client("RELEASE", f"{self.key}#{permit}", token)
                else:
                    ends = until  # it is left to run out
            except (OSError, Closed):
                ends = min(ends, until)
                raise
            finally:
                with self.lock:
                    self.claims.append((begun, min(ends, until), permit, token))
                    self.cycles += 1

    def most_at_once(self):
        moments = sorted(moment for begun, ends, *_ in self.claims if begun < ends
                         for moment in ((begun, 1), (ends, -1)))
        most = held = 0
        for _, step in moments:
            held += step
            most = max(most, held)
        return most


def test_60_clients_never_hold_more_than_5_permits_though_their_daemon_is_killed(rig, lease, key):
    crowd = Crowd(key)
    crowd.daemon = rig.daemon(lease=lease)
    threads = [threading.Thread(target=crowd.run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        for kills in range(3):
            wait_until(lambda: crowd.cycles >= (kills + 1) * CYCLES, "they go round")
            crowd.daemon = restart(rig, crowd.daemon, signal.SIGKILL, lease=lease)
        wait_until(lambda: crowd.cycles >= 4 * CYCLES, "they go round")
    finally:
        crowd.over.set()
        for thread in threads:
            thread.join(patience(HANG_SECONDS))
    assert crowd.most_at_once() == PERMITS
    for permit in range(1, PERMITS + 1):
        mine = sorted((begun, token) for begun, _, of, token in crowd.claims if of == permit)
        assert [token for _, token in mine] == sorted({token for _, token in mine})
    assert {permit for *_, permit, _ in crowd.claims} == set(range(1, PERMITS + 1))


def test_40_who_wait_are_served_in_the_order_of_their_arrival(daemon, key):
    holder, watch = daemon.client(), daemon.client()
    held = [holder("ACQUIRE", key, 60000, "PERMITS", 3) for _ in range(3)]
    line = []
    for number in range(40):
        line.append(daemon.client())
        line[-1].send("ACQUIRE", key, 60000, "PERMITS", 3, "WAIT", 60000)
        wait_until(lambda: len(watch("WAITERS", key)) == number + 1, "it waits")
    for waiter in line:
        token, _, permit = held.pop(0)
        holder("RELEASE", f"{key}#{permit}", token)
        held.append(waiter.read())
        assert held[-1][2] == permit, "nobody else was served"


def test_rights_are_to_the_permits_own_names(rig):
    daemon = with_users(rig, ROOT, "user all on >pw %W~pool#* +@all -@admin",
                        "user two on >pw %W~pool#2 +@all -@admin",
                        "user name on >pw ~pool +@all -@admin",
                        "user read on >pw %R~pool#* +@all -@admin",
                        "user none on >pw ~pool#* +@read")
    everybody, second = login(daemon, "all"), login(daemon, "two")
    ask = ("ACQUIRE", "pool", 60000, "PERMITS", 3)
    assert second(*ask)[2] == 2
    assert second(*ask) is None, "the others are not for this user"
    assert {everybody(*ask)[2] for _ in range(2)} == {1, 3}
    assert everybody(*ask) is None
    for user in ("name", "read"):
        login(daemon, user).refused("NOPERM", *ask, text="may not write 'pool#1'")
    login(daemon, "none").refused("NOPERM", *ask, text="'acquire'")
    second.refused("NOPERM", "ACQUIRE", "pool", 60000, text="may not write 'pool'")
    assert any(b"pool#1" in entry for entry in login(daemon, "root")("ACL", "LOG"))


def test_what_a_user_may_hold_counts_permits(rig):
    daemon = rig.daemon("--max-leases-per-user", "2")
    client = daemon.client()
    assert [client("ACQUIRE", "p", 60000, "PERMITS", 9)[2] > 0 for _ in range(2)]
    client.refused("BUSY", "ACQUIRE", "p", 60000, "PERMITS", 9)


def test_daemons_on_one_database_share_permits_and_wake_each_other(rig, database, key):
    daemons = [rig.daemon(store=database.uri) for _ in range(2)]
    here, there = (daemon.client() for daemon in daemons)
    ask = ("ACQUIRE", key, 60000, "PERMITS", 600)
    grants = [each(*ask, "OWNER", f"till {number}")
              for number, each in enumerate((here, there) * 3)]
    assert len({permit for *_, permit in grants}) == 6
    for number, grant in enumerate(grants):  # of 600, which is more than one look
        again = here(*ask, "OWNER", f"till {number}")
        assert (again[0], again[2]) == (grant[0], grant[2])
    once = here(*ask, "ID", "x")
    assert there(*ask, "ID", "x")[::2] == once[::2]
    few = [each("ACQUIRE", "few", 60000, "PERMITS", 2) for each in (here, there)]
    waiter = daemons[0].client()
    waiter.send("ACQUIRE", "few", 60000, "PERMITS", 2, "WAIT", 30000)
    wait_until(lambda: here("WAITERS", "few"), "it waits")
    token, _, permit = few[1]
    with within(patience(1 + PROMPT_SECONDS)):
        assert there("RELEASE", f"few#{permit}", token) == 0
        assert waiter.read()[2] == permit
