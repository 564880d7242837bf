// SPDX-License-Identifier: Apache-2.0
// A lease cycle (ACQUIRE, FENCED SET, RELEASE) through the package `stockade` for Node, and the same
// three commands sent by hand through node-redis, in turns: node_cycle.mjs URI [ROUNDS [CALLERS]].
// Prints the cycles a second of each, and the ratio of the medians, as JSON.
import { createClient } from '@redis/client';
import { connect } from 'stockade';

const [uri, rounds = '7', callers = '8'] = process.argv.slice(2);
const CYCLES = 1000; // in each round, all callers together
const shop = await connect(uri);
const client = await createClient({ url: uri.replace('stockade:', 'redis:'), RESP: 3 }).connect();
const send = (...words) => client.sendCommand(words.map(String));

async function byHand(key) {
  const [token] = await send('ACQUIRE', key, 30000);
  await send('FENCED', token, 'SET', key, 7);
  await send('RELEASE', key, token);
}

// Retries that are safe, which the package always has.
let ids = Date.now();
async function byHandWithIds(key) {
  ids += 1;
  const [token] = await send('ACQUIRE', key, 30000, 'ID', `a${ids}`);
  await send('FENCED', token, 'ID', `w${ids}`, 'SET', key, 7);
  await send('RELEASE', key, token);
}

const byPackage = (key) => shop.lease(key, { ttl: 30000 }, (lease) => lease.set(7));
const byPackageWaiting = (key) => shop.lease(key, { ttl: 30000, wait: 1000 },
  (lease) => lease.set(7));

async function rate(cycle, name) {
  const begun = performance.now();
  let left = CYCLES;
  await Promise.all(Array.from({ length: Number(callers) }, async (_, i) => {
    while (left > 0) {
      left -= 1;
      await cycle(`${name}:${i}`);
    }
  }));
  return CYCLES / (performance.now() - begun) * 1000;
}

const ways = { byHand, byHandWithIds, byPackage, byPackageWaiting };
const rates = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
for (const [name, way] of Object.entries(ways)) await rate(way, name); // warms up
for (let round = 0; round < Number(rounds); round += 1) {
  for (const [name, way] of Object.entries(ways)) rates[name].push(await rate(way, name));
}
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const medians = Object.fromEntries(Object.entries(rates).map(([name, values]) => [name,
  Math.round(median(values))]));
console.log(JSON.stringify({ ...medians,
  ratio: Number((medians.byPackage / medians.byHand).toFixed(3)),
  ratioWithIds: Number((medians.byPackage / medians.byHandWithIds).toFixed(3)),
  ratioWaiting: Number((medians.byPackageWaiting / medians.byHand).toFixed(3)) }));
await shop.close();
await client.close();
