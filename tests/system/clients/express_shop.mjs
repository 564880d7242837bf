// SPDX-License-Identifier: Apache-2.0
// A shop on Express, one connection for all requests: POST /sell/SKU, as a shop would write it.
// Arguments: the daemon's URI, the TTL in ms. It prints its port, and ends by itself after some
// minutes.
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { connect, SoldOut, StockadeError } from 'stockade';

const [uri, ttl] = process.argv.slice(2);
const shop = await connect(uri, { timeout: 60_000 });
const app = express();

app.post('/sell/:sku', async (request, response) => {
  const sku = `sku:${request.params.sku}`;
  try {
    const left = await shop.lease(sku, { ttl: Number(ttl), wait: 300_000 }, async (lease) => {
      const stock = Number(await lease.get());
      if (stock === 0) throw new SoldOut('none is left');
      await sleep(3); // a price rule
      await lease.set(stock - 1);
      return stock - 1;
    });
    response.json({ left });
  } catch (error) {
    if (!(error instanceof StockadeError)) throw error;
    response.json({ error: error instanceof SoldOut ? 'sold out' : error.code });
  }
});

setTimeout(() => process.exit(1), 900_000);
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
server.keepAliveTimeout = 600_000;
