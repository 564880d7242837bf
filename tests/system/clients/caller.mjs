// SPDX-License-Identifier: Apache-2.0
// A program that uses the package for Node as its standard input says: see harness/callers.py.
import { createInterface } from 'node:readline';
import { connect, Lost, Stale } from 'stockade';

const shops = new Map();
const leases = new Map(); // or baskets
const terms = new Map(); // name: { leave, lostAt }
let cancelling = new AbortController();
let failure;

const only = (lease) => (lease.length === undefined ? lease : [...lease][0]);
const one = (name) => only(leases.get(name));
const options = (ttl, wait) => ({
  ttl: Number(ttl), wait: Number(wait), signal: cancelling.signal,
});

const lost = ({ signal }) => new Promise((resume) => {
  if (signal.aborted) resume(true);
  else signal.addEventListener('abort', () => resume(true));
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
  lead: (shop, lease, name, ttl, wait) => new Promise((led, failed) => {
    const limit = Number(wait) < 0 ? {} : { wait: Number(wait) };
    const term = {};
    term.end = shops.get(shop).lead(name,
      { ttl: Number(ttl), ...limit, signal: cancelling.signal },
      (held) => new Promise((leave) => {
        term.lostAt = lost(held).then(() => Date.now());
        term.leave = leave;
        leases.set(lease, held);
        terms.set(lease, term);
        led(held.token);
      }));
    term.end.catch(failed);
  }),
  lost_at: (lease) => terms.get(lease).lostAt,
  renew: (lease, ttl) => one(lease).renew(Number(ttl)),
  async release(lease) {
    if (!await leases.get(lease).release()) throw new Stale('it was lost');
  },
  async leave(lease) {
    const term = terms.get(lease);
    if (term === undefined) return leases.get(lease)[Symbol.asyncDispose]();
    term.leave();
    return term.end;
  },
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
  lost: (lease) => lost(one(lease)),
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
