/* SPDX-License-Identifier: Apache-2.0 */
/* The page: the first line, the plots, the refusals, and which view is shown.
 *
 *   page.js      the stream's events come here; each makes the parts ask for what it changed
 *   leases.js    the table of leases
 *   resource.js  one resource, by its lane (lane.js) and its tables; revoking
 *   api.js       requests and the stream
 *   text.js      how names, numbers and times are written */
import { ask, follow, oneAtATime } from './api.js';
import { LeaseTable } from './leases.js';
import { ResourceView } from './resource.js';
import { clock, count, counted, duration, element, lateBy, microseconds, name, overtakenBy,
  resourceLink, sender, setText, svg, time, update, visible } from './text.js';

const TICK_MS = 250;
const RESTART_TOLD_MS = 60000;
const REFUSALS = 50, REFUSALS_MAX = 200;
const REST_MS = 500;
const $ = (id) => document.getElementById(id);

let state = null; // the last one that came
let lostAt = null; // since when the stream is down
let restartedAt = null; // when a daemon answered that had begun after the one before
let aheadMs = 0; // by so much the daemon's clock is ahead of the browser's
let paused = false;
let refusalsWanted = REFUSALS;

const leases = new LeaseTable();
const resource = new ResourceView(() => Date.now() + aheadMs);
const loadRefusals = oneAtATime(fetchRefusals, REST_MS);

/* The first line. */

function verdict() {
  if (lostAt !== null) {
    return ['lost', `The daemon does not answer since ${clock(lostAt)}. Trying again`
      + `${state ? '; what is below is from then' : ''}.`];
  }
  if (state === null) return ['wait', 'Connecting to the daemon.'];
  // The daemon's own list: nothing is judged here.
  const troubles = state.troubles.map(({ text, reason }) => visible(
    `${text[0].toUpperCase()}${text.slice(1)}${reason ? `: ${reason}` : ''}.`));
  const kind = troubles.length === 0 ? 'ok'
    : state.troubles.some((trouble) => trouble.stops_grants) ? 'bad' : 'warn';
  if (troubles.length === 0) troubles.push('All is well.');
  if (restartedAt !== null) {
    troubles.push(`The daemon was started again at ${clock(state.started_ms)}.`);
  }
  if (state.locks_unpresented > 0) {
    troubles.push(`${count(state.locks_unpresented)} locks of lock keys ended without a write `
      + 'under their token: there a shop still oversells. INFO lockkeys says whose they are.');
  }
  if (paused) troubles.push('The page is paused.');
  return [kind, troubles.join(' ')];
}

function showVerdict() {
  const [kind, words] = verdict();
  $('verdict').dataset.state = kind;
  setText($('verdict'), words);
  document.title = kind === 'ok' ? 'Stockade' : `Stockade: ${words}`;
}

function fact(id, level, ...content) {
  const node = $(id);
  node.dataset.level = level;
  update(node, content.map((part) => part?.outerHTML ?? part), () => content);
}

function small(...content) {
  return element('span', { class: 'second' }, ...content);
}

function showFacts() {
  const { store, service } = state;
  fact('fact-commit', store.status === 'ok' ? '' : 'bad',
    `p50 ${microseconds(store.commit_p50_us)}`, small(`p99 ${microseconds(store.commit_p99_us)}`));
  fact('fact-queue', store.status === 'ok' ? '' : 'bad', count(store.queue ?? 0),
    small(store.status === 'ok' ? 'waiting to commit' : visible(store.reason || store.status)));
  fact('fact-service', service.status === 'up' ? '' : 'bad', service.status,
    small(name(service.uri ?? '')));
  fact('fact-refused', state.refused_hour > 0 ? 'warn' : '', count(state.refused_hour),
    small(state.refused_hour > 0 ? 'stale or unknown tokens' : 'no stale write'));
  if (state.longest_wait_ms === null) {
    fact('fact-wait', '', 'nobody waits', small(`${counted(state.leases, 'lease')} held`));
  } else {
    fact('fact-wait', '', duration(state.longest_wait_ms),
      small(state.longest_wait_resource === null ? '' : resourceLink(state.longest_wait_resource)));
  }
  setText($('about'), `Stockade ${state.version}, running since ${clock(state.started_ms)}. `
    + `${counted(state.leases, 'lease')}, ${counted(state.waiters, 'waiter')}. `
    + `It remembers ${count(state.history.entries)} of at most ${count(state.history.max)} `
    + 'grants and refusals.');
}

/* The plots: small, of the last minutes, each on a scale of its own. */

const PLOTS = [
  { key: 'grants', title: 'Grants', rate: true },
  { key: 'writes', title: 'Writes', rate: true },
  { key: 'refusals', title: 'Refused', rate: true, kind: 'warn' },
  { key: 'commit_p99_us', title: 'Commit p99' },
];
const PLOT_WIDTH = 240, PLOT_HEIGHT = 36;

function makePlots() {
  for (const plot of PLOTS) {
    plot.path = svg('path', {});
    plot.svg = svg('svg', { class: `plot ${plot.kind ?? ''}`, role: 'img', 'aria-label': plot.title,
      viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`, preserveAspectRatio: 'none' }, plot.path);
    plot.now = element('strong', {}, '–');
    plot.most = element('span', { class: 'note' });
    $('plots').append(element('figure', {},
      element('figcaption', {}, element('span', {}, plot.title), plot.now, plot.most), plot.svg));
  }
}

function perSecond(value) {
  return value < 10 && value % 1 ? value.toFixed(1) : count(Math.round(value));
}

function showPlots({ step_ms, ...series }) {
  for (const plot of PLOTS) {
    const values = (series[plot.key] ?? []).map((value) =>
      (value ?? 0) / (plot.rate ? step_ms / 1000 : 1));
    const words = plot.rate ? (value) => `${perSecond(value)}/s` : microseconds;
    const most = Math.max(0, ...values), now = values.at(-1) ?? 0;
    const step = PLOT_WIDTH / 60, first = PLOT_WIDTH - values.length * step;
    const bars = values.map((value, i) => {
      const high = most > 0 ? (value / most) * (PLOT_HEIGHT - 1) : 0;
      const left = (first + i * step).toFixed(1);
      return high === 0 ? ''
        : `M${left} ${PLOT_HEIGHT}v-${high.toFixed(1)}h${step - 1}V${PLOT_HEIGHT}z`;
    });
    plot.path.setAttribute('d', bars.join(''));
    setText(plot.now, words(now));
    setText(plot.most, `most ${words(most)}`);
    plot.svg.setAttribute('aria-label', `${plot.title} in the last `
      + `${duration(values.length * step_ms)}: now ${words(now)}, at most ${words(most)}`);
  }
}

/* Refusals, newest first. */

async function fetchRefusals() {
  try {
    const { refusals, matched, total } = await ask('/api/refusals',
      { match: leases.match, count: refusalsWanted });
    update($('refusals').tBodies[0], refusals, (list) => list.map(refusalRow));
    setText($('refusals-range'), matched === 0
      ? total ? `None of ${count(total)} matches` : 'None that the daemon remembers'
      : `newest ${count(refusals.length)} of ${count(matched)}`
        + (leases.match ? ` that match, ${count(total)} in all` : ''));
    $('more-refusals').hidden = refusals.length >= matched || refusalsWanted >= REFUSALS_MAX;
  } catch (error) {
    setText($('refusals-range'), `They cannot be shown: ${error.message}`);
  }
}

function refusalRow(refusal) {
  return element('tr', {},
    element('td', { class: 'time' }, time(refusal.time_ms)),
    element('td', {}, resourceLink(refusal.resource), small(sender(refusal),
      visible(`, token ${refusal.token}: ${refusal.command ?? ''} ${refusal.code}`))),
    element('td', { class: 'number late' }, lateBy(refusal),
      small(refusal.ended === null ? '' : refusal.ended)),
    element('td', {}, ...overtakenBy(refusal)));
}

/* What comes by the stream. */

const events = {
  state(data) {
    if (state !== null && data.started_ms !== state.started_ms) {
      restartedAt = performance.now();
      everything();
    } else if (lostAt !== null || state === null) {
      everything();
    }
    lostAt = null;
    if (restartedAt !== null && performance.now() - restartedAt > RESTART_TOLD_MS) {
      restartedAt = null;
    }
    state = data;
    aheadMs = data.time_ms - Date.now();
    resource.mayRevoke = data.may_revoke;
    if (!paused) {
      showFacts();
      showPlots(data.series);
      resource.load(); // writes change it without a word
    }
  },
  leases() {
    if (!paused && !$('overview').hidden) leases.load();
  },
  refused() {
    if (!paused) loadRefusals();
  },
  more() {
    if (!paused) loadRefusals();
  },
};

function everything() {
  if (paused) return;
  leases.load();
  loadRefusals();
  resource.load();
}

/* Which view is shown is said by the address, so that the browser's history and bookmarks work. */

function route() {
  const match = /^#\/resource\/(.+)$/.exec(location.hash);
  let shown = null;
  try {
    shown = match && decodeURIComponent(match[1]);
  } catch {
    shown = null; // cut in the middle of a character
  }
  const before = resource.resource;
  $('overview').hidden = shown !== null;
  $('resource').hidden = shown === null;
  resource.show(shown);
  if (shown !== null && shown !== before) {
    window.scrollTo(0, 0);
    $('resource-name').focus({ preventScroll: true });
  } else if (shown === null && before !== null) {
    everything();
    $('main').focus({ preventScroll: true });
  }
}

function tick() {
  if (paused) return;
  if ($('overview').hidden) resource.tick();
  else leases.tick();
}

function pause() {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', paused);
  showVerdict();
  everything();
}

makePlots();
let filtering;
$('filter').addEventListener('input', () => {
  clearTimeout(filtering);
  filtering = setTimeout(() => {
    leases.filter($('filter').value);
    loadRefusals();
  }, 150);
});
$('more-refusals').addEventListener('click', () => {
  refusalsWanted = REFUSALS_MAX;
  loadRefusals();
});
$('pause').addEventListener('click', pause);
window.addEventListener('hashchange', route);
window.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !$('resource').hidden && !$('revoke-dialog').open) {
    location.hash = '#/';
  }
});
setInterval(tick, TICK_MS);
setInterval(() => { if (!paused && !$('resource').hidden) resource.draw(); }, 1000);
route();
follow(Object.keys(events), (kind, data) => {
  events[kind](data);
  showVerdict();
}, () => {
  lostAt ??= Date.now();
  showVerdict();
});
