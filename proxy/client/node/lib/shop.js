// SPDX-License-Identifier: Apache-2.0
// A way to one store: leases, waiting for them, reads and SQL.
//
// Waiting. All callers share one connection, which a WAIT would hold up. So a lease is asked for
// with QUEUE: the answer comes at once, and where it is a place in the line, the event of its turn,
// at which it is asked for again by the same ID. A basket (ACQUIREALL) has no QUEUE, and waits over
// a connection of its own.
import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { offAbort, onAbort } from './aborts.js';
import { parse, processName } from './address.js';
import { now } from './clock.js';
import { stand } from './election.js';
import { Held, Misuse, Stale, Unreachable, Unsure } from './errors.js';
import { Lease, nameWrite, releaseAll } from './lease.js';
import { Leases } from './leases.js';
import { Link } from './link.js';
import { News } from './news.js';
import { Transaction } from './transaction.js';
import {
  bareSqlReads, converters, fence, idOf, integer, noOther, resourceName, sqlWords, word,
} from './words.js';

const TTL_MS = 30000;
const TTL_MS_MIN = 10;
const TIME_MS_MAX = 86400000;
const SILENCE_MS_MAX = 10000; // the daemon drops a place after this, or its TTL, without a word
const DEAF_MS = 250; // where its turn, which lasts a second, is not told
const WARN_MS = 60000;
const NO_BLOCK = 'the last argument is what runs under the lease, a function; or use acquire()';

// Leads to a daemon; it has to be there. `timeout`: what a call may take, in milliseconds.
export async function connect(uri = 'stockade://127.0.0.1:7379',
  { timeout = 5000, clientName = processName(), ...rest } = {}) {
  noOther(rest);
  integer(timeout, 'timeout', 1, TIME_MS_MAX);
  if (!/^[!-~]{1,64}$/.test(clientName)) {
    throw new Misuse('clientName is 1 to 64 visible characters of ASCII, without blanks');
  }
  const link = new Link(parse(uri), timeout, clientName);
  await link.open();
  return new Stockade(link);
}

export class Stockade extends EventEmitter {
  #idHead = randomBytes(9).toString('base64url');
  #ids = 0;
  #warnAt = 0;

  // connect() makes one.
  constructor(link) {
    super();
    if (!(link instanceof Link)) throw new Misuse('use connect()');
    const hidden = (value) => ({ value, enumerable: false });
    Object.defineProperties(this, {
      link: hidden(link), news: hidden(new News(link)), leases: hidden(new Set()),
    });
  }

  newId() {
    this.#ids += 1;
    return `${this.#idHead}-${this.#ids.toString(36)}`;
  }

  // A renewal came late: the event loop stood still.
  sayLate({ resource, token }, late, left) {
    if (this.emit('late', { resource, token, late, left }) || now() < this.#warnAt) return;
    this.#warnAt = now() + WARN_MS;
    process.emitWarning(`the event loop stood still: the renewal of the lease on ${
      JSON.stringify(resource)} came ${late} ms late, with ${left} ms left`,
    { code: 'STOCKADE_LATE' });
  }

  // Leases.

  // Runs the block while it holds the lease, and returns what that returns.
  async lease(resource, options, block) {
    if (typeof options === 'function') return this.lease(resource, {}, options);
    if (typeof block !== 'function') throw new Misuse(NO_BLOCK);
    const lease = await this.acquire(resource, options);
    return run(lease, block);
  }

  // Stands for election: runs the block while this program leads, and steps down at its end.
  async lead(name, options, block) {
    if (typeof options === 'function') return this.lead(name, {}, options);
    if (typeof block !== 'function') throw new Misuse(NO_BLOCK);
    const { ttl, wait = Infinity, signal, ...rest } = options ?? {};
    noOther(rest);
    if (wait !== Infinity) integer(wait, 'wait', 0, TIME_MS_MAX);
    return run(await stand(this, name, { ttl, wait, signal }), block);
  }

  // The same with several: the block gets them in the order asked.
  async leaseAll(resources, options, block) {
    if (typeof options === 'function') return this.leaseAll(resources, {}, options);
    if (typeof block !== 'function') throw new Misuse(NO_BLOCK);
    const leases = await this.acquireAll(resources, options);
    return run(leases, block);
  }

  // Asks plainly first, by an owner of its own, so that a repeat after a lost reply enters the
  // lease that it had got (release() goes by the count). One that is held is waited for in line.
  async acquire(resource, options) {
    const { ttl, wait, owner, signal } = checked(options);
    resourceName(resource);
    const waitUntil = now() + wait;
    const words = ['ACQUIRE', resource, String(ttl), 'OWNER', owner ?? this.newId()];
    const call = {
      until: waitUntil + this.link.timeout,
      signal,
      onLate: (reply) => this.#giveBack(resource, reply, owner),
    };
    let reply = owner === undefined ? await this.link.call(words, call)
      : await this.#named((id) => this.link.call([...words, 'ID', id], call));
    if (reply === null && wait > 0) {
      reply = await this.#queue(words, ttl, waitUntil, signal, call);
    }
    if (signal?.aborted && reply !== null) call.onLate(reply);
    signal?.throwIfAborted();
    if (reply === null) throw new Held(`another holds ${JSON.stringify(resource)}`);
    return new Lease(this, resource, { token: reply[0], left: reply[1], asked: call.asked, ttl,
      owner });
  }

  // Asks under an ID; under another one where the grant of an attempt without a reply is over.
  async #named(ask) {
    for (;;) {
      try {
        return await ask(this.newId());
      } catch (error) {
        if (!(error instanceof Stale)) throw error;
      }
    }
  }

  // Asks until it is granted or the time is up.
  async #queue(words, ttl, waitUntil, signal, options) {
    const [, resource] = words;
    let id = this.newId();
    const ask = async () => {
      let reply;
      try {
        reply = await this.link.call([...words, 'ID', id, 'QUEUE'], options);
      } catch (error) {
        if (!(error instanceof Stale)) throw error;
        id = this.newId(); // as in #named()
        return ask();
      }
      return reply === null || reply[0] === 'queued' ? null : reply;
    };
    let called = () => {}; // ends the pause
    let told = false;
    const call = () => {
      told = true;
      called();
    };
    const hear = ({ event, id: whose }) => {
      if (event === 'reconnected' || (event === 'turn' && whose === id)) call();
    };
    const heard = this.news.hears(resource);
    const { subscribed } = this.news.join(resource, hear);
    onAbort(signal, call);
    try {
      let grant = await ask();
      if (grant === null && !heard) {
        await subscribed;
        told = true; // its turn may have come meanwhile
      }
      while (grant === null) {
        const recheck = this.news.hears(resource) ? Math.min(ttl, SILENCE_MS_MAX) / 3
          : Math.min(ttl / 3, DEAF_MS);
        const pause = Math.min(waitUntil - now(), recheck);
        if (!told && pause > 0) {
          await new Promise((resume) => {
            const timer = setTimeout(resume, pause);
            called = () => {
              clearTimeout(timer);
              resume();
            };
          });
        }
        if (signal?.aborted || now() >= waitUntil) break;
        told = false;
        grant = await ask();
      }
      if (grant === null) await this.link.call(['DEQUEUE', resource, id]).catch(() => {});
      return grant;
    } finally {
      offAbort(signal, call);
      this.news.leave(resource, hear);
    }
  }

  // A grant that nobody waits for any more. An owner with a name may have entered before: it leaves
  // once.
  async #giveBack(resource, reply, owner) {
    if (typeof reply?.[0] !== 'number') return;
    const words = ['RELEASE', resource, String(reply[0])];
    const left = owner === undefined ? releaseAll(this.link, words)
      : this.link.call([...words, 'ID', this.newId()]);
    await left.catch(() => {});
  }

  async acquireAll(resources, options = {}) {
    const { ttl, wait, owner, signal } = checked(options);
    if (!Array.isArray(resources) || resources.length === 0) {
      throw new Misuse('acquireAll() takes an array of resources');
    }
    resources.forEach(resourceName);
    const waitUntil = now() + wait;
    const grant = await this.#askAll(resources, ttl, waitUntil, owner, signal);
    const leases = resources.map((resource, i) => new Lease(this, resource,
      { token: grant.tokens[i], left: grant.left[i], asked: grant.asked, ttl, owner }));
    return new Leases(leases);
  }

  async #askAll(resources, ttl, waitUntil, owner, signal) {
    for (let again = false; ; again = true) {
      signal?.throwIfAborted();
      const words = ['ACQUIREALL', String(ttl), String(resources.length), ...resources, 'ID',
        this.newId()];
      if (owner !== undefined) words.push('OWNER', owner);
      const call = {
        until: waitUntil + this.link.timeout,
        onLate: (reply) => reply?.forEach(
          (token, i) => this.#giveBack(resources[i], [token], owner)),
      };
      try {
        let reply = await this.link.call(words, call);
        let { asked } = call;
        if (reply === null && now() < waitUntil) {
          ({ reply, asked } = await this.link.aside(() => {
            const left = Math.ceil(waitUntil - now());
            return left > 0 ? [...words, 'WAIT', String(left)] : words;
          }, call.until, { signal, onLate: call.onLate }));
        }
        if (signal?.aborted) call.onLate(reply);
        signal?.throwIfAborted();
        if (reply === null) throw new Held(`another holds one of ${JSON.stringify(resources)}`);
        return await this.#timeLeft(resources, reply, ttl, asked);
      } catch (error) {
        // Its grant may be on its way to nobody.
        if (error instanceof Unreachable || signal?.aborted) {
          this.link.call(words).then(call.onLate).catch(() => {});
        }
        // What was granted to an attempt without a reply is over: it takes another ID.
        if (!(error instanceof Stale) || (again && now() >= waitUntil)) throw error;
      }
    }
  }

  // When it was granted is not told. Where the answer took long, ask what is left.
  async #timeLeft(resources, tokens, ttl, asked) {
    if (now() - asked <= ttl / 10) return { tokens, asked, left: tokens.map(() => ttl) };
    const again = now();
    const left = await Promise.all(tokens.map((token, i) => this.link.call(
      ['RENEW', resources[i], String(token), String(ttl)])));
    return { tokens, asked: again, left };
  }

  // Ends the lease, whoever has it. Returns the retired token; null: there was none.
  revoke(resource) {
    return this.link.call(['REVOKE', resourceName(resource)], { repeatable: false, changes: true });
  }

  // What is known of a resource; null: it was never leased.
  async query(resource) {
    const reply = await this.link.call(['LEASE', resourceName(resource)]);
    if (reply === null) return null;
    const { state, token, owner, ttl_ms: ttl, holds, waiters } = reply;
    return { state, token, owner, ttl, holds, waiters };
  }

  // Data. Reads need no lease.

  get(key) {
    return this.link.call(['GET', word(key)]);
  }

  hget(key, field) {
    return this.link.call(['HGET', word(key), word(field)]);
  }

  async hgetall(key) {
    return converters.hgetall(await this.link.call(['HGETALL', word(key)]));
  }

  // Any command without a token. It is not sent twice.
  command(...words) {
    return this.link.call(words.map(word), { repeatable: false, changes: true });
  }

  // One statement; it may change guarded rows of the leases given.
  async sql(statement, params = [], { leases = [], id = this.newId(), ...rest } = {}) {
    noOther(rest);
    const words = sqlWords(statement, params);
    const held = [...leases];
    for (const lease of held) lease.check();
    if (held.length === 0) {
      const repeatable = bareSqlReads(statement);
      return converters.sql(await this.link.call(words, { repeatable, changes: !repeatable }));
    }
    try { // only the store knows what a statement under a token does: so each has an ID
      return converters.sql(await this.link.call(fence(held, String(id), words),
        { changes: true }));
    } catch (error) {
      if (error instanceof Stale) for (const lease of held) lease.suspect();
      throw nameWrite(error, held[0], String(id));
    }
  }

  // Writes under several leases, whole or not at all: `build` collects them. Returns the replies.
  async transaction(leases, build, options) {
    const id = idOf(options);
    const transaction = new Transaction(leases instanceof Lease ? [leases] : [...leases]);
    await build(transaction);
    return transaction.exec(this, id);
  }

  // Was the write applied that ended with Unsure? null: not yet, and it still could be.
  async wasApplied(error) {
    if (!(error instanceof Unsure) || error.id === undefined) {
      throw new Misuse('this was no write that has a receipt');
    }
    const reply = await this.link.call(['RECEIPT', error.resource, String(error.token), error.id]);
    return reply === null ? null : reply[0] === 1;
  }

  // Ends the connection after what is under way. Leases that are held end with their TTL.
  async close() {
    for (const lease of [...this.leases]) lease.forget();
    await this.link.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

async function run(held, block) {
  try {
    return await block(held);
  } finally {
    await held[Symbol.asyncDispose]();
  }
}

function checked({ ttl = TTL_MS, wait = 0, owner, signal, ...rest } = {}) {
  noOther(rest);
  integer(ttl, 'ttl', TTL_MS_MIN, TIME_MS_MAX);
  integer(wait, 'wait', 0, TIME_MS_MAX);
  signal?.throwIfAborted();
  return { ttl, wait, owner: owner === undefined ? undefined : resourceName(owner), signal };
}
