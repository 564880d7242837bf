// SPDX-License-Identifier: Apache-2.0
// Debian's chromium, for tests in Python: reads orders as lines of JSON and answers each by one.
//
//   {"open": URL, "scheme": "light"|"dark", "width": N, "height": N}  a new page, alone with its
//                                                                    cookies and its storage
//   {"run": JS, "args": ...}  the text of an async function's body, with `page`, `args`, `axe`
//   {"close": true}           closes the page; the answer is what went wrong in it
//
// The answer is {"value": ...} or {"error": text}. It ends with its input.
'use strict';

const { createInterface } = require('node:readline');
const { chromium } = require('playwright-core');

const AXE = require.resolve('axe-core/axe.min.js');
const ANSWER_MS = Number(process.argv[2]);
const AsyncFunction = (async () => {}).constructor;

let browser;
let page;
let wrong;

async function open({ open: url, scheme, width, height }) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height } });
  const { origin } = new URL(url);
  context.setDefaultTimeout(ANSWER_MS);
  page = await context.newPage();
  wrong = { console: [], outside: [] };
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) wrong.console.push(message.text());
  });
  page.on('pageerror', (error) => wrong.console.push(error.stack));
  page.on('dialog', (dialog) => {
    wrong.console.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('request', (request) => {
    const to = new URL(request.url());
    if (to.origin !== origin && to.protocol !== 'data:') wrong.outside.push(request.url());
  });
  await page.goto(url);
}

// What axe-core calls serious or worse, in words. Its script gets by the page's policy through the
// debugger.
async function axe() {
  await page.evaluate(require('node:fs').readFileSync(AXE, 'utf8'));
  const { violations } = await page.evaluate('axe.run(document)');
  return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
      `${id} at ${target}: ${failureSummary}`));
}

async function obey(order) {
  if (order.open) return open(order);
  if (order.run) return new AsyncFunction('page', 'args', 'axe', order.run)(page, order.args, axe);
  await page.context().close();
  return wrong;
}

(async () => {
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'] }); // root has no sandbox
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = { value: await obey(JSON.parse(line)) ?? null };
    } catch (error) {
      answer = { error: error.stack };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  await browser.close();
})();
