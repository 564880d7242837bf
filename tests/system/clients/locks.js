// SPDX-License-Identifier: Apache-2.0
// A lock library of Node.js, unmodified: (redlock4 | redlock5 | sesamecare | semaphore) HOST PORT
// LOCK RESOURCE
// Locks LOCK, sells under it from RESOURCE where the server takes FENCED, and prints what it saw.
'use strict';

const Redis = require('ioredis');
const [library, host, port, key, resource] = process.argv.slice(2);
const client = new Redis({
  host, port: Number(port), retryStrategy: null, maxRetriesPerRequest: 0,
});
const TTL = 60000;

async function failure(promise) {
  try {
    await promise;
    return 'none';
  } catch (error) {
    return error.constructor.name;
  }
}

const write = (value) => client.call('FENCED', value, 'SET', resource, 'sold')
  .then(() => 'written', (error) => error.message.split(' ')[0]);

// Takes it, is refused a second time, extends, takes two more at once, gives all back.
async function redlock4() {
  const Redlock = require('redlock4');
  const locks = new Redlock([client], { retryCount: 1, retryDelay: 10 });
  const seen = {};
  const lock = await locks.lock(key, TTL);
  seen.wrote = await write(lock.value);
  seen.second = await failure(locks.lock(key, TTL));
  await lock.extend(2 * TTL);
  seen.left = await client.pttl(key);
  const both = await locks.lock([`${key}:a`, `${key}:b`], TTL);
  seen.both = await client.exists(`${key}:a`, `${key}:b`);
  seen.crossing = await failure(locks.lock([`${key}:c`, `${key}:b`], TTL));
  seen.none = await client.exists(`${key}:c`);
  await both.unlock();
  await lock.unlock();
  seen.again = await failure(lock.unlock());
  seen.late = await write(lock.value);
  return seen;
}

// The same with redlock 5 and those that go on from it.
async function redlock(Redlock) {
  const locks = new Redlock([client], { retryCount: 1, retryDelay: 10 });
  const seen = {};
  locks.on('error', () => {});
  let lock = await locks.acquire([key], TTL);
  seen.wrote = await write(lock.value);
  seen.second = await failure(locks.acquire([key], TTL));
  lock = await lock.extend(2 * TTL);
  seen.left = await client.pttl(key);
  const both = await locks.acquire([`${key}:a`, `${key}:b`], TTL);
  seen.both = await client.exists(`${key}:a`, `${key}:b`);
  seen.crossing = await failure(locks.acquire([`${key}:c`, `${key}:b`], TTL));
  seen.none = await client.exists(`${key}:c`);
  await both.release();
  await lock.release();
  seen.again = await failure(lock.release());
  seen.late = await write(lock.value);
  seen.using = await locks.using([key], TTL, async () => client.exists(key));
  return seen;
}

async function semaphore() {
  const { Mutex } = require('redis-semaphore');
  // It puts its own word in front of the name.
  const name = key.replace(/^mutex:/, '');
  const options = {
    lockTimeout: 1000, acquireTimeout: 100, retryInterval: 10, refreshInterval: 50,
  };
  const seen = { lived: true };
  const lock = new Mutex(client, name, options);
  await lock.acquire();
  seen.wrote = await write(lock.identifier);
  seen.second = await failure(new Mutex(client, name, options).acquire());
  const until = Date.now() + 2 * options.lockTimeout;
  while (Date.now() < until && seen.lived) seen.lived = (await client.exists(key)) === 1;
  await lock.release();
  seen.exists = await client.exists(key);
  seen.late = await write(lock.identifier);
  return seen;
}

const redlock5 = () => redlock(require('redlock').default);
const sesamecare = () => redlock(require('@sesamecare-oss/redlock').Redlock);

({ redlock4, redlock5, sesamecare, semaphore })[library]().then((seen) => {
  console.log(JSON.stringify(seen));
  client.disconnect();
}, (error) => {
  console.error(error);
  process.exit(1);
});
