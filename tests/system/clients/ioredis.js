// SPDX-License-Identifier: Apache-2.0
// A lease cycle through ioredis: HOST PORT KEY. Prints what it saw as one JSON object.
'use strict';

const Redis = require('ioredis');

const [host, port, key] = process.argv.slice(2);

function asObject(reply) {
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
  const client = new Redis({
    host, port: Number(port), lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0,
  });
  client.on('error', () => {});
  await client.connect();
  const seen = {};
  seen.grant = await client.call('ACQUIRE', key, 60000);
  const token = seen.grant[0];
  seen.others = await client.call('ACQUIRE', key, 60000);
  seen.wrote = await client.call('FENCED', token, 'SET', key, 10);
  seen.sold = await client.call('FENCED', token, 'DECRBY', key, 1, 'MIN', 0);
  seen.read = await client.get(key);
  seen.bare = await code(client.set(key, 'x'));
  seen.lease = asObject(await client.call('LEASE', key));
  await client.call('FENCED', token, 'DEL', key);
  await client.call('FENCED', token, 'HSET', key, 'a', 1, 'b', 2);
  seen.hash = await client.hgetall(key);
  await client.call('FENCED', token, 'DEL', key);
  seen.piped = await Promise.all(
    Array.from({ length: 50 }, () => client.call('FENCED', token, 'INCR', key)));
  seen.released = await client.call('RELEASE', key, token);
  seen.stale = await code(client.call('FENCED', token, 'SET', key, 11));
  client.disconnect();
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
