// SPDX-License-Identifier: Apache-2.0
// Draws a report from its data. The drawing is text (SVG), so that picture.js can make a file of
// it; what needs a browser is at the end.
"use strict";

// The kinds of events (trace.h).
const LOCKED = 1, READ = 2, PAUSED = 3, WOKEN = 4, STALE = 5, WRITTEN = 6, REFUSED = 7, SOLD = 8,
      LOST = 9, UNLOCKED = 10;

const LANE = 12, BAR = 8, LEFT = 36, RIGHT = 10, TOP = 6, STOCK = 96, AXIS = 20;

// Sales: what one buyer did from its lock (or its read, where it takes none) to its end.
function salesOf(way) {
  const sales = [], open = new Map(), grants = [];
  for (const [at, who, kind, sku, value] of way.events) {
    let sale = open.get(who);
    if (!sale || (sale.done && (kind === LOCKED || kind === READ))) {
      sale = {who, from: at, to: at, locks: [], pauses: [], writes: [], reads: [], lost: 0};
      sales.push(sale);
      open.set(who, sale);
    }
    sale.to = at;
    if (kind === LOCKED) {
      const grant = {at, who, sku, token: value};
      sale.locks.push(grant);
      grants.push(grant);
    } else if (kind === READ) {
      sale.reads.push(value);
    } else if (kind === PAUSED) {
      sale.pauses.push([at, at]);
    } else if (kind === WOKEN && sale.pauses.length > 0) {
      sale.pauses[sale.pauses.length - 1][1] = at;
    } else if (kind === STALE) {
      sale.stale = true;
    } else if (kind === WRITTEN) {
      sale.writes.push({at, sku, left: value});
    } else if (kind === REFUSED) {
      sale.refused = at;
    } else if (kind === SOLD) {
      sale.sold = value;
    } else if (kind === LOST) {
      sale.lost++;
    }
    sale.done ||= kind === REFUSED || kind === SOLD || kind === UNLOCKED;
  }
  for (const sale of sales) {
    // Who had the lock next, where that came before the write.
    if (sale.stale || sale.refused !== undefined) {
      sale.next = grants.find(grant => grant.who !== sale.who && grant.at < sale.to &&
        sale.locks.some(own => own.sku === grant.sku && own.at < grant.at));
    }
    sale.marked = sale.pauses.length > 0 || sale.lost > 0;
  }
  return sales;
}

const seconds = us => `${(us / 1e6).toFixed(3)} s`;
const milliseconds = us => `${Math.round(us / 1000)} ms`;
const escaped = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

// One sale in sentences.
function storyOf(sale) {
  const said = [];
  const token = grant => grant.token > 0 ? ` (token ${grant.token})` : "";
  let begin = `Buyer ${sale.who + 1}`;
  if (sale.locks.length > 1) {
    begin += ` took ${sale.locks.length} locks from ${seconds(sale.from)} on`;
  } else if (sale.locks.length === 1) {
    begin += ` took the lock at ${seconds(sale.from)}${token(sale.locks[0])}`;
  } else {
    begin += ` came at ${seconds(sale.from)}`;
  }
  said.push(begin + (sale.reads.length > 0 ? ` and read ${sale.reads.join(", ")}.` : "."));
  for (const [from, to] of sale.pauses) {
    said.push(`It was stopped at ${seconds(from)} for ${milliseconds(to - from)}.`);
  }
  if (sale.next) {
    said.push(`Buyer ${sale.next.who + 1} was given the lock at ${seconds(sale.next.at)}` +
              `${token(sale.next)}.`);
  }
  if (sale.lost > 0) {
    said.push("The reply to its write was lost, and it sent the write again.");
  }
  const late = at => sale.next ? ` ${milliseconds(at - sale.next.at)} too late` : " too late";
  const wrote = sale.writes.map(write => write.left).join(", ");
  if (sale.refused !== undefined) {
    said.push(`Its write came${late(sale.refused)} and was refused: nothing changed.`);
  } else if (sale.sold === undefined) {
    said.push("It sold nothing.");
  } else if (sale.stale) {
    said.push(`Its write came${late(sale.writes[0]?.at ?? sale.to)} and got through: the stock` +
              ` was set to ${wrote}.`);
  } else {
    said.push(`It wrote ${wrote} at ${seconds(sale.writes[0]?.at ?? sale.to)}.`);
  }
  return said.join(" ");
}

// The stock as it was written, for each article: [[microseconds, pieces], ...]. In a replay, only
// of articles over which a worker was stopped.
function stocksOf(data, way) {
  const stocks = new Map();
  if (data.demo === "replay") {
    way.events.filter(event => event[2] === PAUSED).slice(0, 12)
      .forEach(event => stocks.set(event[3], []));
  } else {
    for (let sku = 0; sku < data.skus; sku++) {
      stocks.set(sku, [[0, data.stock]]);
    }
  }
  for (const [at, , kind, sku, value] of way.events) {
    if (kind === WRITTEN || (kind === READ && stocks.get(sku)?.length === 0)) {
      stocks.get(sku)?.push([at, value]);
    }
  }
  return [...stocks.values()].filter(line => line.length > 0);
}

// The opening stock less what buyers were promised: the stock as it ought to be. Of one article.
function promisedOf(data, way) {
  const line = [[0, data.stock]];
  let left = data.stock;
  for (const [at, , kind, , value] of way.events) {
    if (kind === SOLD) {
      line.push([at, left -= value]);
    }
  }
  return line;
}

function geometry(data, way, width) {
  const end = Math.max(1000, ...way.events.slice(-1).map(event => event[0]));
  const scale = (width - LEFT - RIGHT) / end;
  return {width, end, scale, x: us => Math.round((LEFT + us * scale) * 10) / 10,
          lane: who => TOP + who * LANE, stock: TOP + data.buyers * LANE + 14,
          height: TOP + data.buyers * LANE + 14 + STOCK + AXIS};
}

function axis(at) {
  const step = [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 3e7, 6e7, 6e8]
    .find(step => step * at.scale >= 60) ?? 6e8;
  let marks = "";
  for (let us = 0; us <= at.end; us += step) {
    marks += `<path class="grid" d="M${at.x(us)} ${TOP}V${at.height - AXIS}"/>` +
             `<text x="${at.x(us)}" y="${at.height - 6}" text-anchor="middle">` +
             `${+(us / 1e6).toFixed(2)} s</text>`;
  }
  return marks;
}

// A step line, and above it in red what is below zero.
function steps(at, line, y, kind) {
  let all = "", below = "";
  line.forEach(([us, value], i) => {
    const to = at.x(i + 1 < line.length ? line[i + 1][0] : at.end);
    all += `${i === 0 ? `M${at.x(us)} ${y(value)}` : `V${y(value)}`}H${to}`;
    if (value < 0) {
      below += `M${at.x(us)} ${y(value)}H${to}`;
    }
  });
  return `<path class="${kind}" d="${all}"/>` +
         (below ? `<path class="below" d="${below}"/>` : "");
}

function stockPanel(data, way, at) {
  const stocks = stocksOf(data, way);
  const promised = data.skus === 1 ? promisedOf(data, way) : [];
  const values = [...stocks.flat(), ...promised].map(point => point[1]);
  const top = values.reduce((a, b) => Math.max(a, b), data.stock);
  const bottom = values.reduce((a, b) => Math.min(a, b), 0);
  const y = value =>
    Math.round((at.stock + (top - value) * STOCK / (top - bottom || 1)) * 10) / 10;
  return `<path class="zero" d="M${LEFT} ${y(0)}H${at.width - RIGHT}"/>` +
    `<text x="${LEFT - 4}" y="${y(0) + 4}" text-anchor="end">0</text>` +
    `<text x="${LEFT - 4}" y="${at.stock + 4}" text-anchor="end">${top}</text>` +
    (bottom < 0 ? `<text x="${LEFT - 4}" y="${at.stock + STOCK + 4}" text-anchor="end">${bottom}` +
                  "</text>" : "") +
    stocks.map(line => steps(at, line, y, "written")).join("") +
    (promised.length > 0 ? steps(at, promised, y, "promised") : "");
}

// A way as SVG. `n`: for names that must be unique in the page.
function draw(data, way, sales, width, n) {
  const at = geometry(data, way, width);
  const shapes = {busy: "", hold: "", lost: "", pause: "", write: "", through: "", refused: ""};
  const bar = (kind, who, from, to) => {
    const w = Math.max(0.8, Math.round((to - from) * at.scale * 10) / 10);
    shapes[kind] += `M${at.x(from)} ${at.lane(who) + 2}h${w}v${BAR}h${-w}z`;
  };
  let lanes = "", marked = "";
  for (let who = 0; who < data.buyers; who++) {
    lanes += `<rect class="lane" x="${LEFT}" y="${at.lane(who) + 1}" ` +
             `width="${width - LEFT - RIGHT}" height="${LANE - 2}"/>` +
             `<text x="${LEFT - 4}" y="${at.lane(who) + 10}" text-anchor="end">${who + 1}</text>`;
  }
  sales.forEach((sale, i) => {
    const y = at.lane(sale.who);
    const lost = sale.next?.at ?? sale.to;
    bar(sale.locks.length > 0 ? "hold" : "busy", sale.who, sale.from, lost);
    if (lost < sale.to) {
      bar("lost", sale.who, lost, sale.to);
    }
    sale.pauses.forEach(([from, to]) => bar("pause", sale.who, from, to));
    if (sale.refused !== undefined) {
      shapes.refused += `M${at.x(sale.refused) - 3} ${y + 3}l6 6m0 -6l-6 6`;
    } else if (sale.sold !== undefined) {
      shapes[sale.stale ? "through" : "write"] +=
        `M${at.x(sale.writes[0]?.at ?? sale.to)} ${y + 1}v${LANE - 2}`;
    }
    if (sale.marked) {
      marked += `<g class="sale" tabindex="0" role="img" data-sale="${i}" ` +
        `aria-label="${escaped(storyOf(sale))}"><rect x="${at.x(sale.from) - 2}" y="${y}" ` +
        `width="${Math.max(4, (sale.to - sale.from) * at.scale + 4).toFixed(1)}" ` +
        `height="${LANE}"/></g>`;
    }
  });
  const drawn = Object.entries(shapes).filter(([, d]) => d !== "").map(([kind, d]) =>
    `<path class="${kind}" d="${d}"${kind === "pause" ? ` fill="url(#hatch${n})"` : ""}/>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${at.height}" ` +
    `width="${width}" height="${at.height}" role="group" ` +
    `aria-label="${escaped(way.title)}: a lane for each buyer, the stock beneath">` +
    `<defs><pattern id="hatch${n}" width="5" height="5" patternUnits="userSpaceOnUse" ` +
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern></defs>' +
    lanes + axis(at) + drawn.join("") + stockPanel(data, way, at) + marked + "</svg>";
}

// What is said about a way.
function verdictOf(data, way) {
  const figure = name => {
    if (!Number.isInteger(way[name])) {
      throw new Error(`the data of "${way.title}" have no number "${name}"`);
    }
    return way[name];
  };
  const dropped = figure("dropped");
  if (data.demo === "replay") {
    return `${figure("lines")} lines: ${figure("sales")} sales, ${figure("returns")} returns.` +
      ` ${figure("refused")} writes were stale; all were refused, and done again.` +
      `${way.right ? " The books balance." : ""}` +
      (dropped > 0 ? ` ${dropped} events more are not shown.` : "");
  }
  const stale = figure("stale"), refused = figure("refused");
  const said = [`${figure("pieces")} pieces sold of ${data.stock * data.skus}.`];
  if (figure("oversold") > 0) {
    said.push(`${figure("oversold")} were sold that were not there.`);
  }
  if (figure("twice") > 0) {
    said.push(`${figure("twice")} left the stock and were sold to nobody.`);
  }
  if (way.right) {
    said.push("The books balance.");
  }
  said.push(stale === 0 ? "No write was stale." :
    `${stale} writes were stale: ${refused} refused, ${stale - refused} got through.`);
  if (dropped > 0) {
    said.push(`${dropped} events more are not shown.`);
  }
  return said.join(" ");
}

// In the browser.

const MARKS = [["hold", "holds the lock"], ["lost", "no longer holds it"],
               ["busy", "at work without one"], ["pause", "stopped"], ["write", "write"],
               ["through", "stale write that got through"], ["refused", "stale write, refused"]];

function legend(data) {
  const marks = MARKS.map(([kind, text], i) => {
    const shape = {write: "M8 1v10", through: "M8 1v10", refused: "M5 3l6 6m0 -6l-6 6"}[kind] ??
      "M1 2h14v8h-14z";
    const fill = kind === "pause" ? ` fill="url(#hatch-legend)"` : "";
    const hatch = i > 0 ? "" : '<defs><pattern id="hatch-legend" width="5" height="5" ' +
      'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
      '<path class="hatch" d="M0 0V5"/></pattern></defs>';
    return `<span><svg width="16" height="12" aria-hidden="true">${hatch}<path class="${kind}" ` +
           `d="${shape}"${fill}/></svg> ${text}</span>`;
  });
  let stock = "Beneath: the stock of each article, red below zero.";
  if (data.demo === "replay") {
    stock = "Beneath: the stock of the first articles over which a worker was stopped.";
  } else if (data.skus === 1) {
    stock = "Beneath: the stock as it was written (thin), and the opening stock less what buyers" +
      " were promised (thick), red below zero.";
  }
  return `<p class="legend">${marks.join(" ")}</p><p>${stock} Point at a sale to read its story;` +
    " with the keyboard, Tab goes through those that were stopped, and the arrow keys through all" +
    " of a way.</p>";
}

// What the terminal says under its table: why each way is right or not.
function meaning(data) {
  const paragraphs = (data.meaning ?? "").trim().split("\n\n").filter(text => text !== "");
  return paragraphs.map(text => `<p>${escaped(text.replaceAll("\n", " "))}</p>`).join("");
}

function show(data) {
  const main = document.getElementById("report"), story = document.getElementById("story");
  const pieces = data.skus === 1 ? `${data.stock} pieces of one article`
    : `${data.skus} articles, ${data.stock} pieces of each`;
  const all = data.ways.map(salesOf);
  let zoom = 1, at = {way: 0, sale: -1};

  const opening = data.demo === "replay"
    ? `<h1>Order history, replayed</h1><p>${data.skus} articles, ${data.buyers} workers, each a` +
      " process. A worker reads the stock and writes it."
    : `<h1>Who oversells when buyers are paused?</h1><p>${pieces}, ${data.buyers} buyers, each a` +
      ` process. A buyer reads the stock, works for ${data.work_ms} ms and writes.`;

  main.innerHTML = `${opening} Some are stopped for ${data.pause_ms} ms in between; locks and` +
    ` leases last ${data.ttl_ms} ms.</p>${meaning(data)}${legend(data)}` +
    '<p class="zoom"><label>Zoom <input type="range" min="1" max="20" value="1"></label></p>' +
    data.ways.map((way, n) => `<section data-way="${n}"><h2>${escaped(way.title)}</h2>` +
      `<p class="${way.right ? "good" : "bad"}">${escaped(verdictOf(data, way))}</p>` +
      '<div class="scroll"></div></section>').join("");
  const sections = [...main.querySelectorAll("section")];

  function redraw() {
    sections.forEach((section, n) => {
      const box = section.querySelector(".scroll");
      const width = Math.max(560, box.clientWidth) * zoom;
      box.innerHTML = draw(data, data.ways[n], all[n], Math.floor(width), n);
    });
  }

  function tell(way, sale) {
    at = {way, sale};
    story.textContent = `${data.ways[way].title}: ${storyOf(all[way][sale])}`;
    story.hidden = false;
  }

  // The sale of a lane that is nearest to a time.
  function nearest(way, who, us) {
    let best = -1, least = Infinity;
    all[way].forEach((sale, i) => {
      const off = sale.who !== who ? Infinity : Math.max(sale.from - us, us - sale.to, 0);
      if (off < least) {
        [best, least] = [i, off];
      }
    });
    return best;
  }

  sections.forEach((section, n) => {
    section.addEventListener("pointermove", event => {
      const svg = event.target.closest(".scroll svg");
      if (!svg) {
        return;
      }
      const box = svg.getBoundingClientRect(), shape = svg.viewBox.baseVal;
      const x = (event.clientX - box.left) * shape.width / box.width;
      const y = (event.clientY - box.top) * shape.height / box.height;
      const who = Math.floor((y - TOP) / LANE);
      const sale = nearest(n, who, (x - LEFT) / geometry(data, data.ways[n], shape.width).scale);
      if (sale >= 0) {
        tell(n, sale);
      }
    });
    section.addEventListener("focusin", event => {
      const group = event.target.closest(".sale");
      if (group) {
        tell(n, Number(group.dataset.sale));
      }
    });
    section.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (step && at.way === n && event.target.closest(".sale") && all[n][at.sale + step]) {
        tell(n, at.sale + step);
        event.preventDefault();
      } else if (event.key === "Escape") {
        story.hidden = true;
      }
    });
  });
  main.querySelector("input").addEventListener("input", event => {
    zoom = Number(event.target.value);
    redraw();
  });
  let width = 0;
  addEventListener("resize", () => {
    if (main.clientWidth !== width) {
      width = main.clientWidth;
      redraw();
    }
  });
  redraw();
}

if (typeof document !== "undefined") {
  show(JSON.parse(document.getElementById("data").textContent));
}
