// SPDX-License-Identifier: Apache-2.0
// The connection that all callers of a shop share, and how a request survives it; and a second one,
// once a lease is to be renewed, so that the package's renewals never wait behind the holder's own
// long call. One that breaks is made again by node-redis, and the request is sent again until its
// time is up. That is harmless, as what changes something carries an ID, and the daemon answers a
// repeat with the first reply. `repeatable: false` is for what cannot carry one.
//
// A daemon that is silent is found out by pings: node-redis drops a connection on which nothing
// arrives for twice the `timeout`.
import { EventEmitter } from 'node:events';
import { createClient, ErrorReply, RESP_TYPES } from '@redis/client';
import { offAbort, onAbort } from './aborts.js';
import { jitter, now, sleep } from './clock.js';
import { Busy, Denied, fromText, Misuse, Unreachable, Unsure } from './errors.js';

const PAUSE_MS_MIN = 4;
const PAUSE_MS_MAX = 256;
const ASIDE_MAX = 16; // connections at once that wait, each for a basket
const LATE = Symbol('late');
// node-redis rounds integers above 2^53. So they come as text, and texts as bytes: see exact().
const EXACT = {
  [RESP_TYPES.NUMBER]: String,
  [RESP_TYPES.BLOB_STRING]: Buffer,
  [RESP_TYPES.SIMPLE_STRING]: Buffer,
  [RESP_TYPES.VERBATIM_STRING]: Buffer,
};

const send = (client, words) => client.sendCommand(words, { typeMapping: EXACT });

// A reply as the program gets it: an integer is a number where that holds it, else a bigint.
function exact(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString();
  if (typeof reply === 'string') {
    const number = Number(reply);
    return Number.isSafeInteger(number) ? number : BigInt(reply);
  }
  if (Array.isArray(reply)) return reply.map(exact);
  if (typeof reply !== 'object' || reply === null || reply instanceof Error) return reply;
  for (const key of Object.keys(reply)) reply[key] = exact(reply[key]);
  return reply;
}

// Resolves when what had come by now is read: also that the connection has ended while it idled.
const polled = () => new Promise((resume) => { setImmediate(() => setImmediate(resume)); });

// One request under way.
class Ask {
  constructor(send, until, options) {
    this.send = send; // what sends it once, on a client
    this.until = until;
    this.repeatable = options.repeatable ?? true;
    this.changes = options.changes ?? false; // without an answer it may have been applied
    this.onLate = options.onLate; // takes a reply that came when nobody waited any more
    this.sent = false;
    this.unheard = false; // an attempt was sent, and its reply was lost
    this.asked = 0; // when it was sent last
    this.pause = PAUSE_MS_MIN;
  }
}

export class Link extends EventEmitter {
  #address;
  #name; // as CLIENT SETNAME
  #client;
  #opened = false;
  #closed = false;
  #why = null; // what went wrong with the connection last
  #keeper = null; // for renewals; null: not connected
  #connecting = null; // the promise of one
  #making = new WeakSet(); // clients that are being connected
  #underWay = new Set(); // promises of replies
  #asides = 0;
  #asideLine = [];

  constructor(address, timeout, name) {
    super();
    this.setMaxListeners(0);
    this.#address = address;
    this.timeout = timeout;
    this.#name = name;
    this.#client = this.#makeLasting((retries, cause) => (this.#opened && !this.#closed
      ? jitter(Math.min(PAUSE_MS_MIN * 2 ** retries, PAUSE_MS_MAX)) : cause));
    this.#client.on('ready', () => this.emit('ready'));
  }

  // node-redis's own pings of a client that was destroyed while it connected never end, and keep
  // the process alive.
  #makeLasting(reconnectStrategy) {
    const client = this.#make({
      disableOfflineQueue: true,
      socket: { socketTimeout: 2 * this.timeout, reconnectStrategy },
    });
    let pings;
    client.on('ready', () => {
      clearInterval(pings);
      pings = setInterval(() => {
        if (client.isOpen) client.sendCommand(['PING']).catch((error) => { this.#why = error; });
        else clearInterval(pings);
      }, Math.ceil(this.timeout / 3)).unref();
    });
    return client;
  }

  #make({ socket, ...options }) {
    const { socket: where, ...login } = this.#address.options;
    const client = createClient({
      ...login,
      ...options,
      name: this.#name,
      RESP: 3,
      maintNotifications: 'disabled',
      socket: { connectTimeout: this.timeout, ...where, ...socket },
    });
    client.on('error', (error) => { this.#why = error; });
    this.#making.add(client);
    client.on('reconnecting', () => this.#making.add(client));
    client.on('connect', () => this.#making.delete(client));
    return client;
  }

  // Destroys it. node-redis leaves a socket behind that is being connected: so when it is, then.
  #discard(client) {
    const destroy = () => { if (client.isOpen) client.destroy(); };
    if (this.#making.has(client)) client.once('connect', () => setImmediate(destroy));
    else destroy();
  }

  // For subscriptions, and for a program's own reads.
  get client() {
    return this.#client;
  }

  async open() {
    await this.#connect(this.#client, now() + this.timeout);
    this.#opened = true;
  }

  // node-redis limits the time to connect, but not the time to log in.
  async #connect(client, until) {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#discard(client);
    }, Math.max(0, until - now()));
    try {
      await client.connect();
    } catch (error) {
      this.#discard(client);
      throw this.#failure(late ? new Error('no answer in time') : error);
    } finally {
      clearTimeout(timer);
    }
  }

  #failure(error) {
    const cause = error.originalError ?? error;
    if (cause instanceof ErrorReply) return fromText(cause.message, { cause });
    return new Unreachable(`${this.#address.name} cannot be reached: ${cause.message}`, { cause });
  }

  // The reply to these words. Options: `until`, when to give up, and those of Ask.
  call(words, options = {}) {
    return this.run((client) => send(client, words), options);
  }

  // The replies of a transaction.
  exec(commands, options = {}) {
    return this.run(async (client) => {
      const all = client.withTypeMapping(EXACT).multi();
      // Its own exec() rounds the integers in EXEC's reply all the same.
      for (const words of [['MULTI'], ...commands, ['EXEC']]) all.addCommand(words);
      return (await all.execAsPipeline()).at(-1);
    }, options);
  }

  async run(send, options) {
    const ask = new Ask(send, options.until ?? now() + this.timeout, options);
    // Nobody wants it any more. What was sent goes on, so that what it got is given back.
    const checkWanted = () => { if (!ask.sent) options.signal?.throwIfAborted(); };
    for (;;) {
      let failure;
      checkWanted();
      try {
        if (!ask.repeatable) await polled();
        if (!this.#client.isReady) await this.#ready(ask);
        checkWanted();
        const reply = await this.#attempt(this.#client, ask);
        options.asked = ask.asked;
        return reply;
      } catch (error) {
        failure = this.#judge(ask, error);
      }
      if (now() + ask.pause >= ask.until) throw failure;
      await sleep(jitter(ask.pause));
      ask.pause = Math.min(ask.pause * 2, PAUSE_MS_MAX);
    }
  }

  // A single attempt, over the connection for renewals: the reply, or an error. For a caller that
  // decides itself when to try again.
  async once(words, patience) {
    const until = now() + patience;
    try {
      const client = this.#keeper?.isReady ? this.#keeper
        : await this.#connectKeeper(until).catch((error) => {
          if (this.#closed || !this.#client.isReady) throw error;
          return this.#client; // there may be no room for a second one
        });
      return await this.#attempt(client, new Ask((to) => send(to, words), until, {}));
    } catch (error) {
      throw error instanceof ErrorReply ? fromText(error.message, { cause: error })
        : this.#unanswered(null);
    }
  }

  // All who need it at this moment wait for the same attempt, each for its own time.
  #connectKeeper(until) {
    if (this.#closed) throw new Misuse('the shop was closed');
    this.#connecting ??= this.#replaceKeeper().finally(() => { this.#connecting = null; });
    this.#connecting.catch(() => {});
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(LATE), Math.max(0, until - now()));
      this.#connecting.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  async #replaceKeeper() {
    if (this.#keeper) this.#discard(this.#keeper);
    this.#keeper = null;
    const client = this.#makeLasting((_, cause) => cause);
    await this.#connect(client, now() + this.timeout);
    if (this.#closed) {
      client.destroy();
      throw new Misuse('the shop was closed');
    }
    this.#keeper = client;
    return client;
  }

  #attempt(client, ask) {
    return new Promise((resolve, reject) => {
      ask.asked = now();
      let answered = false;
      let over = false;
      const end = () => {
        if (answered) return;
        over = true;
        reject(LATE);
      };
      // After a stall the reply may be here already, unread: that comes before an immediate.
      const timer = setTimeout(() => setImmediate(end), Math.max(0, ask.until - ask.asked));
      ask.sent = true;
      const sent = ask.send(client).then((raw) => {
        answered = true;
        clearTimeout(timer);
        const reply = exact(raw);
        if (over) ask.onLate?.(reply);
        resolve(reply);
      }, (error) => {
        clearTimeout(timer);
        reject(error);
      }).finally(() => this.#underWay.delete(sent));
      this.#underWay.add(sent);
    });
  }

  // Returns the error with which it ends where its time is up; throws what ends it at once.
  #judge(ask, error) {
    if (error instanceof ErrorReply) {
      const refusal = fromText(error.message, { cause: error });
      // This time nothing was applied. An attempt before, whose reply was lost, may have been.
      if (!(refusal instanceof Busy)) throw refusal;
      return ask.unheard && ask.changes ? this.#unanswered(ask) : refusal;
    }
    if (error === LATE) throw this.#unanswered(ask);
    if (this.#closed) throw new Misuse('the shop was closed');
    if (ask.sent && !ask.repeatable) throw this.#unanswered(ask);
    ask.unheard ||= ask.sent;
    return this.#unanswered(ask);
  }

  #unanswered(ask) {
    const cause = this.#why ?? undefined;
    const why = cause === undefined || this.#client.isReady ? 'no answer in time' : cause.message;
    if (ask?.sent && ask.changes) {
      return new Unsure(`${this.#address.name}: ${why}; it may have been applied`, { cause });
    }
    if (cause instanceof ErrorReply && !this.#client.isReady) return this.#failure(cause);
    return new Unreachable(`${this.#address.name}: ${why}; nothing was applied`, { cause });
  }

  // Waits for the connection. What is not sent is not unsure.
  #ready(ask) {
    if (this.#closed) throw new Misuse('the shop was closed');
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        this.off('ready', end);
        this.off('closed', end);
        if (this.#closed) reject(new Misuse('the shop was closed'));
        else if (this.#client.isReady) resolve();
        else reject(LATE);
      };
      const timer = setTimeout(end, Math.max(0, ask.until - now()));
      this.on('ready', end);
      this.on('closed', end);
    });
  }

  // Sends words that the daemon may answer only by `until`, over a new connection, so that nobody
  // else waits behind them. `signal` ends it.
  async aside(compose, until, { signal, onLate } = {}) {
    await this.#asideRoom(until, signal);
    const ask = new Ask((client) => send(client, compose()), until, { onLate });
    try {
      for (;;) {
        signal?.throwIfAborted(); // who listens from here on would not hear of it
        const client = this.#make({ socket: { reconnectStrategy: (_, cause) => cause } });
        const stop = () => this.#discard(client);
        onAbort(signal, stop);
        this.on('closed', stop);
        let failure;
        try {
          await this.#connect(client, until);
          return { reply: await this.#attempt(client, ask), asked: ask.asked };
        } catch (error) {
          signal?.throwIfAborted();
          if (error instanceof Denied) throw error;
          failure = error instanceof Unreachable ? error : this.#judge(ask, error);
        } finally {
          offAbort(signal, stop);
          this.off('closed', stop);
          stop();
        }
        if (this.#closed) throw new Misuse('the shop was closed');
        if (now() + ask.pause >= until) throw failure;
        await sleep(jitter(ask.pause));
        ask.pause = Math.min(ask.pause * 2, PAUSE_MS_MAX);
      }
    } finally {
      const next = this.#asideLine.shift();
      if (next === undefined) this.#asides -= 1;
      else next();
    }
  }

  // One of the connections that may wait; first come, first served.
  #asideRoom(until, signal) {
    signal?.throwIfAborted();
    if (this.#asides < ASIDE_MAX) {
      this.#asides += 1;
      return undefined;
    }
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        clearTimeout(timer);
        offAbort(signal, giveUp);
        const at = this.#asideLine.indexOf(enter);
        if (at >= 0) this.#asideLine.splice(at, 1);
        settle(value);
      };
      const enter = () => end(resolve);
      const giveUp = () => end(reject, signal.reason);
      const timer = setTimeout(
        () => end(reject, new Busy(`${ASIDE_MAX} baskets of this shop wait already`)),
        Math.max(0, until - now()));
      onAbort(signal, giveUp);
      this.#asideLine.push(enter);
    });
  }

  // Waits for what is under way, for as long as a call may take.
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    this.emit('closed');
    if (this.#keeper) this.#discard(this.#keeper);
    if (!this.#client.isReady) {
      this.#discard(this.#client);
      return;
    }
    let timer;
    const late = new Promise((end) => { timer = setTimeout(end, this.timeout); });
    await Promise.race([Promise.all(this.#underWay), late]);
    clearTimeout(timer);
    this.#discard(this.#client);
  }
}
