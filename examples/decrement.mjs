// SPDX-License-Identifier: Apache-2.0
// Sells one piece of sku:42, with node-redis.
import { createClient } from 'redis';

const shop = await createClient({ url: 'redis://127.0.0.1:7379' }).connect();
const call = (...words) => shop.sendCommand(words.map(String));
const sku = 'sku:42';

const lease = await call('ACQUIRE', sku, 30000, 'WAIT', 10000);
if (lease === null) throw new Error('busy: others are selling it');
const token = lease[0];
try {
  const stock = Number(await shop.get(sku));
  if (stock === 0) throw new Error('sold out');
  // prices, payment, a pause: whatever takes its time happens here
  await call('FENCED', token, 'SET', sku, stock - 1); // STALE: the lease passed on, nothing changed
  console.log('sold, left:', stock - 1);
} finally {
  await call('RELEASE', sku, token).catch(() => {});
  await shop.close();
}
