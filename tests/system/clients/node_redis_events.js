// SPDX-License-Identifier: Apache-2.0
// Subscribes with node-redis, in RESP2 and RESP3: HOST PORT KEY. Prints what each was told.
'use strict';

const { createClient } = require('redis');

const [host, port, key] = process.argv.slice(2);

async function main() {
  const options = { socket: { host, port: Number(port), reconnectStrategy: false } };
  const client = createClient(options);
  const told = [[], [], []];
  await client.connect();
  const listeners = [createClient({ ...options, RESP: 2 }), createClient({ ...options, RESP: 3 })];
  for (const listener of listeners) await listener.connect();
  await listeners[0].subscribe(`stockade:events:${key}`, (text) => told[0].push(text));
  await listeners[1].subscribe(`stockade:events:${key}`, (text) => told[1].push(text));
  await listeners[1].pSubscribe(`stockade:events:${key}*`, (text) => told[2].push(text));
  const [token] = await client.sendCommand(['ACQUIRE', key, '60000']);
  await client.sendCommand(['RELEASE', key, String(token)]);
  while (told.some((texts) => texts.length < 2)) await new Promise((go) => setTimeout(go, 5));
  await listeners[0].unsubscribe(`stockade:events:${key}`);
  await listeners[1].pUnsubscribe(`stockade:events:${key}*`);
  await listeners[1].ping();
  for (const one of [client, ...listeners]) one.destroy();
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
