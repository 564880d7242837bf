// SPDX-License-Identifier: Apache-2.0
// Commands as words, and what their replies mean.
import { Misuse } from './errors.js';

// test_reads.py holds this list to the daemon's, and to those of the other packages.
const READS = new Set(['DBSIZE', 'ECHO', 'EXISTS', 'GET', 'GETRANGE', 'HEXISTS', 'HGET', 'HGETALL',
  'HISTORY', 'HKEYS', 'HLEN', 'HMGET', 'HSCAN', 'HSTRLEN', 'HVALS', 'INFO', 'LEASE', 'LEASES',
  'MGET', 'PING', 'PTTL', 'RECEIPT', 'REFUSALS', 'SCAN', 'STRLEN', 'TIME', 'TTL', 'TYPE',
  'WAITERS']);
// Half a character, which cannot be sent: another one would be in its place.
const HALF = /\p{Surrogate}/u;
// Without a token the daemon runs these read-only, whatever they say further on.
const SQL_READS = /^\s*(select|with|values|explain)\b/i;

export const reads = (name) => READS.has(String(name).toUpperCase());
export const bareSqlReads = (statement) => SQL_READS.test(statement);

export function word(value) {
  if (typeof value === 'string') {
    if (HALF.test(value)) throw new Misuse(`${inspect(value)} has half a character in it`);
    return value;
  }
  if (Buffer.isBuffer(value)) return value;
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) {
    return String(value);
  }
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.length);
  throw new Misuse(`${inspect(value)} is neither a string, a number, a bigint nor bytes`);
}

// A number that holds it, or a bigint.
export function integer(value, what, least = -Infinity, most = Infinity) {
  const fits = typeof value === 'bigint' ? BigInt.asIntN(64, value) === value
    : Number.isSafeInteger(value);
  if (fits && value >= least && value <= most) return String(value);
  const range = `${least > -Infinity ? ` from ${least}` : ''}${
    most < Infinity ? ` to ${most}` : ''}`;
  throw new Misuse(`${what} is an integer${range}, not ${inspect(value)}`);
}

// What options have beside those that there are: one that is misspelt would count for nothing.
export function noOther(rest) {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw new Misuse(`there is no option ${unknown}`);
}

// The ID of a write, from its options.
export function idOf({ id, ...rest } = {}) {
  noOther(rest);
  return id;
}

export function resourceName(resource) {
  const bytes = typeof resource === 'string' ? Buffer.byteLength(resource) : 0;
  if (bytes >= 1 && bytes <= 512) return word(resource);
  throw new Misuse(`a resource is a string of 1 to 512 bytes, not ${inspect(resource)}`);
}

function inspect(value) {
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : String(value);
}

// What the words of each operation on a key are.
export const operations = {
  get: (key) => ['GET', key],
  set: (key, value) => ['SET', key, word(value)],
  delete: (key) => ['DEL', key],
  take: (key, n = 1, { min = 0, ...rest } = {}) => ['DECRBY', key, integer(n, 'take(n)', 0),
    ...bounds({ min, ...rest })],
  put: (key, n = 1, options = {}) => ['INCRBY', key, integer(n, 'put(n)', 0), ...bounds(options)],
  hget: (key, field) => ['HGET', key, word(field)],
  hgetall: (key) => ['HGETALL', key],
  hset: (key, field, value) => ['HSET', key, ...(typeof field === 'object'
    && !(field instanceof Uint8Array) ? Object.entries(field) : [[field, value]]).flat().map(word)],
  hdel: (key, ...fields) => ['HDEL', key, ...fields.flat().map(word)],
  hincrby: (key, field, n = 1, options = {}) => ['HINCRBY', key, word(field),
    integer(n, 'hincrby(n)'), ...bounds(options)],
};

function bounds({ min, max, ...rest }) {
  noOther(rest);
  return [...(min === undefined ? [] : ['MIN', integer(min, 'min')]),
    ...(max === undefined ? [] : ['MAX', integer(max, 'max')])];
}

export const converters = {
  set: () => undefined,
  delete: (reply) => reply > 0,
  hgetall: (reply) => ({ ...reply }),
  sql: rows,
};

// The command under the tokens of these leases. Not FENCED: that does not say whose token it is,
// and a token of one resource may happen to be another's number.
export function fence(leases, id, words) {
  const head = ['FENCEDALL', String(leases.length),
    ...leases.flatMap(({ resource, token }) => [resource, String(token)])];
  if (id !== undefined) head.push('ID', word(id));
  return head.concat(words);
}

// SQL TYPES itfbn... statement param ...
export function sqlWords(statement, params = []) {
  if (typeof statement !== 'string') throw new Misuse('an SQL statement is a string');
  if (!Array.isArray(params)) throw new Misuse('the parameters of an SQL statement are an array');
  if (params.length === 0) return ['SQL', word(statement)];
  const typed = params.map(typedParameter);
  return ['SQL', 'TYPES', typed.map(([type]) => type).join(''), word(statement),
    ...typed.map(([, value]) => value)];
}

function typedParameter(value) {
  if (value === null || value === undefined) return ['n', ''];
  if (typeof value === 'boolean') return ['i', value ? '1' : '0'];
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return ['i', String(value)];
  if (typeof value === 'number') return ['f', word(value)];
  return [typeof value === 'string' ? 't' : 'b', word(value)];
}

// Columns of one name are told apart as SQLite does it: id, id:1.
function distinct(columns) {
  const taken = new Set();
  return columns.map((column) => {
    let name = column;
    for (let i = 1; taken.has(name); i += 1) name = `${column}:${i}`;
    taken.add(name);
    return name;
  });
}

function rows(reply) {
  const { columns, changes } = reply;
  const names = distinct(columns);
  return {
    columns,
    rows: reply.rows.map((row) => Object.fromEntries(row.map((value, i) => [names[i], value]))),
    changes,
    lastInsertRowid: reply.last_insert_rowid,
  };
}
