// SPDX-License-Identifier: MIT OR Apache-2.0
// Plots. Nothing here depends on the report.

// Plots are redrawn when the colours or the width change. `draw` gets the element and its width.
const drawings = [];
let drawn = 0;

function plot(draw, attributes = {}) {
  const place = make("div", { class: "plot", ...attributes });
  drawings.push({ place, draw, width: 0, undo: null });
  return place;
}

function drawAll(force) {
  for (const drawing of drawings) {
    const width = drawing.place.clientWidth;
    if (width > 0 && (force || width !== drawing.width)) {
      if (drawing.undo) drawing.undo();
      drawing.undo = null;
      drawing.place.replaceChildren();
      drawing.width = width;
      drawing.undo = drawing.draw(drawing.place, width) || null;
    }
  }
  countDrawn();
}

// How many of the plots are drawn; those of folded sections are not.
function countDrawn() {
  drawn = drawings.filter((drawing) => drawing.place.querySelector("canvas, svg g, .empty")).length;
  document.documentElement.dataset.plots = `${drawn}/${drawings.length}`;
}

function redraw(place) {
  for (const drawing of drawings) {
    if (drawing.place !== place) continue;
    if (drawing.undo) drawing.undo();
    drawing.undo = null;
    place.replaceChildren();
    drawing.width = place.clientWidth;
    // A folded plot is drawn when it is shown.
    if (drawing.width > 0) drawing.undo = drawing.draw(place, drawing.width) || null;
  }
  countDrawn();
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
    box.addEventListener("change", () => { shown[index] = box.checked; changed(name, box.checked); });
    return make("label", {}, box,
      make("span", { class: "swatch", style: `background: var(${colours[index]})` }), name);
  }));
}

// Areas on top of each other; `series`: [{name, colour, values}], bottom first. `selection`: `range()` is the selected
// part of the x axis, `choose(from, to)` is called when a part is dragged over, `marks()` are places on the x axis that get
// a triangle, and `made` gets the drawing.
function stacked(place, width, xs, series, axes, read, selection = null) {
  const sums = [];
  let below = new Array(xs.length).fill(0);
  for (const one of series) {
    below = below.map((sum, at) => sum + one.values[at]);
    sums.push(below);
  }
  const step = uPlot.paths.stepped({ align: 1 });
  const options = {
    width, height: Math.max(220, Math.min(300, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false, setScale: !selection } },
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
    axes,
    series: [{}, ...series.map((one) => ({
      label: one.name, paths: step, fill: colour(one.colour), stroke: colour(one.colour), width: 0.5,
      points: { show: false },
    }))],
    bands: series.slice(1).map((one, at) => ({ series: [at + 2, at + 1], fill: colour(one.colour) })),
    hooks: { setCursor: [(u) => read(u.cursor.idx)], ...(selection ? selecting(selection) : {}) },
  };
  const drawing = new uPlot(options, [xs, ...sums], place);
  if (selection) selection.made(drawing);
  return () => drawing.destroy();
}

// Hooks of a plot in which a part of the x axis can be selected. What is not selected is dimmed.
function selecting({ range, choose, marks }) {
  return {
    setSelect: [(u) => {
      if (u.select.width < 3) return;
      const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      // The plot is drawn again, which must not happen inside of its own event.
      setTimeout(() => choose(from, to), 0);
    }],
    draw: [(u) => {
      const { left, top, width, height } = u.bbox;
      const size = 5 * devicePixelRatio;
      u.ctx.fillStyle = colour("--text");
      for (const mark of marks()) {
        const x = u.valToPos(mark, "x", true);
        if (x < left || x > left + width) continue;
        u.ctx.beginPath();
        u.ctx.moveTo(x - size, top - 2 * size);
        u.ctx.lineTo(x + size, top - 2 * size);
        u.ctx.lineTo(x, top - size / 2);
        u.ctx.fill();
      }
      const chosen = range();
      if (!chosen) return;
      const at = (value) => Math.max(left, Math.min(left + width, u.valToPos(value, "x", true)));
      const [from, to] = chosen.map(at);
      u.ctx.save();
      u.ctx.fillStyle = colour("--ground");
      u.ctx.globalAlpha = 0.72;
      u.ctx.fillRect(left, top, from - left, height);
      u.ctx.fillRect(to, top, left + width - to, height);
      u.ctx.globalAlpha = 1;
      u.ctx.strokeStyle = colour("--link");
      u.ctx.lineWidth = 2 * devicePixelRatio;
      u.ctx.strokeRect(from, top, to - from, height);
      u.ctx.restore();
    }],
  };
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
