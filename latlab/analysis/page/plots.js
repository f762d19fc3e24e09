// Plots of latencies. Nothing here depends on the report.

// A latency in its unit. `unit` is "ns", or "unstated": then the number is shown as in the file.
const inUnit = (value, unit) => unit === "ns" ? time(value) : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 9 });

// Like `decades`, for latencies of unknown unit, and for counts.
const powers = (label, show, more) => axis(label, (u, splits) => {
  const few = splits.length <= 20;
  return splits.map((value) => {
    const digit = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    return digit === 1 || (few && (digit === 2 || digit === 5)) ? show(value) : "";
  });
}, {
  splits: (u, index, low, high) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (let digit = 1; digit < 10; digit += 1) {
        const value = digit * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    return found;
  },
  filter: (u, splits) => splits,
  ...more,
});

// Distributions as steps over a logarithmic axis. `series`: [{colour, points: [[x, part]]}].
function steps(place, width, series, label, of, show, read) {
  const least = Math.min(...series.flatMap((one) => one.points.map((p) => p[0]).filter((x) => x > 0)), Infinity);
  const at = (x) => x > 0 ? x : (least === Infinity ? 1 : least / 2);
  const tables = series.map((one) => [one.points.map((p) => at(p[0])), one.points.map((p) => p[1])]);
  const joined = tables.length ? uPlot.join(tables) : [[1, 10], [null, null]];
  const options = {
    width, height: Math.max(240, Math.min(380, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, distr: 3, range: (u, low, high) => [low * 0.8, Math.max(high, low * 2) * 1.2] },
      y: { range: [0, 1.02] },
    },
    axes: [
      powers(label, show, { size: 34 }),
      axis(of, (u, splits) => splits.map((v) => Math.round(v * 100) + " %"), { size: 56 }),
    ],
    series: [{}, ...(series.length ? series : [{ colour: "--c0" }]).map((one) => ({
      paths: uPlot.paths.stepped({ align: 1 }), stroke: colour(one.colour), width: 2, spanGaps: true, points: { show: false },
    }))],
    hooks: { setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] },
  };
  const drawing = new uPlot(options, joined, place);
  return () => drawing.destroy();
}

// The tails of distributions: the part of the requests that took longer, down to single requests, over a logarithmic
// axis. `series` as for `steps`.
function tails(place, width, series, label, show, read) {
  const left = series.map((one) => {
    const points = one.points.map(([x, part]) => [x, Math.max(0, 1 - part)]);
    // No request is slower than the slowest: the line ends there.
    points[points.length - 1][1] = points.length > 1 ? points[points.length - 2][1] : 1;
    const kept = points.filter(([x]) => x > 0);
    return { colour: one.colour, table: [kept.map((p) => p[0]), kept.map((p) => p[1])] };
  }).filter((one) => one.table[0].length);
  const joined = left.length ? uPlot.join(left.map((one) => one.table)) : [[1, 10], [null, null]];
  const options = {
    width, height: Math.max(240, Math.min(380, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, distr: 3, range: (u, low, high) => [low * 0.8, Math.max(high, low * 2) * 1.2] },
      y: { distr: 3, range: (u, low, high) => [Math.min(low, 0.1) / 1.5, 1.3] },
    },
    axes: [
      powers(label, show, { size: 34 }),
      powers("part of the requests that took longer (logarithmic)", (part) => Number((100 * part).toPrecision(3)) + " %", { size: 84 }),
    ],
    series: [{}, ...(left.length ? left : [{ colour: "--c0" }]).map((one) => ({
      paths: uPlot.paths.stepped({ align: 1 }), stroke: colour(one.colour), width: 2, spanGaps: true, points: { show: false },
    }))],
    hooks: { setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] },
  };
  const drawing = new uPlot(options, joined, place);
  return () => drawing.destroy();
}

// Lines over the time of a run, with a label where each of `marks` ([x, text]) begins.
function overTime(place, width, xs, series, marks, axes, read) {
  const options = {
    width, height: Math.max(240, Math.min(360, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false },
      y: { distr: 3, range: (u, low, high) => [Math.max(low, Number.MIN_VALUE) * 0.7, Math.max(high, low * 2) * 1.4] },
    },
    axes,
    series: [{}, ...series.map((one) => ({
      stroke: colour(one.colour), width: 1.5, points: { show: xs.length < 40, size: 5, stroke: colour(one.colour), fill: colour(one.colour) },
    }))],
    hooks: {
      setCursor: [(u) => read(u.cursor.idx)],
      draw: [(u) => {
        const context = u.ctx;
        const { left, top, width: across, height } = u.bbox;
        context.save();
        context.strokeStyle = context.fillStyle = colour("--quiet");
        context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
        context.textAlign = "left";
        context.textBaseline = "top";
        for (const [x, text] of marks) {
          // The first mark is left of the middle of the first interval.
          const at = Math.max(left, u.valToPos(x, "x", true));
          if (at > left + across) continue;
          context.setLineDash([4, 4]);
          context.beginPath();
          context.moveTo(at, top);
          context.lineTo(at, top + height);
          context.stroke();
          context.fillText(text, at + 4, top + 2);
        }
        context.restore();
      }],
    },
  };
  const drawing = new uPlot(options, [xs, ...series.map((one) => one.values)], place);
  return () => drawing.destroy();
}

// Lines over the varied parameter. `series`: [{colour, dash, values}], with one value for each x.
function lines(place, width, xs, series, axes, logarithmic, read) {
  const options = {
    width, height: Math.max(240, Math.min(360, width * 0.5)),
    legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, range: (u, low, high) => { const room = (high - low) * 0.03 || Math.abs(high) * 0.1 || 1; return [low - room, high + room]; } },
      y: logarithmic
        ? { distr: 3, range: (u, low, high) => [Math.max(low, Number.MIN_VALUE) * 0.7, Math.max(high, low * 2) * 1.4] }
        : { range: (u, low, high) => [Math.min(0, low), Math.max(high * 1.08, 0.1)] },
    },
    axes,
    series: [{}, ...series.map((one) => ({
      stroke: colour(one.colour), width: 2, dash: one.dash, spanGaps: true,
      points: { show: true, size: 7, stroke: colour(one.colour), fill: colour(one.colour) },
    }))],
    hooks: { setCursor: [(u) => read(u.cursor.idx)] },
  };
  const drawing = new uPlot(options, [xs, ...series.map((one) => one.values)], place);
  return () => drawing.destroy();
}

// Bars beside each other. `bars`: [{name, part}].
function columns(place, width, bars, label, read) {
  const options = {
    width, height: 240, legend: { show: false }, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: [-0.7, bars.length - 0.3] }, y: { range: (u, low, high) => [0, Math.max(high * 1.08, 0.01)] } },
    axes: [
      axis(label, (u, splits) => splits.map((v) => Number.isInteger(v) && bars[v] ? bars[v].name : ""), { size: 34 }),
      axis("part of the time", (u, splits) => splits.map((v) => percent(v)), { size: 64 }),
    ],
    series: [{}, {
      paths: uPlot.paths.bars({ size: [0.8, 100] }), fill: colour("--c0"), stroke: colour("--c0"), width: 0, points: { show: false },
    }],
    hooks: { setCursor: [(u) => read(u.cursor.idx)] },
  };
  const drawing = new uPlot(options, [bars.map((bar, at) => at), bars.map((bar) => bar.part)], place);
  return () => drawing.destroy();
}
