# SPDX-License-Identifier: Apache-2.0
"""An Express handler as people write it, on the package `stockade` for Node: one connection for all
requests, 40 callers, processes that are stopped, a daemon that restarts. The stock is exact."""

import collections
import http.client
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.limits import patience, sanitized
from harness.node import node
from test_node_client import on_its_address

HANDLER = """
    import express from 'express';

    const app = express();
    app.post('/buy/:sku/:order', async (request, response) => {
      const { sku, order } = request.params;
      try {
        const left = await shop.lease(sku, { ttl: TTL, wait: 30000 }, async (lease) => {
          const stock = Number(await lease.get());
          if (stock === 0) throw new stockade.SoldOut('none is left');
          await sleep(10); // prices, payment
          await lease.set(stock - 1, { id: order });
          return stock - 1;
        });
        response.json({ left });
      } catch (error) {
        const status = error instanceof stockade.SoldOut ? 409
          : error instanceof stockade.Stale ? 503 : 500;
        response.status(status).send(error.stack);
      }
    });
    app.get('/stock/:sku', async (request, response) => {
      response.send(await shop.get(request.params.sku));
    });
    await new Promise((up) => {
      const server = app.listen(0, '127.0.0.1', () => { say(server.address().port); up(); });
    });
    await told();
    process.exit(0);
"""
CALLERS = 40


class Server:
    def __init__(self, rig, daemon, ttl_ms):
        self.program = node(rig, HANDLER.replace("TTL", str(ttl_ms)), daemon.uri)
        self.port = self.program.hear(20)

    def ask(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(50))
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def end(self):
        self.program.tell()
        self.program.end()


def stock(daemon, key, pieces):
    client = daemon.client()
    token = client.token(key)
    client.fenced(token, "SET", key, pieces)
    client("RELEASE", key, token)


def test_forty_callers_of_one_article_get_what_there_is(rig):
    daemon = rig.daemon()
    stock(daemon, "lamp", 30)
    server = Server(rig, daemon, 30000)
    with ThreadPoolExecutor(CALLERS + 1) as pool:
        reading = pool.submit(server.ask, "GET", "/stock/lamp")
        answers = list(pool.map(lambda i: server.ask("POST", f"/buy/lamp/order-{i}"),
                                range(CALLERS)))
    assert reading.result()[0] == 200
    assert collections.Counter(status for status, _ in answers) == {200: 30, 409: 10}, answers
    assert daemon.client()("GET", "lamp") == b"0"
    server.end()


@pytest.mark.skipif(sanitized(), reason="it asks the package, and takes long")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_stock_is_exact_whatever_is_stopped_and_restarted(rig, how):
    daemon = rig.daemon()
    stock(daemon, "lamp", 90)
    servers = [Server(rig, daemon, 500) for _ in range(2)]

    def buy(caller):
        """Three orders, each sent again for as long as a lease was lost under it."""
        sold = []
        for number in range(3):
            status = 503
            while status == 503:
                status, text = servers[(caller + number) % 2].ask(
                    "POST", f"/buy/lamp/{caller}-{number}")
                assert status != 500 and "DEADLOCK" not in text, text
            sold.append(status)
        return sold

    with ThreadPoolExecutor(CALLERS) as pool:
        sales = [pool.submit(buy, caller) for caller in range(CALLERS)]
        for round_number in range(3):
            with servers[round_number % 2].program.frozen():
                time.sleep(0.7)  # longer than the lease
            if round_number == 1:
                assert not all(sale.done() for sale in sales)
                daemon.close_clients()
                daemon.kill() if how == signal.SIGKILL else daemon.stop()
                daemon = rig.daemon(**on_its_address(daemon))
        ends = collections.Counter(status for sale in sales for status in sale.result())
    assert ends == {200: 90, 409: 3 * CALLERS - 90}
    assert daemon.client()("GET", "lamp") == b"0"
    for server in servers:
        server.end()
