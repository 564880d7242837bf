// SPDX-License-Identifier: Apache-2.0
// Subscribes with ioredis: HOST PORT KEY. Prints what each listener was told.
'use strict';

const Redis = require('ioredis');

const [host, port, key] = process.argv.slice(2);

async function main() {
  const options = {
    host, port: Number(port), lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0,
  };
  const [client, channel, pattern] = [0, 1, 2].map(() => new Redis(options));
  for (const one of [client, channel, pattern]) await one.connect();
  const told = [[], []];
  channel.on('message', (name, text) => told[0].push(text));
  pattern.on('pmessage', (glob, name, text) => told[1].push(text));
  await channel.subscribe(`stockade:events:${key}`, 'elsewhere');
  await pattern.psubscribe(`stockade:events:${key}*`);
  const [token] = await client.call('ACQUIRE', key, 60000);
  await client.call('RELEASE', key, token);
  while (told.some((texts) => texts.length < 2)) await new Promise((go) => setTimeout(go, 5));
  await channel.unsubscribe();
  await channel.ping();
  for (const one of [client, channel, pattern]) one.disconnect();
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
