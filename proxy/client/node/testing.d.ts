// SPDX-License-Identifier: Apache-2.0
// For tests of programs that use Stockade: a daemon of the test's own.
/// <reference lib="esnext.disposable" />
import type { ConnectOptions, Stockade } from 'stockade';

/**
 * Starts a stockaded on a free port of the loopback address, with a store in memory.
 * `options` are stockaded's. `program` is found in PATH, or where the environment's STOCKADED says.
 */
export function startDaemon(options?: readonly string[], how?: { program?: string }):
  Promise<Daemon>;

/** A stockaded that runs. startDaemon() makes one. */
export class Daemon {
  private constructor();

  readonly uri: string;
  /** connect() to it. */
  connect(options?: ConnectOptions): Promise<Stockade>;
  /** What it has logged. */
  log(): string;
  /** Ends it, and removes its folder. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
