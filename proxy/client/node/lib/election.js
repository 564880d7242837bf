// SPDX-License-Identifier: Apache-2.0
// A candidate's wait for the lease by which it leads. It ends when it leads, when its own limit is
// over, or by its signal; nothing that may pass ends it. Each try waits in line for a while, and
// sends again by itself what a broken connection lost; what it ends with is looked at here.
import { offAbort, onAbort } from './aborts.js';
import { jitter, now } from './clock.js';
import { Busy, Held, LeaseDown, Stale, StoreFailed, Unknown, Unreachable } from './errors.js';

const LOOK_MS = 30000;
const PAUSE_MS_MIN = 20;
const PAUSE_MS_MAX = 1000;
// Stale, Unknown: it was granted, and revoked before the block had it.
const PASSES = [Busy, Held, LeaseDown, Stale, StoreFailed, Unknown, Unreachable];

// What the promise gives, or the signal's reason as soon as that aborts.
function orAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      promise.catch(() => {}); // a grant under way is given back by whoever asked
      reject(signal.reason);
    };
    const settle = (end) => (value) => {
      offAbort(signal, abort);
      end(value);
    };
    onAbort(signal, abort);
    promise.then(settle(resolve), settle(reject));
  });
}

function rest(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      offAbort(signal, end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    onAbort(signal, end);
  });
}

// The lease by which it leads. `wait`: Infinity, or when to give up; then with the last error.
export async function stand(shop, name, { ttl, wait, signal }) {
  const until = now() + wait;
  let pause = PAUSE_MS_MIN;
  for (;;) {
    signal?.throwIfAborted();
    const look = Math.ceil(Math.max(0, Math.min(LOOK_MS, until - now())));
    try {
      const term = await orAborted(shop.acquire(name, { ttl, wait: look, signal }), signal);
      if (term.valid) return term;
      await term[Symbol.asyncDispose](); // its time was over before anybody heard of it
    } catch (error) {
      signal?.throwIfAborted();
      if (!PASSES.some((each) => error instanceof each) || now() >= until) throw error;
      if (error instanceof Held) { // that was waited for already
        pause = PAUSE_MS_MIN;
        continue;
      }
    }
    await rest(Math.max(0, Math.min(jitter(pause), until - now())), signal);
    pause = Math.min(2 * pause, PAUSE_MS_MAX);
  }
}
