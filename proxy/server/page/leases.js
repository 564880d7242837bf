/* SPDX-License-Identifier: Apache-2.0 */
/* The table of leases, of which there may be 100,000: it has the rows that can be seen and some
 * around them, between two empty rows as high as what is left out. Scrolling asks the daemon for
 * the rows there.
 *
 * Bars of TTLs move by themselves: a row knows what was left when it came. One row's link is in the
 * order of focus; arrow keys move on from there. */
import { ask, oneAtATime } from './api.js';
import { count, duration, element, name, resourceLink, setText } from './text.js';

const AGAIN_MS = 1000;
const MARGIN = 25; // rows around those that can be seen
const WINDOW_MAX = 200; // rows of one answer
const ROWS_MAX = 400000; // browsers have a limit to how high a page can be
const COLUMNS = 6;
const CHARS_MIN = 14, CHARS_MAX = 64; // of a name, where the room is shared among the columns

export class LeaseTable {
  constructor() {
    this.region = document.getElementById('leases-region');
    this.table = document.getElementById('leases');
    this.range = document.getElementById('leases-range');
    this.body = this.table.tBodies[0];
    this.above = spacer();
    this.below = spacer();
    this.body.append(this.above, this.below);
    this.rows = new Map(); // by resource, in the order that is shown
    this.sort = 'wait';
    this.match = '';
    this.from = this.matched = this.total = 0;
    this.active = null; // the resource whose link is in the order of focus
    this.focusAt = null; // the row to be focused once it is there
    this.heads = [...this.table.tHead.querySelectorAll('.shared')];
    this.longest = this.heads.map(() => CHARS_MIN);
    this.load = oneAtATime(() => this.fetch());
    new ResizeObserver(() => this.shareRoom()).observe(this.region);
    this.region.addEventListener('scroll', () => this.onScroll(), { passive: true });
    this.body.addEventListener('keydown', (event) => this.onKey(event));
    this.body.addEventListener('focusin', (event) => this.onFocus(event));
    this.table.tHead.addEventListener('click', (event) => this.onSort(event));
    this.showSort();
  }

  filter(match) {
    this.match = match;
    this.region.scrollTop = 0;
    this.load();
  }

  /* The rows that can be seen: the first one, and how many. */
  seen() {
    const high = this.rowHeight();
    const room = this.region.clientHeight - this.table.tHead.offsetHeight;
    const first = Math.max(0, Math.floor(this.region.scrollTop / high));
    return { first, count: Math.max(1, Math.ceil(room / high)) };
  }

  rowHeight() {
    return parseFloat(getComputedStyle(this.table).getPropertyValue('--row-px')) || 32;
  }

  async fetch() {
    const seen = this.seen(), from = Math.max(0, seen.first - MARGIN);
    try {
      const answer = await ask('/api/leases', { match: this.match, sort: this.sort, from,
        count: Math.min(WINDOW_MAX, seen.count + 2 * MARGIN) });
      this.show(answer);
      // A long list may be older than the last news: look once more.
      if (!answer.current) setTimeout(this.load, AGAIN_MS);
    } catch (error) {
      setText(this.range, `The leases cannot be shown: ${error.message}`);
    }
  }

  show({ leases, from, matched, total }) {
    const had = this.rows, came = performance.now();
    const focused = this.body.contains(document.activeElement)
      ? had.get(this.active)?.index ?? null : null;
    Object.assign(this, { from, matched, total, rows: new Map() });
    leases.forEach((lease, i) => {
      const row = had.get(lease.resource) ?? new Row(lease.resource);
      row.update(lease, came, from + i);
      this.rows.set(lease.resource, row);
    });
    this.arrange(had);
    const high = this.rowHeight();
    setHeight(this.above, from * high);
    setHeight(this.below,
      Math.max(0, Math.min(matched, ROWS_MAX) - from - this.rows.size) * high);
    this.longest = this.longest.map((chars, i) => Math.min(CHARS_MAX,
      Math.max(chars, ...leases.map((lease) => namesOf(lease)[i].length))));
    this.shareRoom(); // asks for the layout, so not before all of it is as high as it will be
    this.table.setAttribute('aria-rowcount', matched + 1);
    this.tick();
    this.showRange();
    this.rove(focused);
  }

  /* Rows that stay are not taken out and put in again: they would lose the focus. */
  arrange(had) {
    for (const [resource, row] of had) if (!this.rows.has(resource)) row.node.remove();
    let place = this.above;
    for (const row of this.rows.values()) {
      if (place.nextSibling !== row.node) place.after(row.node);
      place = row.node;
    }
  }

  /* Keep one link in the order of focus, and the focus on a row of the table. */
  rove(focused) {
    if (this.focusAt !== null) {
      const row = this.at(this.focusAt);
      if (row) {
        this.focusAt = null;
        this.activate(row.resource);
        row.link.focus({ preventScroll: true });
        return;
      }
    }
    if (!this.rows.has(this.active)) {
      const row = this.at(focused ?? this.seen().first) ?? this.at(this.from);
      this.activate(row?.resource ?? null);
    } else {
      this.activate(this.active);
    }
    if (focused !== null && !this.body.contains(document.activeElement)) {
      this.rows.get(this.active)?.link.focus({ preventScroll: true });
    }
  }

  activate(resource) {
    this.active = resource;
    for (const row of this.rows.values()) row.link.tabIndex = row.resource === resource ? 0 : -1;
  }

  /* Resource, owner and client get room by the longest name that each has had, so that none is cut
   * beside empty space; the client has what is left. On phones, where owner and client have no
   * column, the style says how wide the resource is. */
  shareRoom() {
    const all = this.longest.reduce((sum, chars) => sum + chars, 0);
    const others = [...this.table.tHead.rows[0].cells].filter((cell) => !this.heads.includes(cell));
    const room = this.region.clientWidth
      - others.reduce((sum, cell) => sum + cell.offsetWidth, 0);
    const isShared = this.heads.every((head) => head.offsetWidth > 0);
    this.heads.slice(0, -1).forEach((head, i) => {
      head.style.width = isShared ? `${Math.floor(room * this.longest[i] / all)}px` : '';
    });
  }

  at(index) {
    return [...this.rows.values()][index - this.from];
  }

  showRange() {
    const seen = this.seen();
    if (this.matched === 0) {
      setText(this.range, this.match && this.total
        ? `None of ${count(this.total)} matches` : 'No lease is held');
      return;
    }
    const last = Math.min(this.matched, seen.first + seen.count);
    setText(this.range, `rows ${count(Math.min(seen.first + 1, last))}–${count(last)} of `
      + count(this.matched) + (this.match ? ` that match, ${count(this.total)} in all` : ''));
  }

  /* Move the bars on. */
  tick() {
    const now = performance.now();
    for (const row of this.rows.values()) row.tick(now);
  }

  onScroll() {
    const seen = this.seen();
    this.showRange();
    const end = Math.min(this.matched, seen.first + seen.count);
    if (seen.first < this.from || end > this.from + this.rows.size) this.load();
  }

  onFocus(event) {
    for (const row of this.rows.values()) {
      if (row.node.contains(event.target)) this.activate(row.resource);
    }
  }

  onKey(event) {
    const page = this.seen().count - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity };
    const row = this.rows.get(this.active);
    if (!(event.key in steps) || !row || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.goTo(Math.max(0, Math.min(this.matched - 1, row.index + steps[event.key])));
  }

  goTo(index) {
    const high = this.rowHeight(), top = index * high;
    const room = this.region.clientHeight - this.table.tHead.offsetHeight;
    if (top < this.region.scrollTop) this.region.scrollTop = top;
    else if (top + high > this.region.scrollTop + room) this.region.scrollTop = top + high - room;
    const row = this.at(index);
    if (row) {
      row.link.focus({ preventScroll: true });
    } else {
      this.focusAt = index;
      this.load();
    }
  }

  onSort(event) {
    const key = event.target.closest('button')?.dataset.sort;
    if (!key) return;
    this.sort = this.sort === key ? `-${key}` : key;
    this.region.scrollTop = 0;
    this.showSort();
    this.load();
  }

  showSort() {
    const key = this.sort.replace('-', '');
    for (const button of this.table.tHead.querySelectorAll('button')) {
      const up = (button.dataset.sort !== 'wait') !== this.sort.startsWith('-');
      if (button.dataset.sort !== key) button.parentNode.removeAttribute('aria-sort');
      else button.parentNode.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    }
  }
}

function namesOf(lease) {
  return [lease.resource, lease.owner ?? '', lease.client || lease.address || ''];
}

class Row {
  constructor(resource) {
    this.resource = resource;
    this.link = resourceLink(resource);
    this.second = element('span', { class: 'second narrow' });
    this.owner = element('td', { class: 'wide' });
    this.client = element('td', { class: 'wide' });
    this.token = element('td', { class: 'wide number' });
    this.fill = element('span', { class: 'fill' });
    this.left = element('span', { class: 'left-text' });
    this.waiting = element('td', { class: 'number' });
    this.node = element('tr', {},
      element('th', { scope: 'row', class: 'resource' }, this.link, this.second),
      this.owner, this.client, this.token,
      element('td', { class: 'left' },
        element('span', { class: 'meter', 'aria-hidden': 'true' }, this.fill), this.left),
      this.waiting);
  }

  update(lease, came, index) {
    const changed = this.lease?.token !== lease.token || this.lease?.owner !== lease.owner
      || this.lease?.client !== lease.client;
    Object.assign(this, { lease, came, index });
    this.node.setAttribute('aria-rowindex', index + 2);
    if (changed) {
      this.second.replaceChildren(name(lease.owner), ` · token ${lease.token}`);
      this.owner.replaceChildren(name(lease.owner));
      this.client.replaceChildren(name(lease.client || lease.address));
      this.client.title = lease.address ?? '';
      this.token.textContent = lease.token;
    }
    this.node.classList.toggle('waited-for', lease.waiters > 0);
    const longest = lease.longest_wait_ms === null ? '' : ` · ${duration(lease.longest_wait_ms)}`;
    setText(this.waiting, lease.waiters > 0 ? count(lease.waiters) + longest : '–');
  }

  tick(now) {
    const left = Math.max(0, this.lease.left_ms - (now - this.came));
    const share = Math.min(1, left / Math.max(1, this.lease.ttl_ms));
    this.fill.style.transform = `scaleX(${share.toFixed(4)})`;
    this.fill.classList.toggle('low', share < 0.2);
    setText(this.left, left > 0 ? duration(left < 1000 ? Math.ceil(left / 100) * 100 : left)
      : 'expired');
  }
}

function spacer() {
  return element('tr', { 'aria-hidden': 'true', class: 'spacer' },
    element('td', { colspan: COLUMNS }));
}

function setHeight(row, px) {
  row.hidden = px === 0;
  row.firstChild.style.height = `${px}px`;
}
