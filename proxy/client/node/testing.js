// SPDX-License-Identifier: Apache-2.0
// For tests of programs that use Stockade: a daemon of the test's own.
//
//   const daemon = await startDaemon();
//   const shop = await daemon.connect();
//
// testing.d.ts describes it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { connect } from './lib/shop.js';
import { noOther } from './lib/words.js';

const START_MS = 30000;
const END_MS = 10000;

export async function startDaemon(options = [], {
  program = process.env.STOCKADED ?? 'stockaded', ...rest
} = {}) {
  noOther(rest);
  const daemon = new Daemon(options, program);
  try {
    await daemon.start();
  } catch (error) {
    await daemon.close();
    throw error;
  }
  return daemon;
}

export class Daemon {
  #folder = mkdtempSync(join(tmpdir(), 'stockade-test-'));
  #child;
  #ended;
  #atExit = () => this.#child.kill('SIGKILL');

  // startDaemon() makes one.
  constructor(options, program) {
    const log = openSync(join(this.#folder, 'log'), 'a');
    this.#child = spawn(program, ['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--store',
      ':memory:', ...options], { stdio: ['ignore', 'pipe', log] });
    closeSync(log);
    this.#ended = once(this.#child, 'close').catch((error) => error); // it could not be started
    process.on('exit', this.#atExit);
  }

  // Until it has said where it listens.
  async start() {
    const lines = createInterface({ input: this.#child.stdout });
    let timer;
    const line = await Promise.race([
      once(lines, 'line').then(([text]) => text),
      this.#ended.then((why) => (why instanceof Error ? why.message : '')),
      new Promise((resume) => { timer = setTimeout(resume, START_MS, 'it says nothing'); }),
    ]);
    clearTimeout(timer);
    const [, address] = /listen=(127\.0\.0\.1:\d+)/.exec(line) ?? [];
    if (address === undefined) throw new Error(`stockaded did not start: ${line}\n${this.log()}`);
    this.uri = `stockade://${address}`;
  }

  log() {
    return readFileSync(join(this.#folder, 'log'), 'utf8');
  }

  connect(options) {
    return connect(this.uri, options);
  }

  async close() {
    process.off('exit', this.#atExit);
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), END_MS);
    this.#child.kill();
    await this.#ended;
    clearTimeout(timer);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}
