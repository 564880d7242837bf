// SPDX-License-Identifier: Apache-2.0
// Where the daemon is: a URI, as options of node-redis.
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { basename } from 'node:path';
import { checkServerIdentity } from 'node:tls';
import { Misuse } from './errors.js';

const PORT = 7379;
const HINT = 'expected stockade://[user:password@]host[:port], stockades:// by TLS, or '
  + 'stockade+unix:PATH';
const TLS_OPTIONS = ['tls_ca', 'tls_cert', 'tls_key', 'tls_name'];

// Tells the processes of a program apart, also on several machines behind one address:
// till.js-4711@web-2.
export function processName() {
  const program = basename(process.argv[1] ?? 'node').slice(0, 32);
  return `${program}-${process.pid}@${hostname().slice(0, 20)}`.replace(/[^!-~]/g, '-');
}

export function parse(uri) {
  const [, scheme = '', rest = ''] = /^([\w+.-]*):(.*)$/s.exec(uri) ?? [];
  if (scheme === 'stockade+unix' && rest !== '') {
    const path = decodeURIComponent(rest);
    return { name: path, options: { socket: { path } } };
  }
  if (scheme === 'stockade' && rest.startsWith('//')) return parseHost(uri, false);
  if (scheme === 'stockades' && rest.startsWith('//')) return parseHost(uri, true);
  if (scheme === 'sqlite') {
    throw new Misuse('this package talks to a daemon: start `stockaded --store sqlite:...`, and '
      + 'connect to stockade://127.0.0.1:7379. Without a daemon: libstockade');
  }
  throw new Misuse(`${JSON.stringify(scheme)} is not known: ${HINT}`);
}

function tlsOptions(search) {
  const words = new Map();
  for (const word of search.replace(/^\?/, '').split('&').filter(Boolean)) {
    const [, name, value] = /^([^=]*)=?(.*)$/s.exec(word);
    if (!TLS_OPTIONS.includes(name) || words.has(name) || value === '') {
      throw new Misuse(`${JSON.stringify(name)}: behind the ? stands each of `
        + `${TLS_OPTIONS.join(', ')} once at most, with a value`);
    }
    words.set(name, decodeURIComponent(value));
  }
  if (words.has('tls_key') && !words.has('tls_cert')) throw new Misuse('tls_key without tls_cert');
  return words;
}

function read(path) {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Misuse(error.message, { cause: error });
  }
}

// Certificates and names are verified; the name may be another than the host's.
function tlsSocket(search, host) {
  const words = tlsOptions(search);
  const socket = { tls: true };
  const name = words.get('tls_name') ?? host;
  if (words.has('tls_ca')) socket.ca = read(words.get('tls_ca'));
  if (words.has('tls_cert')) {
    socket.cert = read(words.get('tls_cert'));
    socket.key = read(words.get('tls_key') ?? words.get('tls_cert'));
  }
  socket.checkServerIdentity = (_, cert) => checkServerIdentity(name, cert);
  if (isIP(name) === 0) socket.servername = name;
  return socket;
}

function parseHost(uri, tls) {
  let url;
  try {
    url = new URL(uri);
  } catch (error) {
    throw new Misuse(HINT, { cause: error });
  }
  if (url.hostname === '' || !['', '/'].includes(url.pathname) || (url.search && !tls)
    || url.hash) {
    throw new Misuse(HINT);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = url.port === '' ? PORT : Number(url.port);
  const options = { socket: { host, port, ...(tls ? tlsSocket(url.search, host) : {}) } };
  if (url.username) options.username = decodeURIComponent(url.username);
  if (url.password) options.password = decodeURIComponent(url.password);
  return { name: `${url.hostname}:${port}`, options };
}
