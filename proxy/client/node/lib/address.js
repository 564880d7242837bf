// SPDX-License-Identifier: Apache-2.0
// Where the daemon is: a URI, as options of node-redis.
import { Misuse } from './errors.js';

const PORT = 7379;
const HINT = 'expected stockade://[user:password@]host[:port] or stockade+unix:PATH';

export function parse(uri) {
  const [, scheme = '', rest = ''] = /^([\w+.-]*):(.*)$/s.exec(uri) ?? [];
  if (scheme === 'stockade+unix' && rest !== '') {
    const path = decodeURIComponent(rest);
    return { name: path, options: { socket: { path } } };
  }
  if (scheme === 'stockade' && rest.startsWith('//')) return parseHost(uri);
  if (scheme === 'sqlite') {
    throw new Misuse('this package talks to a daemon: start `stockaded --store sqlite:...`, and '
      + 'connect to stockade://127.0.0.1:7379. Without a daemon: libstockade');
  }
  throw new Misuse(`${JSON.stringify(scheme)} is not known: ${HINT}`);
}

function parseHost(uri) {
  let url;
  try {
    url = new URL(uri);
  } catch (error) {
    throw new Misuse(HINT, { cause: error });
  }
  if (url.hostname === '' || !['', '/'].includes(url.pathname) || url.search || url.hash) {
    throw new Misuse(HINT);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = url.port === '' ? PORT : Number(url.port);
  const options = { socket: { host, port } };
  if (url.username) options.username = decodeURIComponent(url.username);
  if (url.password) options.password = decodeURIComponent(url.password);
  return { name: `${url.hostname}:${port}`, options };
}
