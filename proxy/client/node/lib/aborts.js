// SPDX-License-Identifier: Apache-2.0
// What an AbortSignal ends. A program gives one signal to any number of calls, and Node warns of a
// leak at the eleventh listener: so here a signal has one, whatever waits for it.
const watched = new WeakMap(); // signal: { calls, tell }

export function onAbort(signal, call) {
  if (signal === undefined) return;
  let watch = watched.get(signal);
  if (watch === undefined) {
    const calls = new Set();
    watch = { calls, tell: () => { for (const each of [...calls]) each(); } };
    watched.set(signal, watch);
    signal.addEventListener('abort', watch.tell);
  }
  watch.calls.add(call);
}

export function offAbort(signal, call) {
  const watch = signal && watched.get(signal);
  if (watch === undefined || !watch.calls.delete(call) || watch.calls.size > 0) return;
  watched.delete(signal);
  signal.removeEventListener('abort', watch.tell);
}
