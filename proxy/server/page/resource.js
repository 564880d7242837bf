/* SPDX-License-Identifier: Apache-2.0 */
/* The view of one resource, and the dialog that revokes its lease. What is revoked is the token
 * that the dialog names: where another holds the lease by then, the daemon refuses. */
import { ask, oneAtATime } from './api.js';
import { drawLane } from './lane.js';
import { count, counted, duration, element, lateBy, name, overtakenBy, sender, setText, table, time,
  update, visible } from './text.js';

const ANSWERS_REST_MS = 500;
const $ = (id) => document.getElementById(id);

export class ResourceView {
  /* `serverNow` returns the daemon's time, in milliseconds since 1970. */
  constructor(serverNow) {
    this.serverNow = serverNow;
    this.resource = null; // the name that is shown
    this.data = null;
    this.mayRevoke = false;
    this.load = oneAtATime(() => this.fetch(), ANSWERS_REST_MS);
    $('lane-range').addEventListener('change', () => this.draw());
    new ResizeObserver(() => this.draw()).observe($('lane-box'));
    $('revoke').addEventListener('click', () => this.openDialog());
    $('revoke-cancel').addEventListener('click', () => $('revoke-dialog').close());
    $('revoke-form').addEventListener('submit', (event) => this.onSubmit(event));
  }

  show(resource) {
    const other = resource !== this.resource;
    this.resource = resource;
    if (!other) return;
    this.data = null;
    $('notice').hidden = true;
    if (resource === null) return;
    $('resource-name').replaceChildren(name(resource));
    setText($('resource-now'), '');
    $('lane').replaceChildren();
    for (const id of ['waiters', 'refused', 'history', 'receipts']) update($(id), null, () => []);
    $('value-section').hidden = true;
    $('revoke').hidden = true;
    this.fetch(); // at once, whatever was asked before
  }

  async fetch() {
    const resource = this.resource;
    if (resource === null) return;
    try {
      const data = await ask('/api/resource', { name: resource });
      if (resource !== this.resource) return;
      this.data = { ...data, came: performance.now() };
      this.render();
    } catch (error) {
      if (resource === this.resource) {
        setText($('resource-now'), `The resource cannot be shown: ${error.message}`);
      }
    }
  }

  render() {
    const { data } = this;
    $('revoke').hidden = !(this.mayRevoke && data.lease);
    update($('waiters'), [data.waiters, data.waiters_total], waitersTable);
    update($('refused'), data.refusals, refusedTable);
    update($('history'), data.history, historyTable);
    update($('receipts'), [data.receipts, data.receipts_more], receiptsTable);
    $('value-section').hidden = data.value === undefined;
    update($('value'), data.value ?? null, valueShown);
    this.tick();
    this.draw();
  }

  /* Move on what only the passing of time changes. */
  tick() {
    if (!this.data) return;
    const { lease, newest } = this.data;
    if (!lease) {
      update($('resource-now'), ['free', newest], () => [
        newest === null ? 'Free, and never held as far as the daemon knows.'
          : `Free. Its newest token is ${newest}.`]);
      return;
    }
    const left = Math.max(0, lease.left_ms - (performance.now() - this.data.came));
    update($('resource-now'), [lease.token, lease.owner, lease.client, lease.address, lease.ttl_ms],
      () => ['Held by ', element('strong', {}, name(lease.owner)), ' (',
        sender(lease), lease.client && lease.address ? ' at ' : '',
        lease.client && lease.address ? name(lease.address) : '', `) with token ${lease.token}: `,
        element('span', { class: 'left-now' }), ` of ${duration(lease.ttl_ms)} left.`]);
    setText($('resource-now').querySelector('.left-now'), left > 0 ? duration(left) : 'nothing');
  }

  draw() {
    const width = Math.floor($('lane-box').clientWidth);
    if (this.data && width > 0) {
      drawLane($('lane'), this.data, this.serverNow(), $('lane-range').value, width);
    }
  }

  openDialog() {
    const { lease, resource } = this.data;
    this.revoked = { resource, token: lease.token };
    $('revoke-lease').replaceChildren(...Object.entries({
      Resource: name(resource), Holder: name(lease.owner), Client: sender(lease),
      Address: name(lease.address), Token: String(lease.token), Granted: time(lease.granted_ms),
    }).map(([key, value]) => element('div', {}, element('dt', {}, key),
      element('dd', {}, value))));
    $('revoke-confirm').textContent = `Revoke token ${lease.token}`;
    $('revoke-reason').value = '';
    $('revoke-error').textContent = '';
    $('revoke-dialog').showModal();
    $('revoke-reason').focus();
  }

  async onSubmit(event) {
    const { revoked } = this, reason = $('revoke-reason').value.trim();
    event.preventDefault();
    if (!reason) {
      $('revoke-error').textContent = 'Say why.';
      return;
    }
    $('revoke-confirm').disabled = true;
    try {
      await ask('/api/revoke', {}, { method: 'POST', body: JSON.stringify({ ...revoked, reason }),
        headers: { 'Content-Type': 'application/json' } });
      $('revoke-dialog').close();
      $('notice').hidden = false;
      setText($('notice'), `Token ${revoked.token} is revoked.`);
      $('resource-name').focus();
      this.load();
    } catch (error) {
      $('revoke-error').textContent = error.status === 409
        ? `Nothing was revoked: token ${revoked.token} no longer holds the lease.`
        : `Nothing was revoked, as far as is known: ${error.message}`;
    }
    $('revoke-confirm').disabled = false;
  }
}

function none(text) {
  return [element('p', { class: 'note' }, text)];
}

function waitersTable([waiters, total]) {
  if (waiters.length === 0) return none('Nobody waits.');
  const rows = waiters.map((waiter) => [String(waiter.place), [sender(waiter),
    element('span', { class: 'second' }, name(waiter.client ? waiter.address : ''))],
  name(waiter.owner), duration(waiter.waited_ms), waiter.way]);
  return [table('Who waits, the next one first', [{ title: 'Place', class: 'number' },
    { title: 'Client', class: 'who' }, { title: 'Owner', class: 'who' },
    { title: 'Waited', class: 'number' }, { title: 'Way' }], rows),
  ...(total > waiters.length ? none(`and ${count(total - waiters.length)} more`) : [])];
}

function refusedTable(refusals) {
  if (refusals.length === 0) return none('Nothing was refused.');
  return [table('Refused commands, newest first', [{ title: 'Time', class: 'time' },
    { title: 'Command' }, { title: 'Client', class: 'who' }, { title: 'Token', class: 'number' },
    { title: 'Late by', class: 'number late' }, { title: 'Overtaken by', class: 'who' }],
  refusals.map((refusal) => [time(refusal.time_ms, { exact: true }),
    [visible(refusal.command ?? '–'), element('span', { class: 'second' }, refusal.code)],
    sender(refusal), String(refusal.token),
    [lateBy(refusal), element('span', { class: 'second' }, refusal.ended ?? '')],
    overtakenBy(refusal)]))];
}

function historyTable(history) {
  if (history.length === 0) return none('The daemon remembers no grant.');
  return [table('Grants, newest first', [{ title: 'Token', class: 'number' },
    { title: 'Owner', class: 'who' }, { title: 'Client', class: 'who' },
    { title: 'Granted', class: 'time' }, { title: 'TTL', class: 'number' },
    { title: 'Ended', class: 'time' }, { title: 'Writes', class: 'number' },
    { title: 'Refused', class: 'number' }],
  history.map((hold) => [String(hold.token), name(hold.owner), sender(hold),
    time(hold.granted_ms, { exact: true }), duration(hold.ttl_ms),
    [hold.ended_ms === null ? element('strong', {}, 'held now')
      : time(hold.ended_ms, { exact: true }),
    element('span', { class: `second end ${hold.end ?? ''}` }, hold.end ?? ''),
    hold.reason ? element('span', { class: 'second' }, visible(hold.reason)) : ''],
    count(hold.writes ?? 0), count(hold.refused ?? 0)]))];
}

/* A string's text, or a hash's fields, of both the beginning where they are long. */
function valueShown(value) {
  if (value === null) return none('There is none.');
  if (value.type === 'string') {
    return [...none(counted(value.bytes, 'byte')), element('pre', {}, value.text)];
  }
  return [table('Fields', [{ title: 'Field' }, { title: 'Value' }],
    value.fields.map(([field, text]) => [name(field), element('pre', {}, text)])),
  ...(value.fields_total > value.fields.length
    ? none(`and ${count(value.fields_total - value.fields.length)} more`) : [])];
}

/* Replies are shown where values are. */
function receiptsTable([receipts, more]) {
  if (receipts.length === 0) {
    return none(more ? 'There are none among the newest; locks have left those.'
      : 'There are none.');
  }
  const replies = receipts[0].reply !== undefined;
  return [table('Requests with an ID that were applied, those of newer tokens first',
    [{ title: 'ID', class: 'who' }, { title: 'Token', class: 'number' },
      { title: 'Written', class: 'time' }, ...(replies ? [{ title: 'Reply' }] : [])],
    receipts.map((receipt) => [name(receipt.id), String(receipt.token),
      time(receipt.written_ms, { exact: true }),
      ...(replies ? [element('pre', {}, receipt.reply)] : [])])),
  ...(more ? none('and more') : [])];
}
