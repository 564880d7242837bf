// SPDX-License-Identifier: Apache-2.0
// A lease cycle through node-redis: HOST PORT KEY. Prints what it saw as one JSON object.
'use strict';

const { createClient } = require('redis');

const [host, port, key] = process.argv.slice(2);

function asObject(reply) {
  if (!Array.isArray(reply)) return { ...reply };
  const object = {};
  for (let i = 0; i < reply.length; i += 2) object[reply[i]] = reply[i + 1];
  return object;
}

async function code(promise) {
  try {
    return `no error: ${await promise}`;
  } catch (error) {
    return error.message.split(' ')[0];
  }
}

async function main() {
  const client = createClient({ socket: { host, port: Number(port), reconnectStrategy: false } });
  client.on('error', () => {});
  await client.connect();
  const send = (...words) => client.sendCommand(words.map(String));
  const seen = {};
  seen.grant = await send('ACQUIRE', key, 60000);
  const token = seen.grant[0];
  seen.others = await send('ACQUIRE', key, 60000);
  seen.wrote = await send('FENCED', token, 'SET', key, 10);
  seen.sold = await send('FENCED', token, 'DECRBY', key, 1, 'MIN', 0);
  seen.read = await client.get(key);
  seen.bare = await code(client.set(key, 'x'));
  seen.lease = asObject(await send('LEASE', key));
  await send('FENCED', token, 'DEL', key);
  await send('FENCED', token, 'HSET', key, 'a', 1, 'b', 2);
  seen.hash = { ...(await client.hGetAll(key)) };
  await send('FENCED', token, 'DEL', key);
  seen.piped = await Promise.all(
    Array.from({ length: 50 }, () => send('FENCED', token, 'INCR', key)));
  seen.released = await send('RELEASE', key, token);
  seen.stale = await code(send('FENCED', token, 'SET', key, 11));
  client.destroy();
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
