# SPDX-License-Identifier: Apache-2.0
"""Web handlers as people write them, Flask's in threads and ASGI's in tasks, with 40 callers on one
article, while servers are stopped for longer than a lease lasts and the daemon is restarted: the
stock is exact."""

import collections
import http.client
import json
import signal
import threading

import pytest

from harness.limits import REPO, patience, wait_until
from harness.package import FOLDER, connect
from harness.process import Process

CALLERS = 40
PIECES = 240
TTL = 0.6
CLIENTS = REPO / "tests/system/clients"


class Callers:
    """They buy until the article is sold out, half of them at each server."""

    def __init__(self, ports):
        self.sold, self.refusals, self.failures = [], collections.Counter(), []
        self.threads = [threading.Thread(target=self._run, args=(ports[i % len(ports)],),
                                         daemon=True) for i in range(CALLERS)]
        for thread in self.threads:
            thread.start()

    def _run(self, port):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
            while True:
                connection.request("POST", "/sell/lamp")
                response = connection.getresponse()
                answer = json.loads(response.read())
                if answer.get("error") == "sold out":
                    return
                if "left" in answer:
                    self.sold.append(answer["left"])
                else:
                    self.refusals[answer["error"]] += 1
        except Exception as failure:  # the main thread is to see it
            self.failures.append(failure)

    def await_sold(self, count):
        wait_until(lambda: len(self.sold) >= count or self.failures, f"{count} are sold", 30)
        assert not self.failures

    def join(self):
        for thread in self.threads:
            thread.join(patience(30))
        assert not any(thread.is_alive() for thread in self.threads) and not self.failures


@pytest.mark.parametrize("program", ["flask_shop.py", "asgi_shop.py"])
def test_40_callers_buy_what_there_is_whatever_stands_still(rig, program):
    daemon = rig.daemon()
    with connect(daemon) as shop, shop.lease("sku:lamp") as lease:
        lease.set(PIECES)
    servers = [Process(program, ["/usr/bin/python3", CLIENTS / program, FOLDER, daemon.uri,
                                 patience(TTL)], rig.stderr_path(program)) for _ in range(2)]
    for server in servers:
        server.expected_status = -signal.SIGTERM if program == "flask_shop.py" else 0
        rig.processes.append(server)
    callers = Callers([int(server.first_line()) for server in servers])
    listen = ("{}:{}".format(*daemon.address),)

    def restart(daemon, how):
        daemon.signal(how)
        daemon.killed = True
        daemon.wait()
        return rig.daemon(listen=listen)
    for number, server in enumerate(servers):
        with server.frozen():
            callers.await_sold(len(callers.sold) + 20)  # the other one goes on, a TTL later
        daemon = restart(daemon, (signal.SIGTERM, signal.SIGKILL)[number])
        callers.await_sold(len(callers.sold) + 20)
    callers.join()
    assert sorted(callers.sold) == list(range(PIECES)), "each piece once"
    assert set(callers.refusals) <= {"STALE"}, callers.refusals
    with connect(daemon) as shop:
        assert shop.get("sku:lamp") == "0"
        wait_until(lambda: shop.query("sku:lamp")["state"] == "free", "nobody keeps it")
