// SPDX-License-Identifier: Apache-2.0
// All that a report says and draws, without a browser: {opening, ways: [{verdict, stories,
// drawing}]}.
"use strict";

const fs = require("fs");
const vm = require("vm");

const page = fs.readFileSync(process.argv[2], "utf8");
const between = (begin, end) => page.split(begin)[1].split(end)[0];
const main = {innerHTML: "", querySelectorAll: () => [],
              querySelector: () => ({addEventListener() {}})};
const data = {textContent: between('id="data">\n', "</script>")};
const scope = vm.createContext({
  addEventListener() {},
  document: {getElementById: id => ({report: main, data})[id] ?? {}},
});
vm.runInContext(between("<script>\n", "</script>"), scope);
scope.data = JSON.parse(data.textContent);
const ways = vm.runInContext(`data.ways.map((way, n) => {
  const sales = salesOf(way);
  return {verdict: verdictOf(data, way), stories: sales.map(storyOf),
          drawing: draw(data, way, sales, 800, n)};
})`, scope);
console.log(JSON.stringify({opening: main.innerHTML, ways}));
