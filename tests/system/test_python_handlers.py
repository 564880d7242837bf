# SPDX-License-Identifier: Apache-2.0
"""Web handlers as people write them, Flask's in threads and ASGI's in tasks, with 40 callers on one
article, while servers are stopped for longer than a lease lasts and the daemon is restarted: the
stock is exact."""

import collections
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from harness.limits import REPO, patience, sanitized, wait_until
from harness.package import FOLDER, connect
from harness.process import Process

CALLERS = 40
PIECES = 240
# A server that stands still has up to 20 callers in the line, each of whom holds a lease up: so no
# longer than need be.
LEASE_SECONDS = 0.6
STORM_SECONDS = float(os.environ.get("STOCKADE_STORM_SECONDS", 600))
CLIENTS = REPO / "tests/system/clients"


class Callers:
    """They buy until the article is sold out, or until they are told to stop."""

    def __init__(self, ports):
        self.sold, self.refusals, self.failures = [], collections.Counter(), []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(ports[i % len(ports)],),
                                         daemon=True) for i in range(CALLERS)]
        for thread in self.threads:
            thread.start()

    def _run(self, port):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
            while not self.stop.is_set():
                connection.request("POST", "/sell/lamp")
                response = connection.getresponse()
                answer = json.loads(response.read())
                if answer.get("error") == "sold out":
                    break
                if "left" in answer:
                    self.sold.append(answer["left"])
                else:
                    self.refusals[answer["error"]] += 1
            connection.close()
        except Exception as failure:  # the main thread is to see it
            self.failures.append(failure)

    def await_sold(self, count):
        wait_until(lambda: len(self.sold) >= count or self.failures, f"{count} are sold", 60)
        assert not self.failures

    def audit(self, shop, opening):
        """When all have ended: each piece was sold once, and counted."""
        for thread in self.threads:
            thread.join(patience(60))
        assert not any(thread.is_alive() for thread in self.threads) and not self.failures
        assert sorted(self.sold) == list(range(opening - len(self.sold), opening))
        assert shop.get("sku:lamp") == str(opening - len(self.sold))
        assert set(self.refusals) <= {"STALE"}, self.refusals
        wait_until(lambda: shop.query("sku:lamp")["state"] == "free", "nobody keeps it")


class Street:
    """A daemon, web servers on it, and their callers."""

    def __init__(self, rig, programs, opening, relay=False):
        self.rig, self.opening = rig, opening
        self.daemon = rig.daemon()
        self.listen = ("{}:{}".format(*self.daemon.address),)
        with connect(self.daemon) as shop, shop.lease("sku:lamp") as lease:
            lease.set(opening)
        self.relay = rig.relay(self.daemon.address) if relay else None
        uri = self.relay.uri if relay else self.daemon.uri
        self.servers = [Process(program, ["/usr/bin/python3", CLIENTS / program, FOLDER, uri,
                                          LEASE_SECONDS], rig.stderr_path(program))
                        for program in programs]
        for server in self.servers:
            server.expected_status = -signal.SIGTERM if "flask" in server.name else 0
            rig.processes.append(server)
        self.callers = Callers([int(server.first_line(30)) for server in self.servers])

    def restart(self, how):
        self.daemon.killed = True
        self.daemon.signal(how)
        self.daemon.wait()
        self.rig.processes.remove(self.daemon)
        self.daemon = self.rig.daemon(listen=self.listen)

    def close(self):
        with connect(self.daemon) as shop:
            self.callers.audit(shop, self.opening)


@pytest.mark.skipif(sanitized(), reason="it asks the package, and takes long")
@pytest.mark.parametrize("program", ["flask_shop.py", "asgi_shop.py"])
def test_40_callers_buy_what_there_is_whatever_stands_still(rig, program):
    street = Street(rig, [program] * 2, PIECES)
    callers = street.callers
    for server, how in zip(street.servers, (signal.SIGTERM, signal.SIGKILL)):
        with server.frozen():
            callers.await_sold(len(callers.sold) + 20)  # the other one goes on, a TTL later
        street.restart(how)
        callers.await_sold(len(callers.sold) + 20)
    street.close()
    assert len(callers.sold) == PIECES


def fault(street, dice):
    """Something goes wrong, for a while."""
    relay, seconds = street.relay, dice.uniform(0.1, 2 * LEASE_SECONDS)
    kind = dice.choice(["server", "daemon", "cut", "replies", "requests", "restart", "revoke"])
    if kind in ("server", "daemon"):
        with (dice.choice(street.servers) if kind == "server" else street.daemon).frozen():
            time.sleep(seconds)
    elif kind in ("replies", "requests"):  # they are under way, and lost
        direction = "down" if kind == "replies" else "up"
        relay.hold(direction)
        time.sleep(seconds)
        relay.cut()
        relay.let(direction)
    elif kind == "cut":
        relay.cut()
    elif kind == "restart":
        street.restart(dice.choice([signal.SIGTERM, signal.SIGKILL]))
    else:
        with connect(street.daemon) as shop:
            shop.revoke("sku:lamp")
    return kind


@pytest.mark.slow
def test_ten_minutes_of_faults_lose_nothing_and_sell_nothing_twice(rig):
    seed = random.randrange(1 << 32)
    dice, faults = random.Random(seed), collections.Counter()
    street = Street(rig, ["flask_shop.py", "asgi_shop.py"] * 2, 10 ** 6, relay=True)
    end = time.monotonic() + STORM_SECONDS
    while time.monotonic() < end:
        faults[fault(street, dice)] += 1
        street.callers.await_sold(len(street.callers.sold) + dice.randrange(10, 60))
    street.callers.stop.set()
    street.close()
    print(f"seed {seed}: {len(street.callers.sold)} sold, {dict(faults)}, refused: "
          f"{dict(street.callers.refusals)}")
    assert street.callers.refusals["STALE"] > 0
