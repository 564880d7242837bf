// SPDX-License-Identifier: Apache-2.0
// A lease that was granted: its time, its renewal, and the writes under its token.
//
//   live ──renewed every third of its TTL──▶ live
//    │ └──refused, or a tenth of the TTL to go and not renewed──▶ lost: `signal` aborts
//    └──release()──▶ over
//
// - Time is the monotonic clock's, counted from before the request was sent, less a hundredth and
//   2 ms for drift.
// - A timer renews it, so JavaScript that holds the event loop up holds the renewal up. The timer
//   that then comes late says so; where there is no time left the lease counts as lost. Each call
//   looks at the clock first, so code that goes on after a long stall learns of it, too.
// - News of its end (revoked, taken) is not believed but checked, by a renewal at once.
import { now } from './clock.js';
import { Denied, fromText, Lost, Misuse, Stale, Unknown, Unsure } from './errors.js';
import { converters, fence, idOf, integer, operations, reads, word } from './words.js';

const HEARS_AFTER_MS = 100; // a lease that is given back sooner costs no renewal and no news
const PATIENCE_MS_MIN = 20;
const PAUSE_MS_MAX = 256;
const LATE_MS_MIN = 50;
const ENDINGS = new Set(['revoked', 'expired', 'released']);

const WHY = {
  revoked: 'it was revoked',
  taken: 'it was ended, or another has it',
  expired: 'its time ran out, and it passed on',
  released: 'somebody else gave it back',
  late: 'the event loop stood still for too long',
  unreachable: 'the daemon could not be asked to renew it',
  closed: 'the shop was closed',
};

export class Lease {
  #shop;
  #id; // of the owner's RELEASE
  #ttl;
  #until; // it has time until then, for certain
  #renewAt;
  #dueAt;
  #timer;
  #state = 'live';
  #controller;
  #lost; // the error, once it is lost
  #renewing = false;
  #again = false; // news came while it was being renewed
  #news; // what the news said
  #trouble; // why the last renewal failed
  #hear;

  // `asked`: when it was asked for; `left`: what the daemon said was left of its TTL.
  constructor(shop, resource, { token, ttl, asked, left, owner }) {
    this.#shop = shop;
    this.resource = resource;
    this.token = token;
    this.#ttl = ttl;
    if (owner !== undefined) this.#id = shop.newId();
    this.#extend(asked, left);
    this.#renewAt = Math.min(this.#renewAt, now() + HEARS_AFTER_MS);
    shop.leases.add(this);
    this.#arm();
  }

  // Aborts when the lease is lost; the reason is a Lost.
  get signal() {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#lost) this.#controller.abort(this.#lost);
    }
    this.#look();
    return this.#controller.signal;
  }

  // Milliseconds that it has, for certain; 0 when it is lost or was given back.
  get left() {
    this.#look();
    return this.#state === 'live' ? Math.max(0, this.#until - now()) : 0;
  }

  get valid() {
    return this.left > 0;
  }

  // Time.

  #extend(asked, left) {
    const good = Math.min(left, this.#ttl);
    this.#until = asked + good - good / 100 - 2;
    this.#renewAt = asked + good / 3;
  }

  // When it counts as lost.
  get #end() {
    return this.#until - this.#ttl / 10;
  }

  #arm() {
    clearTimeout(this.#timer);
    if (this.#state !== 'live') return;
    this.#dueAt = this.#renewing ? this.#end : Math.min(this.#renewAt, this.#end);
    this.#timer = setTimeout(() => this.#onTimer(), Math.max(0, Math.ceil(this.#dueAt - now())));
  }

  #onTimer() {
    const late = now() - this.#dueAt;
    if (late > Math.max(LATE_MS_MIN, this.#ttl / 20)) {
      this.#shop.sayLate(this, Math.round(late), Math.max(0, Math.round(this.#until - now())));
    }
    this.#look();
    if (this.#state !== 'live') return;
    if (now() >= this.#dueAt && !this.#renewing) this.#renew();
    else this.#arm();
  }

  // Is it over by the clock?
  #look() {
    if (this.#state !== 'live' || now() < this.#end) return;
    const stalled = now() - Math.max(this.#dueAt, this.#renewAt) > this.#ttl / 4;
    this.#lose(this.#trouble === undefined && stalled ? 'late' : 'unreachable', this.#trouble);
  }

  #lose(reason, cause) {
    if (this.#state !== 'live') return;
    this.#lost = new Lost(`the lease on ${JSON.stringify(this.resource)} was lost: ${WHY[reason]}`,
      reason, { cause });
    this.#leave('lost');
    this.#controller?.abort(this.#lost);
  }

  #leave(state) {
    this.#state = state;
    clearTimeout(this.#timer);
    this.#shop.leases.delete(this);
    if (this.#hear) this.#shop.news.leave(this.resource, this.#hear);
  }

  // Renewal.

  #listen() {
    if (this.#hear) return;
    this.#hear = (event) => this.#onEvent(event);
    this.#shop.news.join(this.resource, this.#hear);
  }

  #onEvent({ event, token }) {
    if (this.#state !== 'live') return;
    if (ENDINGS.has(event) && token === this.token) this.#news = event;
    else if (event === 'granted' && token > this.token) this.#news = 'taken';
    else if (event !== 'reconnected') return;
    this.suspect();
  }

  async #renew() {
    const asked = now();
    const ttl = this.#ttl; // the program may give it another one meanwhile
    this.#renewing = true;
    this.#again = false;
    this.#arm();
    this.#listen(); // before it is asked, so that nothing is missed
    let failure;
    try {
      const left = await this.#shop.link.once(['RENEW', this.resource, String(this.token),
        String(ttl)], Math.max(ttl / 4, PATIENCE_MS_MIN));
      this.#renewing = false;
      if (this.#state !== 'live') return;
      this.#extend(asked, left);
      this.#news = this.#trouble = undefined;
    } catch (error) {
      failure = error;
      this.#renewing = false;
      if (this.#state !== 'live') return;
      this.#onRefused(error);
    }
    if (this.#again) this.#renewAt = now();
    else if (failure) this.#renewAt = now() + Math.min(this.#ttl / 20, PAUSE_MS_MAX);
    this.#arm();
    return failure;
  }

  #onRefused(error) {
    this.#trouble = error;
    const over = error instanceof Stale || error instanceof Unknown;
    if (over) this.#lose(this.#news ?? 'taken', error);
  }

  // Renews it now, with this TTL from here on; without one, the same.
  async renew(ttl = this.#ttl) {
    integer(ttl, 'ttl', 10, 86400000);
    this.#check();
    const asked = now();
    let left;
    try {
      left = await this.#shop.link.call(['RENEW', this.resource, String(this.token), String(ttl)]);
    } catch (error) {
      this.#onRefused(error);
      throw this.#lost ?? error;
    }
    if (this.#state !== 'live') return;
    this.#ttl = ttl;
    const due = this.#renewAt; // not put off: it may be the first one, which begins to listen
    this.#extend(asked, left);
    this.#renewAt = Math.min(this.#renewAt, due);
    this.#arm();
  }

  // Its end.

  // Gives it back, once more for each time that its owner entered. False: it was lost already.
  // Where that fails it ends with its TTL.
  async release() {
    if (this.#state === 'over') return false;
    const stale = this.#lost?.cause instanceof Stale;
    if (this.#state === 'live') this.#leave('over');
    this.#state = 'over';
    if (stale) return false;
    const words = ['RELEASE', this.resource, String(this.token)];
    try {
      if (this.#id === undefined) await releaseAll(this.#shop.link, words);
      else await this.#shop.link.call([...words, 'ID', this.#id]);
      return true;
    } catch (error) {
      if (error instanceof Stale || error instanceof Unknown) return false;
      throw error;
    }
  }

  // The end of a block, which hides nobody's error, and waits for nothing where it was lost.
  async [Symbol.asyncDispose]() {
    const lost = this.#lost !== undefined;
    const released = this.release().catch(() => {});
    if (!lost) await released;
  }

  // For close(): it is renewed no more.
  forget() {
    this.#lose('closed');
  }

  // Under its token.

  #check() {
    this.#look();
    if (this.#lost) throw this.#lost;
    if (this.#state === 'over') {
      throw new Misuse(`the lease on ${JSON.stringify(this.resource)} was given back`);
    }
  }

  // Throws where this lease is over. For what is done under several leases.
  check() {
    this.#check();
  }

  // Renews it now: it may be the one that was refused.
  suspect() {
    if (this.#state !== 'live') return;
    if (this.#renewing) this.#again = true;
    else this.#renew();
  }

  async #write(words, id) {
    this.#check();
    const { link } = this.#shop;
    if (reads(words[0])) return this.#guarded(link.call(fence([this], undefined, words)));
    const named = id === undefined ? this.#shop.newId() : String(id);
    try {
      return await this.#guarded(link.call(fence([this], named, words), { changes: true }));
    } catch (error) {
      throw nameWrite(error, this, named);
    }
  }

  async #guarded(reply) {
    try {
      return await reply;
    } catch (error) {
      if (!(error instanceof Stale)) throw error;
      this.#lose(this.#news ?? 'taken', error);
      throw error;
    }
  }

  // Any command on its key: lease.fenced('SETRANGE', 'sku:1042', 0, 'x'). Options may come last.
  async fenced(...words) {
    const id = idOf(options(words));
    return this.#write(words.map(word), id);
  }

  async get() {
    return this.#write(operations.get(this.resource));
  }

  async set(value, options) {
    await this.#write(operations.set(this.resource, value), idOf(options));
  }

  async delete(options) {
    return converters.delete(await this.#write(operations.delete(this.resource), idOf(options)));
  }

  async take(n, { id, ...options } = {}) {
    return this.#write(operations.take(this.resource, n, options), id);
  }

  async put(n, { id, ...options } = {}) {
    return this.#write(operations.put(this.resource, n, options), id);
  }

  async hget(field) {
    return this.#write(operations.hget(this.resource, field));
  }

  async hgetall() {
    return converters.hgetall(await this.#write(operations.hgetall(this.resource)));
  }

  async hset(field, value, options) {
    const id = idOf((typeof field === 'object' ? value : options) ?? {});
    return this.#write(operations.hset(this.resource, field, value), id);
  }

  // Options may come last, as in fenced().
  async hdel(...fields) {
    const id = idOf(options(fields));
    return this.#write(operations.hdel(this.resource, ...fields), id);
  }

  async hincrby(field, n, { id, ...options } = {}) {
    return this.#write(operations.hincrby(this.resource, field, n, options), id);
  }

  // One SQL statement under its token.
  async sql(statement, params, options) {
    return this.#shop.sql(statement, params, { leases: [this], id: idOf(options) });
  }

  // Puts the token into a transaction of the program's own connection: to SQLite, an object as
  // those of better-sqlite3 and node:sqlite, which has loaded stockade_guard.so; or to PostgreSQL,
  // as pg's Client, and then it is a promise.
  present(connection, { schema = 'main' } = {}) {
    this.#check();
    if (typeof connection.prepare !== 'function') return this.#presentToPostgres(connection);
    try {
      connection.prepare('SELECT stockade_present(?, ?, ?)')
        .get(this.resource, BigInt(this.token), schema);
    } catch (error) {
      if (/no such function/.test(error.message)) {
        throw new Misuse('this connection has not loaded the extension stockade_guard.so: '
          + 'connection.loadExtension(path)', { cause: error });
      }
      throw this.#refused(error.message, error);
    }
    return undefined;
  }

  async #presentToPostgres(connection) {
    try {
      await connection.query('SELECT stockade.present($1, $2)',
        [this.resource, String(this.token)]);
    } catch (error) {
      const [said] = /\b(STALE|UNKNOWN|GUARDED) .*/.exec(error.message) ?? [];
      if (said !== undefined) throw this.#refused(said, error);
      if (error.code === '42501') {
        throw new Denied(`${error.message}: the role of this connection may not present; `
          + 'GRANT stockade_app TO it', { cause: error });
      }
      throw error;
    }
  }

  // What a database said of the token, as an error of ours.
  #refused(text, cause) {
    const refusal = fromText(text, { cause });
    if (refusal instanceof Stale) this.#lose(this.#news ?? 'taken', refusal);
    return refusal;
  }
}

// Takes the options off the end of these words, where there are some.
function options(words) {
  const last = words.at(-1);
  const there = typeof last === 'object' && last !== null && !(last instanceof Uint8Array)
    && !Array.isArray(last);
  return there ? words.pop() : {};
}

// For an owner that is this lease's alone: a repeated ACQUIRE may have entered twice.
export async function releaseAll(link, words) {
  while (await link.call(words) > 0);
}

// Says which write it was, for wasApplied().
export function nameWrite(error, lease, id) {
  const { resource, token } = lease;
  return error instanceof Unsure ? Object.assign(error, { resource, token, id }) : error;
}

