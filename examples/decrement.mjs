// SPDX-License-Identifier: Apache-2.0
// Sells one piece of sku:42, with the package for Node.
import { connect, Held, SoldOut, Stale } from 'stockade';

const shop = await connect('stockade://127.0.0.1:7379');
try {
  await shop.lease('sku:42', { ttl: 30_000, wait: 10_000 }, async (lease) => {
    // prices, payment, a pause: whatever takes its time happens here
    console.log('sold, left:', await lease.take(1));
  });
} catch (error) {
  process.exitCode = 1;
  if (error instanceof SoldOut) console.log('sold out');
  else if (error instanceof Held) console.log('busy: others are selling it');
  else if (error instanceof Stale) console.log('not sold: the lease passed on, nothing changed');
  else throw error;
} finally {
  await shop.close();
}
