// SPDX-License-Identifier: Apache-2.0
// Commands as words, and what their replies mean.
import { Misuse } from './errors.js';

const READS = new Set(['GET', 'GETRANGE', 'MGET', 'STRLEN', 'EXISTS', 'TYPE', 'HGET', 'HMGET',
  'HGETALL', 'HEXISTS', 'HLEN', 'HKEYS', 'HVALS', 'HSTRLEN', 'HSCAN']);
// Without a token the daemon runs these read-only, whatever they say further on.
const SQL_READS = /^\s*(select|with|values|explain)\b/i;

export const reads = (name) => READS.has(String(name).toUpperCase());
export const bareSqlReads = (statement) => SQL_READS.test(statement);

export function word(value) {
  if (typeof value === 'string' || Buffer.isBuffer(value)) return value;
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) {
    return String(value);
  }
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.length);
  throw new Misuse(`${inspect(value)} is neither a string, a number, a bigint nor bytes`);
}

export function integer(value, what, least = Number.MIN_SAFE_INTEGER,
  most = Number.MAX_SAFE_INTEGER) {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return String(value);
  const range = least > Number.MIN_SAFE_INTEGER || most < Number.MAX_SAFE_INTEGER
    ? ` from ${least} to ${most}` : '';
  throw new Misuse(`${what} is an integer${range}, not ${inspect(value)}`);
}

export function resourceName(resource) {
  const bytes = typeof resource === 'string' ? Buffer.byteLength(resource) : 0;
  if (bytes >= 1 && bytes <= 512) return resource;
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
  take: (key, n = 1, { min = 0 } = {}) => ['DECRBY', key, integer(n, 'take(n)', 0),
    ...bounds({ min })],
  put: (key, n = 1, { max } = {}) => ['INCRBY', key, integer(n, 'put(n)', 0), ...bounds({ max })],
  hget: (key, field) => ['HGET', key, word(field)],
  hgetall: (key) => ['HGETALL', key],
  hset: (key, field, value) => ['HSET', key, ...(typeof field === 'object'
    && !(field instanceof Uint8Array) ? Object.entries(field) : [[field, value]]).flat().map(word)],
  hdel: (key, ...fields) => ['HDEL', key, ...fields.flat().map(word)],
  hincrby: (key, field, n = 1, options = {}) => ['HINCRBY', key, word(field),
    integer(n, 'hincrby(n)'), ...bounds(options)],
};

function bounds({ min, max }) {
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
  if (id !== undefined) head.push('ID', id);
  return head.concat(words);
}

// SQL TYPES itfbn... statement param ...
export function sqlWords(statement, params = []) {
  if (typeof statement !== 'string') throw new Misuse('an SQL statement is a string');
  if (!Array.isArray(params)) throw new Misuse('the parameters of an SQL statement are an array');
  if (params.length === 0) return ['SQL', statement];
  const typed = params.map(typedParameter);
  return ['SQL', 'TYPES', typed.map(([type]) => type).join(''), statement,
    ...typed.map(([, value]) => value)];
}

function typedParameter(value) {
  if (value === null || value === undefined) return ['n', ''];
  if (typeof value === 'boolean') return ['i', value ? '1' : '0'];
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return ['i', String(value)];
  if (typeof value === 'number') return ['f', word(value)];
  return [typeof value === 'string' ? 't' : 'b', word(value)];
}

function rows(reply) {
  const { columns, changes } = reply;
  return {
    columns,
    rows: reply.rows.map((row) => Object.fromEntries(row.map((value, i) => [columns[i], value]))),
    changes,
    lastInsertRowid: reply.last_insert_rowid,
  };
}
