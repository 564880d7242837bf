/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's JSON API: one answer at a time, and the stream of what happens.
 *
 * The stream tells the page what to ask for again. It ends when the daemon or the network does, and
 * is opened anew until it answers. A stream that says nothing counts as ended: `state` comes each
 * second. */

const AGAIN_MS = 1000;
const SILENCE_MS = 5000;
const ANSWER_MS = 10000;

/* The answer of a path, as JSON; throws an Error with the daemon's words where there is none. */
export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(query ? `${path}?${query}` : path,
    { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MS), ...options });
  const text = await answer.text();
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    body = { error: text.trim() };
  }
  if (answer.ok) return body;
  throw Object.assign(new Error(body.error || `the daemon answers ${answer.status}`),
    { status: answer.status, body });
}

/* Calls on(kind, data) for each event, and lost() when the stream has ended. */
export function follow(kinds, on, lost) {
  let source, silence;

  function open() {
    source = new EventSource('/api/stream');
    for (const kind of kinds) {
      source.addEventListener(kind, (event) => {
        listen();
        on(kind, JSON.parse(event.data));
      });
    }
    source.addEventListener('error', again);
    listen();
  }

  function listen() {
    clearTimeout(silence);
    silence = setTimeout(again, SILENCE_MS);
  }

  function again() {
    clearTimeout(silence);
    source.close();
    lost();
    setTimeout(open, AGAIN_MS);
  }

  open();
}

/* A function that runs `work`, which is asynchronous, and never twice at once: calls that come
 * meanwhile make one more run, `rest_ms` after the last one began or later. */
export function oneAtATime(work, rest_ms = 0) {
  let running = false, wanted = false;

  async function run() {
    running = true;
    const begun = performance.now();
    await work();
    const rest = rest_ms - (performance.now() - begun);
    if (rest > 0) await new Promise((resume) => { setTimeout(resume, rest); });
    running = false;
    if (wanted) {
      wanted = false;
      run();
    }
  }

  return () => {
    if (running) wanted = true;
    else run();
  };
}
