// Numbers for people, elements, and the plots. Nothing here depends on the report.

// For tests, and for finding out why a plot is missing.
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  addEventListener(kind, (event) => {
    document.documentElement.dataset.error = `${kind}: ${event.message || event.reason || event.violatedDirective}`;
  });
}

const data = JSON.parse(document.getElementById("data").textContent);

function time(ns) {
  if (ns === 0) return "0";
  const units = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
  const sign = ns < 0 ? "-" : "";
  const size = Math.abs(ns);
  for (const [unit, length] of units) {
    const value = size / length;
    if (value >= 999.5 && unit !== "s") continue;
    if (unit === "ns") return sign + Math.round(value) + " ns";
    const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    const text = decimals ? value.toFixed(decimals) : Math.round(value).toLocaleString("en");
    return `${sign}${text} ${unit}`;
  }
}

const count = (n) => n.toLocaleString("en");
const percent = (part) => (100 * part).toFixed(part < 0.0995 ? 1 : 0) + " %";

// For axes: without insignificant digits.
function tick(ns) {
  return time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(/\. /, " ");
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

// The same as the anchors that findings name.
const anchor = (section, name) => `${section}-${String(name).replace(/[^A-Za-z0-9]/gu, "-")}`;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// `columns`: [head, function that returns a cell's content, "n" for numbers, "long" for text].
function table(columns, rows, options = {}) {
  const head = make("tr", {}, columns.map(([name, , kind]) =>
    make("th", { scope: "col", class: kind === "n" ? "n" : null }, name)));
  const body = rows.map((row, index) =>
    make("tr", { id: options.id ? options.id(row, index) : null },
      columns.map(([, cell, kind], at) => at === 0
        ? make("th", { scope: "row", class: kind }, cell(row, index))
        : make("td", { class: kind }, cell(row, index)))));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, body)));
}

// A table that is built when it is opened.
function later(summary, build) {
  const details = make("details", {}, make("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(build());
  });
  return details;
}

// Plots are redrawn when the colours or the width change. `draw` gets the element and its width.
const drawings = [];
let drawn = 0;

function plot(draw, attributes = {}) {
  const place = make("div", { class: "plot", ...attributes });
  drawings.push({ place, draw, width: 0, undo: null });
  return place;
}

function drawAll(force) {
  drawn = 0;
  for (const drawing of drawings) {
    const width = drawing.place.clientWidth;
    if (width > 0 && (force || width !== drawing.width)) {
      if (drawing.undo) drawing.undo();
      drawing.place.replaceChildren();
      drawing.width = width;
      drawing.undo = drawing.draw(drawing.place, width) || null;
    }
    if (drawing.place.querySelector("canvas, svg g")) drawn += 1;
  }
  document.documentElement.dataset.plots = `${drawn}/${drawings.length}`;
}

function redraw(place) {
  for (const drawing of drawings) {
    if (drawing.place !== place) continue;
    if (drawing.undo) drawing.undo();
    place.replaceChildren();
    drawing.undo = drawing.draw(place, place.clientWidth) || null;
  }
}

function axis(label, values, more = {}) {
  return {
    label, values, stroke: colour("--quiet"),
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20,
    grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 },
    ...more,
  };
}

// A logarithmic axis of time: lines at 1 to 9 of each power of ten, labels at the powers, and at 2 and 5
// where there are few of them.
const decades = (label, more) => axis(label, (u, splits) => {
  const few = splits.length <= 20;
  return splits.map((value) => {
    const digit = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    return digit === 1 || (few && (digit === 2 || digit === 5)) ? tick(value) : "";
  });
}, {
  splits: (u, index, low, high) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (let digit = 1; digit < 10; digit += 1) {
        const value = digit * 10 ** power;
        if (value >= low && value <= high && value >= 1) found.push(value);
      }
    }
    return found;
  },
  filter: (u, splits) => splits,
  ...more,
});

// Checkboxes that select which of the named items are shown.
function legend(names, colours, shown, changed) {
  return make("div", { class: "legend" }, names.map((name, index) => {
    const box = make("input", { type: "checkbox" });
    box.checked = shown[index];
    box.addEventListener("change", () => { shown[index] = box.checked; changed(); });
    return make("label", {}, box,
      make("span", { class: "swatch", style: `background: var(${colours[index]})` }), name);
  }));
}

// Areas on top of each other; `series`: [{name, colour, values}], bottom first.
function stacked(place, width, xs, series, axes, read) {
  const sums = [];
  let below = new Array(xs.length).fill(0);
  for (const one of series) {
    below = below.map((sum, at) => sum + one.values[at]);
    sums.push(below);
  }
  const step = uPlot.paths.stepped({ align: 1 });
  const options = {
    width, height: Math.max(220, Math.min(320, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
    axes,
    series: [{}, ...series.map((one) => ({
      label: one.name, paths: step, fill: colour(one.colour), stroke: colour(one.colour), width: 0.5,
      points: { show: false },
    }))],
    bands: series.slice(1).map((one, at) => ({ series: [at + 2, at + 1], fill: colour(one.colour) })),
    hooks: { setCursor: [(u) => read(u.cursor.idx)] },
  };
  const drawing = new uPlot(options, [xs, ...sums], place);
  return () => drawing.destroy();
}

// Lines over a logarithmic axis of time; `series`: [{colour, dash, points: [[x, y]]}].
function distributions(place, width, series, read) {
  const tables = series.map((one) => [one.points.map((p) => Math.max(p[0], 1)), one.points.map((p) => p[1])]);
  const joined = tables.length ? uPlot.join(tables) : [[1, 10], [null, null]];
  const xs = joined[0];
  const step = uPlot.paths.stepped({ align: 1 });
  const options = {
    width, height: Math.max(240, Math.min(360, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, distr: 3, range: (u, low, high) => [Math.max(low * 0.8, 0.5), Math.max(high, 2) * 1.2] },
      y: { range: [0, 1.02] },
    },
    axes: [
      decades("wall time of a call (logarithmic)", { size: 34 }),
      axis("part of the calls", (u, splits) => splits.map((v) => Math.round(v * 100) + " %"), { size: 60 }),
    ],
    series: [{}, ...(series.length ? series : [{ colour: "--c0" }]).map((one) => ({
      paths: step, stroke: colour(one.colour), width: 2, dash: one.dash, spanGaps: true, points: { show: false },
    }))],
    hooks: { setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] },
  };
  const drawing = new uPlot(options, joined, place);
  return () => drawing.destroy();
}

// Single calls as points over seconds. `range` is the range of the times, so that two plots can be compared.
function single(place, width, points, tint, range) {
  const options = {
    width, height: 240, legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { distr: 3, range: () => range } },
    axes: [axis("seconds since the first record", null, { size: 34 }), decades("time (logarithmic)", { size: 64 })],
    series: [{}, { paths: () => null, stroke: colour(tint), points: { show: true, size: 3, stroke: colour(tint), fill: colour(tint) } }],
  };
  const drawing = new uPlot(options, [points.map((p) => p[0]), points.map((p) => Math.max(p[1], 1))], place);
  return () => drawing.destroy();
}

// Single invocations as points, bins as a line with a band; both axes in their own units.
function costs(place, width, points, bins, name, read) {
  const at = (value) => Math.max(value, 1);
  const dots = [points.map((p) => p[0]), points.map((p) => at(p[1]))];
  const middle = bins.map((bin) => (bin[0] + bin[1]) / 2);
  const joined = uPlot.join([dots, [middle, bins.map((b) => at(b[2])), bins.map((b) => at(b[3])), bins.map((b) => at(b[4]))]]);
  const line = colour("--c1");
  const options = {
    width, height: 240, legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { distr: 3, range: (u, low, high) => {
      // At least one decade, so that noise does not look like much.
      const wide = Math.max(high / low, 10);
      const centre = Math.sqrt(low * high);
      return [centre / Math.sqrt(wide) * 0.8, centre * Math.sqrt(wide) * 1.25];
    } } },
    axes: [
      axis("invocation", (u, splits) => splits.map((v) => Number.isInteger(v) ? count(v) : ""), { size: 34 }),
      decades(`${name} (logarithmic)`, { size: 64 }),
    ],
    series: [{},
      { paths: () => null, stroke: colour("--c0"), points: { show: true, size: 3, stroke: colour("--c0"), fill: colour("--c0") } },
      { stroke: line, width: 0.5, spanGaps: true, points: { show: false } },
      { stroke: line, width: 2.5, spanGaps: true, points: { show: false } },
      { stroke: line, width: 0.5, spanGaps: true, points: { show: false } },
    ],
    bands: [{ series: [4, 2], fill: line + "33" }],
    hooks: { setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] },
  };
  const drawing = new uPlot(options, joined, place);
  return () => drawing.destroy();
}
