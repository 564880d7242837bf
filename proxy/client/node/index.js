// SPDX-License-Identifier: Apache-2.0
// Leases with fencing tokens that are checked at the data.
//
//   const shop = await connect('stockade://127.0.0.1:7379');
//   await shop.lease('sku:1042', { ttl: 30000, wait: 10000 }, async (lease) => {
//     const left = await lease.take(1);
//   });
//
// index.d.ts describes each function.
export { connect, Stockade } from './lib/shop.js';
export { Lease } from './lib/lease.js';
export { Leases } from './lib/leases.js';
export { Transaction } from './lib/transaction.js';
export {
  Busy, Deadlock, Denied, Expired, Guarded, Held, LeaseDown, Lost, Misuse, NoToken, Refused,
  SoldOut, Stale, StockadeError, StoreFailed, Unknown, Unreachable, Unsure, WrongType,
} from './lib/errors.js';
