// SPDX-License-Identifier: Apache-2.0
// Makes a picture (SVG) of some ways of a report:
//     node tools/report/picture.js REPORT.html 'Redis lock' Stockade >picture.svg
"use strict";

const fs = require("fs");
const vm = require("vm");

const [file, ...titles] = process.argv.slice(2);
const page = fs.readFileSync(file, "utf8");
const between = (begin, end) => page.split(begin)[1].split(end)[0];
const data = JSON.parse(between('id="data">\n', "</script>"));
const scope = vm.createContext({data, titles});
vm.runInContext(between("<script>\n", "</script>"), scope);

const WIDTH = 880, TITLE = 42;
let top = 0, parts = "";
for (const title of titles) {
  const way = data.ways.find(way => way.title === title);
  if (!way) {
    console.error(`picture.js: ${file} has no "${title}"`);
    process.exit(1);
  }
  scope.way = way;
  const svg = vm.runInContext(`draw(data, way, salesOf(way), ${WIDTH}, ${top})`, scope)
    .replace(/<g class="sale".*?<\/g>/g, "");
  const verdict = vm.runInContext("verdictOf(data, way)", scope);
  const escaped = text => text.replace(/[&<]/g, c => `&#${c.charCodeAt(0)};`);
  parts += `<text class="title" x="36" y="${top + 17}">${escaped(title)}</text>` +
           `<text class="verdict" x="36" y="${top + 35}">${escaped(verdict)}</text>` +
           svg.replace("<svg ", `<svg y="${top + TITLE}" `);
  top += TITLE + Number(/height="(\d+)"/.exec(svg)[1]) + 6;
}
const style = between("<style>\n", "</style>").replace(/body \{[^}]*\}/, "");
process.stdout.write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${top}" ` +
  `width="${WIDTH}" height="${top}" role="img"><title>${titles.join(" and ")}</title>` +
  `<style>${style}</style><rect width="100%" height="100%" style="fill:var(--paper)"/>` +
  `${parts}</svg>\n`);
