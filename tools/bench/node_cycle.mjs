// SPDX-License-Identifier: Apache-2.0
// A lease cycle (ACQUIRE, FENCED SET, RELEASE) through the package `stockade` for Node, and the
// same three commands sent by hand through node-redis, in turns:
//
//   node --preserve-symlinks --preserve-symlinks-main node_cycle.mjs URI [CALLERS [ROUNDS]]
//
// in a folder whose node_modules has `stockade` and `@redis/client`. Prints as JSON the cycles a
// second of each (the median of its rounds) and the ratio to those by hand (the median of the
// rounds' ratios, as machines are busier at one time than at another).
import { createClient } from '@redis/client';
import { connect } from 'stockade';

const [uri, callers = '8', rounds = '21'] = process.argv.slice(2);
const CYCLES = 200; // in each round, all callers together
const shop = await connect(uri);
const client = await createClient({ url: uri.replace('stockade:', 'redis:'), RESP: 3 }).connect();
const send = (...words) => client.sendCommand(words.map(String));
let ids = Date.now();

const ways = {
  async byHand(key) {
    const [token] = await send('ACQUIRE', key, 30000);
    await send('FENCED', token, 'SET', key, 7);
    await send('RELEASE', key, token);
  },
  // Safe to send again, as those of the package are.
  async byHandWithIds(key) {
    ids += 1;
    const [token] = await send('ACQUIRE', key, 30000, 'ID', `a${ids}`);
    await send('FENCED', token, 'ID', `w${ids}`, 'SET', key, 7);
    await send('RELEASE', key, token);
  },
  byPackage: (key) => shop.lease(key, { ttl: 30000 }, (lease) => lease.set(7)),
  byPackageWaiting: (key) => shop.lease(key, { ttl: 30000, wait: 9000 }, (lease) => lease.set(7)),
};

async function rate(name) {
  const begun = performance.now();
  const cpu = process.cpuUsage();
  let left = CYCLES;
  await Promise.all(Array.from({ length: Number(callers) }, async (_, i) => {
    while (left > 0) {
      left -= 1;
      await ways[name](`${process.pid}:${name}:${i}`);
    }
  }));
  const { user, system } = process.cpuUsage(cpu);
  return { rate: CYCLES / (performance.now() - begun) * 1000, cpu: (user + system) / CYCLES };
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const names = Object.keys(ways);
const seen = Object.fromEntries(names.map((name) => [name, []]));
for (let round = -3; round < Number(rounds); round += 1) { // the first ones warm up
  const order = round % 2 ? names : [...names].reverse();
  for (const name of order) {
    const one = await rate(name);
    if (round >= 0) seen[name].push(one);
  }
}
const report = Object.fromEntries(names.map((name) => [name, {
  cycles: Math.round(median(seen[name].map((one) => one.rate))),
  cpu_us: Math.round(median(seen[name].map((one) => one.cpu))),
}]));
const ratio = (name, base) => Number(median(seen[name].map(
  (one, i) => one.rate / seen[base][i].rate)).toFixed(3));
console.log(JSON.stringify({ callers: Number(callers), ...report,
  ratio: ratio('byPackage', 'byHand'),
  ratio_waiting: ratio('byPackageWaiting', 'byHand'),
  ratio_to_ids: ratio('byPackage', 'byHandWithIds'),
  ratio_waiting_to_ids: ratio('byPackageWaiting', 'byHandWithIds') }));
await shop.close();
await client.close();
