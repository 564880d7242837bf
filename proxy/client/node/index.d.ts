// SPDX-License-Identifier: Apache-2.0
// Leases with fencing tokens that are checked at the data. All times are milliseconds.
/// <reference lib="esnext.disposable" />

/** What can be written: numbers are sent as their decimal text. */
export type Value = string | number | bigint | Uint8Array;
/** A number without a fraction that it holds exactly, or a bigint of 64 bits. */
export type Integer = number | bigint;
/** What an SQL parameter can be; undefined is NULL. */
export type SqlValue = string | number | bigint | boolean | Uint8Array | null | undefined;

export interface ConnectOptions {
  /** What a call may take, lost connections and all: 1 to 86400000, by default 5000. */
  timeout?: number;
  /** Who this is, at the daemon's page and in `stockade why`: 1 to 64 visible characters, and by
   * default PROGRAM-PID@HOST. */
  clientName?: string;
}

export interface LeaseOptions {
  /** 10 to 86400000, by default 30000. The lease is renewed every third of it. */
  ttl?: number;
  /** How long to wait in line where another holds it, by default not at all. */
  wait?: number;
  /** Enters again, under the same token, what this owner holds already. By default each is new. */
  owner?: string;
  /** Ends the wait: the promise is rejected with its reason. */
  signal?: AbortSignal;
}

export interface LeadOptions {
  /** How long nobody leads where the leader dies: 10 to 86400000, by default 30000. */
  ttl?: number;
  /** How long to stand; by default as long as it takes. Then it is Held, or what went wrong. */
  wait?: number;
  /** Ends the wait: the promise is rejected with its reason. */
  signal?: AbortSignal;
}

export interface WriteOptions {
  /**
   * Of your own, such as an order's number: a write that is repeated with it is applied once, and
   * gets the first reply, by another process too. By default each write has a new one.
   */
  id?: string;
}

export interface Rows {
  columns: string[];
  /**
   * Each by the names of its columns; of several with one name the second is `name:1`. An integer
   * that a number does not hold is a bigint.
   */
  rows: Record<string, string | number | bigint | null>[];
  changes: number;
  lastInsertRowid: number | bigint;
}

export interface LeaseInfo {
  state: 'free' | 'held';
  /** The newest. */
  token: number;
  owner: string | null;
  /** What is left of it. */
  ttl: number;
  holds: number;
  /** At this daemon. */
  waiters: number;
}

/** A connection to SQLite as better-sqlite3 and node:sqlite have it. */
export interface SqliteConnection {
  prepare(sql: string): { get(...params: any[]): unknown };
}

/** A connection to PostgreSQL as pg has it: a Client, and one that a Pool has lent. */
export interface PostgresConnection {
  query(sql: string, params: any[]): Promise<unknown>;
}

/** The event loop stood still, and a renewal came late. */
export interface Late {
  resource: string;
  token: number;
  /** How late. */
  late: number;
  /** The time that the lease had left then; 0: it is lost. */
  left: number;
}

/**
 * Connects to a daemon: stockade://[user:password@]host[:7379] or stockade+unix:PATH. It has to be
 * there; one that goes away later is connected to again.
 */
export function connect(uri?: string, options?: ConnectOptions): Promise<Stockade>;

/** A way to one store, for all callers of a program. connect() makes one. */
export class Stockade {
  private constructor();

  /**
   * Runs the block while it holds the lease, and gives it back. Resolves to what the block returns.
   * An error of the block's own is never hidden by one of giving back: where that fails, the lease
   * ends with its TTL.
   */
  lease<T>(resource: string, block: (lease: Lease) => T | Promise<T>): Promise<T>;
  lease<T>(resource: string, options: LeaseOptions,
    block: (lease: Lease) => T | Promise<T>): Promise<T>;

  /**
   * Stands for election, and runs the block while this program leads; its end steps down. It waits
   * through outages of the daemon and of the lease service. `term` is a lease on the name: its
   * `signal` aborts at once where it is revoked, and else with a tenth of the TTL to go (and a
   * hundredth and 2 ms), so before anybody else may lead. Ask again for another term.
   */
  lead<T>(name: string, block: (term: Lease) => T | Promise<T>): Promise<T>;
  lead<T>(name: string, options: LeadOptions,
    block: (term: Lease) => T | Promise<T>): Promise<T>;

  /** The same with several leases: all or none, and those that cross never deadlock. */
  leaseAll<T>(resources: readonly string[], block: (leases: Leases) => T | Promise<T>): Promise<T>;
  leaseAll<T>(resources: readonly string[], options: LeaseOptions,
    block: (leases: Leases) => T | Promise<T>): Promise<T>;

  /** `await using lease = await shop.acquire(...)`. Rejects with Held where another has it. */
  acquire(resource: string, options?: LeaseOptions): Promise<Lease>;
  acquireAll(resources: readonly string[], options?: LeaseOptions): Promise<Leases>;

  /** Ends the lease, whoever has it. Resolves to the retired token, null where there was none. */
  revoke(resource: string): Promise<number | null>;
  /** What is known of a resource; null: it was never leased. */
  query(resource: string): Promise<LeaseInfo | null>;

  /** Reads need no lease. */
  get(key: string): Promise<string | null>;
  hget(key: string, field: string): Promise<string | null>;
  hgetall(key: string): Promise<Record<string, string>>;
  /** Any command without a token. It is not sent twice. */
  command(...words: Value[]): Promise<any>;

  /** One statement: a read, or DDL; with `leases` also a change of their guarded rows. */
  sql(statement: string, params?: readonly SqlValue[],
    options?: WriteOptions & { leases?: Iterable<Lease> }): Promise<Rows>;

  /**
   * Writes that are applied whole or not at all: `build` collects them, then they are sent.
   * Resolves to the replies, in order. All leases have to be current, those without a write too.
   */
  transaction(leases: Lease | Iterable<Lease>, build: (transaction: Transaction) => unknown,
    options?: WriteOptions): Promise<any[]>;

  /** Was the write applied? null: not yet, and it still could be. */
  wasApplied(error: Unsure): Promise<boolean | null>;

  /** Ends the connection, after what is under way. Leases that are held end with their TTL. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;

  /** Where nobody listens, it is a warning of the process, once a minute at most. */
  on(event: 'late', listener: (late: Late) => void): this;
  once(event: 'late', listener: (late: Late) => void): this;
  off(event: 'late', listener: (late: Late) => void): this;
}

/**
 * A lease that was granted. It is renewed until it is given back or lost. A lost one aborts
 * `signal`, and each call on it is rejected with Lost: at once where the daemon tells of the loss,
 * with a tenth of its TTL to go where it could not be renewed.
 */
export class Lease {
  private constructor();

  readonly resource: string;
  /** What the writes are checked by. */
  readonly token: number;
  /** Aborts when the lease is lost, with a Lost as its reason. */
  readonly signal: AbortSignal;
  /** The time that it has, for certain; 0: it is lost or was given back. */
  readonly left: number;
  /** Has it time left? For what happens outside the store: writes in it are judged there. */
  readonly valid: boolean;

  /** The value, read under the token: it is nobody else's meanwhile. */
  get(): Promise<string | null>;
  set(value: Value, options?: WriteOptions): Promise<void>;
  delete(options?: WriteOptions): Promise<boolean>;
  /**
   * Takes n from a number, if `min` (0) or more is left then; else SoldOut. Resolves to what is
   * left: a bigint, whatever n is, beyond Number.MAX_SAFE_INTEGER. So do put and hincrby.
   */
  take(n?: Integer, options?: WriteOptions & { min?: Integer }): Promise<number>;
  /** Adds n, to at most `max`. */
  put(n?: Integer, options?: WriteOptions & { max?: Integer }): Promise<number>;
  hget(field: string): Promise<string | null>;
  hgetall(): Promise<Record<string, string>>;
  hset(field: string, value: Value, options?: WriteOptions): Promise<number>;
  hset(fields: Record<string, Value>, options?: WriteOptions): Promise<number>;
  hdel(...fields: [...string[], string | WriteOptions]): Promise<number>;
  hincrby(field: string, n?: Integer,
    options?: WriteOptions & { min?: Integer; max?: Integer }): Promise<number>;
  /** Any command on its key, with the key in it: lease.fenced('SETRANGE', 'sku:1042', 0, 'x'). */
  fenced(...words: [...Value[], Value | WriteOptions]): Promise<any>;
  /** One statement, which may change the rows that belong to its resource. */
  sql(statement: string, params?: readonly SqlValue[], options?: WriteOptions): Promise<Rows>;

  /**
   * Puts the token into the open transaction of a connection of your own to the store's file, which
   * has loaded stockade_guard.so. Until its end nobody can be granted a newer one.
   */
  present(connection: SqliteConnection, options?: { schema?: string }): void;
  /** The same in the store's PostgreSQL database, between BEGIN and COMMIT. */
  present(connection: PostgresConnection): Promise<void>;

  /** Renews it now; with a TTL, for that from here on. */
  renew(ttl?: number): Promise<void>;
  /** Gives it back. False: it was lost already. */
  release(): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Leases that were granted together, in the order asked. */
export class Leases implements Iterable<Lease> {
  private constructor();

  readonly length: number;
  /** Aborts when one of them is lost. */
  readonly signal: AbortSignal;
  /** Have all of them time left? */
  readonly valid: boolean;
  [Symbol.iterator](): Iterator<Lease>;
  /** Gives all of them back. False: one was lost already. */
  release(): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Writes that are applied together. Each method collects one and returns the transaction. */
export class Transaction {
  private constructor();

  get(lease: Lease): this;
  set(lease: Lease, value: Value): this;
  delete(lease: Lease): this;
  take(lease: Lease, n?: Integer, options?: { min?: Integer }): this;
  put(lease: Lease, n?: Integer, options?: { max?: Integer }): this;
  hget(lease: Lease, field: string): this;
  hgetall(lease: Lease): this;
  hset(lease: Lease, field: string, value: Value): this;
  hset(lease: Lease, fields: Record<string, Value>): this;
  hdel(lease: Lease, ...fields: string[]): this;
  hincrby(lease: Lease, field: string, n?: Integer,
    options?: { min?: Integer; max?: Integer }): this;
  fenced(lease: Lease, ...words: Value[]): this;
  /** Under the tokens of all the transaction's leases. */
  sql(statement: string, params?: readonly SqlValue[]): this;
}

/** The base of all errors of this package. `code` is the first word of the daemon's reply. */
export class StockadeError extends Error {
  readonly code: string;
}
/** The token is older than the newest, or was released or revoked. Nothing was applied. */
export class Stale extends StockadeError {}
/** This lease was lost. */
export class Lost extends Stale {
  readonly reason: 'revoked' | 'taken' | 'expired' | 'released' | 'late' | 'unreachable' | 'closed';
}
/** The token was never granted for this resource. */
export class Unknown extends StockadeError {}
/** A write to a key whose lease was not given. */
export class NoToken extends StockadeError {}
/** There are not so many left. Nothing was changed. */
export class SoldOut extends StockadeError {}
/** Another holds the lease, and did until `wait` ran out. */
export class Held extends StockadeError {}
/** A connection would wait for itself. The package does not. */
export class Deadlock extends StockadeError {}
/** The lease service cannot be reached: no new leases. Who holds one may write. */
export class LeaseDown extends StockadeError {}
/** The daemon had no room, or was stopping. Nothing was applied: try again later. */
export class Busy extends StockadeError {}
/** The store failed, such as on a full disk. Nothing was applied. */
export class StoreFailed extends StockadeError {}
/** SQL touched a guarded row whose token was not presented. */
export class Guarded extends StockadeError {}
/** The key holds another kind of value. */
export class WrongType extends StockadeError {}
/** The receipt may have been removed: nobody knows any more. */
export class Expired extends StockadeError {}
/** The login is missing or wrong, or does not give this right. */
export class Denied extends StockadeError {}
/** The daemon refused the command; the message says why. */
export class Refused extends StockadeError {}
/** No answer in time. Nothing was applied. */
export class Unreachable extends StockadeError {}
/** No answer in time to a write that was sent: nobody knows. stockade.wasApplied(error) asks. */
export class Unsure extends StockadeError {
  readonly code: 'UNSURE';
  readonly resource?: string;
  readonly token?: number;
  readonly id?: string;
}
/** The call makes no sense: a mistake in the program. */
export class Misuse extends StockadeError {}
