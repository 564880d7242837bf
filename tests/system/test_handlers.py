# SPDX-License-Identifier: Apache-2.0
"""Web handlers as people write them, on the packages: in threads (Flask, the JDK's HttpServer), in
tasks (ASGI), on one connection for all (Express). 40 callers want one article, while servers are
stopped for longer than a lease lasts and the daemon is restarted: the stock is exact, and nobody
is told more than that a lease was lost."""

import collections
import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from harness.limits import Late, Wait, patience, wait_until
from harness.package import FOLDER, connect
from harness.process import Process
from harness.programs import CLASS_PATH, JAVA, NODE, SYSTEM, link_node_modules

CALLERS = 40
PIECES = 200
# A server that stands still has up to 20 callers in the line, each of whom holds a lease up: so no
# longer than need be.
TTL_MS = 600
STORM_SECONDS = float(os.environ.get("STOCKADE_STORM_SECONDS", 600))
CLIENTS = SYSTEM / "clients"
# A server's program, with its arguments but for URI and TTL. Each sells by POST /sell/SKU, which
# answers {"left": pieces} or {"error": "sold out", or the code of an error}.
SERVERS = {
    "flask": ["/usr/bin/python3", CLIENTS / "flask_shop.py"],
    "asgi": ["/usr/bin/python3", CLIENTS / "asgi_shop.py"],
    "express": [*NODE, "express_shop.mjs"],
    "jdk": [*JAVA, "-cp", CLASS_PATH, "ShopServer"],
}

pytestmark = pytest.mark.interpreted


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
                answer = json.loads(connection.getresponse().read())
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
        """So many more."""
        count += len(self.sold)
        wait_until(lambda: len(self.sold) >= count or self.failures, f"{count} are sold")
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

    def __init__(self, rig, kinds, opening, relay=False):
        self.rig, self.opening = rig, opening
        self.daemon = rig.daemon()
        self.listen = ("{}:{}".format(*self.daemon.address),)
        with connect(self.daemon) as shop, shop.lease("sku:lamp") as lease:
            lease.set(opening)
        self.relay = rig.relay(self.daemon.address) if relay else None
        link_node_modules(rig.folder)
        (rig.folder / "express_shop.mjs").symlink_to(CLIENTS / "express_shop.mjs")
        uri = self.relay.uri if relay else self.daemon.uri
        self.servers = [self._start(kind, uri) for kind in kinds]
        self.callers = Callers([int(server.first_line()) for server in self.servers])

    def _start(self, kind, uri):
        server = Process(kind, [*SERVERS[kind], uri, TTL_MS], self.rig.stderr_path(kind),
                         env={"PYTHONPATH": str(FOLDER)}, cwd=self.rig.folder)
        server.expected_status = {"asgi": 0, "jdk": 128 + signal.SIGTERM}.get(kind,
                                                                             -signal.SIGTERM)
        self.rig.processes.append(server)
        return server

    def restart(self, how):
        self.daemon.killed = True
        self.daemon.signal(how)
        self.daemon.wait()
        self.rig.processes.remove(self.daemon)
        self.daemon = self.rig.daemon(listen=self.listen)

    def stop_a_seller(self):
        """Stops a server between its read and its write, until others have sold under later leases:
        so it is told that its own has passed on."""
        wait = Wait()
        with connect(self.daemon) as shop:
            while not self.callers.refusals:
                wait.check("a server is stopped between its read and its write")
                with self.servers[0].frozen():
                    held = shop.query("sku:lamp")
                    if held["state"] == "held" and self._stays(shop, held["token"]):
                        wait_until(lambda: shop.query("sku:lamp")["token"] > held["token"] + 2,
                                   "its lease passes on")
                self.callers.await_sold(1)

    @staticmethod
    def _stays(shop, token):
        """So it is the one that is stopped: the other one holds it for some 10 ms."""
        with contextlib.suppress(Late):
            # Or not.
            wait_until(lambda: shop.query("sku:lamp")["token"] != token, "it passes on", 0.3)
            return False
        return True

    def close(self):
        with connect(self.daemon) as shop:
            self.callers.audit(shop, self.opening)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_40_callers_buy_what_there_is_whatever_stands_still(rig, kind):
    street = Street(rig, [kind] * 2, PIECES)
    street.callers.await_sold(10)
    street.stop_a_seller()
    for how in (signal.SIGTERM, signal.SIGKILL):
        street.restart(how)
        street.callers.await_sold(10)
    street.close()
    assert len(street.callers.sold) == PIECES


def fault(street, dice):
    """Something goes wrong, for a while."""
    relay, seconds = street.relay, dice.uniform(0.1, 2 * TTL_MS / 1000)
    kind = dice.choice(["server", "daemon", "cut", "replies", "requests", "restart", "revoke"])
    if kind in ("server", "daemon"):
        with (dice.choice(street.servers) if kind == "server" else street.daemon).frozen():
            time.sleep(seconds)  # the fault lasts
    elif kind in ("replies", "requests"):  # they are under way, and lost
        direction = "down" if kind == "replies" else "up"
        relay.hold(direction)
        time.sleep(seconds)  # the fault lasts
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
@pytest.mark.parametrize("kinds", [["flask", "asgi"], ["express"], ["jdk"]], ids="-".join)
def test_ten_minutes_of_faults_lose_nothing_and_sell_nothing_twice(rig, kinds):
    seed = random.randrange(1 << 32)
    dice, faults = random.Random(seed), collections.Counter()
    street = Street(rig, (kinds * 4)[:4], 10 ** 6, relay=True)
    end = time.monotonic() + STORM_SECONDS
    while time.monotonic() < end:
        faults[fault(street, dice)] += 1
        street.callers.await_sold(dice.randrange(10, 60))
    street.callers.stop.set()
    street.close()
    print(f"seed {seed}: {len(street.callers.sold)} sold, {dict(faults)}, refused: "
          f"{dict(street.callers.refusals)}")
    assert street.callers.refusals["STALE"] > 0
