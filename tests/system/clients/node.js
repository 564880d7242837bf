// SPDX-License-Identifier: Apache-2.0
// A client of Node.js, unmodified: (ioredis | node_redis) JOB HOST PORT KEY [CA]
// Takes, uses and gives back a lease (cycle), in callers that wait for each other (share), hears of
// one (events), or lists a hash (list); by TLS where there is a CA. Prints what it saw as JSON.
'use strict';

const fs = require('fs');

const [library, job, host, port, key, caFile] = process.argv.slice(2);
const ca = caFile && fs.readFileSync(caFile);
const channel = `stockade:events:${key}`;

const libraries = {
  ioredis: {
    async connect() {
      const Redis = require('ioredis');
      const client = new Redis({
        host, port: Number(port), lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0,
        tls: ca && { ca },
      });
      client.on('error', () => {});
      await client.connect();
      return client;
    },
    call: (client, ...words) => client.call(...words),
    hash: (client) => client.hgetall(key),
    async page(client, cursor, count) {
      const [next, words] = await client.hscan(key, cursor, 'COUNT', count);
      return [next, words.filter((_, i) => i % 2 === 0)];
    },
    close: (client) => client.disconnect(),
    // Of each listener: its options, how it begins and how it ends.
    listeners: [
      [{}, (client, ear) => {
        const hear = ear();
        client.on('message', (name, text) => hear(text));
        return client.subscribe(channel, 'elsewhere');
      }, (client) => client.unsubscribe()],
      [{}, (client, ear) => {
        const hear = ear();
        client.on('pmessage', (glob, name, text) => hear(text));
        return client.psubscribe(`${channel}*`);
      }, (client) => client.punsubscribe()],
    ],
  },
  node_redis: {
    async connect(options) {
      const { createClient } = require('redis');
      const socket = {
        host, port: Number(port), reconnectStrategy: false, ...(ca && { tls: true, ca }),
      };
      const client = createClient({ socket, ...options });
      client.on('error', () => {});
      await client.connect();
      return client;
    },
    call: (client, ...words) => client.sendCommand(words.map(String)),
    hash: (client) => client.hGetAll(key),
    async page(client, from, COUNT) {
      const { cursor, entries } = await client.hScan(key, from, { COUNT });
      return [cursor, entries.map(({ field }) => field)];
    },
    close: (client) => client.destroy(),
    listeners: [
      [{ RESP: 2 }, (client, ear) => client.subscribe(channel, ear()),
        (client) => client.unsubscribe(channel)],
      [{ RESP: 3 }, async (client, ear) => {
        await client.subscribe(channel, ear());
        await client.pSubscribe(`${channel}*`, ear());
      }, (client) => client.pUnsubscribe(`${channel}*`)],
    ],
  },
};
const { connect, call, hash, page, close, listeners } = libraries[library];

function asObject(reply) {
  if (!Array.isArray(reply)) return { ...reply };
  return Object.fromEntries(reply.flatMap((word, i) => (i % 2 ? [] : [[word, reply[i + 1]]])));
}

async function code(promise) {
  try {
    return `no error: ${await promise}`;
  } catch (error) {
    return error.message.split(' ')[0];
  }
}

async function cycle() {
  const client = await connect();
  const send = (...words) => call(client, ...words);
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
  seen.hash = await hash(client);
  await send('FENCED', token, 'DEL', key);
  seen.piped = await Promise.all(
    Array.from({ length: 50 }, () => send('FENCED', token, 'INCR', key)));
  seen.released = await send('RELEASE', key, token);
  seen.stale = await code(send('FENCED', token, 'SET', key, 11));
  close(client);
  return seen;
}

async function sell(client) {
  const [token] = await call(client, 'ACQUIRE', key, 30000, 'WAIT', 30000);
  await Promise.all([
    call(client, 'FENCED', token, 'INCR', key), call(client, 'RELEASE', key, token)]);
}

async function share() {
  const clients = await Promise.all(Array.from({ length: 6 }, () => connect()));
  const sold = (which) => Promise.all(which.map((client) => code(sell(client))));
  const seen = { each: await sold(clients), one: await sold(clients.map(() => clients[0])) };
  seen.total = await clients[0].get(key);
  clients.forEach(close);
  return seen;
}

async function list() {
  const client = await connect();
  const seen = { fields: [], most: 0 };
  let cursor = '0';
  do {
    const [next, fields] = await page(client, cursor, 50);
    seen.fields.push(...fields);
    seen.most = Math.max(seen.most, fields.length);
    cursor = String(next);
  } while (cursor !== '0');
  close(client);
  return seen;
}

async function events() {
  const told = [];
  const ear = () => {
    const texts = [];
    told.push(texts);
    return (text) => texts.push(text);
  };
  const client = await connect();
  const ends = [];
  for (const [options, begin, end] of listeners) {
    const listener = await connect(options);
    await begin(listener, ear);
    ends.push(async () => { await end(listener); await listener.ping(); close(listener); });
  }
  const [token] = await call(client, 'ACQUIRE', key, 60000);
  await call(client, 'RELEASE', key, token);
  while (told.some((texts) => texts.length < 2)) await new Promise((go) => setTimeout(go, 5));
  for (const end of ends) await end();
  close(client);
  return told;
}

({
  cycle, share, list, events,
})[job]().then((seen) => console.log(JSON.stringify(seen)), (error) => {
  console.error(error);
  process.exit(1);
});
