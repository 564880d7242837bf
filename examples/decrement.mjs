// SPDX-License-Identifier: Apache-2.0
// Sells one piece of sku:42, with node-redis.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
const shop = await createClient({ url: 'redis://127.0.0.1:7379' }).connect();
const call = (...words) => shop.sendCommand(words.map(String));
const sku = 'sku:42', ask = ['ACQUIRE', sku, 30000, 'QUEUE', 'ID', randomUUID()];
// All callers share this connection, and WAIT would hold up all of them. QUEUE keeps a place.
let lease = await call(...ask);
for (const end = Date.now() + 10000; lease === null || lease[0] === 'queued'; ) {
  if (Date.now() > end) throw new Error('busy: others are selling it');
  await sleep(50);
  lease = await call(...ask); // the same ID: the same place
}
try {
  const stock = Number(await shop.get(sku));
  if (stock === 0) throw new Error('sold out');
  // prices, payment, a pause: whatever takes its time happens here
  await call('FENCED', lease[0], 'SET', sku, stock - 1); // STALE: lease lost, nothing changed
  console.log('sold, left:', stock - 1);
} finally {
  await call('RELEASE', sku, lease[0]).catch(() => {}).finally(() => shop.close());
}
