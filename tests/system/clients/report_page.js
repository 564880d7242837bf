// SPDX-License-Identifier: Apache-2.0
// What a browser shows of a report: node report_page.js FILE.html
'use strict';

const { chromium } = require('playwright-core');
const { pathToFileURL } = require('url');

const story = (page) => page.locator('#story').textContent();

async function look(browser, url) {
  const seen = { errors: [], requests: [] };
  const page = await browser.newPage({ viewport: { width: 375, height: 800 } });
  page.on('console', (message) => seen.errors.push(message.text()));
  page.on('pageerror', (error) => seen.errors.push(String(error)));
  page.on('request', (request) => seen.requests.push(request.url()));
  await page.goto(url);
  const width = () => page.evaluate(() => document.documentElement.scrollWidth);

  seen.phone = await width();
  await page.setViewportSize({ width: 1200, height: 900 });
  seen.stories = await page.$$eval('section', (sections) => Object.fromEntries(sections.map(
    (section) => [section.querySelector('h2').textContent,
      [...section.querySelectorAll('.sale')].map((sale) => sale.getAttribute('aria-label'))])));
  await page.keyboard.press('Tab'); // the zoom
  await page.keyboard.press('ArrowRight');
  seen.zoomed = await page.$eval('.scroll svg', (svg) => svg.clientWidth);
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Tab');
  while (!await page.evaluate(() => document.activeElement.matches('.sale'))) {
    await page.keyboard.press('Tab'); // a part that scrolls may be a stop
  }
  seen.focused = await story(page);
  await page.keyboard.press('ArrowRight');
  seen.next = await story(page);
  await page.keyboard.press('Escape');
  seen.hidden = await page.locator('#story').isHidden();
  await page.locator('section').last().locator('.sale').last().hover();
  seen.hovered = await story(page);
  await page.emulateMedia({ media: 'print' });
  await page.setViewportSize({ width: 700, height: 900 });
  seen.paper = await width();
  seen.drawn = await page.$$eval('.scroll svg',
    (drawings) => Math.max(...drawings.map((svg) => svg.getBoundingClientRect().right)));
  return seen;
}

async function main() {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium', args: ['--no-sandbox'],
  });
  try {
    process.stdout.write(JSON.stringify(
      await look(browser, pathToFileURL(process.argv[2]).href)));
  } finally {
    await browser.close();
  }
}

main();
