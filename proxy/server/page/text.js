/* SPDX-License-Identifier: Apache-2.0 */
/* How things are written: elements, names that anybody may have chosen, numbers and times. Nothing
 * here, or elsewhere, makes markup of text. */

const SVG = 'http://www.w3.org/2000/svg';
const numbers = new Intl.NumberFormat('en');

/* Makes an element. Children are nodes or texts; attributes that are null are left out. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/* Control characters as the pictures that Unicode has for them, so that no name looks like another
 * or like none. */
export function visible(text) {
  return text.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\u007f/g, '\u2421');
}

/* A name, whose direction of writing stays its own. All of it is there, even where the layout cuts
 * what is seen of it. */
export function name(text) {
  const shown = visible(text ?? '');
  return element('bdi', { class: 'name', dir: 'auto', title: shown }, shown);
}

/* A resource's name, as a link to its view. */
export function resourceLink(resource) {
  return element('a', { class: 'name-link', href: resourceHash(resource) }, name(resource));
}

export function resourceHash(resource) {
  return `#/resource/${encodeURIComponent(resource.toWellFormed?.() ?? resource)}`;
}

export function count(n) {
  return numbers.format(n);
}

export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/* A duration. Exact ones keep their milliseconds below a minute. */
export function duration(ms, { exact = false } = {}) {
  if (ms === null || ms === undefined) return 'unknown';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(exact ? 3 : 1)} s`;
  const s = Math.floor(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

export function microseconds(us) {
  if (us === null || us === undefined) return '–';
  return us < 1000 ? `${Math.round(us)} µs` : `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`;
}

function two(n) {
  return String(n).padStart(2, '0');
}

/* A time of day; another day's has its date, too. */
export function clock(ms, { exact = false } = {}) {
  const at = new Date(ms), today = new Date();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
    + (exact ? `.${String(at.getMilliseconds()).padStart(3, '0')}` : '');
  if (at.toDateString() === today.toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export function time(ms, options) {
  if (ms === null || ms === undefined) return element('span', {}, '–');
  return element('time', { datetime: new Date(ms).toISOString() }, clock(ms, options));
}

const shown = new WeakMap();

/* Builds a node's content anew where its data has changed since. What did not change stays, with
 * its selection, its focus and its scrolling. */
export function update(node, data, build) {
  const key = JSON.stringify(data);
  if (shown.get(node) === key) return;
  shown.set(node, key);
  node.replaceChildren(...build(data));
}

/* Sets a text where it differs, so that what reads the page aloud hears of changes only. What
 * update() had built there is gone then. */
export function setText(node, text) {
  if (node.textContent === text) return;
  shown.delete(node);
  node.textContent = text;
}

/* A table of rows, each an array of cells; columns are {title, class}. */
export function table(caption, columns, rows) {
  const attributes = (column) => ({ class: column.class ?? null });
  return element('table', {},
    element('caption', { class: 'unseen' }, caption),
    element('thead', {}, element('tr', {}, ...columns.map((column) =>
      element('th', { scope: 'col', ...attributes(column) }, column.title)))),
    element('tbody', {}, ...rows.map((cells) =>
      element('tr', {}, ...cells.map((cell, i) =>
        element('td', attributes(columns[i]), ...[cell].flat()))))));
}

/* What a refusal's row says in every table. */
export function lateBy(refusal) {
  const known = refusal.late_ms !== null && refusal.late_ms !== undefined;
  return element('span', { class: known ? 'late-by' : 'note' },
    duration(refusal.late_ms, { exact: true }));
}

export function overtakenBy(refusal) {
  if (refusal.newest === null || refusal.newest === undefined || refusal.newest === refusal.token) {
    return ['nobody'];
  }
  return [name(refusal.newest_owner || refusal.newest_address || 'unknown'),
    element('span', { class: 'second' }, `token ${refusal.newest}`,
      refusal.newest_owner && refusal.newest_address ? ' at ' : '',
      refusal.newest_owner && refusal.newest_address ? name(refusal.newest_address) : '')];
}

/* Who sent a command: its connection's name, or else its address. */
export function sender(about) {
  return name(about.client || about.address || 'unknown');
}
