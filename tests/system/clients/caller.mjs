// SPDX-License-Identifier: Apache-2.0
// A program that uses the package for Node as its standard input says: see harness/callers.py.
import { createInterface } from 'node:readline';
import { connect, Lost, Stale } from 'stockade';

const shops = new Map();
const leases = new Map(); // or baskets
let cancelling = new AbortController();
let failure;

const only = (lease) => (lease.length === undefined ? lease : [...lease][0]);
const one = (name) => only(leases.get(name));
const options = (ttl, wait) => ({
  ttl: Number(ttl), wait: Number(wait), signal: cancelling.signal,
});

const calls = {
  async open(shop, uri) {
    shops.set(shop, await connect(uri, { timeout: 20000 }));
  },
  timeout(shop, ms) {
    shops.get(shop).link.timeout = Number(ms);
  },
  close: (shop) => shops.get(shop).close(),
  async acquire(shop, lease, resource, ttl, wait) {
    leases.set(lease, await shops.get(shop).acquire(resource, options(ttl, wait)));
    return one(lease).token;
  },
  async acquire_all(shop, lease, resources, ttl, wait) {
    leases.set(lease, await shops.get(shop).acquireAll(resources.split(','), options(ttl, wait)));
    return one(lease).token;
  },
  renew: (lease, ttl) => one(lease).renew(Number(ttl)),
  async release(lease) {
    if (!await leases.get(lease).release()) throw new Stale('it was lost');
  },
  leave: (lease) => leases.get(lease)[Symbol.asyncDispose](),
  put: (_, lease) => one(lease).put(1),
  multi: async (shop, lease) => (
    await shops.get(shop).transaction(one(lease), (sale) => sale.put(one(lease), 1)))[0],
  sql: async (shop, lease, _, statement) => (
    await one(lease).sql(decodeURIComponent(statement))).changes,
  multi_sql: async (shop, lease, _, statement) => (
    await shops.get(shop).transaction(one(lease), (sale) => sale.sql(decodeURIComponent(statement)))
  )[0].changes,
  read: (shop, key) => shops.get(shop).get(key),
  receipt: (shop) => shops.get(shop).wasApplied(failure),
  revoke: (shop, resource) => shops.get(shop).revoke(resource),
  bare: (shop, key) => shops.get(shop).command('INCR', key),
  lost: (lease) => new Promise((resume) => {
    const { signal } = one(lease);
    if (signal.aborted) resume(true);
    else signal.addEventListener('abort', () => resume(true));
  }),
};

function word(value) {
  if (value === undefined || value === null) return 'none';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return value;
}

async function run(line) {
  const [verb, ...args] = line.split(' ');
  cancelling = new AbortController();
  let said;
  try {
    said = word(await calls[verb](...args));
  } catch (error) {
    failure = error;
    said = { AbortError: 'Cancelled', [Lost.name]: 'Stale' }[error.name] ?? error.name;
  }
  process.stdout.write(`${said}\n`);
}

createInterface({ input: process.stdin }).on('line', (line) => {
  if (line === 'cancel') cancelling.abort();
  else run(line);
});
process.stdin.on('end', () => {
  setTimeout(() => process.stderr.write(`left: ${process.getActiveResourcesInfo()}\n`), 3000)
    .unref();
});
