/* SPDX-License-Identifier: Apache-2.0 */
/* A resource's lane: for each holder (a client's connection) a row on one axis of time, its holds
 * as bars, its refused writes as crosses, each joined to the end of the hold whose token it used.
 * It says nothing that the tables below it do not. */
import { clock, counted, duration, svg, visible } from './text.js';

const ROW_PX = 42, BAR_PX = 16, LABEL_PX = 18, AXIS_PX = 26, SIDE_PX = 8;
const ROWS_MAX = 8;
const HOLDS_SHOWN = 12; // where the latest are asked for
const TICK_PX = 90;
const TICKS_MS = [10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3,
  600e3, 900e3, 1800e3, 3600e3, 7200e3, 14400e3, 43200e3, 86400e3];
const KINDS = { released: 'released', expired: 'expired', 'given back': 'released' };

/* Draws into `node`, which is `width` pixels wide. `range` is "auto" or milliseconds before now. */
export function drawLane(node, { history, refusals }, now, range, width) {
  const span = spanOf(history, refusals, now, range);
  const holds = history.filter((hold) => endOf(hold, now) >= span.from
    && hold.granted_ms <= span.to);
  const crosses = refusals.filter((refusal) => refusal.time_ms >= span.from
    && refusal.time_ms <= span.to);
  const rows = rowsOf(holds, crosses, history);
  const height = Math.max(1, rows.length) * ROW_PX + AXIS_PX;
  const x = (ms) => SIDE_PX + ((ms - span.from) / (span.to - span.from)) * (width - 2 * SIDE_PX);

  node.setAttribute('viewBox', `0 0 ${width} ${height}`);
  node.setAttribute('width', width);
  node.setAttribute('height', height);
  node.setAttribute('aria-label', `From ${clock(span.from)} to ${clock(span.to)}: `
    + `${counted(holds.length, 'hold')} by ${counted(rows.length, 'holder')}, `
    + `${counted(crosses.length, 'refused command')}. The tables below say the same.`);
  node.replaceChildren(
    ...axis(span, x, width, height),
    ...rows.flatMap((row, i) => [
      label(row.label, i),
      ...row.crosses.filter((refusal) => refusal.late_ms > 0).map((refusal) =>
        lateLine(refusal, i, x, span)),
      ...row.holds.map((hold) => bar(hold, i, x, now, span)),
      ...row.crosses.map((refusal) => cross(refusal, i, x, width)),
    ]));
}

function isHeld(hold) {
  return hold.end === null || hold.end === undefined;
}

function endOf(hold, now) {
  return hold.ended_ms ?? now;
}

function spanOf(history, refusals, now, range) {
  if (range !== 'auto') return { from: now - Number(range), to: now };
  const latest = history.slice(0, HOLDS_SHOWN);
  const from = Math.min(now, ...latest.map((hold) => hold.granted_ms));
  const events = [...latest.map((hold) => endOf(hold, now)),
    ...refusals.map((refusal) => refusal.time_ms)].filter((ms) => ms >= from);
  const last = Math.max(from, ...events);
  const length = Math.max(1000, last - from);
  // A lane whose last event is long past ends there, or it would be a dot at the left.
  const to = now - last < length / 2 ? now : last + length * 0.1;
  return { from: from - length * 0.03, to: Math.max(to, from + 1000) };
}

const keyOf = (who) => JSON.stringify([who.client, who.address]);

/* Holders in the order in which they came. Where there are more than there is room for, the latest
 * have a row each, so whoever holds it now has one; `others` is for the rest. */
function rowsOf(holds, crosses, history) {
  const holdOf = new Map(history.map((hold) => [hold.token, hold]));
  // The history is newest first, and may have several of one millisecond.
  const marks = [...[...holds].reverse().map((hold) => ({ at: hold.granted_ms, who: hold, hold })),
    ...crosses.map((refusal) => ({ at: refusal.time_ms,
      who: holdOf.get(refusal.token) ?? refusal, refusal }))].sort((a, b) => a.at - b.at);
  const latest = new Set([...holds.filter((hold) => isHeld(hold)).map(keyOf),
    ...marks.map((mark) => keyOf(mark.who)).reverse()]);
  const own = new Set([...latest].slice(0, latest.size > ROWS_MAX ? ROWS_MAX - 1 : ROWS_MAX));
  const rows = new Map();
  for (const { who, hold, refusal } of marks) {
    const place = own.has(keyOf(who)) ? keyOf(who) : 'others';
    const label = place === 'others' ? place : who.client || who.owner || who.address || 'unknown';
    if (!rows.has(place)) rows.set(place, { label, holds: [], crosses: [] });
    if (hold) rows.get(place).holds.push(hold);
    else rows.get(place).crosses.push(refusal);
  }
  return [...rows.values()];
}

function axis(span, x, width, height) {
  const steps = Math.max(1, Math.floor(width / TICK_PX));
  const length = span.to - span.from;
  const step = TICKS_MS.find((ms) => length / ms <= steps) ?? Math.ceil(length / steps);
  const day = new Date(span.from).setHours(0, 0, 0, 0);
  const marks = [];
  for (let at = day + Math.ceil((span.from - day) / step) * step; at <= span.to; at += step) {
    const place = x(at), near = place < 34 ? 'start' : place > width - 34 ? 'end' : 'middle';
    marks.push(
      svg('line', { class: 'grid', x1: place, x2: place, y1: 0, y2: height - AXIS_PX + 4 }),
      svg('text', { class: 'axis', x: place, y: height - 8, 'text-anchor': near },
        clock(at, { exact: step < 1000 })));
  }
  return marks;
}

function barTop(i) {
  return i * ROW_PX + LABEL_PX;
}

/* SVG has no bdi: marks that isolate a text's direction do the same. */
function label(text, i) {
  const short = text.length > 40 ? `${text.slice(0, 39)}…` : text;
  return svg('text', { class: 'label', x: SIDE_PX, y: i * ROW_PX + LABEL_PX - 5 },
    `\u2068${visible(short)}\u2069`);
}

function bar(hold, i, x, now, span) {
  const from = Math.max(span.from, hold.granted_ms), to = Math.min(span.to, endOf(hold, now));
  const left = x(from), wide = Math.max(2, x(to) - left);
  const kind = isHeld(hold) ? 'held' : KINDS[hold.end] ?? 'revoked';
  const token = String(hold.token);
  const group = svg('g', { class: `hold ${kind}` },
    svg('title', {}, `token ${token}, ${hold.end ?? 'held now'}, `
      + `${duration(endOf(hold, now) - hold.granted_ms)}, ${counted(hold.writes ?? 0, 'write')}`),
    svg('rect', { x: left, y: barTop(i), width: wide, height: BAR_PX, rx: 2 }));
  if (wide > token.length * 7 + 10) {
    group.append(svg('text', { x: left + 5, y: barTop(i) + BAR_PX - 4 }, token));
  }
  return group;
}

function lateLine(refusal, i, x, span) {
  const y = barTop(i) + BAR_PX / 2;
  return svg('line', { class: 'late-line', y1: y, y2: y, x2: x(refusal.time_ms),
    x1: x(Math.max(span.from, refusal.time_ms - refusal.late_ms)) });
}

function cross(refusal, i, x, width) {
  const at = x(refusal.time_ms), y = barTop(i) + BAR_PX / 2, r = 6;
  const words = refusal.late_ms === null || refusal.late_ms === undefined ? 'refused'
    : `${duration(refusal.late_ms, { exact: true })} late`;
  const before = at > width - 110;
  return svg('g', { class: 'refusal' },
    svg('title', {}, `${refusal.command} with token ${refusal.token} refused at `
      + `${clock(refusal.time_ms, { exact: true })}: ${words}`),
    svg('path', { d: `M${at - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}` }),
    svg('text', { x: before ? at - r - 4 : at + r + 4, y: y - 9,
      'text-anchor': before ? 'end' : 'start' }, words));
}
